"""Procedures: the rows that a statement about them changes. Pure functions."""

from __future__ import annotations

import msgspec

from cairn.model import ops, rows
from cairn.model import system_tables as system
from cairn.model.catalog import FIRST_ROUTINE_ID, Catalog, Routine
from cairn.model.errors import DuplicateObject, InvalidParameter, LimitExceeded, UndefinedFunction
from cairn.sql.plans import RoutinePlan

ROUTINES_MAX = 10_000
LAST_ROUTINE_ID = "last_routine_id"  # a fact of the cluster: rights of a dropped one go to nobody


def routine_ops(
    plan: RoutinePlan, catalog: Catalog, user: int, last_id: int
) -> tuple[ops.Dml, ...]:
    """Nothing when IF [NOT] EXISTS leaves nothing to do."""
    known = catalog.routines.get(plan.name)
    if plan.action == "create":
        return _created(plan, known, catalog, user, last_id)
    if known is None:
        if plan.if_exists:
            return ()
        raise UndefinedFunction(f"procedure {plan.name} does not exist")
    if plan.params is not None and plan.params != known.params:
        types = ", ".join(type_.value for type_ in known.params)
        raise UndefinedFunction(
            f"procedure {plan.name} has other parameters", detail=f"they are ({types})"
        )
    if plan.action == "drop":
        rights = sorted(
            (right.grantee_id, right.object_type, right.object_id, right.privilege)
            for right in catalog.privileges
            if (right.object_type, right.object_id) == ("procedure", known.id)
        )
        gone = (ops.Delete(system.PICO_PRIVILEGE.id, key) for key in rights)
        return (*gone, ops.Delete(system.PICO_ROUTINE.id, (known.id,)))
    if plan.new_name in catalog.routines:
        raise DuplicateObject(f"procedure {plan.new_name} already exists", sqlstate="42723")
    renamed = msgspec.structs.replace(known, name=plan.new_name, schema_version=catalog.version)
    return (ops.Replace(system.PICO_ROUTINE.id, rows.routine_row(renamed)),)


def _created(
    plan: RoutinePlan, known: Routine | None, catalog: Catalog, user: int, last_id: int
) -> tuple[ops.Dml, ...]:
    if known is not None and plan.if_exists:
        return ()
    if known is not None and not plan.replaces:
        raise DuplicateObject(f"procedure {plan.name} already exists", sqlstate="42723")
    if known is not None and known.owner != user and not catalog.is_super(user):
        raise InvalidParameter(f"must be owner of procedure {plan.name}", sqlstate="42501")
    if len(catalog.routines) >= ROUTINES_MAX:
        raise LimitExceeded(f"there are {ROUTINES_MAX} procedures already")
    number = max(FIRST_ROUTINE_ID - 1, last_id) + 1 if known is None else known.id
    owner = user if known is None else known.owner
    made = Routine(number, plan.name, plan.params or (), plan.body, owner, catalog.version)
    found: list[ops.Dml] = [ops.Replace(system.PICO_ROUTINE.id, rows.routine_row(made))]
    if known is None:
        row = (LAST_ROUTINE_ID, rows.to_json(number))
        found.append(ops.Replace(system.PICO_PROPERTY.id, row))
    return tuple(found)
