"""`CALL cairn_put(…)`: many rows of a global table in one entry of the Raft log, once.

The row that says that it was done is written by the same entry: whoever repeats the call, however
late, changes nothing. An overwrite empties the table in that entry, too: nobody ever sees a part.
"""

from __future__ import annotations

import asyncio
from typing import Any

from cairn.model.errors import InvalidParameter, UndefinedTable
from cairn.model.log.ranges import one_key
from cairn.model.quoting import identifier
from cairn.model.tables.schema import Table, physical_column
from cairn.server.caller import Caller
from cairn.server.calls.bulk import column_names, from_base64
from cairn.server.scan.arrow_in import RowDecoder
from cairn.sql.plans import GlobalChange, GlobalWrite, ReadLocal
from cairn.storage.data_db.shapes import TooLongHere

ROWS_ON_LOOP = 100  # more are looked at on a thread: others want to be answered meanwhile
_CONFLICTS = {
    "error": "",
    "ignore": " ON CONFLICT DO NOTHING",
    "replace": " ON CONFLICT DO REPLACE",
}


async def put(
    caller: Caller,
    table: str,
    columns: str,
    conflict: str,
    overwrite: bool,
    done: str,
    write_id: str,
    body: str,
) -> Any:
    """`CALL cairn_put('t', '["a"]', 'error', false, 'done', 'id', 'base64 of an Arrow stream')`.

    `done` is a global table (write_id TEXT PRIMARY KEY, created INTEGER).
    """
    if conflict not in _CONFLICTS:
        raise InvalidParameter(f"conflict {conflict}: one of {', '.join(_CONFLICTS)}")
    target, names = global_table(caller, table), column_names(columns)
    marks, listed = _marks(len(names)), ", ".join(map(identifier, names))
    text = f"INSERT INTO {identifier(table)} ({listed}) VALUES ({marks}){_CONFLICTS[conflict]}"
    insert = _write_plan(caller, text)
    delete = _write_plan(caller, f"DELETE FROM {identifier(table)}") if overwrite else None
    decoder = RowDecoder(target, names)
    rows = await asyncio.to_thread(lambda: decoder.rows(from_base64(body)))
    note = _write_plan(caller, f"INSERT INTO {identifier(done)} VALUES ($1, $2)")
    key = physical_column(note.table.position("write_id"))
    is_noted = f"SELECT 1 FROM {note.table.physical_name} WHERE {key} = ?1"
    stamp = int(caller.instance.runtime.wall_clock().timestamp())

    def execute(read: ReadLocal, _: Any) -> GlobalChange:
        if len(rows) > ROWS_ON_LOOP and _is_on_loop():
            raise TooLongHere
        if read(is_noted, (write_id,)):
            return GlobalChange((), (), 0)
        noted = note.execute(read, (write_id, stamp))
        gone = delete.execute(read, ()) if delete is not None else GlobalChange((), (), 0)
        assert insert.execute_rows is not None
        seen = read if delete is None else _nothing
        came = insert.execute_rows(seen, (), rows)
        return GlobalChange(
            (*noted.ops, *gone.ops, *came.ops),
            (*noted.ranges, *gone.ranges, *came.ranges, one_key(note.table.id, (write_id,))),
            came.row_count,
        )

    plan = GlobalWrite(target, execute)
    change = await caller.executor.global_writes.run(plan, (), {}, caller.context.at_masters())
    return {"rows": change.row_count, "is_done_before": not change.ops}


def _write_plan(caller: Caller, text: str) -> GlobalWrite:
    plan = caller.allowed(text).prepared.plan
    if not isinstance(plan, GlobalWrite):
        raise InvalidParameter("cairn_put writes global tables")
    return plan


def global_table(caller: Caller, name: str) -> Table:
    table = caller.catalog.table(name)
    if table is None:
        raise UndefinedTable(f'table with name "{name}" not found')
    if not table.is_global:
        raise InvalidParameter(f"{name} is a sharded table", hint="use COPY or cairn_ingest")
    return table


def _marks(count: int) -> str:
    return ", ".join(f"${at}" for at in range(1, count + 1))


def _nothing(sql: str, args: Any) -> list[Any]:
    """What an insert finds in a table that was emptied before it."""
    return []


def _is_on_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
