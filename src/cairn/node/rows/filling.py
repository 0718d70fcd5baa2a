"""Indexes of large tables, filled on this instance while everybody writes, before they are made.

Whoever runs `CREATE INDEX` asks every instance that has rows of the table, again and again
(`node/statements/changes/filled_first.py`). The first question begins the work, and when nobody
asks any more, what was done of it is forgotten. The schema change then finds the index filled, and
takes milliseconds. What is not there then is made by the schema change itself, as for small tables.

Order: the hidden index (`storage/data_db/hidden_indexes.py`) is there before the first key is
looked for, so that a row which is not among the keys was written since, and has its entry by that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TypeVar

import apsw

from cairn.model.errors import CairnError, UndefinedColumn
from cairn.model.rpc import FillIndexRequest, FillIndexResponse
from cairn.model.tables.schema import Index, Table
from cairn.node.consensus.global_state import GlobalState
from cairn.node.rows.data_plane import DataPlane
from cairn.node.runtime import spawn
from cairn.storage.data_db.key_list import KeyList, has_over
from cairn.storage.sqlite_errors import translated

T = TypeVar("T")

SMALL_ROWS = 50_000  # an index over so many is made faster than anybody waits for
STEP_ROWS = 5_000  # of one transaction: bounds how long writes of others wait
PIECE_ROWS = 20_000  # aimed at: what is read in one go
UNASKED_S = 15.0  # after which nobody wants it any more
LOOK_S = 1.0


class _Fill:
    """One index on its way. `is_filled`: the schema change may come."""

    def __init__(self, index: Index, now: float) -> None:
        self.index, self.asked_at = index, now
        self.done = self.count = 0
        self.is_filled = False
        self.problem: CairnError | None = None

    def is_for(self, index: Index) -> bool:
        return (index.columns, index.unique, index.rule, index.computed) == (
            *(self.index.columns, self.index.unique),
            *(self.index.rule, self.index.computed),
        )


class Filling:
    """`register` gives a connection the functions that indexes may compute with."""

    def __init__(
        self,
        name: str,
        state: GlobalState,
        data: DataPlane,
        register: Callable[[apsw.Connection], None],
    ) -> None:
        self._name, self._state, self._data, self._register = name, state, data, register
        self._hidden = data.store.hidden
        self._fills: dict[int, _Fill] = {}  # by table

    async def answer(self, request: FillIndexRequest) -> FillIndexResponse:
        """How far it is. It goes on as long as this is asked."""
        now = asyncio.get_running_loop().time()
        table = self._data.store.tables.get(request.index.table_id)
        if table is None:  # not here yet: the schema change will find it empty
            return FillIndexResponse(is_filled=True)
        _check(table, request.index)
        if self._current(table) is None and not await self._is_large(table):
            return FillIndexResponse(is_filled=True)
        fill = self._current(table)
        if fill is None:
            fill = self._fills[table.id] = _Fill(request.index, now)
            spawn(self._run(fill, table), f"fill an index of {table.name}")
        elif fill.is_for(request.index):
            fill.asked_at = now
        else:  # that of another question: one at a time
            return FillIndexResponse(is_filled=False)
        if fill.problem is not None:  # told once: whoever tries again may have mended it
            del self._fills[table.id]
            raise fill.problem
        return FillIndexResponse(fill.is_filled, fill.done, fill.count)

    def _current(self, table: Table) -> _Fill | None:
        """What a schema change has taken is over: the next index needs another."""
        fill = self._fills.get(table.id)
        is_used = fill is not None and fill.is_filled and table.id not in self._hidden.whole
        return None if is_used else fill

    async def _is_large(self, table: Table) -> bool:
        try:
            return await asyncio.to_thread(has_over, self._data.store.path, table, SMALL_ROWS)
        except apsw.Error as problem:
            raise translated(problem) from None

    def _is_wanted(self, fill: _Fill) -> bool:
        return asyncio.get_running_loop().time() - fill.asked_at < UNASKED_S

    async def _run(self, fill: _Fill, table: Table) -> None:
        """Until it is used, or nobody wants it any more: then nothing of it is left."""
        try:
            fill.problem = await self._tried(fill, table)
            fill.is_filled = fill.problem is None
            while self._is_wanted(fill) and self._fills.get(table.id) is fill:
                await asyncio.sleep(LOOK_S)
        finally:
            is_last = self._fills.get(table.id) is fill
            if is_last:
                del self._fills[table.id]
        if is_last and fill.problem is None:
            await self._write(partial(self._hidden.drop, table.id))

    async def _tried(self, fill: _Fill, table: Table) -> CairnError | None:
        """What came of it. Where something did, it is gone before anybody is told."""
        try:
            await self._fill(fill, table)
        except (CairnError, apsw.Error) as problem:
            await self._write(partial(self._hidden.drop, table.id))
            told = problem if isinstance(problem, CairnError) else translated(problem)
            return told.without_frames()
        return None

    async def _write(self, work: Callable[[], T]) -> T:
        """On the writer. What SQLite refuses of an index ends the filling and nothing else."""

        def told() -> T:
            try:
                return work()
            except apsw.Error as problem:
                raise translated(problem) from None

        return await self._data.run(told, alone=True)

    async def _fill(self, fill: _Fill, table: Table) -> None:
        hidden, index = self._hidden, fill.index
        await self._write(partial(hidden.begin, table, index))
        keys = await asyncio.to_thread(KeyList, self._data.store.path, table, index, self._register)
        try:
            await self._gather(fill, keys)
            fill.count = keys.count
            while (packed := await asyncio.to_thread(keys.take, STEP_ROWS)) is not None:
                await self._add(fill, table, packed)
        finally:
            await asyncio.to_thread(keys.close)
        if not await self._write(partial(hidden.is_filled, table, index)):
            raise _gone(table)

    async def _gather(self, fill: _Fill, keys: KeyList) -> None:
        me = self._state.cluster.instances.get(self._name)
        tier = self._state.cluster.tiers.get(me.tier) if me is not None else None
        last = tier.bucket_count if tier is not None else 0
        low, width = 0, 1
        while low <= last:
            self._check_wanted(fill)
            high = min(low + width - 1, last)
            found = await asyncio.to_thread(keys.gather, low, high)
            low = high + 1
            width = max(width // 2, 1) if found > PIECE_ROWS else min(2 * width, 4096)

    async def _add(self, fill: _Fill, table: Table, packed: bytes) -> None:
        """The writer is left to others for as long as it was taken from them."""
        self._check_wanted(fill)
        loop = asyncio.get_running_loop()
        begun = loop.time()

        def add() -> bool:
            with self._data.store.unheard():
                return self._hidden.add(table, fill.index, packed)

        if not await self._write(add):
            raise _gone(table)
        fill.done = min(fill.done + STEP_ROWS, fill.count)
        await asyncio.sleep(loop.time() - begun)

    def _check_wanted(self, fill: _Fill) -> None:
        if not self._is_wanted(fill):
            raise CairnError("nobody waits for this index any more", sqlstate="57014")


def _check(table: Table, index: Index) -> None:
    for name in index.columns:
        if table.column(name) is None:
            raise UndefinedColumn(f"column {name} of table {table.name} is not here")
    if any(at >= len(table.columns) for at in index.all_places):
        raise UndefinedColumn(f"a column of index {index.name} is not here")


def _gone(table: Table) -> CairnError:
    return CairnError(
        f"table {table.name} was changed while its index was being filled",
        hint="try again",
        sqlstate="40001",
    )
