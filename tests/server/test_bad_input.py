"""Statements that are wrong, huge or cancelled: one error each, and the session goes on."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from struct import pack, unpack

import psycopg
import pytest

from cairn.node.statements.owner.reads import SCAN_THREADS
from cairn.pgwire.scram import ScramClient
from tests.cluster.harness import PASSWORD, Cluster, eventually
from tests.server.raw import Raw, fields, message, sasl_initial, startup_packet

pytestmark = pytest.mark.cluster

SYNC = message(b"S")
CANCEL_REQUEST, GSS_REQUEST = 80877102, 80877104


def parse(text: str, name: str = "") -> bytes:
    return message(b"P", name.encode() + b"\0" + text.encode() + b"\0" + pack("!H", 0))


def bind(portal: str = "", statement: str = "", *values: bytes) -> bytes:
    body = portal.encode() + b"\0" + statement.encode() + b"\0" + pack("!HH", 0, len(values))
    body += b"".join(pack("!i", len(value)) + value for value in values)
    return message(b"B", body + pack("!H", 0))


def execute(portal: str = "", rows: int = 0) -> bytes:
    return message(b"E", portal.encode() + b"\0" + pack("!I", rows))


def codes(answers: list[tuple[bytes, bytes]]) -> list[str]:
    return [fields(body)["C"] for kind, body in answers if kind == b"E"]


def kinds(answers: list[tuple[bytes, bytes]]) -> str:
    return b"".join(kind for kind, _ in answers).decode()


@pytest.fixture
def raw(port: int) -> Iterator[Raw]:
    with Raw(port, 30) as connection:
        yield connection.log_in()
        assert kinds(connection.query("SELECT 1")) == "TDCZ"


def test_invalid_utf8_is_an_error_of_the_statement(raw: Raw) -> None:
    assert codes(raw.query(b"SELECT '\xff\xfe'")) == ["22021"]
    raw.send(message(b"P", b"\0SELECT '\xc3'\0\0\0"), SYNC)
    assert codes(raw.until(b"Z")) == ["22021"]
    answers = raw.send(parse("SELECT $1::text"), bind("", "", b"\xff"), execute(), SYNC).until(b"Z")
    assert codes(answers) == ["22021"]


def test_a_statement_of_many_megabytes_is_refused_with_a_hint(raw: Raw) -> None:
    found = raw.query("SELECT '" + "x" * (20 << 20) + "'")
    assert codes(found) == ["54000"]


def test_a_long_value_as_a_parameter_is_taken(raw: Raw) -> None:
    value = b"y" * (5 << 20)
    raw.send(parse("SELECT length($1::text)"), bind("", "", value), execute(), SYNC)
    assert kinds(raw.until(b"Z")) == "12DCZ"


def test_too_many_parameters(raw: Raw) -> None:
    assert codes(raw.query("SELECT $70000")) == ["42P02"]
    raw.send(parse("SELECT $1::int"), bind("", "", b"1", b"2"), SYNC)
    [found] = codes(raw.until(b"Z"))
    assert found == "42P02"
    raw.send(parse("SELECT $1::int"), bind(), SYNC)
    assert codes(raw.until(b"Z")) == ["42P02"]


def test_a_closed_portal_is_gone(raw: Raw) -> None:
    close = message(b"C", b"Pp\0")
    raw.send(parse("SELECT 1"), bind("p"), close, execute("p"), SYNC)
    answers = raw.until(b"Z")
    assert kinds(answers) == "123EZ" and codes(answers) == ["34000"]
    raw.send(execute("never"), SYNC)
    assert codes(raw.until(b"Z")) == ["34000"]
    raw.send(bind("", "never"), SYNC)
    assert codes(raw.until(b"Z")) == ["26000"]


def test_portals_end_with_their_transaction(raw: Raw) -> None:
    raw.send(parse("VALUES (1), (2), (3)", "s"), bind("p", "s"), execute("p", 2), SYNC)
    assert kinds(raw.until(b"Z")) == "12DDsZ"
    raw.send(execute("p", 2), SYNC)
    assert codes(raw.until(b"Z")) == ["34000"]
    raw.query("BEGIN")
    raw.send(bind("p", "s"), execute("p", 2), SYNC)
    assert kinds(raw.until(b"Z")) == "2DDsZ"
    raw.send(execute("p", 2), SYNC)
    assert kinds(raw.until(b"Z")) == "DCZ"
    raw.query("COMMIT")


def test_a_portal_is_run_once(raw: Raw) -> None:
    raw.query("CREATE TABLE once (id INT PRIMARY KEY, n INT)")
    raw.query("INSERT INTO once VALUES (1, 0)")
    try:
        for text in (
            "UPDATE once SET n = n + 1 WHERE id = 1",
            "UPDATE once SET n = n + 1",
            "INSERT INTO once SELECT max(id) + 1, 0 FROM once",
        ):
            raw.send(parse(text), bind("p"), execute("p"), execute("p"), SYNC)
            answers = raw.until(b"Z")
            assert (kinds(answers), codes(answers)) == ("12CEZ", ["55000"]), text
        rows = raw.query("SELECT n, (SELECT count(*) FROM once) FROM once WHERE id = 1")
        assert [body for kind, body in rows if kind == b"D"] == [
            pack("!HI", 2, 1) + b"2" + pack("!I", 1) + b"2"
        ]
        raw.send(parse("SELECT 1"), bind("p"), execute("p"), execute("p"), SYNC)
        assert kinds(raw.until(b"Z")) == "12DCCZ"  # no row is left, which is no error
        raw.send(parse(""), bind("p"), execute("p"), execute("p"), SYNC)
        assert kinds(raw.until(b"Z")) == "12IIZ"
    finally:
        raw.query("DROP TABLE once")


def test_everything_after_an_error_is_skipped_until_sync(raw: Raw) -> None:
    raw.send(parse("SELEC 1"), bind(), execute(), parse("SELECT 1"), bind(), execute(), SYNC)
    assert kinds(raw.until(b"Z")) == "EZ"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("SELEC 1", "42601"),
        ("SELECT nope", "42703"),
        ("SELECT * FROM nowhere", "42P01"),
        ("SELECT nope(1)", "42883"),
        ("SELECT 1 + true", "42883"),
        ("SELECT 'abc'::int", "22P02"),
        ("SELECT 9223372036854775807 + 1", "22003"),
        ("SELECT 1 / 0", "22012"),
        ("CREATE TRIGGER x", "0A000"),
        (f"CREATE TABLE wide ({', '.join(f'c{n} INT' for n in range(1601))})", "54011"),
        (f"SET sql_motion_row_max = {2**63}", "22023"),
        ("CALL my_procedure(1)", "42883"),
        ("CALL cairn_status(", "42601"),
        ("SELECT (" * 3000, "54001"),
        ("SELECT 1 FROM " + ", ".join(f"_pico_tier t{n}" for n in range(70)), "54000"),
        ("SELECT " + "9" * 5000, "22003"),
        ("", ""),
    ],
)
def test_each_mistake_has_its_code(raw: Raw, text: str, code: str) -> None:
    answers = raw.query(text)
    assert codes(answers) == ([code] if code else [])
    assert answers[-1] == (b"Z", b"I")


@pytest.mark.parametrize("where", ["DISTRIBUTED BY (id)", "DISTRIBUTED GLOBALLY"])
@pytest.mark.parametrize(
    "values",
    [
        "(1, 'new', 7)",
        "(1, 'new', 7), (3, 'x', 0)",
        "(0 + 1, lower('NEW'), NULL)",
        "(1, 'it''s) ON', 2.50)",
    ],
)
def test_a_duplicate_key_is_named(raw: Raw, where: str, values: str) -> None:
    raw.query("DROP TABLE IF EXISTS twice")
    raw.query(f"CREATE TABLE twice (id INT PRIMARY KEY, s TEXT, d DECIMAL) {where}")
    raw.query("INSERT INTO twice VALUES (1, 'old', 1.5)")
    (kind, body), _ = raw.query(f"INSERT INTO twice VALUES {values}")
    told = fields(body)
    assert (kind, told["C"], told["D"]) == (b"E", "23505", "Key (id)=(1) already exists.")


def test_a_key_of_several_columns_is_named_as_postgresql_writes_it(raw: Raw) -> None:
    raw.query("DROP TABLE IF EXISTS several")
    raw.query(
        "CREATE TABLE several (s TEXT, ok BOOLEAN, at DATETIME, d DECIMAL, f DOUBLE, n INT, "
        "PRIMARY KEY (s, ok, at, d, f)) DISTRIBUTED BY (s)"
    )
    raw.query("CREATE UNIQUE INDEX several_n ON several (s, n)")
    row = "('a b', true, '2024-01-02 03:04:05+02', 1.50, 2.0"
    raw.query(f"INSERT INTO several VALUES {row}, 1)")
    (_, body), _ = raw.query(f"INSERT INTO several VALUES {row}, 2)")
    key = "(a b, t, 2024-01-02 01:04:05+00, 1.5, 2)"
    assert fields(body)["D"] == f"Key (s, ok, at, d, f)={key} already exists."
    (_, body), _ = raw.query("INSERT INTO several VALUES ('a b', false, now(), 1, 1, 1)")
    assert fields(body)["D"] == "Key (s, n)=(a b, 1) already exists."


# --- blocks of statements -------------------------------------------------------------------------


def test_an_error_spoils_the_block_until_its_end(raw: Raw) -> None:
    assert raw.query("BEGIN")[-1] == (b"Z", b"T")
    assert raw.query("SELECT 1 / 0")[-1] == (b"Z", b"E")
    assert codes(raw.query("SELECT 1")) == ["25P02"]
    answers = raw.query("COMMIT")
    assert answers == [(b"C", b"ROLLBACK\0"), (b"Z", b"I")]


def test_rollback_says_what_stays(raw: Raw, cluster: Cluster) -> None:
    raw.query("DROP TABLE IF EXISTS kept")
    raw.query("CREATE TABLE kept (id INTEGER PRIMARY KEY) DISTRIBUTED BY (id)")
    raw.query("SET atomic_blocks = off")
    raw.query("BEGIN")
    for n in range(3):
        raw.query(f"INSERT INTO kept VALUES ({n})")
    *_, (kind, body), ready = raw.query("ROLLBACK")
    assert kind == b"E" and ready == (b"Z", b"I")
    assert "3 statement(s) of this block stay committed" in fields(body)["M"]
    assert cluster["i2"].sql("SELECT count(*) FROM kept") == [(3,)]
    raw.query("BEGIN")
    assert raw.query("SELECT * FROM kept")[-1] == (b"Z", b"T")
    assert raw.query("ROLLBACK") == [(b"C", b"ROLLBACK\0"), (b"Z", b"I")]


def test_a_savepoint_is_a_place_to_go_on_from(raw: Raw) -> None:
    assert codes(raw.query("SAVEPOINT a")) == ["25P01"]
    raw.query("BEGIN")
    assert raw.query("SAVEPOINT a") == [(b"C", b"SAVEPOINT\0"), (b"Z", b"T")]
    assert raw.query("SELECT 1 / 0")[-1] == (b"Z", b"E")
    assert codes(raw.query("RELEASE a")) == ["25P02"]
    assert raw.query("ROLLBACK TO SAVEPOINT a") == [(b"C", b"ROLLBACK\0"), (b"Z", b"T")]
    assert raw.query("SELECT 1")[-1] == (b"Z", b"T")
    assert raw.query("RELEASE SAVEPOINT a") == [(b"C", b"RELEASE\0"), (b"Z", b"T")]
    assert codes(raw.query("ROLLBACK TO a")) == ["3B001"]
    assert raw.query("ROLLBACK") == [(b"C", b"ROLLBACK\0"), (b"Z", b"I")]


def test_a_savepoint_says_what_was_written_after_it(raw: Raw) -> None:
    raw.query("DROP TABLE IF EXISTS since")
    raw.query("CREATE TABLE since (id INTEGER PRIMARY KEY) DISTRIBUTED BY (id)")
    raw.query("SET atomic_blocks = off")
    raw.query("BEGIN")
    raw.query("INSERT INTO since VALUES (1)")
    raw.query("SAVEPOINT a")
    raw.query("SAVEPOINT b")
    raw.query("INSERT INTO since VALUES (2)")
    (kind, body), ready = raw.query("ROLLBACK TO a")
    assert (kind, fields(body)["C"], ready) == (b"E", "25000", (b"Z", b"E"))
    assert "1 statement(s) of this savepoint stay committed" in fields(body)["M"]
    assert codes(raw.query("ROLLBACK")) == ["25000"]
    assert raw.query("SELECT count(*) FROM since")[1][1][-1:] == b"2"


# --- cancelling -----------------------------------------------------------------------------------

LONG = "SELECT count(*) FROM " + ", ".join(f"_pico_db_config a{n}" for n in range(12))


def test_a_cancel_ends_the_long_statement_and_nothing_else(cluster: Cluster) -> None:
    node = cluster["i1"]
    with node.connect() as victim, node.connect() as other:
        verdicts: list[str] = []

        def run(connection: psycopg.Connection[object]) -> None:
            try:
                connection.execute(LONG)
                verdicts.append("done")
            except psycopg.Error as problem:
                verdicts.append(problem.sqlstate or "")

        threads = [threading.Thread(target=run, args=(each,)) for each in (victim, other)]
        for thread in threads:
            thread.start()
        time.sleep(0.5)
        assert verdicts == []  # both are at it
        victim.cancel_safe(timeout=10)
        threads[0].join(10)
        assert verdicts == ["57014"]
        assert node.sql("SELECT 1") == [(1,)]
        assert threads[1].is_alive()
        other.cancel_safe(timeout=10)
        threads[1].join(10)
        assert verdicts == ["57014", "57014"]
        assert victim.execute("SELECT 1").fetchone() == (1,)


def test_a_cancel_that_comes_together_with_its_statement_ends_it(cluster: Cluster) -> None:
    """Both are read in one turn of the event loop, before the statement's work has begun."""
    node = cluster["i1"]
    with Raw(node.pg_port) as session, Raw(node.pg_port) as other:
        session.log_in()
        other.send(pack("!II", 8, GSS_REQUEST)).read_byte()  # accepted, and read by the loop
        session.query("SELECT 1")  # the kernel tells of this one first from here on
        node.pause()
        session.send(message(b"Q", LONG.encode() + b"\0"))
        key = session.cancel_key
        other.send(pack("!II", 8 + len(key), CANCEL_REQUEST) + key)
        node.resume()
        assert codes(session.until(b"Z")) == ["57014"]


