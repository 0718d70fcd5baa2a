"""Who may put what into the governor's queue.

The governor runs an operation with all rights. So whoever queues one must have the rights that it
needs, and a row that somebody else queued is changed by an administrator alone.
"""

from __future__ import annotations

from cairn.model.catalog import Catalog
from cairn.model.errors import AccessDenied, CairnError
from cairn.model.ops import Dml, Insert
from cairn.model.system_tables import PICO_GOVERNOR_QUEUE as _QUEUE
from cairn.node.statements.access import check_access
from cairn.sql.api import prepare
from cairn.sql.plans import AclPlan


def check_queued_rights(changes: tuple[Dml, ...], catalog: Catalog, user: int) -> None:
    queued = [change for change in changes if change.table == _QUEUE.id]
    if not queued or catalog.is_super(user):
        return
    for change in queued:
        if not isinstance(change, Insert):
            raise AccessDenied(
                f"operations of {_QUEUE.name} are changed by an administrator alone",
                hint="queue a new one",
            )
        _check(str(change.row[_QUEUE.position("op")]), catalog, user)


def _check(text: str, catalog: Catalog, user: int) -> None:
    try:
        prepared = prepare(text, catalog, user_id=user)
    except CairnError as problem:
        raise AccessDenied(
            "the rights that this operation needs cannot be told now",
            detail=problem.message,
            hint="queue it when its tables are there, or as an administrator",
        ) from None
    prepared.check_rights(user, catalog)
    if isinstance(prepared.plan, AclPlan):
        check_access(prepared.plan, catalog, user)
