"""Statements that only the session knows how to run: SET, SHOW, BEGIN, DEALLOCATE …"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cairn.model.errors import InFailedTransaction
from cairn.node.executor import Outcome
from cairn.server.blocks import ACTIONS, ENDINGS, change_block
from cairn.server.settings import show, show_all
from cairn.server.statements import Cached
from cairn.sql import plans

if TYPE_CHECKING:
    from cairn.server.connection import Connection


def session_plan(session: Connection, plan: plans.SessionPlan, tag: str) -> Outcome:
    match plan.action:
        case action if action in ACTIONS:
            tag, notices = change_block(session, plan, tag)
            return Outcome(None, 0, tag, notices)
        case "show" if plan.name == "all":
            listed = show_all(session)
            return Outcome(listed, len(listed), tag)
        case "show":
            value = show(session, plan.name or "")
            return Outcome([(value,)], 1, tag)
        case "set":
            session.set_parameter(plan.name or "", plan.value or "")
        case "reset":
            session.reset_parameter(plan.name or "")
        case "deallocate":
            if plan.name is None:
                session.book.deallocate_all()
            else:
                session.book.deallocate(plan.name.encode())
        case "discard":
            session.book.deallocate_all()
            session.reset_parameter("all")
    return Outcome(None, 0, tag)


def check_transaction(session: Connection, cached: Cached) -> None:
    """In a failed block only its end is taken, or what goes back before the failure."""
    if session.status != "E":
        return
    plan = cached.prepared.plan
    if isinstance(plan, plans.SessionPlan) and plan.action in ENDINGS:
        return
    raise InFailedTransaction
