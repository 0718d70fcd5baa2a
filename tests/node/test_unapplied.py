"""What is committed and not applied yet: which of it a master may act without."""

from __future__ import annotations

from typing import Any

import pytest

from cairn.model.log import ops
from cairn.model.tables import system_tables as system
from cairn.model.tables.schema import FIRST_USER_TABLE_ID as FIRST
from cairn.model.tables.schema import Column, Table
from cairn.model.types.values import ColumnType
from cairn.node.consensus.unapplied import Unapplied
from cairn.raft.types import ConfChangeV2, Entry, EntryType

INSTANCE = system.PICO_INSTANCE.id
MADE = ops.CreateTable(Table(FIRST, "g", (Column("id", ColumnType.INTEGER),), ("id",)))
OF_ROWS = (
    ops.Nop(),
    ops.Insert(FIRST, (1, "a")),
    ops.Replace(FIRST + 1, (1, None)),
    ops.Update(FIRST, (1,), ((1, "b"),)),
    ops.Delete(FIRST, (1,)),
    ops.Batch((ops.Insert(FIRST, (1,)), ops.Delete(FIRST + 5, (2,)))),
)
OF_MORE = (
    ops.Update(INSTANCE, ("i1",), ((1, "b"),)),
    ops.Batch((ops.Insert(FIRST, (1,)), ops.Delete(INSTANCE, ("i1",)))),
    ops.Insert(system.CAIRN_CLOSING.id, (FIRST, b"", 1)),
    ops.DdlPrepare(1, MADE),
    ops.DdlCommit(1),
    ops.DdlAbort(1, "no"),
)


def entry(index: int, op: ops.Op) -> Entry:
    return Entry(1, index, EntryType.NORMAL, ops.encode(ops.Envelope(op, "r", "now")))


def with_these(*entries: Entry) -> Unapplied:
    made = Unapplied()
    made.add(entries)
    return made


@pytest.mark.parametrize("op", [*OF_ROWS, *OF_MORE], ids=str)
def test_an_outline_names_the_tables_whose_rows_are_changed(op: Any) -> None:
    is_ddl = isinstance(op, ops.DdlPrepare | ops.DdlCommit | ops.DdlAbort)
    dml = {each.table for each in ops.dml_of(op)}
    found = ops.outline(entry(1, op).data)
    assert (found.request_id, found.tables) == ("r", None if is_ddl else dml)


def test_rows_of_users_tables_need_not_be_applied() -> None:
    entries = [entry(index, op) for index, op in enumerate(OF_ROWS, 7)]
    last = entries[-1].index
    assert [with_these(*entries).are_rows(at) for at in (last, last + 1)] == [True, False]


@pytest.mark.parametrize("op", OF_MORE, ids=str)
def test_whatever_else_is_among_them_has_to_be(op: Any) -> None:
    waiting = with_these(entry(7, OF_ROWS[1]), entry(8, op), entry(9, OF_ROWS[1]))
    assert [waiting.are_rows(at) for at in (7, 8, 9)] == [True, False, False]
    waiting.forget(8)
    assert [waiting.are_rows(at) for at in (9, 10)] == [True, False]


@pytest.mark.parametrize(
    "other",
    [
        Entry(1, 7, EntryType.NORMAL, b""),
        Entry(1, 7, EntryType.NORMAL, b"\xc1 no entry"),
        Entry(1, 7, EntryType.CONF_CHANGE, ConfChangeV2().encode()),
    ],
    ids=["of a new leader", "garbage", "of members"],
)
def test_what_is_no_statement_has_to_be_applied(other: Entry) -> None:
    assert not with_these(other).are_rows(7)
