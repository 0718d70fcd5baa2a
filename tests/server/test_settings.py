"""Settings of the cluster that hold, and secrets that no table has in clear."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from tests.cluster.harness import PASSWORD, Cluster, eventually


def connect(port: int, user: str = "admin", password: str = PASSWORD, **options: Any) -> Any:
    dsn = f"postgresql://{user}:{password}@127.0.0.1:{port}/cairn"
    return psycopg.connect(dsn, autocommit=True, **options)


LONG = "SELECT count(*) FROM generate_series(1, 200000)"
LIMIT = "Reached a limit on max executed vdbe opcodes. Limit: 1000"


def test_a_statement_has_its_limit_of_steps(port: int) -> None:
    with connect(port) as sql:
        assert sql.execute(LONG).fetchone() == (200000,)
        sql.execute("SET sql_vdbe_opcode_max = 1000")
        with pytest.raises(psycopg.errors.ProgramLimitExceeded, match=LIMIT):
            sql.execute(LONG)
        assert sql.execute(f"{LONG} OPTION (sql_vdbe_opcode_max = 0)").fetchone() == (200000,)
        sql.execute("RESET sql_vdbe_opcode_max")
        with pytest.raises(psycopg.errors.ProgramLimitExceeded, match=LIMIT):
            sql.execute(f"{LONG} OPTION (sql_vdbe_opcode_max = %s)", (1000,))


def test_rows_of_others_are_counted_where_they_are(cluster: Cluster) -> None:
    with connect(cluster["i1"].pg_port, options="sql_vdbe_opcode_max=3000") as sql:
        sql.execute("DROP TABLE IF EXISTS counted")
        sql.execute("CREATE TABLE counted (id INT PRIMARY KEY, n INT)")
        sql.execute(
            "INSERT INTO counted SELECT k, k FROM generate_series(1, 2000) AS k "
            "OPTION (sql_vdbe_opcode_max = 0)"
        )
        with pytest.raises(psycopg.errors.ProgramLimitExceeded, match="Limit: 3000"):
            sql.execute("SELECT sum(n) FROM counted WHERE n % 7 = 3")
        assert sql.execute("SELECT n FROM counted WHERE id = 5").fetchone() == (5,)
        sql.execute("DROP TABLE counted")


def test_a_parameter_may_be_an_option(port: int) -> None:
    with connect(port) as sql, pytest.raises(psycopg.errors.ProgramLimitExceeded):
        sql.execute("SELECT name FROM _pico_tier UNION ALL SELECT 'x'")
        sql.execute("DROP TABLE IF EXISTS some")
        sql.execute("CREATE TABLE some (id INT PRIMARY KEY)")
        sql.execute("INSERT INTO some SELECT k FROM generate_series(1, 10) AS k")
        sql.execute("SELECT id FROM some OPTION (sql_motion_row_max = %s)", (3,))


def test_the_cluster_says_whom_to_read_from(port: int) -> None:
    with connect(port) as sql:
        sql.execute("ALTER SYSTEM SET read_preference = 'any'")
        assert sql.execute("SHOW read_preference").fetchone() == ("leader",)  # as it still reads
        assert ("read_preference", "leader") in [row[:2] for row in sql.execute("SHOW ALL")]
        with connect(port) as later:
            assert later.execute("SHOW read_preference").fetchone() == ("any",)
            later.execute("SET read_preference = leader")
            later.execute("RESET read_preference")
            assert later.execute("SHOW read_preference").fetchone() == ("any",)
        sql.execute("ALTER SYSTEM RESET read_preference")


def test_login_is_granted_and_revoked(port: int) -> None:
    with connect(port) as sql:
        sql.execute("DROP USER IF EXISTS visitor")
        sql.execute("CREATE USER visitor WITH PASSWORD 'Passw0rd1'")
        sql.execute("REVOKE LOGIN FROM visitor")
        with pytest.raises(psycopg.OperationalError):
            connect(port, "visitor", "Passw0rd1")
        sql.execute("GRANT LOGIN TO visitor")
        connect(port, "visitor", "Passw0rd1").close()
        with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState):
            sql.execute("REVOKE LOGIN FROM admin")
        sql.execute("DROP USER visitor")


def test_a_queued_password_is_not_kept_in_clear(port: int) -> None:
    with connect(port) as sql:
        sql.execute("DROP USER IF EXISTS late")
        insert = (
            "INSERT INTO _pico_governor_queue (id, batch_id, op, op_format, status, kind, "
            "description) VALUES (%s, 'secret', %s, 'sql', 'pending', 'custom', '')"
        )
        sql.execute(insert, (7001, "CREATE USER late WITH PASSWORD 'Passw0rd1'"))
        [(kept,)] = sql.execute("SELECT op FROM _pico_governor_queue WHERE id = 7001").fetchall()
        assert kept.startswith("CREATE USER late WITH PASSWORD 'SCRAM-SHA-256$")

        def is_done() -> bool:
            query = "SELECT status FROM _pico_governor_queue WHERE id = 7001"
            return bool(sql.execute(query).fetchall() == [("done",)])

        eventually(is_done, "the user of the queue")
        connect(port, "late", "Passw0rd1").close()
        with pytest.raises(psycopg.errors.InvalidParameterValue, match="too short"):
            sql.execute(insert, (7002, "ALTER USER late WITH PASSWORD 'x'"))
        sql.execute("DELETE FROM _pico_governor_queue WHERE id = 7001")
        sql.execute("DROP USER late")


def refusal(connection: Any, query: str, key: int) -> str:
    try:
        return "" if connection.execute(query, (key,)).fetchall() == [(key,)] else "other rows"
    except psycopg.Error as problem:
        return f"{problem.sqlstate}: {problem}"


def test_a_statement_goes_no_farther_than_it_may(cluster: Cluster) -> None:
    first, second = (connect(cluster[name].pg_port) for name in ("i1", "i2"))
    with first, second:
        first.execute("DROP TABLE IF EXISTS near")
        first.execute("CREATE TABLE near (id INT PRIMARY KEY)")
        first.execute("INSERT INTO near SELECT k FROM generate_series(1, 20) AS k")
        query = "SELECT id FROM near WHERE id = %s OPTION (forward = off)"
        here, away = [], []
        for key in range(1, 21):
            problem = refusal(first, query, key)
            (here if problem == "" else away).append(key)
            assert problem == "" or 'try using "forward = ro_to_rw"' in problem
        assert here and away
        hop = "SELECT id FROM near WHERE id = %s OPTION (forward = ro_to_rw)"
        assert first.execute(hop, (away[0],)).fetchall() == [(away[0],)]
        first.execute("SET forward = off")
        with pytest.raises(psycopg.Error, match="buckets span multiple nodes"):
            first.execute("SELECT count(*) FROM near")
        with pytest.raises(psycopg.Error, match="not present on the current node"):
            first.execute("DELETE FROM near WHERE id = %s", (away[0],))
        assert first.execute("DELETE FROM near WHERE id = %s", (here[0],)).rowcount == 1
        assert first.execute("SELECT count(*) > 0 FROM _pico_tier").fetchone() == (True,)
        first.execute("RESET forward")
        assert first.execute("SELECT count(*) FROM near").fetchone() == (19,)
        with pytest.raises(psycopg.Error, match="unknown forward value: 'up'"):
            first.execute("SELECT 1 OPTION (forward = up)")
        first.execute("DROP TABLE near")


def test_a_parameter_that_nobody_knows_is_refused(port: int) -> None:
    with connect(port) as sql:
        for text in ("SET nothing = 1", "SET statement_timeuot = 1"):
            with pytest.raises(psycopg.errors.UndefinedObject, match="unrecognized"):
                sql.execute(text)
        for text in (
            "SET work_mem = '4MB'",
            "SET mine.own = 'x'",
            "SET DateStyle = ISO",
            "RESET ALL",
        ):
            sql.execute(text)


@pytest.mark.parametrize("name", ["pg_session_bytes_max", "auth_rules", "is_superuser"])
def test_what_a_session_cannot_have_of_its_own_is_not_taken_as_if_it_could(
    port: int, name: str
) -> None:
    """SET was answered, SHOW told the new value, and nothing had changed."""
    with connect(port) as sql:
        before = sql.execute(f"SHOW {name}").fetchone()
        with pytest.raises(psycopg.errors.CantChangeRuntimeParam, match="cannot be changed"):
            sql.execute(f"SET {name} = '1'")
        with pytest.raises(psycopg.errors.CantChangeRuntimeParam, match="cannot be changed"):
            sql.execute(f"SELECT set_config('{name}', '1', false)")
        assert sql.execute(f"SHOW {name}").fetchone() == before


@pytest.mark.parametrize(
    ("name", "value", "kept"),
    [
        ("DateStyle", "'ISO, DMY'", "ISO, MDY"),
        ("DateStyle", "German", "ISO, MDY"),
        ("IntervalStyle", "iso_8601", "postgres"),
        ("bytea_output", "'escape'", "hex"),
        ("extra_float_digits", "0", "0"),
        ("search_path", "tenant_7", "tenant_7"),
    ],
)
def test_who_sets_what_has_one_value_is_told_and_sees_what_stays(
    port: int, name: str, value: str, kept: str
) -> None:
    """`SET DateStyle = DMY` was taken in silence, and 01/02/2003 was another day then."""
    with connect(port) as sql:
        said: list[str] = []
        sql.add_notice_handler(lambda notice: said.append(str(notice.message_primary)))
        sql.execute(f"SET {name} = {value}")
        assert len(said) == 1 and (kept in said[0] or "no effect" in said[0])
        assert sql.execute(f"SHOW {name}").fetchone() == (kept,)


def test_who_sets_what_is_so_anyway_is_told_nothing(port: int) -> None:
    with connect(port) as sql:
        said: list[Any] = []
        sql.add_notice_handler(said.append)
        for text in (
            "SET DateStyle = ISO",
            "SET datestyle TO 'ISO, MDY'",
            "SET datestyle TO 'ISO', 'US'",
            "SET IntervalStyle = 'postgres'",
            "SET bytea_output = hex",
            "SET extra_float_digits = 3",
            "SET standard_conforming_strings = on",
            'SET search_path = "$user", public',
            "SET search_path = public, pg_catalog",
            "SET search_path = ''",
        ):
            sql.execute(text)
        assert said == []
        assert sql.execute("SHOW DateStyle").fetchone() == ("ISO, MDY",)


@pytest.mark.parametrize(
    ("text", "sqlstate"),
    [
        ("SET DateStyle = 'ISO, DYM'", "22023"),
        ("SET IntervalStyle = 'mine'", "22023"),
        ("SET bytea_output = 'base64'", "22023"),
        ("SET standard_conforming_strings = off", "0A000"),
    ],
)
def test_what_would_change_the_meaning_of_texts_is_refused(
    port: int, text: str, sqlstate: str
) -> None:
    with connect(port) as sql, pytest.raises(psycopg.Error) as problem:
        sql.execute(text)
    assert problem.value.sqlstate == sqlstate


def test_several_tables_are_emptied_and_dropped_and_upkeep_says_that_there_is_none(
    port: int,
) -> None:
    with connect(port) as sql:
        said: list[str | None] = []
        sql.add_notice_handler(lambda notice: said.append(notice.message_primary))
        sql.execute("CREATE TABLE drop_a (id INT PRIMARY KEY)")
        sql.execute("CREATE TABLE drop_b (id INT PRIMARY KEY) DISTRIBUTED GLOBALLY")
        with pytest.raises(psycopg.errors.UndefinedTable):
            sql.execute("DROP TABLE drop_a, nowhere")
        for name in ("drop_a", "drop_b"):
            sql.execute(f"INSERT INTO {name} VALUES (1), (2)")
        with pytest.raises(psycopg.errors.UndefinedTable):
            sql.execute("TRUNCATE drop_a, nowhere")
        assert sql.execute("SELECT count(*) FROM drop_a").fetchone() == (2,)
        assert sql.execute("TRUNCATE TABLE drop_a, drop_b").statusmessage == "TRUNCATE TABLE"
        for name in ("drop_a", "drop_b"):
            assert sql.execute(f"SELECT count(*) FROM {name}").fetchone() == (0,)
        for text in (
            "VACUUM",
            "VACUUM ANALYZE drop_a, drop_b",
            "VACUUM (VERBOSE) drop_a",
            "ANALYZE",
        ):
            sql.execute(text)
        assert [word for word, _ in (each.split(" ", 1) for each in said if each)] == [
            *["VACUUM"] * 3,
            "ANALYZE",
        ]
        with pytest.raises(psycopg.errors.UndefinedTable):
            sql.execute("VACUUM nowhere")
        said.clear()
        sql.execute("DROP TABLE IF EXISTS drop_a, nowhere, drop_b")
        assert said == ['table "nowhere" does not exist, skipping']
        for name in ("drop_a", "drop_b"):
            with pytest.raises(psycopg.errors.UndefinedTable):
                sql.execute(f"SELECT 1 FROM {name}")


@pytest.mark.parametrize(
    ("options", "meant"),
    [
        ("-c nothing=1", None),
        ("-c statement_timout=5", "statement_timeout"),
        ("smart_conector=0.1", "smart_connector"),
        ("atomic_block=off", "atomic_blocks"),
    ],
)
def test_an_option_of_a_connection_that_is_unknown_is_refused(
    port: int, options: str, meant: str | None
) -> None:
    with pytest.raises(psycopg.OperationalError, match="unrecognized configuration") as refused:
        connect(port, options=options)
    assert (meant is None) == ("Perhaps you meant" not in str(refused.value))
    assert f'"{meant}"' in str(refused.value) or meant is None
    with pytest.raises(psycopg.OperationalError, match="authentication failed"):
        connect(port, password="wrong", options=options)  # a stranger learns nothing


def test_options_that_drivers_send_are_taken(port: int) -> None:
    said = "-c search_path=a,b -c geqo=off -c mine.own=1 --extra-float-digits=3"
    with connect(port, options=said, application_name="x", client_encoding="UTF8") as sql:
        assert sql.execute("SELECT 1").fetchone() == (1,)


def test_current_setting_tells_what_the_session_has(port: int) -> None:
    with connect(port) as sql:
        ask = "SELECT current_setting('statement_timeout')"
        sql.execute("SET statement_timeout = '7s'")
        assert sql.execute(ask).fetchone() == ("7s",)
        given = sql.execute("SELECT pg_catalog.set_config('statement_timeout', '3s', false) AS new")
        assert given.fetchone() == ("3s",) and given.statusmessage == "SELECT 1"
        assert sql.execute(f"{ask}, current_setting('nothing', true) AS b").fetchone() == (
            "3s",
            None,
        )
        for text, sqlstate in (
            ("SELECT current_setting('nothing')", "42704"),
            ("SELECT set_config('nothing', '1', false)", "42704"),
            ("SELECT current_setting('statement_timeout') || 'x'", "0A000"),
            ("SELECT count(*), set_config('statement_timeout', '1s', false)", "0A000"),
        ):
            with pytest.raises(psycopg.Error) as problem:
                sql.execute(text)
            assert problem.value.sqlstate == sqlstate, text
        both = "SELECT current_setting('server_version_num')::int >= 150000"
        assert sql.execute(both).fetchone() == (True,)


@pytest.mark.parametrize("name", ["role", "session_authorization"])
def test_nobody_is_told_that_they_are_somebody_else(port: int, name: str) -> None:
    """`set_config('role', …)` did nothing: who asked for fewer rights kept them all."""
    with connect(port) as sql:
        for text in (f"SELECT set_config('{name}', 'nobody', true)", f"SET {name} = 'nobody'"):
            with pytest.raises(psycopg.errors.FeatureNotSupported):
                sql.execute(text)
        sql.execute(f"SELECT set_config('{name}', '', false)")
    with pytest.raises(psycopg.OperationalError, match="cannot be set"):
        connect(port, options=f"-c {name}=nobody")


def test_set_local_ends_with_its_transaction(port: int) -> None:
    """It stayed: the tenant of one transaction was that of the next one of a pooled connection."""
    with connect(port) as sql:
        said: list[str] = []
        sql.add_notice_handler(lambda notice: said.append(str(notice.message_primary)))
        sql.execute("SET LOCAL mine.tenant = '5'")
        assert len(said) == 1 and "transaction blocks" in said[0]
        with sql.transaction():
            sql.execute("SET LOCAL statement_timeout = '7s'")
            assert sql.execute("SELECT set_config('mine.tenant', '5', true)").fetchone() == ("5",)
            assert sql.execute("SHOW statement_timeout").fetchone() == ("7s",)
            assert sql.execute("SHOW mine.tenant").fetchone() == ("5",)
        assert sql.execute("SHOW statement_timeout").fetchone() == ("0",)
        asked = "SELECT current_setting('mine.tenant', true)"
        assert sql.execute(asked).fetchone() in [(None,), ("",)]


def test_reset_time_zone_and_set_to_default_are_resets(port: int) -> None:
    with connect(port) as sql:
        sql.execute("SET application_name = 'mine'")
        sql.execute("SET application_name TO DEFAULT")
        assert sql.execute("SHOW application_name").fetchone() == ("",)
        sql.execute("SET TIME ZONE 'Europe/Berlin'")
        sql.execute("RESET TIME ZONE")
        assert sql.execute("SHOW TimeZone").fetchone() == ("UTC",)
