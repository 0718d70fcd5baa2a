"""Indexes of large tables, filled on this instance while everybody writes, before they are made.

Whoever runs `CREATE INDEX` asks every instance that has rows of the table, again and again
(`node/statements/changes/filled_first.py`). The first question begins the work, and when nobody
asks any more, what was done of it is forgotten. The schema change then finds the index filled, and
takes milliseconds. What is not there then is made by the schema change itself, as for small tables.

Order: the hidden index (`storage/data_db/hidden/indexes.py`) is there before the first key is
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
from cairn.storage.data_db.hidden.key_list import KeyList, count_rows, has_over
from cairn.storage.sqlite_errors import translated

T = TypeVar("T")

SMALL_ROWS = 50_000  # an index over so many is made faster than anybody waits for
STEP_ROWS = 5_000  # of one transaction: bounds how long writes of others wait
PIECE_ROWS = 20_000  # aimed at: what is read in one go
UNASKED_S = 15.0  # after which nobody wants it any more
LOOK_S = 1.0


class _NotWanted(Exception):
    """Nobody asks any more, or the table was dropped or made anew, and the index with it."""


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
        self._fills: dict[int, _Fill] = {}  # by table

    async def answer(self, request: FillIndexRequest) -> FillIndexResponse:
        """How far it is. It goes on as long as this is asked."""
        table = self._data.store.tables.get(request.index.table_id)
        if table is None:  # not here yet: the schema change will find it empty
            return FillIndexResponse(is_filled=True)
        _check(table, request.index)
        if self._under_way(table) is None and not await self._is_large(table):
            return FillIndexResponse(is_filled=True)
        if request.only_look:
            return FillIndexResponse(is_filled=False)
        fill = self._under_way(table) or self._begin(table, request.index)
        if not fill.is_for(request.index):  # that of another question: one at a time
            return FillIndexResponse(is_filled=False, is_busy=True)
        fill.asked_at = asyncio.get_running_loop().time()
        if fill.problem is not None:
            self._end(fill)  # told once: who asks again may have mended what was wrong
            raise fill.problem
        return FillIndexResponse(fill.is_filled, fill.done, fill.count)

    def _under_way(self, table: Table) -> _Fill | None:
        """None: there is none, or a schema change has taken it, and the next one needs another."""
        fill = self._fills.get(table.id)
        if fill is not None and fill.is_filled and table.id not in self._data.store.hidden.whole:
            return None
        return fill

    async def _is_large(self, table: Table) -> bool:
        try:
            return await asyncio.to_thread(has_over, self._data.store.path, table, SMALL_ROWS)
        except apsw.Error as problem:
            if self._is_gone(table):
                return False
            raise translated(problem) from None

    def _is_gone(self, table: Table) -> bool:
        """Dropped or made anew since: what was read of it may say anything."""
        return self._data.store.tables.get(table.id) is not table

    def _begin(self, table: Table, index: Index) -> _Fill:
        fill = self._fills[table.id] = _Fill(index, asyncio.get_running_loop().time())
        spawn(self._run(fill, table), f"fill an index of {table.name}")
        return fill

    def _is_wanted(self, fill: _Fill) -> bool:
        return asyncio.get_running_loop().time() - fill.asked_at < UNASKED_S

    async def _run(self, fill: _Fill, table: Table) -> None:
        try:
            await self._fill(fill, table)
            fill.is_filled = True
        except _NotWanted:
            self._end(fill)
        except (CairnError, apsw.Error) as problem:
            if self._is_gone(table):
                self._end(fill)
            else:
                told = translated(problem) if isinstance(problem, apsw.Error) else problem
                fill.problem = told.without_frames()
        while self._fills.get(table.id) is fill and self._is_wanted(fill):
            await asyncio.sleep(LOOK_S)
        self._end(fill)
        await self._drop(table.id)

    async def _drop(self, table_id: int) -> None:
        """Also where the disk is full for a while, unless it is filled anew meanwhile."""
        hidden = self._data.store.hidden
        while table_id not in self._fills:
            try:
                await self._write(partial(hidden.drop, table_id))
                await self._write(hidden.rest)
                return
            except CairnError:
                await asyncio.sleep(LOOK_S)

    def _end(self, fill: _Fill) -> None:
        """Who asks from now on begins anew."""
        if self._fills.get(fill.index.table_id) is fill:
            del self._fills[fill.index.table_id]

    async def _write(self, work: Callable[[], T]) -> T:
        """On the writer. What SQLite refuses of an index ends the filling and nothing else."""

        def told() -> T:
            try:
                return work()
            except apsw.Error as problem:
                raise translated(problem) from None

        return await self._data.run(told, alone=True)

    async def _fill(self, fill: _Fill, table: Table) -> None:
        hidden, index = self._data.store.hidden, fill.index

        def begin() -> bool:
            if self._data.store.tables.get(table.id) != table:  # an index of what is not there
                return False  # would make the whole file unreadable
            hidden.begin(table, index)
            return True

        if not await self._write(begin):
            raise _NotWanted
        if index.computed:
            await self._add_by_rows(fill, table)
        else:
            await self._add_by_entries(fill, table)
        if not await self._write(partial(hidden.is_filled, table, index)):
            raise _NotWanted

    async def _add_by_rows(self, fill: _Fill, table: Table) -> None:
        hidden = self._data.store.hidden
        fill.count = await asyncio.to_thread(count_rows, self._data.store.path, table)
        add = partial(hidden.add_next, table, fill.index, STEP_ROWS)
        while await self._add(fill, add):
            pass

    async def _add_by_entries(self, fill: _Fill, table: Table) -> None:
        hidden, index = self._data.store.hidden, fill.index
        keys = await asyncio.to_thread(KeyList, self._data.store.path, table, index, self._register)
        try:
            await self._gather(fill, keys)
            fill.count = keys.count
            while (packed := await asyncio.to_thread(keys.take, STEP_ROWS)) is not None:
                if not await self._add(fill, partial(hidden.add, table, index, packed)):
                    raise _NotWanted
        finally:
            await asyncio.to_thread(keys.close)

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

    async def _add(self, fill: _Fill, add: Callable[[], T]) -> T:
        """The writer is left to others for as long as it was taken from them."""
        self._check_wanted(fill)
        loop = asyncio.get_running_loop()
        begun = loop.time()

        def unheard() -> T:
            with self._data.store.unheard():
                return add()

        found = await self._write(unheard)
        fill.done = min(fill.done + STEP_ROWS, fill.count)
        await asyncio.sleep(loop.time() - begun)
        return found

    def _check_wanted(self, fill: _Fill) -> None:
        if not self._is_wanted(fill):
            raise _NotWanted


def _check(table: Table, index: Index) -> None:
    for name in index.columns:
        if table.column(name) is None:
            raise UndefinedColumn(f"column {name} of table {table.name} is not here")
    if any(at >= len(table.columns) for at in index.all_places):
        raise UndefinedColumn(f"a column of index {index.name} is not here")
