"""A schema change is waited for, not told: statements that meet one go on when it is over."""

from __future__ import annotations

import threading
from collections.abc import Callable

import psycopg
import pytest

from tests.cluster.harness import Cluster, Node, eventually

pytestmark = pytest.mark.cluster
CHANGES = 8
ROWS = 20


@pytest.fixture
def cluster(new_cluster: Callable[..., Cluster]) -> Cluster:
    made = new_cluster().start("i1", "i2")
    made["i1"].sql("CREATE TABLE t (id INT PRIMARY KEY, n INT) DISTRIBUTED BY (id)")
    made["i1"].sql("CREATE TABLE u (id INT PRIMARY KEY) DISTRIBUTED BY (id)")
    made["i1"].sql("CREATE TABLE g (id INT PRIMARY KEY, n INT) DISTRIBUTED GLOBALLY")
    made["i1"].sql(f"INSERT INTO t VALUES {', '.join(f'({each}, 0)' for each in range(ROWS))}")
    made["i1"].sql("INSERT INTO g VALUES (1, 0)")
    return made


def copied(connection: psycopg.Connection, number: int) -> int:
    """Each text is a new one: it is planned while the table is being changed."""
    with connection.cursor().copy(f"COPY (SELECT n, {number} FROM t) TO STDOUT") as copy:
        return len(b"".join(bytes(piece) for piece in copy).splitlines())


def count(connection: psycopg.Connection, number: int) -> int:
    found = connection.execute(f"SELECT count(*), {number} FROM t".encode()).fetchone()
    return int(found[0]) if found else 0


def block(connection: psycopg.Connection, number: int) -> int:
    key = number % ROWS
    text = f"DO $$ BEGIN UPDATE t SET n = {number} WHERE id = {key}; END $$"
    connection.execute(text.encode())
    return ROWS


def global_row(connection: psycopg.Connection, number: int) -> int:
    connection.execute(f"UPDATE g SET n = {number} WHERE id = 1".encode())
    return ROWS


def statement(connection: psycopg.Connection, number: int) -> int:
    connection.execute(f"UPDATE t SET n = n + {number} WHERE id >= 0".encode())
    return ROWS


def new_rows(connection: psycopg.Connection, number: int) -> int:
    keys = range(number * ROWS, number * ROWS + ROWS)
    text = f"INSERT INTO u (id) VALUES {', '.join(f'({key})' for key in keys)}"
    return connection.execute(text.encode()).rowcount


def copied_in(connection: psycopg.Connection, number: int) -> int:
    cursor = connection.cursor()
    with cursor.copy("COPY u (id) FROM STDIN") as copy:
        for key in range(ROWS):
            copy.write_row((-1 - number * ROWS - key,))
    return cursor.rowcount


WORK = (copied_in, new_rows, copied, count, block, global_row, statement)


def test_statements_of_every_kind_wait_for_changes_of_their_tables(cluster: Cluster) -> None:
    over = threading.Event()
    met: list[str] = []
    done = dict.fromkeys((each.__name__ for each in WORK), 0)

    def repeat(node: Node, work: Callable[[psycopg.Connection, int], int]) -> None:
        number = 0
        with node.connect() as connection:
            while not over.is_set():
                number += 1
                try:
                    assert work(connection, number) == ROWS
                except (psycopg.Error, AssertionError) as problem:
                    met.append(f"{work.__name__}: {problem!r}")
                    return
                done[work.__name__] = number

    threads = [
        threading.Thread(target=repeat, args=(cluster[("i1", "i2")[at % 2]], work), daemon=True)
        for at, work in enumerate(WORK)
    ]
    for thread in threads:
        thread.start()
    try:
        for number in range(CHANGES):
            cluster["i1"].sql(f"ALTER TABLE t ADD COLUMN c{number} INT DEFAULT 7")
            cluster["i1"].sql(f"CREATE INDEX i{number} ON g (n)")
            cluster["i1"].sql(f"ALTER TABLE u ADD COLUMN c{number} INT DEFAULT 7")
    finally:
        over.set()
        for thread in threads:
            thread.join(60)
    assert (met, min(done.values()) > 0) == ([], True), done


def test_a_table_that_is_dropped_meanwhile_is_told_as_one_that_does_not_exist(
    cluster: Cluster,
) -> None:
    with cluster["i2"].connect() as connection:
        connection.execute("PREPARE one AS SELECT n FROM t WHERE n > $1")
        cluster["i1"].sql("DROP TABLE t")
        with pytest.raises(psycopg.errors.UndefinedTable):
            connection.execute("EXECUTE one(5)")
        with pytest.raises(psycopg.errors.UndefinedTable):
            connection.execute("DO $$ BEGIN UPDATE t SET n = 1 WHERE id = 1; END $$")


CHANGES_BETWEEN = (
    "ALTER TABLE {} ADD COLUMN more INT DEFAULT 7",
    "ALTER TABLE {} DROP COLUMN n",
    "CREATE INDEX ON {} (t)",
    "ALTER TABLE {} RENAME TO other",
)


