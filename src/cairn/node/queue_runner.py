"""Running one operation of the governor's queue, exactly once, whatever dies in between.

The status changes in the same Raft entry as the effect where there is one (DML on global tables,
ACL, settings; DDL flips it in its commit or abort). DML on sharded tables leaves its id in the same
transaction as the rows of each replicaset, so repeating it does nothing (seeds/003, issue's ADR).
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime

import msgspec

from cairn.governor.actions import RunOperation
from cairn.model import ops
from cairn.model.catalog import ADMIN_ID
from cairn.model.errors import CairnError, Unsupported
from cairn.model.ranges import one_key
from cairn.model.system_tables import PICO_GOVERNOR_QUEUE
from cairn.node.dispatch import Dispatcher, tables_of
from cairn.node.instance import Instance
from cairn.node.schema_changes import SchemaChanges
from cairn.sql import plans
from cairn.sql.api import Prepared, prepare

log = logging.getLogger("cairn.queue")

OPERATION_S = 30.0
_QUEUE = PICO_GOVERNOR_QUEUE

#: Verdicts on the statement itself, by SQLSTATE class; all else is trouble that may pass.
_VERDICTS = ("0A", "22", "23", "25", "26", "28", "2B", "42", "54", "55", "P0")


def is_verdict(problem: CairnError) -> bool:
    """Whether the statement is to blame, so that trying it again would fail again."""
    return problem.sqlstate[:2] in _VERDICTS and problem.sqlstate != "42999"


def settle(op_id: int, status: str, why: str | None = None) -> ops.Update:
    changes = (
        (_QUEUE.position("status"), status),
        (_QUEUE.position("status_description"), why),
    )
    return ops.Update(_QUEUE.id, (op_id,), changes)


class QueueRunner:
    def __init__(
        self, instance: Instance, dispatcher: Dispatcher, schema_changes: SchemaChanges
    ) -> None:
        self._instance, self._dispatcher = instance, dispatcher
        self._schema_changes = schema_changes
        instance.governor.steps.operate = self.run

    async def run(self, action: RunOperation) -> None:
        """One operation to its end; raises only for trouble that leaves it pending."""
        try:
            await self._run(action)
        except CairnError as problem:
            if not is_verdict(problem):
                raise
            log.error("operation %d failed: %s", action.op_id, problem)
            await self._settle(action.op_id, "failed", str(problem))

    async def _run(self, action: RunOperation) -> None:
        if action.op_format != "sql":
            raise Unsupported(f"op_format '{action.op_format}' is not known; use sql")
        catalog = self._instance.state.catalog
        if action.is_upgrade:
            catalog = msgspec.structs.replace(catalog, is_upgrading=True)
        prepared = prepare(action.op, catalog, user_id=ADMIN_ID)
        if prepared.param_types:
            raise Unsupported("an operation of the queue cannot have parameters")
        done = settle(action.op_id, "done")
        plan = prepared.plan
        match plan:
            case plans.DdlPlan():
                if await self._schema_changes.run(
                    plan, ADMIN_ID, governor_op_id=action.op_id, is_upgrade=action.is_upgrade
                ):
                    return  # the DDL step finishes it and sets the status in the same entry
                await self._settle(action.op_id, "done")
            case plans.AclPlan():
                await self._schema_changes.change_access(plan, ADMIN_ID, extra=(done,))
            case plans.AlterSystemPlan():
                await self._schema_changes.alter_system(plan, ADMIN_ID, extra=(done,))
            case plans.GlobalWrite():
                await self._dispatcher.write_global(
                    plan,
                    self._values(prepared),
                    ADMIN_ID,
                    OPERATION_S,
                    extra_ops=(done,),
                    is_upgrade=action.is_upgrade,
                )
            case (
                plans.PointWrite()
                | plans.ShardedInsert()
                | plans.ScatterWrite()
                | plans.InsertSelect()
            ):
                await self._dispatcher.write(
                    plan,
                    self._values(prepared),
                    tables=tables_of(self._instance.state.catalog, prepared.tables),
                    operation=f"queue-{action.op_id}",
                )
                await self._settle(action.op_id, "done")
            case _:
                raise Unsupported(f"{prepared.tag or 'an empty statement'} cannot be queued")
        log.info("operation %d is done", action.op_id)

    @staticmethod
    def _values(prepared: Prepared) -> list[object]:
        return prepared.start((), datetime.now(UTC))

    async def _settle(self, op_id: int, status: str, why: str | None = None) -> None:
        proposer = self._instance.proposer
        predicate = proposer.predicate((one_key(_QUEUE.id, (op_id,)),))
        await proposer.cas(settle(op_id, status, why), predicate)
