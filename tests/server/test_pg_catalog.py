"""pg_catalog is read, never changed, and one session's query is no other's trouble."""

from __future__ import annotations

import hashlib
import threading

import psycopg
import pytest

from tests.cluster.harness import Cluster

CHANGES = (
    "WITH x AS (SELECT 1 FROM pg_type) DELETE FROM pg_type",
    "WITH x AS (SELECT 1 AS y FROM pg_class) UPDATE pg_class SET relname = 'owned'",
    "WITH x AS (SELECT 1 FROM pg_class) INSERT INTO pg_roles (rolname) SELECT 'x' FROM pg_class",
    "SELECT * INTO mine FROM pg_class",
    "SELECT sql FROM sqlite_master JOIN pg_class ON true",
    "SELECT load_extension('x') FROM pg_class",
    "SELECT length(hex(randomblob(400000000))) FROM pg_class LIMIT 1",
    "SELECT zeroblob(400000000) FROM pg_class LIMIT 1",
)


@pytest.mark.parametrize("text", CHANGES)
def test_nothing_but_reading_is_done_in_pg_catalog(cluster: Cluster, text: str) -> None:
    with cluster["i1"].connect() as connection:
        before = connection.execute("SELECT count(*), max(relname) FROM pg_class").fetchone()
        with pytest.raises(psycopg.Error) as refused:
            connection.execute(text)  # type: ignore[arg-type]
        assert refused.value.sqlstate in ("42501", "0A000", "42P01", "42601", "42883")
        after = connection.execute("SELECT count(*), max(relname) FROM pg_class").fetchone()
        assert after == before


def test_a_long_query_of_one_session_does_not_hold_up_another(cluster: Cluster) -> None:
    """A join that never ends by itself is ended, and others are answered meanwhile."""
    endless = "SELECT count(*) FROM pg_class a, pg_class b, pg_attribute c, pg_attribute d"
    with cluster["i1"].connect() as busy, cluster["i1"].connect() as other:
        begun, ended = threading.Event(), threading.Event()

        def run() -> None:
            begun.set()
            for _ in range(10):  # each is ended after so many steps: soon, on a quick machine
                with pytest.raises(psycopg.errors.QueryCanceled):
                    busy.execute(endless)
            ended.set()

        thread = threading.Thread(target=run)
        thread.start()
        begun.wait()
        answered = 0
        while not ended.is_set():
            assert other.execute("SELECT count(*) > 0 FROM pg_type").fetchone() == (True,)
            answered += not ended.is_set()
        thread.join()
    assert answered > 1


@pytest.mark.parametrize(
    "text",
    [
        "SELECT length(repeat('x', 100000000)) FROM pg_class",
        "SELECT printf('%100000000d', 1) FROM pg_class",
        "SELECT count(*) FROM generate_series(1, 1000000000) g, pg_class",
        "SELECT 'a' ~ '((a*)*)*b' FROM pg_class",
    ],
)
def test_hostile_arguments_end_their_statement_alone(cluster: Cluster, text: str) -> None:
    pid = cluster["i1"].child_pid
    with cluster["i1"].connect() as connection:
        try:
            connection.execute(text)  # type: ignore[arg-type]
        except psycopg.Error as problem:
            assert problem.sqlstate != "XX000", problem  # noqa: PT017
        assert connection.execute("SELECT 1").fetchone() == (1,)
    assert cluster["i1"].child_pid == pid


@pytest.mark.parametrize("name", ["what?1", 'a"b', "a.b", "it's", "c$1", "d:e", "f\ng", 'h""i?2'])
def test_whatever_a_table_is_called_it_is_found(cluster: Cluster, name: str) -> None:
    node, quoted = cluster["i1"], '"' + name.replace('"', '""') + '"'
    node.sql(f"CREATE TABLE {quoted} (id INT PRIMARY KEY) DISTRIBUTED BY (id)")
    try:
        literal = "'" + quoted.replace("'", "''") + "'"
        [(found,)] = node.sql(
            f"SELECT oid FROM pg_class WHERE relname = '{name.replace(chr(39), 2 * chr(39))}'"
        )
        assert node.sql(f"SELECT {literal}::regclass::oid") == [(found,)]
        assert node.sql("SELECT to_regclass(%s)::oid", (f"public.{quoted}",)) == [(found,)]
    finally:
        node.sql(f"DROP TABLE {quoted}")


def test_a_number_is_like_its_text(cluster: Cluster) -> None:
    sql = "SELECT count(*) FROM pg_class WHERE oid LIKE '1%' AND relnamespace LIKE relnamespace"
    [(found,)] = cluster["i1"].sql(sql)
    assert found > 0