COUNTING = "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r)"


@pytest.mark.parametrize(
    "text",
    [
        f"{COUNTING} SELECT count(*) FROM r",
        f"{COUNTING} SELECT count(*) FROM r JOIN endless ON id = r.n",
        f"INSERT INTO endless {COUNTING} SELECT n, n FROM r WHERE n < 0",
        f"INSERT INTO endless VALUES (7, ({COUNTING} SELECT count(*) FROM r)) RETURNING id",
        f"UPDATE endless SET v = ({COUNTING} SELECT count(*) FROM r) WHERE id = 1",
        f"UPDATE endless SET v = 2 FROM ({COUNTING} SELECT n FROM r) AS q WHERE q.n = 0 AND id = 1",
        f"DELETE FROM endless WHERE id = 1 AND EXISTS ({COUNTING} SELECT 1 FROM r WHERE n < v)",
        f"DELETE FROM endless WHERE v IN ({COUNTING} SELECT n FROM r WHERE n < 0)",
    ],
)
def test_a_recursion_without_an_end_is_ended_and_stops_nobody_else(raw: Raw, text: str) -> None:
    raw.query("CREATE TABLE IF NOT EXISTS endless (id INT PRIMARY KEY, v INT)")
    raw.query("INSERT INTO endless VALUES (1, 0) ON CONFLICT DO NOTHING")
    raw.query("SET statement_timeout = 300")
    assert codes(raw.query(text)) == ["57014"]
    raw.query("SET statement_timeout = 0")
    wanted = ["INSERT INTO endless VALUES (1, 0) ON CONFLICT DO REPLACE", "DELETE FROM endless"]
    assert [codes(raw.query(each)) for each in wanted] == [[], []]


