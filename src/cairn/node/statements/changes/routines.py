"""Procedures and views: the rows that a statement about them changes. Pure functions."""

from __future__ import annotations

import msgspec

from cairn.model.errors import (
    DuplicateObject,
    DuplicateTable,
    InvalidParameter,
    InvalidTableDefinition,
    LimitExceeded,
    UndefinedFunction,
)
from cairn.model.log import ops
from cairn.model.tables import rows
from cairn.model.tables import system_tables as system
from cairn.model.tables.catalog import FIRST_ROUTINE_ID, Catalog, Routine, View
from cairn.model.types.values import ColumnType
from cairn.node.statements.changes.types import type_ops
from cairn.sql.plans import RoutinePlan
from cairn.sql.statements.schema.routine import not_there

ROUTINES_MAX = 10_000
LAST_ROUTINE_ID = "last_routine_id"  # a fact of the cluster: rights of a dropped one go to nobody


def routine_ops(
    plan: RoutinePlan, catalog: Catalog, user: int, last_id: int
) -> tuple[ops.Dml, ...]:
    """Nothing when IF [NOT] EXISTS leaves nothing to do."""
    if plan.kind == "view":
        return _view_ops(plan, catalog, user, last_id)
    if plan.kind == "type":
        number = max(FIRST_ROUTINE_ID - 1, last_id) + 1
        found = type_ops(plan, catalog, user, number)
        is_new = plan.action == "create" and found
        row = (LAST_ROUTINE_ID, rows.to_json(number))
        return (*found, ops.Replace(system.PICO_PROPERTY.id, row)) if is_new else found
    known = catalog.routines.get(plan.name)
    if plan.action == "create":
        return _created(plan, known, catalog, user, last_id)
    if known is None:
        if plan.if_exists:
            return ()
        raise not_there(plan)
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


def _view_ops(plan: RoutinePlan, catalog: Catalog, user: int, last_id: int) -> tuple[ops.Dml, ...]:
    known = catalog.views.get(plan.name)
    table = system.CAIRN_VIEW.id
    if plan.action == "create":
        return _created_view(plan, known, catalog, user, last_id)
    if known is None:
        if plan.if_exists:
            return ()
        raise not_there(plan)
    if plan.action == "drop":
        return (ops.Delete(table, (known.id,)),)
    if plan.new_name in catalog.views or plan.new_name in catalog.tables:
        raise DuplicateTable(f'relation "{plan.new_name}" already exists')
    renamed = msgspec.structs.replace(known, name=plan.new_name, schema_version=catalog.version)
    return (ops.Replace(table, rows.view_row(renamed)),)


def _created_view(
    plan: RoutinePlan, known: View | None, catalog: Catalog, user: int, last_id: int
) -> tuple[ops.Dml, ...]:
    if known is not None and plan.if_exists:
        return ()
    if plan.name in catalog.tables or (known is not None and not plan.replaces):
        raise DuplicateTable(f'relation "{plan.name}" already exists')
    names = tuple(column.name for column in plan.columns)
    types = tuple(column.type for column in plan.columns)
    if known is not None:
        _check_replaced(plan, known, names, types, catalog, user)
    if len(catalog.views) >= ROUTINES_MAX:
        raise LimitExceeded(f"there are {ROUTINES_MAX} views already")
    number = max(FIRST_ROUTINE_ID - 1, last_id) + 1 if known is None else known.id
    owner = user if known is None else known.owner
    made = View(number, plan.name, names, types, plan.body, owner, catalog.version)
    found: list[ops.Dml] = [ops.Replace(system.CAIRN_VIEW.id, rows.view_row(made))]
    if known is None:
        row = (LAST_ROUTINE_ID, rows.to_json(number))
        found.append(ops.Replace(system.PICO_PROPERTY.id, row))
    return tuple(found)


def _check_replaced(
    plan: RoutinePlan,
    known: View,
    names: tuple[str, ...],
    types: tuple[ColumnType, ...],
    catalog: Catalog,
    user: int,
) -> None:
    if known.owner != user and not catalog.is_super(user):
        raise InvalidParameter(f"must be owner of view {plan.name}", sqlstate="42501")
    count = len(known.columns)
    if (names[:count], types[:count]) != (known.columns, known.types):
        raise InvalidTableDefinition(
            "columns of a view cannot be dropped, renamed or given another type",
            hint="DROP VIEW and CREATE VIEW",
        )
