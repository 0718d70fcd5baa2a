"""Columns that change while rows move, are replicated and copied: every row reads the same."""

from __future__ import annotations

import apsw
import pytest
from msgspec.structs import replace

from cairn.model.log.records import Shape
from cairn.model.tables.altering import as_added, without_column
from cairn.model.tables.schema import Column, Index, Table, missing_value
from cairn.model.types.values import ColumnType
from cairn.moves.delta import MoveMustRestart
from cairn.storage.data_db.full_copy import CopySource, CopyTarget
from cairn.storage.files.sqlite import quick_check
from tests.moves.builders import MOVE, MoveSite, Pair, filled
from tests.replication.builders import TABLE

SEVEN = Column("c", ColumnType.INTEGER, default="7", missing="7")
TEXT = Column("d", ColumnType.STRING, False, default="'it''s'", missing="'it''s'")
NAME = TABLE.physical_name


def wide(version: int = 2) -> Table:
    columns = (*TABLE.columns, *as_added((SEVEN, TEXT)))
    return replace(TABLE, columns=columns, schema_version=version)


def required(version: int = 2) -> Table:
    """`b` with NOT NULL, which came later."""
    a, b = TABLE.columns
    columns = (a, replace(b, nullable=False, is_judged=True))
    return replace(TABLE, columns=columns, schema_version=version)


def copied(source: MoveSite, target: MoveSite) -> None:
    reading, writing = CopySource(source.path), CopyTarget(target.store, "S")
    target.group(lambda: writing.begin(reading.head))
    while (chunk := reading.chunk(100)) is not None:
        target.group(lambda piece=chunk: writing.rows(*piece))  # type: ignore[misc]
    target.group(lambda: writing.finish(reading.head))


def test_rows_of_before_have_the_default_wherever_they_go(pair: Pair) -> None:
    filled(pair)
    pair.t.begin(pair.s)
    pair.t.pull_all(pair.s)
    pair.s.put(3, 30, "narrow")  # told in a record of before, taken after
    pair.s.put(3, 31, "narrow too")
    pair.catalogue(Shape(TABLE.id, wide()))
    pair.s.change("UPDATE t SET c2 = 8 WHERE bucket_id = 4")
    pair.t.pull_all(pair.s)
    assert pair.t.content() == pair.s.content()
    assert pair.t.content()[:3] == [
        (3, 30, "narrow", 7, "it's"),
        (3, 31, "narrow too", 7, "it's"),
        (4, 40, "v4", 8, "it's"),
    ]
    pair.replicate()
    assert pair.s2.content(1, 10) == pair.s.content(1, 10)
    assert pair.t2.content() == pair.t.content()
    copied(pair.s, pair.t2)
    assert pair.t2.content(1, 10) == pair.s.content(1, 10)


def test_a_record_says_what_the_row_had_before(pair: Pair) -> None:
    """Also of a column that the row itself does not have yet: who undoes it writes that back."""
    filled(pair)
    pair.s.shaped(Shape(TABLE.id, wide()))
    pair.s.change("UPDATE t SET c2 = 8 WHERE bucket_id = 4")
    pair.s.change("DELETE FROM t WHERE bucket_id = 5")
    changed, deleted = (record.changes[0] for record in pair.s.reader.read("s1", 0, 1000)[-2:])
    assert changed.old == (4, 40, "v4", 7, "it's")
    assert deleted.old == (5, 50, "v5", 7, "it's")


def test_a_row_that_was_null_once_moves_although_it_must_not_be_now(pair: Pair) -> None:
    """NOT NULL is for what clients write. What was written before comes as it was."""
    filled(pair)
    pair.s.run(f"INSERT INTO {NAME} VALUES (3, 31, NULL)")
    pair.t.begin(pair.s)
    pair.t.pull_all(pair.s)
    pair.s.run(f"INSERT INTO {NAME} VALUES (3, 32, NULL)")
    pair.s.change("UPDATE t SET c1 = 'known' WHERE c1 IS NULL")
    pair.catalogue(Shape(TABLE.id, required()))  # at T one is NULL still, and that is not T's yet
    assert None in [row[2] for row in pair.t.content()]
    pair.t.pull_all(pair.s)
    assert pair.t.content() == pair.s.content()
    pair.replicate()
    assert pair.t2.content() == pair.t.content()
    for site in (pair.s, pair.t):
        with pytest.raises(apsw.ConstraintError, match=f"{NAME}.c1"):
            site.run(f"INSERT INTO {NAME} VALUES (4, 99, NULL)")
        with pytest.raises(apsw.ConstraintError, match=f"{NAME}.c1"):
            site.bulk([(4, 98, "x"), (4, 99, None)])  # type: ignore[list-item]