@pytest.mark.parametrize("name", ["i1", "i2"])
@pytest.mark.parametrize("key", ["1", "%s"])
def test_a_cancel_ends_the_work_of_another_instance(cluster: Cluster, name: str, key: str) -> None:
    """One of the two goes a hop to the owner of the row, which has threads for few such scans."""
    node = cluster["i1"]
    node.sql("CREATE TABLE IF NOT EXISTS one (id INTEGER PRIMARY KEY) DISTRIBUTED BY (id)")
    node.sql("INSERT INTO one VALUES (1) ON CONFLICT DO NOTHING")
    tables = ", ".join(f"_pico_db_config a{n}" for n in range(12))
    for _ in range(SCAN_THREADS + 2):
        with cluster[name].connect() as connection:
            threading.Timer(0.2, connection.cancel_safe).start()
            with pytest.raises(psycopg.errors.QueryCanceled, match="user request"):
                query = f"SELECT count(*) FROM one, {tables} WHERE one.id = {key}"
                connection.execute(query, (1,) if key == "%s" else None)
    quick = f"SELECT count(*) FROM one, {', '.join(tables.split(', ')[:4])} WHERE one.id = 1"
    [(rows,)] = node.sql("SELECT count(*) FROM _pico_db_config")
    for owner in ("i1", "i2"):
        assert cluster[owner].sql(quick) == [(rows**4,)]


