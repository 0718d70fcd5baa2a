"""Joins whose rows are in several places: the few go to where the many are, and nothing changes."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from typing import Any

import apsw
import pytest

from cairn.model.types.values import ColumnType, to_physical
from cairn.sql import plans
from cairn.sql.api import prepare
from cairn.sql.render.sent import Sent
from cairn.storage import packed_twin
from cairn.storage.groups import Groups
from cairn.storage.packed_twin import packed_rows

from .harness import Cluster

#: Orders are distributed by their own number, not by their client's.
TABLES = """
CREATE TABLE client (id INT PRIMARY KEY, region TEXT, rank DECIMAL)
CREATE TABLE buy (id INT PRIMARY KEY, client_id INT, amount DECIMAL, note TEXT)
CREATE TABLE mark (client_id INT, kind TEXT, PRIMARY KEY (client_id, kind)) DISTRIBUTED BY (client_id)
"""  # noqa: E501


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    made = Cluster()
    for text in TABLES.strip().splitlines():
        made.run(text)
    for at in range(12):
        region = "NULL" if at == 5 else f"'r{at % 3}'"
        made.run(f"INSERT INTO client VALUES ({at}, {region}, {at % 4}.5)")
    for at in range(90):
        client = "NULL" if at % 11 == 0 else str(at % 15)
        made.run(f"INSERT INTO buy VALUES ({at}, {client}, {at}.25, 'note {at % 7}')")
    for at in (1, 2, 2, 14):
        made.run(f"INSERT INTO mark VALUES ({at}, 'k{at}') ON CONFLICT DO NOTHING")
    made._mirror()
    return made


QUERIES = """
SELECT c.region, count(*), sum(b.amount) FROM buy b JOIN client c ON b.client_id = c.id GROUP BY c.region
SELECT b.id, c.region FROM buy b JOIN client c ON b.client_id = c.id WHERE c.region = 'r1'
SELECT b.id, c.region FROM client c LEFT JOIN buy b ON b.client_id = c.id AND b.amount > 20
SELECT c.region, count(b.id) FROM client c LEFT JOIN buy b ON b.client_id = c.id GROUP BY c.region
SELECT c.region, count(b.id) FROM buy b LEFT JOIN client c ON b.client_id = c.id GROUP BY c.region
SELECT c.region, count(b.id) FROM buy b LEFT JOIN client c ON b.client_id = c.id AND c.rank > 1 GROUP BY c.region
SELECT c.region, count(b.id) FROM client c LEFT JOIN buy b ON b.client_id = c.id AND b.id = 4 GROUP BY c.region
SELECT c.region, count(b.id) FROM buy b FULL JOIN client c ON b.client_id = c.id GROUP BY c.region
SELECT count(*), min(b.id) FROM buy b, client c WHERE b.client_id = c.id AND b.amount > c.rank
SELECT b.id FROM buy b WHERE b.client_id IN (SELECT id FROM client WHERE region = 'r2')
SELECT b.id FROM buy b WHERE b.client_id NOT IN (SELECT id FROM client WHERE region = 'r2')
SELECT b.id FROM buy b WHERE b.client_id NOT IN (SELECT client_id FROM buy WHERE id < 3)
SELECT c.id FROM client c WHERE c.id IN (SELECT client_id FROM buy WHERE amount < 4)
SELECT c.id FROM client c WHERE EXISTS (SELECT 1 FROM buy b WHERE b.client_id = c.id AND b.amount > 80)
SELECT c.id FROM client c WHERE NOT EXISTS (SELECT 1 FROM buy b WHERE b.client_id = c.id)
SELECT DISTINCT c.region, b.note FROM buy b JOIN client c ON b.client_id = c.id
SELECT b.id, c.id FROM buy b JOIN client c ON b.client_id = c.id ORDER BY b.amount DESC, c.id LIMIT 5 OFFSET 2
SELECT a.id, b.id FROM buy a JOIN buy b ON a.client_id = b.id WHERE a.amount < 9
SELECT count(*) FROM buy a JOIN buy b ON a.note = b.note AND a.client_id = b.client_id
SELECT m.kind, count(*) FROM buy b JOIN client c ON b.client_id = c.id JOIN mark m ON m.client_id = b.client_id GROUP BY m.kind
SELECT m.kind, b.id FROM buy b JOIN client c ON b.client_id = c.id LEFT JOIN mark m ON m.client_id = c.id AND m.kind <> 'k1'
SELECT x.region, x.n FROM (SELECT c.region, count(*) AS n FROM buy b JOIN client c ON b.client_id = c.id GROUP BY 1) x WHERE x.n > 5
SELECT count(*) FROM buy b JOIN client c ON b.client_id = c.id WHERE c.id = -1
SELECT sum(b.amount) FROM buy b JOIN client c ON b.client_id = c.id AND b.id <> c.id
SELECT region FROM client UNION ALL SELECT c.region FROM buy b JOIN client c ON b.client_id = c.id WHERE b.id < 9
SELECT count(*) FROM buy b JOIN client c ON c.rank = b.amount - 0.75 + 0.0
"""  # noqa: E501


def answers(cluster: Cluster, text: str) -> list[list[str]]:
    """The answer as gathered, and in every other way."""
    found = [sorted(map(repr, cluster.run(text)))]
    for way in range(cluster.ways):
        cluster.way = way
        found.append(sorted(map(repr, cluster.run(text))))
    cluster.way = None
    return found


def moved(cluster: Cluster, text: str, table: str) -> tuple[int, int]:
    """Rows that travel when all are gathered, and when those of `table` stay."""
    plan = prepare(text, cluster.catalog, user_id=1).plan
    assert isinstance(plan, plans.ScatterRead)
    cluster.run(text)
    gathered = cluster.moved
    wanted = cluster.catalog.tables[table].id
    stays = [plan.fragments[each.stays].tables == (wanted,) for each in plan.meetings]
    cluster.way = stays.index(True)
    cluster.run(text)
    cluster.way = None
    return gathered, cluster.moved


@pytest.mark.parametrize("text", QUERIES.strip().splitlines())
def test_rows_that_stay_give_the_answer_of_one_big_database(cluster: Cluster, text: str) -> None:
    expected = sorted(map(repr, cluster.oracle(text)))
    found = answers(cluster, text)
    assert found == [expected] * len(found)
    assert len(found) > 1


@pytest.mark.parametrize("text", [each for each in QUERIES.strip().splitlines() if "JOIN" in each])
def test_every_join_by_equal_columns_can_be_done_in_parts(cluster: Cluster, text: str) -> None:
    plan = prepare(text, cluster.catalog, user_id=1).plan
    assert isinstance(plan, plans.ScatterRead)
    assert bool(plan.exchanges) == ("- 0.75" not in text)  # that is no column
    for exchange in plan.exchanges:
        stays = [split.by.stays for split in exchange.plan.fragments[-1].splits if split.by]
        assert bool(stays) == ("a.note = b.note" not in text)  # else one is distributed by it


def test_groups_over_a_join_are_made_where_the_many_rows_are(cluster: Cluster) -> None:
    text = "SELECT c.rank, count(*) FROM buy b JOIN client c ON b.client_id = c.id GROUP BY c.rank"
    gathered, met = moved(cluster, text, "buy")
    assert gathered == 90 + 12
    assert met <= 12 + 3 * 12 + 3 * 4  # clients to the asker, to three owners, and partial groups


def test_only_rows_that_meet_others_leave_their_owner(cluster: Cluster) -> None:
    text = "SELECT b.note, c.region FROM buy b JOIN client c ON b.client_id = c.id WHERE c.id = 4"
    gathered, met = moved(cluster, text, "buy")
    assert (gathered, met) == (90 + 1, 1 + 3 * 1 + 6)  # the key to three owners, six rows back


def test_rows_that_tell_a_bucket_go_to_its_owner_and_to_nobody_else(cluster: Cluster) -> None:
    text = "SELECT b.note, c.region FROM buy b JOIN client c ON b.client_id = c.id WHERE b.id = 4"
    gathered, met = moved(cluster, text, "client")
    assert (gathered, met) == (12 + 1, 1 + 1 + 1)
    cluster.way = 1
    cluster.run(text)
    cluster.way = None
    assert len(cluster.asked) == 2  # who has the order, who has its client


def test_a_row_whose_key_is_null_is_sent_to_nobody(cluster: Cluster) -> None:
    text = "SELECT c.region FROM buy b JOIN client c ON b.client_id = c.id WHERE b.id = 11"
    assert moved(cluster, text, "client") == (12 + 1, 1)


VALUES: list[tuple[ColumnType, list[Any]]] = [
    (ColumnType.INTEGER, [2**63 - 1, -(2**63), 0, None]),
    (ColumnType.DOUBLE, [0.1, 1e300, 5e-324, float("inf"), float("-inf"), 3.0, None]),
    (ColumnType.STRING, ["", "it's", '"\\', "ä\u2028\n\t", "null", "1", None]),
    (ColumnType.DECIMAL, ["1.5", "-0.001", "99999999999999999999", None]),
    (ColumnType.UUID, ["12345678-1234-5678-1234-567812345678", None]),
    (ColumnType.BOOLEAN, [True, False, None]),
    (ColumnType.DATE, [date(2024, 2, 29), None]),
    (ColumnType.INTEGERS, [[1, None], [], None]),
    (ColumnType.INTERVAL, ["1 day 2 hours", None]),
]


@pytest.mark.parametrize(("type_", "values"), VALUES)
def test_values_arrive_as_they_were_sent(type_: ColumnType, values: list[Any]) -> None:
    rows = [(to_physical(type_, value),) for value in values]
    sent = Sent(0, (0,), (type_,), 1)
    [parcel] = [sent.parcel(rows)]
    for offer in (Groups, packed_twin.offer):  # in C, and in Python
        connection = apsw.Connection(":memory:")
        offer(connection)
        found = connection.execute(
            f"WITH {sent.clause(1)} SELECT x0 FROM m0", (parcel.of([]),)
        ).fetchall()
        assert [(type(cell), cell) for (cell,) in found] == [(type(cell), cell) for (cell,) in rows]


def test_a_set_is_sent_once_and_a_table_as_often_as_it_has_it() -> None:
    rows = [(1,), (1,), (2,)]
    twice, once = (Sent(0, (0,), (ColumnType.INTEGER,), 1, is_set) for is_set in (False, True))
    assert list(packed_rows(twice.parcel(rows).of([]))) == [(1,), (1,), (2,)]
    assert list(packed_rows(once.parcel(rows).of([]))) == [(1,), (2,)]


def test_numbers_that_are_joined_are_found_by_an_index_of_their_keys(cluster: Cluster) -> None:
    """Equal numbers may be other bytes (1.5, 1.50); SQLite makes an index of columns only."""
    text = "SELECT b.id FROM buy b JOIN client c ON b.amount = c.rank"
    plan = prepare(text, cluster.catalog, user_id=1).plan
    assert isinstance(plan, plans.ScatterRead)
    merge = apsw.Connection(":memory:")
    for number, fragment in enumerate(plan.fragments):
        names = ", ".join(f"x{at}" for at in range(len(fragment.types)))
        merge.execute(f"CREATE TABLE m{number} ({names})")
    steps = [row[3] for row in merge.execute(f"EXPLAIN QUERY PLAN {plan.sql}")]
    assert any("AUTOMATIC" in step for step in steps), steps
