"""Schema changes on a real cluster: everywhere or nowhere, and never for ever."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import psycopg
import pytest

from tests.cluster.harness import Cluster, eventually

pytestmark = pytest.mark.cluster
Make = Callable[..., Cluster]


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three replicasets of one instance each."""
    cluster = Cluster(tmp_path_factory.mktemp("three"))
    try:
        yield cluster.start("i1", "i2", "i3")
    finally:
        cluster.close()


def fill(cluster: Cluster, table: str, rows: int = 60) -> None:
    values = ", ".join(f"({at}, 'row {at}')" for at in range(rows))
    cluster["i2"].sql(f"INSERT INTO {table} VALUES {values}")


def test_a_table_is_made_widened_emptied_and_dropped_everywhere(three: Cluster) -> None:
    three["i1"].sql("CREATE TABLE life (a INT PRIMARY KEY, b TEXT) DISTRIBUTED BY (a)")
    fill(three, "life")
    three["i2"].sql("ALTER TABLE life ADD COLUMN c DECIMAL")
    three["i3"].sql("UPDATE life SET c = 1.5 WHERE a < 30")
    assert three["i1"].sql("SELECT count(*), count(c), sum(c) FROM life") == [(60, 30, 45)]
    three["i1"].sql("ALTER TABLE life RENAME COLUMN b TO body")
    three["i1"].sql("ALTER TABLE life RENAME TO lived")
    assert three["i2"].sql("SELECT body FROM lived WHERE a = 7") == [("row 7",)]
    three["i3"].sql("TRUNCATE TABLE lived")
    assert three["i2"].sql("SELECT count(*) FROM lived") == [(0,)]
    three["i1"].sql("INSERT INTO lived (a, body) VALUES (1, 'again')")
    three["i2"].sql("DROP TABLE lived")
    for name in three.nodes:
        with pytest.raises(psycopg.errors.UndefinedTable):
            three[name].sql("SELECT * FROM lived")


def test_a_refusal_at_one_master_leaves_no_trace_at_the_others(three: Cluster) -> None:
    three["i1"].sql("CREATE TABLE u (a INT, b INT, PRIMARY KEY (a, b)) DISTRIBUTED BY (a)")
    three["i1"].sql("INSERT INTO u VALUES (1, 1), (1, 2), (2, 1), (3, 1), (4, 1), (5, 1)")
    with pytest.raises(psycopg.Error, match="ddl operation was aborted"):
        three["i2"].sql("CREATE UNIQUE INDEX u_a ON u (a)")
    query = "SELECT count(*) FROM _pico_index WHERE name = 'u_a'"
    eventually(lambda: three["i3"].sql(query) == [(0,)], "i3 has applied the abort")
    insert = "INSERT INTO u VALUES (2, 2), (3, 2), (4, 2), (5, 2)"
    eventually(lambda: three["i3"].sql(insert) or True, "nobody has kept the index")
    three["i1"].sql("DELETE FROM u WHERE b = 2")
    three["i2"].sql("CREATE UNIQUE INDEX u_a ON u (a)")
    with pytest.raises(psycopg.errors.UniqueViolation):
        three["i1"].sql("INSERT INTO u VALUES (3, 7)")


def test_many_clients_change_the_schema_at_once_and_each_gets_its_turn(three: Cluster) -> None:
    problems: list[BaseException] = []

    def work(number: int) -> None:
        try:
            node = three[f"i{number % 3 + 1}"]
            node.sql(f"CREATE TABLE many{number} (a INT PRIMARY KEY)")
            node.sql(f"INSERT INTO many{number} VALUES (1)")
            node.sql(f"DROP TABLE many{number}")
        except BaseException as problem:
            problems.append(problem)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []


def test_statements_of_others_follow_a_change_without_an_error(three: Cluster) -> None:
    three["i1"].sql("CREATE TABLE f (a INT PRIMARY KEY, b INT) DISTRIBUTED BY (a)")
    stop, done, problems = threading.Event(), [0], []

    def write() -> None:
        with three["i2"].connect() as connection:
            while not stop.is_set():
                try:
                    connection.execute("INSERT INTO f (a, b) VALUES (%s, 1)", (done[0],))
                    done[0] += 1
                except psycopg.Error as problem:
                    problems.append(problem)
                    return

    writer = threading.Thread(target=write)
    writer.start()
    eventually(lambda: done[0] > 20, "some writes")
    for at in range(3):
        three["i3"].sql(f"ALTER TABLE f ADD COLUMN c{at} INT")
    before = done[0]
    eventually(lambda: done[0] > before + 20 or problems, "writes after the changes")
    stop.set()
    writer.join()
    assert problems == []
    assert three["i1"].sql("SELECT count(*) FROM f") == [(done[0],)]


