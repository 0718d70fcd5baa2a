"""SQL inside a simulated instance: the real executor and queue, without a face."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cairn.governor.actions import Action, Idle
from cairn.governor.view import ClusterView
from cairn.model.rpc import ReadRequest, WriteRequest
from cairn.node.instance import Instance, decoding
from cairn.node.statements.execution import Execution
from cairn.node.statements.executor import Executor
from cairn.node.statements.schema_changes import SchemaChanges
from cairn.node.steering.queue_runner import QueueRunner
from cairn.sql.functions import functions


def carry_sql(instance: Instance) -> QueueRunner:
    """What `server/service.py` gives an instance, as far as the queue needs it."""
    execution = Execution(instance, functions.register)
    schema_changes = SchemaChanges(instance, lambda password: f"verifier of {len(password)}")
    answer_peers(instance, execution)
    return QueueRunner(instance, Executor(instance, execution, schema_changes))


def answer_peers(instance: Instance, execution: Execution) -> None:
    """Other instances send their clients' statements here."""
    instance.handlers["read_rows"] = decoding(ReadRequest, execution.handle_read)
    instance.handlers["write_rows"] = decoding(WriteRequest, execution.write)
    instance.on_close.append(execution.close)


def tell_steps(instance: Instance, step: Callable[[str], None]) -> None:
    """Tell where each action of the governor and each of its questions begins and ends."""
    governor, peers = instance.governor, instance.peers
    carry_out, call = governor._carry_out, peers.call

    async def told_action(action: Action, view: ClusterView) -> None:
        if isinstance(action, Idle):
            await carry_out(action, view)
            return
        what = f"{action.step} ({action.subject})"
        step(f"begins: {what}")
        await carry_out(action, view)
        step(f"ends: {what}")

    async def told_call(to: Any, method: str, *question: Any, **options: Any) -> Any:
        if method not in ("write_rows", "read_rows", "apply_schema_change", "wait_index"):
            return await call(to, method, *question, **options)
        step(f"asks {method}")
        found = await call(to, method, *question, **options)
        step(f"is answered {method}")
        return found

    governor._carry_out = told_action  # type: ignore[method-assign]
    peers.call = told_call  # type: ignore[method-assign]