def test_statement_timeout_ends_reads(cluster: Cluster) -> None:
    with cluster["i1"].connect() as connection:
        connection.execute("SET statement_timeout = '200ms'")
        with pytest.raises(psycopg.errors.QueryCanceled, match="statement timeout"):
            connection.execute(LONG)
        assert connection.execute("SHOW statement_timeout").fetchone() == ("200ms",)
        connection.execute("RESET statement_timeout")
        with pytest.raises(psycopg.errors.InvalidParameterValue):
            connection.execute("SET statement_timeout = 'soon'")
    with (
        cluster["i1"].connect(options="-c statement_timeout=200") as connection,
        pytest.raises(psycopg.errors.QueryCanceled, match="statement timeout"),
    ):
        connection.execute(LONG)


def test_a_read_that_was_ended_is_no_error_in_the_log(cluster: Cluster) -> None:
    """Each one was: who sets a time limit could fill the log."""
    before = cluster["i1"].log().count("never retrieved")
    with cluster["i1"].connect() as connection:
        connection.execute("SET statement_timeout = '100ms'")
        for _ in range(5):
            with pytest.raises(psycopg.errors.QueryCanceled, match="statement timeout"):
                connection.execute(LONG)
    assert cluster["i1"].log().count("never retrieved") == before


def test_a_cancel_with_a_wrong_key_changes_nothing(port: int) -> None:
    with Raw(port, 30) as raw:
        raw.log_in()
        raw.send(message(b"Q", LONG.encode() + b"\0"))
        time.sleep(0.2)
        for pid in range(1, 200):
            with Raw(port) as guess:
                guess.send(pack("!IIII", 16, 80877102, pid, 0x12345678))
        raw.socket.settimeout(1.0)
        with pytest.raises(TimeoutError):
            raw.read()