def test_rows_that_left_and_are_null_do_not_make_a_copy_or_a_check_fail(pair: Pair) -> None:
    filled(pair)
    pair.s.run(f"INSERT INTO {NAME} VALUES (3, 31, NULL)")
    pair.s.shaped(Shape(TABLE.id, required()))  # its buckets are another's, and not swept yet
    copied(pair.s, pair.s2)
    assert pair.s2.content() == pair.s.content()
    pair.s.run(f"DELETE FROM {NAME} WHERE bucket_id = 4")
    assert pair.s2.follow(pair.s) == 1
    reader = apsw.Connection(str(pair.s.path))
    assert quick_check(reader) == [("ok",)]
    reader.close()


def test_what_a_unique_index_would_refuse_begins_anew(pair: Pair) -> None:
    filled(pair)
    pair.s.put(3, 31, "twice")
    pair.t.begin(pair.s)
    pair.t.pull_all(pair.s)
    pair.s.put(3, 32, "twice")
    pair.s.change("DELETE FROM t WHERE c0 = 31")
    index = Index(TABLE.id, 1, "by_b", ("b",), unique=True)
    pair.catalogue(Shape(TABLE.id, replace(TABLE, schema_version=2), (index,)))
    pair.t.store.fence = replace(pair.t.store.fence, epoch=7)
    with pytest.raises(MoveMustRestart):
        pair.t.pull_all(pair.s)
    assert pair.t.store.position()[0] == pair.t.store.get("last_epoch") != 7
    pair.t.begin(pair.s, MOVE, 2)
    pair.t.pull_all(pair.s)
    assert pair.t.content() == pair.s.content()


def test_a_column_that_is_dropped_keeps_the_width_of_rows(pair: Pair) -> None:
    filled(pair)
    pair.t.begin(pair.s)
    pair.t.pull_all(pair.s)
    pair.s.put(3, 30, "before")
    gone = replace(without_column(TABLE, "b"), schema_version=2)
    pair.catalogue(Shape(TABLE.id, gone))
    pair.s.run(f"INSERT INTO {NAME} VALUES (4, 41, NULL)")
    again = replace(gone, columns=(*gone.columns, SEVEN), schema_version=3)
    pair.catalogue(Shape(TABLE.id, again))
    pair.t.pull_all(pair.s)
    assert pair.t.content() == pair.s.content()
    assert (3, 30, "before", 7) in pair.t.content() and (4, 41, None, 7) in pair.t.content()
    pair.replicate()
    assert pair.t2.content() == pair.t.content()


def test_a_change_that_is_aborted_leaves_the_table_as_it_was(pair: Pair) -> None:
    filled(pair)
    before = pair.s.store.connection.execute("SELECT sql FROM sqlite_schema").fetchall()
    both = replace(wide(), columns=(*without_column(TABLE, "b").columns, *as_added((SEVEN,))))
    for changed in (wide(), required(), both):
        pair.s.shaped(Shape(TABLE.id, changed))
        pair.s.shaped(Shape(TABLE.id, replace(TABLE, schema_version=1)))
        assert pair.s.content(1, 1) == [(1, 10, "v1")]
        pair.s.run(f"INSERT INTO {NAME} VALUES (1, 11, NULL)")
        pair.s.run(f"DELETE FROM {NAME} WHERE c0 = 11")
    after = pair.s.store.connection.execute("SELECT sql FROM sqlite_schema").fetchall()
    assert after == before
    assert pair.s2.follow(pair.s) > 0
    assert pair.s2.content(1, 10) == pair.s.content(1, 10)


@pytest.mark.parametrize(
    ("literal", "value"),
    [("7", 7), ("(-7)", -7), ("''", ""), ("'it''s'", "it's"), ("x'00ff'", b"\0\xff"), ("", None),
     ("1.5", 1.5), ("(-2.0)", -2.0), ("1e+300", 1e300), ("9e999", float("inf"))],
)  # fmt: skip
def test_what_is_missing_is_read_as_sqlite_does(literal: str, value: object) -> None:
    found = missing_value(replace(SEVEN, missing=literal))
    assert (found, type(found)) == (value, type(value))
    if literal:
        assert apsw.Connection(":memory:").execute(f"SELECT {literal}").fetchone() == (value,)
