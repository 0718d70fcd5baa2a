"""Running one operation of the governor's queue, exactly once, whatever dies in between.

The status changes in the same Raft entry as the effect where there is one (DML on global tables,
ACL, settings; DDL flips it in its commit or abort). DML on sharded tables leaves its id in the same
transaction as the rows of each replicaset, so repeating it does nothing
(docs/adr/0010-queue-claims.md).

Whoever runs an operation may have lost the leadership without knowing it, and another may be
running the same one. So every proposal is claimed: at its position the row must still be pending,
and nothing that touches the row may come between (`_claim`).
"""

from __future__ import annotations

import logging
import zlib

import msgspec

from cairn.governor.actions import RunOperation
from cairn.model.errors import AccessDenied, CairnError, CasRetry, PeerRefused, Unsupported
from cairn.model.log import ops
from cairn.model.log.ranges import one_key
from cairn.model.tables.catalog import ADMIN_ID, User
from cairn.model.tables.system_tables import PICO_GOVERNOR_QUEUE
from cairn.node.consensus.global_state import GlobalState
from cairn.node.consensus.proposals import Proposer
from cairn.node.consensus.raft_runner import RaftRunner
from cairn.node.statements.changes.access import check_all_rights
from cairn.node.statements.context import Context, Queued
from cairn.node.statements.executor import Executor
from cairn.sql import plans
from cairn.sql.api import prepare
from cairn.sql.plans import Prepared

log = logging.getLogger("cairn.queue")

OPERATION_S = 30.0
_QUEUE = PICO_GOVERNOR_QUEUE

#: Verdicts on the statement itself, by SQLSTATE class; all else is trouble that may pass.
_VERDICTS = ("0A", "21", "22", "23", "25", "26", "28", "2B", "42", "54", "55", "P0")


def is_verdict(problem: CairnError) -> bool:
    """Whether the statement is to blame, so that trying it again would fail again."""
    if isinstance(problem, PeerRefused):
        return False  # two instances do not understand each other; the statement has no part in it
    return problem.sqlstate[:2] in _VERDICTS and problem.sqlstate != "42999"


def settle(op_id: int, status: str, why: str | None = None) -> ops.Update:
    changes = (
        (_QUEUE.position("status"), status),
        (_QUEUE.position("status_description"), why),
    )
    return ops.Update(_QUEUE.id, (op_id,), changes)


def operation_name(action: RunOperation) -> str:
    """Under which replicasets remember it. A repaired text is another operation."""
    return f"queue-{action.op_id}-{zlib.crc32(action.op.encode()):08x}"


class _Statement(msgspec.Struct):
    prepared: Prepared
    sharded: dict[int, int]
    oids: tuple[int, ...] = ()


class QueueRunner:
    def __init__(
        self, state: GlobalState, runner: RaftRunner, proposer: Proposer, executor: Executor
    ) -> None:
        self._state, self._runner, self._proposer = state, runner, proposer
        self._executor = executor

    async def run(self, action: RunOperation) -> None:
        """One operation to its end; raises only for trouble that leaves it pending."""
        # The row may be seen before the pictures show what came before it, a table for instance.
        await self._runner.wait_applied(self._state.applied_on_disk(), OPERATION_S)
        try:
            await self._run(action)
        except CairnError as problem:
            if not is_verdict(problem):
                raise
            why = f"{problem}: {problem.detail}" if problem.detail else str(problem)
            await self._settle(action, "failed", why)
            log.error("operation %d failed: %s", action.op_id, why)

    async def _run(self, action: RunOperation) -> None:
        user = self._owner(action)
        prepared = self._prepare(action, user.id)

        def done() -> tuple[ops.Dml, ...]:
            self._claim(action)
            return (settle(action.op_id, "done"),)

        if not isinstance(prepared.plan, plans.CHANGES):
            raise Unsupported(f"{prepared.tag or 'an empty statement'} cannot be queued")
        outcome = await self._executor.run(
            _Statement(prepared, self._state.catalog.sharded(prepared.tables)),
            (),
            Context(
                user_id=user.id,
                user=user.name,
                operation=operation_name(action),
                queued=Queued(action.op_id, action.is_upgrade, done),
            ),
        )
        if not outcome.is_queue_told:
            await self._settle(action, "done")
        log.info("operation %d was run", action.op_id)

    def _owner(self, action: RunOperation) -> User:
        """Whose rights count: those that its owner has now, not those of the day it was queued."""
        owner = ADMIN_ID if action.owner is None else action.owner
        user = self._state.catalog.user_by_id(owner)
        if user is None:
            raise AccessDenied(
                f"the user with id {owner}, who queued this, was dropped",
                hint="an administrator takes it over by setting its op anew",
            )
        return user

    def _prepare(self, action: RunOperation, user: int) -> Prepared:
        if action.op_format != "sql":
            raise Unsupported(f"op_format '{action.op_format}' is not known; use sql")
        catalog = self._state.catalog
        if action.is_upgrade:
            catalog = msgspec.structs.replace(catalog, is_upgrading=True)
        try:
            prepared = prepare(action.op, catalog, user_id=user)
        except CairnError:
            raise
        except Exception as bug:
            # Ours, but leader after leader would die of it; planning has touched nothing yet.
            log.exception("operation %d cannot be planned", action.op_id)
            raise Unsupported(f"the statement cannot be planned: {bug!r}") from bug
        if prepared.param_types:
            raise Unsupported("an operation of the queue cannot have parameters")
        check_all_rights(prepared, catalog, user)
        return prepared

    def _claim(self, action: RunOperation) -> None:
        """Refuse to go on unless the row is as it was planned. Call it where the position is taken:
        what changes the row later is then found by the compare-and-swap."""
        row = self._state.queued(action.op_id)
        if row is None or (row.status, row.op, row.owner) != ("pending", action.op, action.owner):
            raise CasRetry(f"operation {action.op_id} was settled or changed meanwhile")

    async def _settle(self, action: RunOperation, status: str, why: str | None = None) -> None:
        proposer = self._proposer
        # A schema change carries its operation's end without naming the row: it counts too.
        ranges = (one_key(_QUEUE.id, (action.op_id,)), ops.SCHEMA_RANGE)
        predicate = proposer.predicate(ranges)
        self._claim(action)
        await proposer.cas(settle(action.op_id, status, why), predicate)
