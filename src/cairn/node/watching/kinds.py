"""Which kind of statement a plan is counted as."""

from __future__ import annotations

from cairn.model.watched import Kind
from cairn.sql import plans
from cairn.sql.plans import Prepared

_BY_TAG = {"INSERT": Kind.INSERT, "UPDATE": Kind.UPDATE, "DELETE": Kind.DELETE}


def kind_of(prepared: Prepared) -> Kind:
    match prepared.plan:
        case plans.PointRead():
            return Kind.SELECT_POINT
        case plans.ScatterRead():
            return Kind.SELECT_WIDE
        case plans.CopyPlan():
            return Kind.COPY
        case plans.DdlPlan() | plans.AclPlan() | plans.RoutinePlan():
            return Kind.DDL
    return _BY_TAG.get(prepared.tag, Kind.OTHER)
