"""Writes of several parts that were begun here, by table: a schema change lets them end first.

A COPY is one while it holds rows for the table as it is (`server/scan/copy_place.py`).

Invariant: no owner changes a table while a write of several parts is under way under its old
version, or the write would be half done. The order is: the change is prepared in the Raft log (from
its entry on no instance begins a write to the table); every instance says that those it had begun
have ended (`let_writes_end`); only then the masters change their tables. An instance that does not
answer is not waited for: its half-done write is told as such (PC006).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from cairn.model.log import ops
from cairn.model.rpc import Empty, SchemaChangeRequest
from cairn.node.consensus.global_state import GlobalState
from cairn.node.consensus.raft_runner import RaftRunner
from cairn.node.waiting import until

LONGEST_S = 2.0  # that a schema change waits for them
LOOK_S = 0.002
Nudge = Callable[[], None]


class UnderWay:
    """One for the instance."""

    def __init__(self) -> None:
        self._writes: Counter[int] = Counter()
        self._nudged: set[tuple[int, Nudge]] = set()

    @contextmanager
    def write(self, table: int, nudge: Nudge | None = None) -> Iterator[None]:
        """`nudge` is called when somebody waits for its end, of a write that can end early."""
        heard = set() if nudge is None else {(table, nudge)}
        self._writes[table] += 1
        self._nudged |= heard
        try:
            yield
        finally:
            self._nudged -= heard
            self._writes[table] -= 1
            if not self._writes[table]:
                del self._writes[table]

    def has(self, table: int) -> bool:
        return table in self._writes

    def nudge(self, table: int) -> None:
        for of, nudge in [*self._nudged]:
            if of == table:
                nudge()


class LetWritesEnd:
    """Answers the governor before it asks masters to change a table."""

    def __init__(self, runner: RaftRunner, state: GlobalState, under_way: UnderWay) -> None:
        self._runner, self._state, self._under_way = runner, state, under_way

    async def answer(self, request: SchemaChangeRequest) -> Empty:
        await self._runner.wait_applied(request.index, request.timeout_s)
        pending = self._state.pending_ddl()
        if pending is not None and pending.schema_version == request.schema_version:
            table = ops.table_of(pending.ddl)
            self._under_way.nudge(table)
            await until(lambda: not self._under_way.has(table), LONGEST_S, LOOK_S)
        return Empty()
