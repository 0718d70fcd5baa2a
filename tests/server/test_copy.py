"""COPY through a real instance: what goes in comes out, and a bad line is named."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal

import psycopg
import pytest

from cairn.model.sharding.buckets import bucket_of
from cairn.model.types.values import ColumnType
from cairn.server.chunk_size import SMALL_ROWS
from tests.cluster.harness import PASSWORD, Cluster

pytestmark = pytest.mark.cluster

COLUMNS = "id INTEGER, n UNSIGNED, d DOUBLE, m DECIMAL, s TEXT, u UUID, t DATETIME, b BOOLEAN"
LINES = [
    "1\t0\t1.5\t1.50\tplain\t6b6b1c9e-7a43-4a0b-9d1f-0c6f1f0a7b11\t2024-01-02 03:04:05+00\tt",
    "-7\t9223372036854775807\t-0\t-12345678901234567890.125\ttab\\tand\\\\slash\t"
    "00000000-0000-0000-0000-000000000000\t1969-12-31 23:59:59.5+00\tfalse",
    " 42\t\\N\t\\N\t\\N\t\\N\t\\N\t\\N\t\\N",
]


def dsn(cluster: Cluster, name: str) -> str:
    return f"postgresql://admin:{PASSWORD}@127.0.0.1:{cluster[name].pg_port}/cairn"


@pytest.fixture
def connection(cluster: Cluster) -> Iterator[psycopg.Connection[tuple[object, ...]]]:
    with psycopg.connect(dsn(cluster, "i1"), autocommit=True) as made:
        yield made
        assert made.execute("SELECT 1").fetchall() == [(1,)]  # the session has gone on


@pytest.fixture(params=["DISTRIBUTED BY (id)", "DISTRIBUTED GLOBALLY"])
def table(
    connection: psycopg.Connection[tuple[object, ...]], request: pytest.FixtureRequest
) -> Iterator[str]:
    name = "copied"
    connection.execute(f"CREATE TABLE {name} ({COLUMNS}, PRIMARY KEY (id)) {request.param}")
    yield name
    connection.execute(f"DROP TABLE {name}")


def copy_in(
    connection: psycopg.Connection[tuple[object, ...]], statement: str, data: str | bytes
) -> int:
    cursor = connection.cursor()
    with cursor.copy(statement) as copy:  # type: ignore[call-overload]
        copy.write(data)
    return cursor.rowcount


def test_rows_of_every_type_come_back_as_they_were(
    connection: psycopg.Connection[tuple[object, ...]], table: str
) -> None:
    assert copy_in(connection, f"COPY {table} FROM STDIN", "\n".join(LINES)) == 3
    rows = connection.execute(f"SELECT id, n, d, m, s, b FROM {table} ORDER BY id").fetchall()
    assert rows == [
        (-7, 2**63 - 1, 0.0, Decimal("-12345678901234567890.125"), "tab\tand\\slash", False),
        (1, 0, 1.5, Decimal("1.5"), "plain", True),
        (42, None, None, None, None, None),
    ]
    with connection.cursor().copy(f"COPY {table} TO STDOUT") as copy:
        out = sorted(bytes(line).decode() for line in copy)
    connection.execute(f"DELETE FROM {table}")
    assert copy_in(connection, f"COPY {table} FROM STDIN", "".join(out)) == 3
    with connection.cursor().copy(f"COPY {table} TO STDOUT") as copy:
        assert sorted(bytes(line).decode() for line in copy) == out


@pytest.mark.parametrize(
    ("bad", "sqlstate"),
    [
        ("x", "22P02"),
        ("1_000", "22P02"),
        ("١٢", "22P02"),
        ("9223372036854775808", "22003"),
        ("1,2", "22P02"),
        ("1.0", "22P02"),
        ("\\N", "23502"),
        ("5\t6", "22P04"),
    ],
)
def test_a_bad_key_is_refused_with_its_line(
    connection: psycopg.Connection[tuple[object, ...]], table: str, bad: str, sqlstate: str
) -> None:
    with pytest.raises(psycopg.Error) as told:
        copy_in(connection, f"COPY {table} (id) FROM STDIN", f"1\n2\n{bad}\n4\n")
    assert told.value.sqlstate == sqlstate
    assert connection.execute(f"SELECT count(*) FROM {table}").fetchall() == [(0,)]
    assert "line 3" in (told.value.diag.message_detail or "")


def test_rows_go_to_every_owner_in_whatever_pieces_they_come(
    connection: psycopg.Connection[tuple[object, ...]], cluster: Cluster
) -> None:
    connection.execute("CREATE TABLE pieces (id INT PRIMARY KEY, s TEXT) DISTRIBUTED BY (id)")
    try:
        data = "".join(f"{n},row {n}\n" for n in range(130_000)).encode()
        cursor = connection.cursor()
        with cursor.copy("COPY pieces FROM STDIN (FORMAT csv)") as copy:
            for start in range(0, len(data), 7_777):
                copy.write(data[start : start + 7_777])
        assert cursor.rowcount == 130_000
        for name in ("i1", "i2"):
            query = "SELECT count(*), min(id), max(id) FROM pieces"
            assert cluster[name].sql(query) == [(130_000, 0, 129_999)]
        with cursor.copy("COPY pieces TO STDOUT (FORMAT csv)") as copy:
            out = b"".join(bytes(piece) for piece in copy)
        assert sorted(out.split()) == sorted(data.split())
    finally:
        connection.execute("DROP TABLE pieces")


def owns_first(cluster: Cluster, name: str) -> bool:
    """Whether the first bucket is the instance's."""
    query = (
        "SELECT name FROM _pico_instance WHERE replicaset_name = "
        "(SELECT current_replicaset_name FROM _pico_bucket WHERE bucket_id_start = 1)"
    )
    return (name,) in cluster[name].sql(query)


