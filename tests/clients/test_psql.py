"""psql and pgbench, as they come with PostgreSQL 15."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.clients

Run = Callable[..., str]


@pytest.fixture
def psql(run: Run, dsn: str) -> Callable[..., str]:
    return lambda *commands: run("psql", "-X", dsn, *(f"-c{each}" for each in commands))


@pytest.mark.parametrize("version", ["0.1", "0.2"])
def test_a_service_connection_prints_the_topology(run: Run, dsn: str, version: str) -> None:
    shown = run("psql", "-X", f"{dsn}?options=smart_connector%3D{version}", "-c", "SELECT 41 + 1")
    events = [line for line in shown.splitlines() if line.startswith("NOTICE:  {")]
    maps = [each.split('"map":"')[1].split('"')[0] for each in events]
    assert maps.count("replicaset") == 3 and maps.count("instance") == 3 and "bucket" in maps
    assert "42" in shown


def test_tables_are_listed(psql: Run, fresh: str) -> None:
    for command in (r"\d", r"\dt"):
        assert f" public | {fresh} | table | admin" in psql(command)
    assert "sharded by (id) in tier default" in psql(r"\dt+")


def test_a_table_is_described(psql: Run, fresh: str) -> None:
    psql(f"CREATE INDEX {fresh}_name ON {fresh} (name)")
    shown = psql(rf"\d {fresh}")
    assert f'Table "public.{fresh}"' in shown
    assert " id     | bigint  |           | not null | " in shown
    assert " price  | numeric |           |          | " in shown
    assert f'"{fresh}_pkey" PRIMARY KEY, btree (id)' in shown
    assert f'"{fresh}_name" btree (name)' in shown
    assert "Rules:\n    DISTRIBUTED BY (id) IN TIER default\n" in shown
    assert "Rules:\n    DISTRIBUTED GLOBALLY\n" in psql(r"\d _pico_tier")
    assert "Access method: memtx" in psql(rf"\d+ {fresh}")
    listed = psql(r"\di")
    assert f"{fresh}_name" in listed and f"{fresh}_pkey" in listed


def test_rights_on_a_table_are_listed(psql: Run, fresh: str) -> None:
    psql("CREATE USER reader WITH PASSWORD 'Passw0rd1'")
    psql(f"GRANT READ ON TABLE {fresh} TO reader")
    psql(f"GRANT WRITE ON TABLE {fresh} TO reader")
    assert "reader=rawdD/admin" in psql(rf"\dp {fresh}")
    psql("DROP USER reader")


def test_a_table_that_is_not_there_is_not_described(psql: Run) -> None:
    assert psql(r"\d nowhere") == 'Did not find any relation named "nowhere".\n'


def test_a_dropped_table_is_gone_from_the_list(psql: Run, fresh: str) -> None:
    assert fresh in psql(r"\dt")
    psql(f"DROP TABLE {fresh}")
    assert fresh not in psql(r"\dt")


def test_databases_users_and_schemas_are_listed(psql: Run) -> None:
    assert " cairn | admin | UTF8     | C       | C " in psql(r"\l")
    users = psql(r"\du")
    assert "admin" in users and "Superuser, Create role" in users
    assert " public | admin" in psql(r"\dn")
    assert "_pico_instance" in psql(r"\dS")


@pytest.mark.parametrize(
    "command", [r"\dp", r"\dv", r"\ds", r"\df", r"\dT", r"\db", r"\di+", r"\d+ _pico_tier", r"\z"]
)
def test_other_backslash_commands_answer(psql: Run, command: str) -> None:
    assert "ERROR" not in psql(command)


def test_what_is_not_in_our_catalogue_is_refused_by_name(psql: Run) -> None:
    shown = psql("SELECT * FROM pg_catalog.pg_foo", "SELECT 1")
    assert 'ERROR:  relation "pg_catalog.pg_foo" does not exist' in shown
    shown = psql("SELECT pg_frobnicate(oid) FROM pg_class")
    assert "ERROR:  function pg_frobnicate does not exist" in shown


def test_an_endless_catalogue_query_is_ended(psql: Run) -> None:
    four = ", ".join(f"pg_attribute a{n}" for n in range(5))
    assert "takes too long" in psql(f"SELECT count(*) FROM {four}")


def test_errors_show_their_place(psql: Run, fresh: str) -> None:
    shown = psql(f"SELECT id, nope FROM {fresh}")
    assert shown == (
        'ERROR:  column with name "nope" not found\n'
        f"LINE 1: SELECT id, nope FROM {fresh}\n"
        "                   ^\n"
    )
    assert "LINE 1: SELEC 1\n        ^\n" in psql("SELEC 1")


def test_variables_and_files(run: Run, dsn: str, fresh: str, tmp_path: Path) -> None:
    script = (
        "\\set who 'O''Brien'\n"
        f"INSERT INTO {fresh} VALUES (1, :'who', 2.50);\n"
        f"SELECT name AS found FROM {fresh} WHERE id = 1 \\gset\n"
        "\\echo :found\n"
        f"SELECT 'SELECT ' || id FROM {fresh} \\gexec\n"
    )
    assert run("psql", "-XqAt", dsn, text=script) == "O'Brien\n1\n"


def test_copy_into_a_table_on_every_instance(
    run: Run, dsn: str, fresh: str, tmp_path: Path
) -> None:
    (tmp_path / "in.csv").write_text("".join(f"{n},name {n},{n}.5\n" for n in range(300)))
    shown = run("psql", "-X", dsn, f"-c\\copy {fresh} FROM in.csv CSV", cwd=tmp_path)
    assert shown == "COPY 300\n"


def test_copy_in_and_out(run: Run, dsn: str, everywhere: str, tmp_path: Path) -> None:
    fresh = everywhere
    (tmp_path / "in.csv").write_text("".join(f"{n},name {n},{n}.5\n" for n in range(30)))
    shown = run("psql", "-X", dsn, f"-c\\copy {fresh} FROM in.csv CSV", cwd=tmp_path)
    assert shown == "COPY 30\n"
    run("psql", "-X", dsn, f"-c\\copy {fresh} TO out.txt", cwd=tmp_path)
    lines = (tmp_path / "out.txt").read_text().splitlines()
    assert len(lines) == 30 and "7\tname 7\t7.5" in lines
    query = f"\\copy (SELECT id FROM {fresh} WHERE id < 3 ORDER BY id) TO STDOUT CSV"
    assert run("psql", "-X", dsn, f"-c{query}") == "0\n1\n2\n"
    (tmp_path / "bad.csv").write_text("1000,x,1\noops,y,2\n")
    shown = run("psql", "-X", dsn, f"-c\\copy {fresh} FROM bad.csv CSV", cwd=tmp_path)
    assert "ERROR" in shown and "oops" in shown


def test_copy_out_with_a_header(run: Run, dsn: str) -> None:
    query = "\\copy (SELECT name FROM _pico_tier) TO STDOUT CSV HEADER"
    assert run("psql", "-X", dsn, f"-c{query}") == "name\ndefault\n"


def test_several_statements_in_one_text(psql: Run, fresh: str) -> None:
    shown = psql(f"INSERT INTO {fresh} VALUES (1, 'a', 1); SELECT name FROM {fresh}")
    assert "INSERT 0 1" in shown and " a" in shown


@pytest.mark.parametrize("mode", ["simple", "extended", "prepared"])
def test_pgbench_runs_in_every_mode(
    run: Run, dsn: str, fresh: str, mode: str, tmp_path: Path
) -> None:
    (tmp_path / "load.sql").write_text(
        "\\set id random(1, 1000000000)\n"
        f"INSERT INTO {fresh} VALUES (:id, 'x', 1.5) ON CONFLICT DO NOTHING;\n"
        f"SELECT name FROM {fresh} WHERE id = :id;\n"
    )
    command = ("pgbench", "-n", "-f", "load.sql", "-M", mode, "-c", "4", "-j", "1", "-t", "50")
    shown = run(*command, dsn, cwd=tmp_path)
    assert "number of transactions actually processed: 200/200" in shown
    assert "number of failed transactions: 0 (0.000%)" in shown


TABLES = Path(__file__).parents[2] / "examples/pgbench/tables.sql"
ALONE = "options=-c%20atomic_blocks%3Doff"  # every statement commits by itself


@pytest.fixture(scope="module")
def bench(run: Run, dsn: str) -> Run:
    """Tables of scale 1, filled by pgbench itself."""
    run("psql", "-X", "-q", dsn, "-f", str(TABLES))
    # A block over all replicasets, with COPY … (FREEZE on) in it.
    assert "done in" in run("pgbench", "-i", "-I", "gv", f"{dsn}?{ALONE}")
    return lambda *options: run("pgbench", *options)


def _count(run: Run, dsn: str, table: str) -> int:
    return int(run("psql", "-X", "-qAt", dsn, "-c", f"SELECT count(*) FROM {table}"))


def test_pgbench_fills_its_tables(run: Run, dsn: str, bench: Run) -> None:
    assert _count(run, dsn, "pgbench_accounts") == 100_000
    assert _count(run, dsn, "pgbench_tellers") == 10


@pytest.mark.parametrize("mode", ["simple", "extended", "prepared"])
def test_pgbench_selects_only(bench: Run, dsn: str, mode: str) -> None:
    shown = bench("-S", "-M", mode, "-c", "2", "-t", "50", dsn)
    assert "number of transactions actually processed: 100/100" in shown


@pytest.mark.parametrize("mode", ["simple", "extended", "prepared"])
def test_pgbench_simple_update_is_one_block_of_one_replicaset(
    run: Run, bench: Run, dsn: str, mode: str
) -> None:
    shown = bench("-N", "-M", mode, "-c", "2", "-t", "20", "--max-tries=50", dsn)
    assert "number of transactions actually processed: 40/40" in shown
    # pgbench empties its history before a run.
    assert _count(run, dsn, "pgbench_history") == 40


def test_pgbench_tpcb_like_keeps_its_sums(run: Run, bench: Run, dsn: str) -> None:
    shown = bench("-n", "-b", "tpcb-like", "-c", "2", "-t", "20", f"{dsn}?{ALONE}")
    assert "number of transactions actually processed: 40/40" in shown
    query = (
        "SELECT (SELECT sum(bbalance) FROM pgbench_branches)"
        " = (SELECT sum(tbalance) FROM pgbench_tellers)"
    )
    assert run("psql", "-X", "-qAt", dsn, "-c", query) == "t\n"


def test_pgbench_makes_its_own_tables_and_runs_on_them(run: Run, dsn: str) -> None:
    assert "done in" in run("pgbench", "-i", f"{dsn}?{ALONE}")
    assert _count(run, dsn, "pgbench_accounts") == 100_000
    shown = run("psql", "-X", dsn, "-c", "\\d pgbench_accounts")
    assert '"pgbench_accounts_pkey" PRIMARY KEY, btree (aid)' in shown
    query = "EXPLAIN SELECT abalance FROM pgbench_accounts WHERE aid = 7"
    assert 'by index "pgbench_accounts_pkey"' in run("psql", "-X", dsn, "-c", query)
    for script in ("select-only", "simple-update", "tpcb-like"):
        shown = run("pgbench", "-n", "-b", script, "-c", "2", "-t", "10", f"{dsn}?{ALONE}")
        assert "number of transactions actually processed: 20/20" in shown
    assert _count(run, dsn, "pgbench_history") == 40
