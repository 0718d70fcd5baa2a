"""Types that people make: the rows that a statement about them changes. Pure functions.

Labels are only ever added: rows hold them, and whoever knows an older list knows no wrong one.
"""

from __future__ import annotations

import msgspec

from cairn.model.errors import DuplicateObject, LimitExceeded
from cairn.model.log import ops
from cairn.model.tables import rows
from cairn.model.tables import system_tables as system
from cairn.model.tables.catalog import Catalog
from cairn.model.types.enums import EnumType
from cairn.sql.plans import RoutinePlan
from cairn.sql.statements.schema.enums import (
    check_no_texts,
    check_unused_type,
    known_type,
    with_label,
)

TYPES_MAX = 10_000


def type_ops(plan: RoutinePlan, catalog: Catalog, user: int, number: int) -> tuple[ops.Dml, ...]:
    """`number` is the id that a new one gets. Nothing when there is nothing to do."""
    table = system.CAIRN_TYPE.id
    if plan.action == "create":
        _check_free(plan.name, catalog)
        if len(catalog.types) >= TYPES_MAX:
            raise LimitExceeded(f"there are {TYPES_MAX} types already")
        made = EnumType(number, plan.name, plan.labels, user, catalog.version)
        return (ops.Replace(table, rows.enum_row(made)),)
    known = known_type(plan, catalog)
    if known is None:
        return ()
    if plan.action == "drop":
        check_unused_type(catalog, plan.name)
        return (ops.Delete(table, (known.id,)),)
    if plan.action == "rename":
        check_no_texts(catalog, plan.name)
        _check_free(plan.new_name, catalog)
        changed = msgspec.structs.replace(known, name=plan.new_name)
    else:
        labels = with_label(known, plan)
        if labels == known.labels:
            return ()
        changed = msgspec.structs.replace(known, labels=labels)
    changed = msgspec.structs.replace(changed, schema_version=catalog.version)
    return (ops.Replace(table, rows.enum_row(changed)),)


def _check_free(name: str, catalog: Catalog) -> None:
    """Tables and views have a type of their name in PostgreSQL, and tools expect that."""
    if name in catalog.types or name in catalog.tables or name in catalog.views:
        raise DuplicateObject(f'type "{name}" already exists')
