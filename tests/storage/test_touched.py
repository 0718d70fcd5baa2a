"""Who has seen rows of a bucket is told when they may have changed since, whoever changed them."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

from cairn.model.log.records import RowChange, RowOp
from cairn.storage.data_db.shapes import RowTables
from cairn.storage.data_db.touched import MOST, Touched

TABLE, OTHER = 7, 8


def inserted(table: int, bucket: int) -> RowChange:
    return RowChange(table, 1, RowOp.INSERT, None, (bucket, "a"))


def test_only_what_was_touched_after_one_looked_counts() -> None:
    touched = Touched()
    touched.rows([inserted(TABLE, 1)])
    then = touched.now
    touched.rows([inserted(TABLE, 2), inserted(OTHER, 1)])
    assert not touched.is_since(then, (TABLE,), (1, 3))
    assert touched.is_since(then, (TABLE,), (1, 2))
    assert touched.is_since(then, (TABLE, OTHER), (1,))
    assert not touched.is_since(touched.now, (TABLE, OTHER), (1, 2))


def test_a_row_that_changes_its_bucket_touches_both() -> None:
    touched = Touched()
    touched.rows([RowChange(TABLE, 1, RowOp.UPDATE, (1, "a"), (2, "a"))])
    assert touched.is_since(0, (TABLE,), (1,)) and touched.is_since(0, (TABLE,), (2,))


def test_what_is_not_known_in_detail_touches_everything() -> None:
    touched = Touched()
    touched.all()
    assert touched.is_since(0, (TABLE,), (1,))
    assert not touched.is_since(touched.now, (TABLE,), (1,))


@pytest.mark.parametrize("is_one_by_one", [True, False])
def test_more_buckets_than_are_remembered_count_as_all(is_one_by_one: bool) -> None:
    touched = Touched()
    if is_one_by_one:
        for bucket in range(MOST + 1):
            touched.row(TABLE, bucket)
    else:
        touched.rows([inserted(TABLE, bucket) for bucket in range(MOST + 1)])
    assert touched.is_since(0, (OTHER,), (1,))


@pytest.mark.parametrize("is_told", [True, False])
def test_changes_behind_the_back_of_the_hook_touch_everything(is_told: bool) -> None:
    tables = RowTables(Path())
    tables.connection = apsw.Connection(":memory:")
    then = tables.touched.now
    if is_told:
        tables.repeat((inserted(TABLE, 1),), lambda: None)  # of a look: it is taken back
    else:
        with tables.unobserved():
            pass
    assert tables.touched.is_since(then, (TABLE,), (1,)) is not is_told