def test_a_cancel_that_comes_late_hits_nothing(port: int) -> None:
    with Raw(port, 30) as raw:
        pid, key = logged_in_with_keys(raw)
        assert kinds(raw.query("SELECT 1")) == "TDCZ"
        with Raw(port) as cancel:
            cancel.send(pack("!III", 16, 80877102, pid) + key)
            assert cancel.is_closed()
        assert kinds(raw.query("SELECT count(*) FROM _pico_db_config")) == "TDCZ"


def logged_in_with_keys(raw: Raw) -> tuple[int, bytes]:
    """Log in and keep BackendKeyData."""
    raw.send(startup_packet(user="admin")).until(b"R")
    scram = ScramClient(PASSWORD, os.urandom(18))
    raw.send(sasl_initial(scram.first()))
    raw.send(message(b"p", scram.final(raw.read()[1][4:])))
    [body] = [body for kind, body in raw.until(b"Z") if kind == b"K"]
    return unpack("!I", body[:4])[0], body[4:]


# --- an instance that dies ------------------------------------------------------------------------


def test_an_instance_that_dies_gives_an_error_and_never_half_an_answer(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, "dying").start("i1", "i2")
    try:
        node = cluster["i1"]
        query = "SELECT DISTINCT current_replicaset_name FROM _pico_bucket"
        eventually(lambda: len(node.sql(query)) == 2, "buckets on both")
        node.sql(
            "CREATE TABLE halves (id INTEGER PRIMARY KEY, body TEXT) "
            "DISTRIBUTED BY (id) WAIT APPLIED GLOBALLY"
        )
        values = ", ".join(f"({n}, 'x')" for n in range(500))
        node.sql(f"INSERT INTO halves VALUES {values}")
        with node.connect() as connection:
            answers: list[object] = []
            begun = time.monotonic()
            while time.monotonic() < begun + 8:
                if len(answers) == 5:
                    cluster["i2"].kill()
                try:
                    answers.append(len(connection.execute("SELECT id FROM halves").fetchall()))
                except psycopg.Error as problem:
                    answers.append(problem.sqlstate)
                    break
            assert answers[:-1] == [500] * (len(answers) - 1)
            assert answers[-1] not in (None, "XX000"), answers
            assert connection.execute("SELECT 1").fetchone() == (1,)
            with pytest.raises(psycopg.Error) as caught:
                connection.execute("UPDATE halves SET body = 'y'")
            assert caught.value.sqlstate not in (None, "XX000")
    finally:
        cluster.close()


