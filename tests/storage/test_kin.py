"""Foreign keys as the writer looks at them: how much of a table it reads for that."""

from __future__ import annotations

import apsw
import pytest

from cairn.model.errors import ForeignKeyViolation
from cairn.model.log.records import RowChange, RowOp
from cairn.model.tables.schema import Column, ForeignKey, Sharded, Table
from cairn.model.types.values import ColumnType
from cairn.storage.data_db.kin import Enforcing, Kin

ROWS = 5_000


def _table(number: int, *keys: ForeignKey) -> Table:
    columns = tuple(Column(name, ColumnType.INTEGER) for name in ("id", "p"))
    return Table(number, f"n{number}", columns, ("id",), Sharded((), "default"), foreign_keys=keys)


PARENT = _table(1001)
CHILD = _table(1002, ForeignKey("fk", (1,), 1001, (0,)))


class Steps:
    def __init__(self, connection: apsw.Connection) -> None:
        self.count = 0
        connection.set_progress_handler(self, 10)

    def __call__(self) -> bool:
        self.count += 1
        return False


def _filled() -> apsw.Connection:
    connection = apsw.Connection(":memory:")
    for table in (PARENT, CHILD):
        names = ", ".join(table.physical_columns)
        key = f"PRIMARY KEY (bucket_id, {table.physical_columns[1]})"
        connection.execute(f"CREATE TABLE {table.physical_name} ({names}, {key}) WITHOUT ROWID")
    connection.execute("INSERT INTO t1001 VALUES (1, 1, NULL)")
    rows = ((1, k, 1) for k in range(ROWS))
    connection.executemany("INSERT INTO t1002 VALUES (?, ?, ?)", rows)
    return connection


def _came(*rows: tuple[int, int, int]) -> list[RowChange]:
    return [RowChange(CHILD.id, 0, RowOp.INSERT, None, row) for row in rows]


def _enforcing(connection: apsw.Connection, changes: list[RowChange]) -> Enforcing:
    return Enforcing(connection, Kin({PARENT.id: PARENT, CHILD.id: CHILD}), changes, 0)


def test_a_row_that_names_nobody_is_found_without_reading_the_table() -> None:
    """It runs on the event loop, and the column of the key may have no index."""
    connection = _filled()
    row = (1, ROWS, 7)
    connection.execute("INSERT INTO t1002 VALUES (?, ?, ?)", row)
    steps = Steps(connection)
    with pytest.raises(ForeignKeyViolation):
        _enforcing(connection, _came(row)).check(0, deferred=False)
    assert steps.count < ROWS / 100


def test_rows_that_went_again_are_forgiven_and_others_with_the_same_key_are_not() -> None:
    connection = _filled()
    gone, moved, stays = (1, ROWS, 7), (1, ROWS + 1, 7), (1, ROWS + 2, 7)
    _enforcing(connection, _came(gone)).check(0, deferred=False)
    connection.execute("INSERT INTO t1002 VALUES (?, ?, ?)", stays)
    with pytest.raises(ForeignKeyViolation):
        _enforcing(connection, _came(gone, stays)).check(0, deferred=False)
    changed = RowChange(CHILD.id, 0, RowOp.UPDATE, moved, stays)  # of its own key alone
    with pytest.raises(ForeignKeyViolation):
        _enforcing(connection, [*_came(moved), changed]).check(0, deferred=False)
