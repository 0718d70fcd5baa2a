"""DML on global tables: operations, and ranges that cover everything that was read."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType

import pytest

from cairn.model.errors import CairnError
from cairn.model.log.ops import Delete, Insert, Replace, Update
from cairn.model.log.ranges import one_key, whole_table

from .harness import Cluster


@pytest.fixture
def cluster() -> Cluster:
    found = Cluster()
    found.run("CREATE TABLE g (id INT PRIMARY KEY, s TEXT, n INT) DISTRIBUTED GLOBALLY")
    found.run("CREATE TABLE h (id INT PRIMARY KEY) DISTRIBUTED GLOBALLY")
    found.run("CREATE TABLE t (a INT PRIMARY KEY, b TEXT)")
    found.run("INSERT INTO g VALUES (1, 'a', 10), (2, 'b', 20)")
    found.run("INSERT INTO t VALUES (7, 'x'), (8, 'y')")
    return found


def test_an_insert_reads_its_own_keys_only(cluster: Cluster) -> None:
    table = cluster.catalog.tables["g"].id
    assert cluster.run("INSERT INTO g VALUES ($1, 'c', 30), (4, NULL, NULL)", [3]) == 2
    assert cluster.last_change.ops == (
        Insert(table, (3, "c", 30)),
        Insert(table, (4, None, None)),
    )
    assert cluster.last_change.ranges == (one_key(table, [3]), one_key(table, [4]))


def test_an_update_by_its_whole_key_covers_that_key(cluster: Cluster) -> None:
    table = cluster.catalog.tables["g"].id
    assert cluster.run("UPDATE g SET n = n + 1 WHERE id = $1", [1]) == 1
    assert cluster.last_change.ops == (Update(table, (1,), ((2, 11),)),)
    assert cluster.last_change.ranges == (one_key(table, [1]),)


def test_any_other_condition_covers_the_whole_table(cluster: Cluster) -> None:
    table = cluster.catalog.tables["g"].id
    assert cluster.run("DELETE FROM g WHERE n > 15") == 1
    assert cluster.last_change.ops == (Delete(table, (2,)),)
    assert cluster.last_change.ranges == (whole_table(table),)


def test_nothing_found_still_covers_what_was_looked_at(cluster: Cluster) -> None:
    table = cluster.catalog.tables["g"].id
    assert cluster.run("DELETE FROM g WHERE id = 99") == 0
    assert cluster.last_change.ranges == (one_key(table, [99]),)


def test_sources_of_a_select_are_covered(cluster: Cluster) -> None:
    g, h = cluster.catalog.tables["g"].id, cluster.catalog.tables["h"].id
    assert cluster.run("INSERT INTO h SELECT id FROM g") == 2
    assert set(cluster.last_change.ranges) == {
        whole_table(g),
        one_key(h, [1]),
        one_key(h, [2]),
    }
    cluster.run("UPDATE g SET n = 0 WHERE id IN (SELECT id FROM h)")
    assert set(cluster.last_change.ranges) == {whole_table(g), whole_table(h)}


def test_rows_of_sharded_tables_can_go_into_a_global_one(cluster: Cluster) -> None:
    assert cluster.run("INSERT INTO g (id, s) SELECT a, b FROM t") == 2
    assert cluster.run("SELECT s FROM g WHERE id = 7") == [("x",)]


def test_conflicts_are_decided_against_what_was_read(cluster: Cluster) -> None:
    table = cluster.catalog.tables["g"].id
    with pytest.raises(CairnError) as error:
        cluster.run("INSERT INTO g VALUES (5, 'x', 1), (1, 'dup', 1)")
    assert error.value.sqlstate == "23505"
    assert cluster.run("SELECT count(*) FROM g") == [(2,)]
    assert cluster.run("INSERT INTO g VALUES (1, 'z', 0), (5, 'q', 0) ON CONFLICT DO NOTHING") == 1
    assert cluster.run("INSERT INTO g VALUES (1, 'z', 0) ON CONFLICT DO REPLACE") == 1
    assert cluster.last_change.ops == (Replace(table, (1, "z", 0)),)
    with pytest.raises(CairnError, match="Duplicate key exists in unique index"):
        cluster.run("INSERT INTO g VALUES (9, 'a', 1), (9, 'b', 2)")


def test_a_unique_index_is_kept_and_widens_the_range(cluster: Cluster) -> None:
    cluster.run("CREATE UNIQUE INDEX g_s ON g (s)")
    table = cluster.catalog.tables["g"].id
    for text in (
        "INSERT INTO g VALUES (5, 'a', 1)",
        "UPDATE g SET s = 'a' WHERE id = 2",
        "UPDATE g SET s = 'same'",
    ):
        with pytest.raises(CairnError) as error:
            cluster.run(text)
        assert error.value.sqlstate == "23505"
    cluster.run("INSERT INTO g VALUES (6, NULL, 1), (7, NULL, 2)")
    assert cluster.last_change.ranges == (whole_table(table),)


def test_a_missing_value_is_refused_before_anything_is_proposed(cluster: Cluster) -> None:
    with pytest.raises(CairnError) as error:
        cluster.run("INSERT INTO g (s) VALUES ('x')")
    assert error.value.sqlstate == "23502"


def calls_of(name: str, work: Callable[[], object]) -> int:
    count = 0

    def note(frame: FrameType, event: str, _: object) -> None:
        nonlocal count
        count += event == "call" and frame.f_code.co_name == name

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE g SET n = n + 100000",
        "INSERT INTO g SELECT id, s, n + 5 FROM g ON CONFLICT (id) DO UPDATE SET n = excluded.n",
        "INSERT INTO g SELECT id + 1000, s, n FROM g ON CONFLICT (n) DO UPDATE SET s = 'new'",
    ],
)
def test_many_rows_are_not_compared_with_each_other(cluster: Cluster, statement: str) -> None:
    """A statement of 300,000 rows went over all of them for each one: it had not ended after
    ten minutes."""
    cluster.run("CREATE UNIQUE INDEX g_n ON g (n)")
    rows = ", ".join(f"({at}, 's', {at * 100})" for at in range(10, 210))
    cluster.run(f"INSERT INTO g VALUES {rows}")
    assert calls_of("compared_values", lambda: cluster.run(statement)) < 5 * 202