def test_rows_of_another_replicaset_may_be_more_than_one_message_holds(
    connection: psycopg.Connection[tuple[object, ...]], cluster: Cluster
) -> None:
    """Neighbouring buckets are asked for together, until they do not fit a message any more."""
    connection.execute("CREATE TABLE wide (id INT PRIMARY KEY, s TEXT) DISTRIBUTED BY (id)")
    try:
        types = (ColumnType.INTEGER,)
        near = [at for at in range(2000) if bucket_of(types, (at,)) <= 100][:16]
        for at in near:
            connection.execute("INSERT INTO wide VALUES (%s, repeat('x', 5000000))", (at,))
        for name in ("i1", "i2"):
            with (
                psycopg.connect(dsn(cluster, name)) as asked,
                asked.cursor().copy("COPY wide TO STDOUT") as copy,
            ):
                lines = [bytes(piece) for piece in copy]
            assert sorted(int(line.split()[0]) for line in lines) == near
            assert {len(line.split()[1]) for line in lines} == {5_000_000}
        other = next(name for name in ("i1", "i2") if not owns_first(cluster, name))
        with psycopg.connect(dsn(cluster, other), autocommit=True) as asked:
            with (
                pytest.raises(psycopg.errors.QueryCanceled),
                asked.cursor().copy("COPY wide TO STDOUT") as copy,
            ):
                for _ in copy:
                    asked.cancel()
            assert asked.execute("SELECT 1").fetchall() == [(1,)]
    finally:
        connection.execute("DROP TABLE wide")


def test_a_copy_that_fails_late_says_how_many_rows_are_stored(
    connection: psycopg.Connection[tuple[object, ...]],
) -> None:
    connection.execute("CREATE TABLE late (id INT PRIMARY KEY, s TEXT) DISTRIBUTED BY (id)")
    try:
        data = "".join(f"{n}\trow {n}\n" for n in range(3 * SMALL_ROWS // 2)) + "17\tagain\n"
        with pytest.raises(psycopg.errors.UniqueViolation) as told:
            copy_in(connection, "COPY late FROM STDIN", data)
        [(stored,)] = connection.execute("SELECT count(*) FROM late").fetchall()
        assert 0 < int(str(stored)) < 3 * SMALL_ROWS // 2
        assert f"{stored} rows that came before are stored" in str(told.value.diag.message_hint)
    finally:
        connection.execute("DROP TABLE late")


def test_a_client_that_gives_up_leaves_nothing_of_a_short_copy(
    connection: psycopg.Connection[tuple[object, ...]], table: str
) -> None:
    class GivenUp(Exception):
        pass

    with pytest.raises(GivenUp), connection.cursor().copy(f"COPY {table} (id) FROM STDIN") as copy:
        copy.write("1\n2\n3\n")
        raise GivenUp
    assert connection.execute(f"SELECT count(*) FROM {table}").fetchall() == [(0,)]


def test_a_copy_of_a_table_that_is_altered_meanwhile_tells_the_columns_it_has_then(
    cluster: Cluster, connection: psycopg.Connection[tuple[object, ...]]
) -> None:
    """COPY names no column here: that one is gone before it begins is not told."""
    connection.execute("CREATE TABLE altered (id INT PRIMARY KEY) DISTRIBUTED BY (id)")
    connection.execute("INSERT INTO altered VALUES (1), (2), (3)")

    def alter() -> None:
        with psycopg.connect(dsn(cluster, "i2"), autocommit=True) as other:
            for _ in range(15):
                other.execute("ALTER TABLE altered ADD COLUMN c INT DEFAULT 7")
                other.execute("ALTER TABLE altered DROP COLUMN c")

    told = set()
    try:
        with ThreadPoolExecutor(1) as threads:
            altering = threads.submit(alter)
            while not altering.done():
                with connection.cursor().copy("COPY altered TO STDOUT") as copy:
                    told.add(b"".join(sorted(b"".join(copy).splitlines(keepends=True))))
            altering.result()
    finally:
        connection.execute("DROP TABLE altered")
    assert told <= {b"1\n2\n3\n", b"1\t7\n2\t7\n3\t7\n"}