def test_a_dead_replicaset_makes_ddl_refuse_at_once(new_cluster: Make) -> None:
    cluster = new_cluster().start("i1", "i2", "i3")
    cluster["i1"].sql("CREATE TABLE t (a INT PRIMARY KEY) DISTRIBUTED BY (a)")
    leader = cluster.leader("i1")
    victim = next(name for name in cluster.nodes if name != leader)
    cluster[victim].kill()
    eventually(lambda: cluster.states(leader)[victim] == "Offline", "the dead one Offline")
    with pytest.raises(psycopg.Error, match="no live instance"):
        cluster[leader].sql("ALTER TABLE t ADD COLUMN b INT")
    cluster[victim].start()
    cluster.wait_online("i1", "i2", "i3", via=leader)
    eventually(
        lambda: cluster[leader].sql("ALTER TABLE t ADD COLUMN IF NOT EXISTS b INT") == [],
        "the change when all are back",
    )


@pytest.mark.parametrize("where", ["DISTRIBUTED BY (a)", "DISTRIBUTED GLOBALLY"])
def test_a_not_null_column_is_added_to_an_empty_table_only_and_then_enforced(
    three: Cluster, where: str
) -> None:
    node = three["i1"]
    node.sql(f"CREATE TABLE must (a INT PRIMARY KEY) {where}")
    try:
        node.sql("INSERT INTO must VALUES (1), (2), (3), (4), (5), (6)")
        with pytest.raises(psycopg.Error, match=r"null values|empty table only"):
            node.sql("ALTER TABLE must ADD COLUMN b INT NOT NULL")
        node.sql("DELETE FROM must")
        node.sql("ALTER TABLE must ADD COLUMN b INT NOT NULL")
        for statement in (
            "INSERT INTO must VALUES (1, NULL)",
            "INSERT INTO must (a) VALUES (1)",
            "INSERT INTO must VALUES (1, 1), (2, NULL), (3, 3)",
        ):
            with pytest.raises(psycopg.errors.NotNullViolation, match='column "b"'):
                three["i2"].sql(statement)
        node.sql("INSERT INTO must VALUES (1, 1), (2, 2)")
        with pytest.raises(psycopg.errors.NotNullViolation, match='column "b"'):
            three["i3"].sql("UPDATE must SET b = NULL")
        assert node.sql("SELECT a, b FROM must ORDER BY a") == [(1, 1), (2, 2)]
    finally:
        node.sql("DROP TABLE must")


def test_duplicates_keep_a_global_table_from_a_unique_index_and_nothing_else(
    three: Cluster,
) -> None:
    node = three["i1"]
    node.sql("CREATE TABLE twins (a INT PRIMARY KEY, b INT) DISTRIBUTED GLOBALLY")
    try:
        node.sql("INSERT INTO twins VALUES (1, 7), (2, 7)")
        with pytest.raises(psycopg.errors.UniqueViolation, match="some rows have the same key"):
            node.sql("CREATE UNIQUE INDEX twins_b ON twins (b)")
        node.sql("INSERT INTO twins VALUES (3, 8)")
        node.sql("CREATE INDEX plain_b ON twins (b)")
        assert node.sql("SELECT count(*) FROM twins WHERE b = 7") == [(2,)]
    finally:
        node.sql("DROP TABLE twins")


@pytest.mark.slow
def test_columns_change_while_a_replica_is_away_and_a_master_dies(new_cluster: Make) -> None:
    """Who comes back and who becomes master read the same."""
    cluster = new_cluster("--init-replication-factor", "3").start("i1", "i2", "i3")
    node = cluster["i1"]
    node.sql("CREATE TABLE a (id INT PRIMARY KEY, s TEXT NOT NULL, n INT)")
    values = ", ".join(f"({at}, 's{at}', {at})" for at in range(200))
    node.sql(f"INSERT INTO a VALUES {values}")
    query = "SELECT current_master_name FROM _pico_replicaset"
    [(master,)] = node.sql(query)
    away, stays = (name for name in cluster.nodes if name != master)
    cluster[away].kill()
    asked = cluster[stays]
    asked.sql("ALTER TABLE a ADD COLUMN c INT NOT NULL DEFAULT 5, DROP COLUMN s")
    asked.sql("UPDATE a SET n = NULL WHERE id = 7")
    with pytest.raises(psycopg.errors.NotNullViolation):
        asked.sql("ALTER TABLE a ALTER COLUMN n SET NOT NULL")
    asked.sql("UPDATE a SET n = 0 WHERE n IS NULL")
    asked.sql("ALTER TABLE a ALTER COLUMN n SET NOT NULL, ADD COLUMN s INT DEFAULT 6")
    asked.sql("INSERT INTO a VALUES (200, 200)")
    wanted = asked.sql("SELECT * FROM a ORDER BY id")
    assert (wanted[7], wanted[200]) == ((7, 0, 5, 6), (200, 200, 5, 6))
    cluster[away].start()
    cluster.wait_online(*cluster.nodes, via=stays)
    count = "SELECT count(*), sum(c) FROM a OPTION (read_preference = replica)"
    eventually(lambda: cluster[away].sql(count) == [(201, 1005)], "the one that was away has all")
    cluster[master].kill()
    eventually(lambda: asked.sql(query)[0][0] not in (master, ""), "another master", 60.0)
    for name in (away, stays):
        eventually(
            lambda at=name: cluster[at].sql("SELECT * FROM a ORDER BY id") == wanted, "the rows"
        )
    with pytest.raises(psycopg.errors.NotNullViolation):
        asked.sql("INSERT INTO a (id) VALUES (300)")