@pytest.mark.parametrize(
    "text",
    [
        "UPDATE local SET v = everywhere.v FROM everywhere WHERE everywhere.id = local.id",
        "DELETE FROM local WHERE id IN (SELECT id FROM everywhere)",
    ],
)
def test_sharded_rows_are_changed_by_a_global_table(cluster: Cluster, text: str) -> None:
    node = cluster["i1"]
    for name, how in (("local", "BY (id)"), ("everywhere", "GLOBALLY")):
        node.sql(f"DROP TABLE IF EXISTS {name}")
        node.sql(f"CREATE TABLE {name} (id INTEGER PRIMARY KEY, v TEXT) DISTRIBUTED {how}")
        node.sql(f"INSERT INTO {name} VALUES (1, '{name}')")
    node.sql(text)


# --- what people type first -----------------------------------------------------------------------


def test_show_all_lists_every_parameter_with_its_value_here(cluster: Cluster) -> None:
    with cluster["i1"].connect() as connection:
        connection.execute("SET application_name = 'me'")
        listed = dict(connection.execute("SHOW ALL").fetchall())
        assert (listed["application_name"], listed["server_encoding"]) == ("me", "UTF8")
        assert listed["sql_motion_row_max"] == "0"
        assert connection.execute("SELECT current_setting('server_version')").fetchone() == (
            "15.0",
        )


