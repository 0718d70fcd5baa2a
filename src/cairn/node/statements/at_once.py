"""Answers in the turn in which they are asked for: rows by their key, or a few rows that are here.

Whatever has to be looked at first is refused (None): options, limits, hints, other places. The
wider doors of the executor know why.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from cairn.model.errors import NumbersNeeded
from cairn.native.point_reads import PointRead
from cairn.node.consensus.global_state import GlobalState
from cairn.node.runtime import Runtime
from cairn.node.statements.asker.reading import Reads
from cairn.node.statements.asker.streams import Stream
from cairn.node.statements.blocks.asking import Statement
from cairn.node.statements.context import OF_CLUSTER, Context
from cairn.sql import plans
from cairn.sql.plans import Prepared

AT_ONCE_ROWS = 500  # that are told in one turn of the loop
Row = tuple[Any, ...]


class Outcome(msgspec.Struct):
    """What a statement gave: rows for those that have them, a count for the others."""

    rows: Sequence[Row] | None
    count: int
    tag: str
    notices: tuple[str, ...] = ()
    stale_s: float | None = None  # how old the rows of a replica may be
    more: Stream | None = None  # the rest of a longer answer, for a context that takes pieces
    is_queue_told: bool = False  # the entry of the effect ends the queued operation as well


class AtOnce:
    def __init__(self, state: GlobalState, runtime: Runtime, reads: Reads) -> None:
        self._state, self._now, self._reads = state, runtime.wall_clock, reads
        self._execution, self._owners = reads.owners.execution, reads.owners
        self.read_settings()

    def read_settings(self) -> None:
        """Settings of the cluster that every point read needs: looked up when they change."""
        self.opcode_max = int(self._state.setting("sql_vdbe_opcode_max", 0) or 0)
        self.row_max = int(self._state.setting("sql_motion_row_max", 0) or 0)

    def now(self, statement: Statement, params: Sequence[Any], context: Context) -> Outcome | None:
        """The outcome in this turn, for what can have one."""
        prepared = statement.prepared
        plan = prepared.plan
        if type(plan) is plans.PointRead and self.reads_plainly(prepared, context):
            if prepared.hidden or prepared.labels:
                params = prepared.start(params, context.now or self._now())
            args = plan.bind(params)
            bucket: Any = None if plan.bucket is None else args[0]
            reads = self._execution.reads
            sharded, quick = statement.sharded, reads.reader.quick
            try:
                rows = reads.quick_read(bucket, sharded, quick, plan.sql, args)
            except NumbersNeeded:
                return None  # `run` brings them
            if rows is None:
                return None
            self._owners.local += 1
            count = len(rows)
            return Outcome(rows, count, prepared.complete(count))
        if type(plan) is plans.ScatterRead:
            return self._now_whole(statement, plan, params, context)
        if type(plan) is plans.EmptyPlan:
            return Outcome(None, 0, "")
        return None

    def _now_whole(
        self,
        statement: Statement,
        plan: plans.ScatterRead,
        params: Sequence[Any],
        context: Context,
    ) -> Outcome | None:
        """A few rows by an index or of a few keys, all of whose buckets are here."""
        prepared, way = statement.prepared, plan.alone
        if not self.reads_shortly(prepared, context):
            return None
        if prepared.hidden or prepared.labels:
            params = prepared.start(params, context.now or self._now())
        if way is None:
            found = self._reads.short.here(plan, params, statement.sharded)
            if found is None:
                return None
            return Outcome(found, len(found), prepared.complete(len(found)))
        [fragment] = way.fragments
        ranges = self._owners.whole_here(fragment, params)
        if ranges is None:
            return None
        reads = self._execution.reads
        sql, args = fragment.asked(params, ranges)
        rows = reads.quick_read(
            ranges, statement.sharded, reads.reader.quick_rows, sql, args, AT_ONCE_ROWS
        )
        if rows is None:
            return None
        self._owners.local += 1
        return Outcome(rows, len(rows), prepared.complete(len(rows)))

    def answer(
        self, statement: Statement, context: Context, bucket: int, read: PointRead
    ) -> tuple[bytes, int] | None:
        """The same for a row of a known bucket: the messages that tell it, and how many rows."""
        if not self.reads_plainly(statement.prepared, context):
            return None
        reads = self._execution.reads
        at = bucket if read.is_keyed else None
        found = reads.quick_read(at, statement.sharded, reads.reader.answer, read)
        if found is not None:
            self._owners.local += 1
            self._owners.compiled += 1
        return found

    def reads_plainly(self, prepared: Prepared, context: Context) -> bool:
        """Whether a point read is just that: from the master, without options and limits."""
        if prepared.options or context.preference != "leader":
            return False
        most = context.opcode_max
        return not (self.opcode_max if most == OF_CLUSTER else most)

    def reads_shortly(self, prepared: Prepared, context: Context) -> bool:
        """The same for what may have several rows, of several owners."""
        if not (self.may_hop(prepared, context) and self.reads_plainly(prepared, context)):
            return False
        most = context.row_max
        return not (self.row_max if most == OF_CLUSTER else most) and context.stage is None

    def may_hop(self, prepared: Prepared, context: Context) -> bool:
        """Whether nothing has to be looked at before the owner is asked."""
        return not (prepared.options or context.wants_hints or context.forward != "on")