def test_identity_columns_have_sequences_as_in_postgresql(cluster: Cluster) -> None:
    sql = cluster["i1"].connect()
    sql.execute("DROP TABLE IF EXISTS numbered")
    sql.execute(
        "CREATE TABLE numbered (id INT GENERATED ALWAYS AS IDENTITY (START WITH 5) PRIMARY KEY, "
        "n INT)"
    )
    try:
        named = "SELECT pg_get_serial_sequence('numbered', attname) FROM pg_attribute"
        of_table = "WHERE attrelid = 'numbered'::regclass AND attnum > 0 ORDER BY attnum"
        found = sql.execute(f"{named} {of_table}").fetchall()
        assert found == [("public.numbered_id_seq",), (None,)]
        told = (
            "SELECT seqstart, seqincrement, seqmin, seqcycle FROM pg_sequence "
            "WHERE seqrelid = 'numbered_id_seq'::regclass"
        )
        assert sql.execute(told).fetchall() == [(5, 1, 1, False)]
        listed = "SELECT start_value, data_type FROM pg_sequences WHERE sequencename = %s"
        assert sql.execute(listed, ("numbered_id_seq",)).fetchall() == [(5, "bigint")]
        owned = (
            "SELECT c.relname, a.attname FROM pg_class c JOIN pg_depend d ON d.objid = c.oid "
            "JOIN pg_attribute a ON a.attrelid = d.refobjid AND a.attnum = d.refobjsubid "
            "WHERE c.relkind = 'S' AND c.relname LIKE 'numbered%'"
        )
        assert sql.execute(owned).fetchall() == [("numbered_id_seq", "id")]
        alchemy = pytest.importorskip("sqlalchemy")
        engine = alchemy.create_engine("postgresql+psycopg://", creator=lambda: sql)
        [column] = [
            each for each in alchemy.inspect(engine).get_columns("numbered") if each["name"] == "id"
        ]
        assert column["identity"]["always"] and column["identity"]["start"] == 5
    finally:
        sql.execute("DROP TABLE numbered")
        sql.close()


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ("left(relname, 3)", "_pi"),
        ("right(relname, 2)", "er"),
        ("lpad(relname, 12, '.')", ".._pico_user"),
        ("split_part(relname, '_', 2)", "pico"),
        ("regexp_replace(relname, '[aeiou]', '', 'g')", "_pc_sr"),
        ("quote_literal(relname || '''')", "'_pico_user'''"),
        ("left(relname, NULL)", None),
        ("strpos(relname, 'user') = 7", True),
        ("strpos(oid::text, 'x') = 0", True),
        ("repeat(left(relname, 2), 2)", "_p_p"),
        ("md5(relname)", hashlib.md5(b"_pico_user").hexdigest()),
        ("btrim('  ' || relname || ' ')", "_pico_user"),
        ("btrim(relname, '_r')", "pico_use"),
        ("ascii(relname) = 95", True),
        ("greatest(NULL, length(relname), 3) = 10", True),
        ("least(NULL, length(relname), 3) = 3", True),
    ],
)
def test_texts_of_the_catalogues_are_cut_as_others_are(
    cluster: Cluster, asked: str, expected: str | bool | None
) -> None:
    """`left(query, 60)` of pg_stat_activity is what most people ask."""
    text = f"SELECT {asked} FROM pg_class WHERE relname = '_pico_user'"
    assert cluster["i1"].sql(text) == [(expected,)]


@pytest.mark.parametrize(
    "asked", ["left(oid, 2)", "left(relname, 'x')", "split_part(1, 2, 3)", "repeat(1, 2)"]
)
def test_wrong_arguments_are_the_statement_s_fault(cluster: Cluster, asked: str) -> None:
    with pytest.raises(psycopg.errors.UndefinedFunction):
        cluster["i1"].sql(f"SELECT {asked} FROM pg_class")


def test_format_is_that_of_postgresql_also_in_pg_catalog(cluster: Cluster) -> None:
    """It was SQLite's: `%I` told nothing, and the statements that tools make of it had no names."""
    with cluster["i1"].connect() as connection:
        connection.execute('CREATE TABLE "Odd" (id INT PRIMARY KEY)')
        asked = connection.execute(
            "SELECT format('DROP TABLE %I -- %L, %s', relname, relname, oid > 0) "
            "FROM pg_class WHERE relname = 'Odd'"
        )
        assert asked.fetchone() in [
            ("DROP TABLE \"Odd\" -- 'Odd', t",),
            ("DROP TABLE \"Odd\" -- 'Odd', 1",),
        ]
        connection.execute('DROP TABLE "Odd"')


def test_names_without_quotes_are_folded(cluster: Cluster) -> None:
    with cluster["i1"].connect() as connection:
        connection.execute("CREATE TABLE folded (id SERIAL PRIMARY KEY)")
        asked = "SELECT pg_get_serial_sequence('{}', 'id'), to_regclass('{}') IS NULL"
        for name, found in (("Folded", True), ('"Folded"', False), ("public.FOLDED", True)):
            told = connection.execute(asked.format(name, name).encode()).fetchone()
            assert told == (("public.folded_id_seq", False) if found else (None, True)), name
        connection.execute("DROP TABLE folded")