def test_a_schema_change_with_nothing_to_do_says_so(cluster: Cluster) -> None:
    with cluster["i1"].connect() as connection:
        said: list[str | None] = []
        connection.add_notice_handler(lambda notice: said.append(notice.message_primary))
        connection.execute("DROP TABLE IF EXISTS never_made")
        connection.execute("CREATE TABLE IF NOT EXISTS made (a INT PRIMARY KEY)")
        connection.execute("CREATE TABLE IF NOT EXISTS made (a INT PRIMARY KEY)")
        connection.execute("ALTER TABLE made ADD COLUMN IF NOT EXISTS a INT")
        connection.execute("CREATE INDEX IF NOT EXISTS made_a ON made (a)")
        connection.execute("CREATE INDEX IF NOT EXISTS made_a ON made (a)")
        connection.execute("DROP INDEX IF EXISTS never_made")
        connection.execute("ALTER TABLE IF EXISTS never_made RENAME TO other")
        connection.execute("DROP ROLE IF EXISTS nobody")
        connection.execute("DROP TABLE made")
        assert said == [
            'table "never_made" does not exist, skipping',
            'relation "made" already exists, skipping',
            'the columns of relation "made" already exist, skipping',
            'relation "made_a" already exists, skipping',
            'index "never_made" does not exist, skipping',
            'relation "never_made" does not exist, skipping',
            'role "nobody" does not exist, skipping',
        ]


def test_explain_raw_shows_the_buckets_that_are_asked(cluster: Cluster) -> None:
    with cluster["i1"].connect() as connection:
        connection.execute("CREATE TABLE keyed (a INT PRIMARY KEY, b INT) DISTRIBUTED BY (a)")
        lines = connection.execute("EXPLAIN (RAW) SELECT b FROM keyed WHERE a IN (1, 2)").fetchall()
        connection.execute("DROP TABLE keyed")
        text = "\n".join(line for (line,) in lines)
        assert "bucket_id = 1934" in text or "bucket = 1934" in text
        assert "SCAN" not in text


def test_limits_set_by_alter_system_hold_at_once(cluster: Cluster) -> None:
    node = cluster["i1"]
    node.sql("ALTER SYSTEM SET pg_statement_max = 3")
    try:
        with Raw(node.pg_port, 30) as connection:
            connection.log_in()
            for number in range(3):
                connection.send(parse("SELECT 1", f"s{number}"), SYNC).until(b"Z")
            told = connection.send(parse("SELECT 1", "s3"), SYNC).until(b"Z")
            [problem] = [fields(body)["M"] for kind, body in told if kind == b"E"]
            assert problem.startswith("Statement storage is full. Current size limit: 3.")
            node.sql("ALTER SYSTEM SET pg_statement_max = 4")
            told = connection.send(parse("SELECT 1", "s3"), SYNC).until(b"Z")
            assert kinds(told) == "1Z"
    finally:
        node.sql("ALTER SYSTEM RESET pg_statement_max")


def test_a_json_with_a_very_long_number_is_told_as_it_is(cluster: Cluster) -> None:
    """Python does not read such a number: the row would be lost to every reader and stream."""
    node = cluster["i1"]
    node.sql("CREATE TABLE long_numbers (id INT PRIMARY KEY, j JSON) DISTRIBUTED BY (id)")
    try:
        node.sql("INSERT INTO long_numbers VALUES (1, ('[' || repeat('9', 5000) || ']')::json)")
        with Raw(node.pg_port) as raw:
            raw.log_in()
            told = raw.query("SELECT j FROM long_numbers")
            assert [body[6:] for kind, body in told if kind == b"D"] == [b"[" + b"9" * 5000 + b"]"]
        question = "COPY long_numbers TO STDOUT"
        with node.connect() as connection, connection.cursor().copy(question) as copy:
            assert b"".join(bytes(piece) for piece in copy) == b"1\t[%s]\n" % (b"9" * 5000)
        for name in ("i1", "i2"):
            with Raw(cluster[name].pg_port) as raw:
                raw.log_in()
                assert codes(raw.query("CALL cairn_rows('long_numbers', '{}')")) == []
    finally:
        node.sql("DROP TABLE long_numbers")
