"""Groups by a hash are those of SQLite's GROUP BY; what C does not do is left to SQLite whole."""

from __future__ import annotations

import random
from decimal import Decimal
from typing import Any

import apsw
import pytest

from cairn.model.types.values import ColumnType, to_physical
from cairn.native.library import library
from cairn.sql.functions.functions import register
from cairn.storage.groups import LEFT, Groups

pytestmark = pytest.mark.skipif(library() is None, reason="there was no compiler")

#: How C calls an aggregate, how SQLite does, and values that both take.
AGGREGATES = {
    "a": ("count(*)", "whole"),
    "c": ("count({})", "text"),
    "i": ("sum({})", "small"),
    "r": ("sum({})", "real"),
    "l": ("min({})", "text"),
    "g": ("max({})", "text"),
    "n": ("n_sum({})", "decimal"),
    "z": ("z_sum({})", "decimal"),
}
EXTREMES = ("whole", "real", "text", "bytes", "decimal")


def value(chance: random.Random, kind: str) -> Any:
    if not chance.randrange(6):
        return None
    if kind == "whole":
        return chance.choice((0, 1, -1, 127, 128, -33, 2**31, 2**63 - 1, -(2**63)))
    if kind == "small":
        return chance.randint(-(2**40), 2**40)
    if kind == "real":
        return chance.choice((0.5, -0.25, 3.0, 1e9, -1e-9))
    if kind == "decimal":
        digits = chance.choice((0, 5, 10**9, 10**30, -7, -(10**20)))
        number = Decimal(digits).scaleb(-chance.randrange(6))
        return to_physical(ColumnType.DECIMAL, number)
    text = chance.choice(
        ("", "a", "ab", "é" * 20, "x" * 300, "b\0c", "日本")
    ) + "y" * chance.randrange(3)
    return text.encode() if kind == "bytes" else text


@pytest.fixture
def connection() -> apsw.Connection:
    found = apsw.Connection(":memory:")
    register(found)
    return found


def comparable(rows: list[Any]) -> list[Any]:
    told = [tuple(f"{v:.9g}" if isinstance(v, float) else v for v in row) for row in rows]
    return sorted(told, key=repr)


@pytest.mark.parametrize("seed", range(60))
def test_groups_are_those_of_sqlite(connection: apsw.Connection, seed: int) -> None:
    chance = random.Random(seed)
    groups = Groups(connection)
    keys = [chance.choice(("whole", "small", "text", "bytes")) for _ in range(chance.randint(1, 4))]
    kinds = [chance.choice("acirlgnz") for _ in range(chance.randrange(18))]
    of = [chance.choice(EXTREMES) if each in "lg" else AGGREGATES[each][1] for each in kinds]
    columns = [*keys, *of]
    names = [f"v{at}" for at in range(len(columns))]
    connection.execute(f"CREATE TABLE t ({', '.join(names)})")
    few = [tuple(value(chance, each) for each in keys) for _ in range(chance.randint(1, 400))]
    rows = [
        (*chance.choice(few), *(value(chance, each) for each in of))
        for _ in range(chance.choice((0, 1, 2_000)))
    ]
    connection.executemany(f"INSERT INTO t VALUES ({', '.join('?' * len(columns))})", rows)
    values = list(zip(kinds, names[len(keys) :], strict=True))
    told = ", ".join([*names[: len(keys)], *(AGGREGATES[k][0].format(v) for k, v in values)])
    plain = f"SELECT {told} FROM t GROUP BY {', '.join(names[: len(keys)])}"
    given = ", ".join([*names[: len(keys)], *(v for k, v in values if k != "a")])
    shown = ", ".join(f"c{at}" for at in range(len(columns)))
    word = "k" * len(keys) + "".join(kinds)
    made = f"SELECT packed_groups('{word}', {given}) FROM t"
    by_hash = f"SELECT {shown} FROM packed_rows(({made}), {len(columns)})"
    found = groups.asked("SELECT 'left to SQLite'", (), by_hash).fetchall()
    assert comparable(found) == comparable(connection.execute(plain).fetchall())


@pytest.mark.parametrize(
    ("values", "word"),
    {
        "a real number as a key": ("(1.5, 1)", "kc"),
        "a sum past its range": (f"(1, {2**63 - 1}), (1, 1)", "ki"),
        "a sum of texts": ("(1, 'a')", "ki"),
        "whole numbers among reals": ("(1, 1.5), (1, 2)", "kr"),
        "the least of two types": ("(1, 1), (1, 'a')", "kl"),
        "a number of too many digits": (f"(1, x'{'41' * 90}')", "kn"),
        "no keys": ("(1, 1)", "ic"),
        "an argument too few": ("(1, 1)", "kcc"),
        "an unknown kind of many": ("(1, 1)", "k" * 101),
    }.values(),
)
def test_what_is_not_plain_is_left_to_sqlite(
    connection: apsw.Connection, values: str, word: str
) -> None:
    groups = Groups(connection)
    connection.execute("CREATE TABLE t (a, b)")
    connection.execute(f"INSERT INTO t VALUES {values}")
    text = f"SELECT packed_groups('{word}', a, b) FROM t"
    with pytest.raises(apsw.SQLError, match=LEFT):
        connection.execute(text).fetchall()
    assert groups.asked("SELECT 'plain'", (), text).fetchall() == [("plain",)]
    assert groups.asked("SELECT 'plain'", (), text).fetchall() == [("plain",)]  # it is remembered


@pytest.mark.parametrize("key", ["n", "printf('%08d', n) || replace(hex(zeroblob(500)), '0', 'x')"])
def test_more_groups_than_memory_are_left_to_sqlite(connection: apsw.Connection, key: str) -> None:
    groups = Groups(connection)
    count = "WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s LIMIT 400000)"
    text = f"{count} SELECT length(packed_groups('ka', {key})) FROM s"
    assert groups.asked("SELECT 'plain'", (), text).fetchall() == [("plain",)]
    assert connection.execute("SELECT 1").fetchall() == [(1,)]


def test_no_rows_have_no_groups(connection: apsw.Connection) -> None:
    Groups(connection)
    made = "SELECT packed_groups('ka', 1) FROM (SELECT 1) WHERE 0"
    assert connection.execute(f"SELECT c0, c1 FROM packed_rows(({made}), 2)").fetchall() == []


def test_an_error_of_another_kind_is_told(connection: apsw.Connection) -> None:
    groups = Groups(connection)
    with pytest.raises(apsw.SQLError, match="no such column"):
        groups.asked("SELECT 1", (), "SELECT packed_groups('k', missing)")
