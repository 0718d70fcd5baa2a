"""CREATE, ALTER and DROP of procedures, views and types: texts that the cluster keeps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from cairn.model.errors import (
    CairnError,
    LimitExceeded,
    UndefinedFunction,
    UndefinedObject,
    UndefinedTable,
    Unsupported,
)
from cairn.model.tables.catalog import ALL_OBJECTS, Catalog, Routine, View
from cairn.model.types.enums import EnumType
from cairn.model.types.values import ColumnType
from cairn.sql.plans import OutColumn, Right, RoutinePlan
from cairn.sql.statements.cursor import Cursor
from cairn.sql.statements.schema.common import Tail, check_own_name, read_tail
from cairn.sql.statements.schema.dependents import check_unused
from cairn.sql.statements.schema.enums import (
    CREATE_RIGHT,
    alter_type,
    create_type,
    drop_type,
)
from cairn.sql.statements.schema.table import read_type

MAX_PARAMS = 30


@dataclass(frozen=True)
class RoutineStatement:
    tag: str
    plan: RoutinePlan
    rights: tuple[Right, ...]


def parse_routine(cursor: Cursor, catalog: Catalog) -> RoutineStatement | None:
    """None when it is something else."""
    if cursor.accept("create", "procedure"):
        return _create(cursor, replaces=False)
    if cursor.accept("create", "or", "replace", "procedure"):
        return _create(cursor, replaces=True)
    if cursor.accept("drop", "procedure"):
        quiet = cursor.accept("if", "exists")
        plan = RoutinePlan("drop", cursor.name(), params=_params(cursor), if_exists=quiet)
        cursor.accept_one("cascade", "restrict")  # nothing depends on a procedure
        return _of_known("DROP PROCEDURE", _finished(cursor, plan), "drop", catalog)
    if cursor.accept("alter", "procedure"):
        name, params = cursor.name(), _params(cursor)
        cursor.expect("rename", "to")
        new = _own_procedure(cursor.name())
        plan = RoutinePlan("rename", name, params=params, new_name=new)
        return _of_known("ALTER PROCEDURE", _finished(cursor, plan), "alter", catalog)
    return _type(cursor, catalog) or _view(cursor, catalog)


def _type(cursor: Cursor, catalog: Catalog) -> RoutineStatement | None:
    if cursor.accept("create", "type"):
        plan = _finished(cursor, create_type(cursor, catalog))
        return RoutineStatement("CREATE TYPE", plan, ((*CREATE_RIGHT, plan.name),))
    if cursor.accept("alter", "type"):
        return _of_known(
            "ALTER TYPE", _finished(cursor, alter_type(cursor, catalog)), "alter", catalog
        )
    if cursor.accept("drop", "type"):
        return _of_known(
            "DROP TYPE", _finished(cursor, drop_type(cursor, catalog)), "drop", catalog
        )
    return None


def _view(cursor: Cursor, catalog: Catalog) -> RoutineStatement | None:
    if cursor.accept("create", "view"):
        return _create_view(cursor, replaces=False)
    if cursor.accept("create", "or", "replace", "view"):
        return _create_view(cursor, replaces=True)
    if cursor.accept("drop", "view"):
        quiet = cursor.accept("if", "exists")
        plan = RoutinePlan("drop", cursor.name(), "view", if_exists=quiet)
        cursor.accept_one("cascade", "restrict")  # views that use it keep it in any case
        check_unused(catalog, "view", plan.name)
        return _of_known("DROP VIEW", _finished(cursor, plan), "drop", catalog)
    if cursor.accept("alter", "view") or _is_table_word(cursor, catalog):
        name = cursor.name()
        cursor.expect("rename", "to")
        new = cursor.name()
        check_own_name(new)
        plan = RoutinePlan("rename", name, "view", new_name=new)
        check_unused(catalog, "view", name, verb="rename")
        return _of_known("ALTER VIEW", _finished(cursor, plan), "alter", catalog)
    return None


def _is_table_word(cursor: Cursor, catalog: Catalog) -> bool:
    """`ALTER TABLE v RENAME TO w`: PostgreSQL renames views by either word."""
    begun = cursor.at
    if cursor.accept("alter", "table"):
        cursor.accept("if", "exists")
        after = cursor.at
        token = cursor.peek()
        name = cursor.name() if token is not None and token.kind in ("word", "quoted") else ""
        if name in catalog.views and cursor.looking_at("rename", "to"):
            cursor.at = after
            return True
    cursor.at = begun
    return False


def _create_view(cursor: Cursor, *, replaces: bool) -> RoutineStatement:
    """`name [(columns)] AS query`; the query is understood by `compile_block.with_columns`."""
    quiet = cursor.accept("if", "not", "exists")
    name = cursor.name()
    check_own_name(name)
    names = cursor.names() if cursor.looking_at_op("(") else []
    cursor.expect("as")
    columns = tuple(OutColumn(each, ColumnType.ANY) for each in names)
    body = cursor.rest()
    if not body:
        raise cursor.error()
    plan = RoutinePlan(
        "create", name, "view", columns, body=body, replaces=replaces, if_exists=quiet
    )
    return RoutineStatement("CREATE VIEW", plan, (("create", "table", ALL_OBJECTS, name),))


def _own_procedure(name: str) -> str:
    """In the place of a call of ours it would be run with the rights of whoever means ours."""
    if name.startswith(("cairn_", "pico_", "_")):
        raise Unsupported(f"names like {name} belong to the system")
    return name


def _create(cursor: Cursor, *, replaces: bool) -> RoutineStatement:
    """`name(types) [LANGUAGE SQL] [SECURITY INVOKER] AS 'body'`, in any order after the types."""
    quiet = cursor.accept("if", "not", "exists")
    name = _own_procedure(cursor.name())
    params = _params(cursor)
    if params is None:
        raise cursor.error()
    body: str | None = None
    tail = Tail()
    while cursor.peek() is not None:
        if cursor.accept("language"):
            if cursor.take().value.lower() != "sql":
                raise Unsupported("procedures are written in LANGUAGE SQL")
        elif cursor.accept("security"):
            if not cursor.accept("invoker"):
                raise Unsupported("SECURITY DEFINER is not supported: the caller's rights count")
        elif cursor.accept("as"):
            body = cursor.string()
        elif not read_tail(cursor, tail):
            raise cursor.error()
    if body is None:
        raise cursor.error()
    plan = RoutinePlan(
        "create",
        name,
        params=params,
        body=body,
        replaces=replaces,
        if_exists=quiet,
        timeout=tail.timeout,
        wait_applied=tail.wait,
    )
    return RoutineStatement("CREATE PROCEDURE", plan, (("create", "procedure", ALL_OBJECTS, name),))


def _params(cursor: Cursor) -> tuple[ColumnType, ...] | None:
    if not cursor.accept_op("("):
        return None
    found: list[ColumnType] = []
    while not cursor.accept_op(")"):
        if found:
            cursor.expect_op(",")
        found.append(read_type(cursor)[0])
        if len(found) > MAX_PARAMS:
            raise LimitExceeded(f"a procedure has at most {MAX_PARAMS} parameters")
    return tuple(found)


def _finished(cursor: Cursor, plan: RoutinePlan) -> RoutinePlan:
    tail = Tail()
    while read_tail(cursor, tail):
        pass
    cursor.end()
    return replace(plan, timeout=tail.timeout, wait_applied=tail.wait)


def _of_known(tag: str, plan: RoutinePlan, right: str, catalog: Catalog) -> RoutineStatement:
    stored: Mapping[str, Routine | View | EnumType]
    stored = catalog.views if plan.kind == "view" else catalog.routines
    if plan.kind == "type":
        stored = catalog.types
    known = stored.get(plan.name)
    if known is None:
        if plan.if_exists and plan.action == "drop":
            return RoutineStatement(tag, plan, ())
        raise not_there(plan)
    return RoutineStatement(tag, plan, ((right, plan.kind, known.id, plan.name),))


def not_there(plan: RoutinePlan) -> CairnError:
    if plan.kind == "type":
        return UndefinedObject(f'type "{plan.name}" does not exist')
    if plan.kind == "view":
        return UndefinedTable(f'view "{plan.name}" does not exist')
    return UndefinedFunction(f"procedure {plan.name} does not exist")
