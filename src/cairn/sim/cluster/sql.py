"""SQL inside a simulated instance: the real queue, and what it does told step by step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cairn.governor.actions import Action, Idle
from cairn.governor.view import ClusterView
from cairn.node.instance import Instance


def carry_sql(instance: Instance) -> None:
    """The queue is run as in a real instance."""
    instance.governor.steps.operate = instance.queue.run


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