@pytest.mark.parametrize(
    "names", [pytest.param(("i1",), marks=pytest.mark.slow), ("i1", "i2")], ids=["one", "two"]
)
def test_a_long_copy_lets_its_table_be_changed_and_goes_on(
    new_cluster: Callable[..., Cluster], names: tuple[str, ...]
) -> None:
    node = new_cluster().start(*names)["i1"]
    for kind, where in (("sharded", "BY (id)"), ("whole", "GLOBALLY")):
        columns = "id INT PRIMARY KEY, n INT, t TEXT"
        node.sql(f"CREATE TABLE {kind} ({columns}) DISTRIBUTED {where}")
        for change in CHANGES_BETWEEN:
            node.sql(f"DELETE FROM {kind}")
            with node.connect() as connection:
                cursor = connection.cursor()
                with cursor.copy(f"COPY {kind} (id, t) FROM STDIN (FORMAT csv)") as copy:
                    copy.write('1,"a"\n2,"b"\n3,"in two\n')
                    connection.pgconn.flush()
                    node.sql(change.format(kind))  # ends while the client thinks
                    kind = "other" if "RENAME" in change else kind
                    copy.write('lines"\n4,"d"\n')
                assert cursor.rowcount == 4, change
            rows = node.sql(f"SELECT * FROM {kind} ORDER BY id")
            assert [row[0] for row in rows] == [1, 2, 3, 4], (kind, change)
            assert ("in two\nlines" in rows[2], len({len(row) for row in rows})) == (True, 1)
        node.sql("DROP TABLE other")


def test_a_copy_goes_on_with_its_columns_whatever_they_are_called_by_then(
    cluster: Cluster,
) -> None:
    """It went by their names: rows that came later had their values in the other column."""
    node = cluster["i1"]
    node.sql("CREATE TABLE swapped (id INT PRIMARY KEY, a INT, b INT)")
    with node.connect() as connection:
        with connection.cursor().copy("COPY swapped (b, id, a) FROM STDIN") as copy:
            copy.write("20\t1\t10\n")
            connection.pgconn.flush()
            for old, new in (("a", "other"), ("b", "a"), ("other", "b")):
                node.sql(f"ALTER TABLE swapped RENAME COLUMN {old} TO {new}")
            copy.write("20\t2\t10\n")
        assert node.sql("SELECT id, b, a FROM swapped ORDER BY id") == [(1, 10, 20), (2, 10, 20)]


def test_a_copy_whose_column_goes_is_told_so_and_what_is_stored(cluster: Cluster) -> None:
    node = cluster["i1"]
    with node.connect() as connection:
        cursor = connection.cursor()
        with (
            pytest.raises(psycopg.errors.UndefinedColumn, match="n") as told,
            cursor.copy("COPY t (id, n) FROM STDIN") as copy,
        ):
            copy.write(f"{ROWS}\t1\n")
            connection.pgconn.flush()
            node.sql("ALTER TABLE t DROP COLUMN n")
            copy.write(f"{ROWS + 1}\t1\n")
        assert "1 rows that came before are stored" in str(told.value.diag.message_hint)
        assert connection.execute("SELECT count(*) FROM t").fetchone() == (ROWS + 1,)


def test_a_change_that_waits_for_another_hears_a_time_limit_and_a_cancel(
    new_cluster: Callable[..., Cluster],
) -> None:
    """The other one waits for an owner that stands still."""
    cluster = new_cluster().start("i1", "i2", "i3")
    node = cluster[cluster.leader("i1")]
    still = next(each for each in cluster.nodes.values() if each is not node)
    node.sql("CREATE TABLE t (id INT PRIMARY KEY) DISTRIBUTED BY (id)")
    pending = "SELECT count(*) FROM _pico_property WHERE key = 'pending_schema_change'"
    with node.connect() as altering, node.connect() as asking:
        change = threading.Thread(
            target=lambda: altering.execute("ALTER TABLE t ADD COLUMN more INT")
        )
        still.pause()
        try:
            change.start()
            eventually(lambda: node.sql(pending) == [(1,)], "the change is pending")
            asking.execute("SET statement_timeout = 300")
            limit = "statement timeout|until the time was up"  # who waits and who watches see it
            for text in ("CREATE TABLE copied AS SELECT 1 AS a", "CREATE TABLE copied (a INT)"):
                with pytest.raises(psycopg.errors.QueryCanceled, match=limit):
                    asking.execute(text.encode())
            asking.execute("SET statement_timeout = 0")
            stop = threading.Timer(0.3, asking.cancel)
            stop.start()
            with pytest.raises(psycopg.errors.QueryCanceled, match="user request"):
                asking.execute("CREATE TABLE copied AS SELECT 1 AS a")
        finally:
            still.resume()
            change.join(60)
    with pytest.raises(psycopg.errors.UndefinedTable):
        node.sql("SELECT * FROM copied")
