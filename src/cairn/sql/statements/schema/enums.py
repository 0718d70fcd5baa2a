"""CREATE, ALTER and DROP TYPE: enums."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from cairn.model.errors import (
    DuplicateObject,
    InvalidParameter,
    LimitExceeded,
    SyntaxProblem,
    UndefinedObject,
    Unsupported,
)
from cairn.model.tables.catalog import ALL_OBJECTS, Catalog
from cairn.model.tables.schema import Column
from cairn.model.types.enums import LABEL_BYTES, EnumType
from cairn.sql.parse.lexer import tokens
from cairn.sql.plans import RoutinePlan
from cairn.sql.statements.cursor import Cursor
from cairn.sql.statements.schema.common import check_own_name
from cairn.sql.statements.schema.dependents import in_use
from cairn.sql.typing_rules import TYPE_WORDS

LABELS_MAX = 1_000
_OTHER_KINDS = "of types only CREATE TYPE name AS ENUM (…) is supported"


def read_enum(cursor: Cursor, types: Mapping[str, EnumType]) -> EnumType | None:
    """The enum that is named next, with `public.` before it or not; None: another type."""
    token, dot, after = cursor.peek(), cursor.peek(1), cursor.peek(2)
    ahead = 1
    if token is not None and token.value == "public" and dot is not None and dot.is_op("."):
        token, ahead = after, 3
    if token is None or token.kind not in ("word", "quoted"):
        return None
    found = types.get(token.value)
    if found is None or (token.kind == "word" and token.value in TYPE_WORDS):
        return None
    cursor.at += ahead
    if cursor.looking_at_op("[") or cursor.looking_at("array"):
        raise Unsupported(f"arrays of {found.name} are not supported", hint="use TEXT[]")
    return found


def check_types(catalog: Catalog, columns: Iterable[Column]) -> None:
    """A type may have been dropped since the statement was understood."""
    known = {each.id for each in catalog.types.values()}
    for column in columns:
        if column.enum is not None and column.enum.id not in known:
            raise UndefinedObject(f'type "{column.enum.name}" does not exist')


def create_type(cursor: Cursor, catalog: Catalog) -> RoutinePlan:
    name = _type_name(cursor)
    check_own_name(name)
    if name in TYPE_WORDS:
        raise DuplicateObject(f'type "{name}" already exists')
    if not cursor.accept("as", "enum"):
        raise Unsupported(_OTHER_KINDS)
    cursor.expect_op("(")
    labels: list[str] = []
    while not cursor.accept_op(")"):
        if labels:
            cursor.expect_op(",")
        labels.append(_label(cursor))
        if len(labels) > LABELS_MAX:
            raise LimitExceeded(f"an enum has at most {LABELS_MAX} labels")
    for at, label in enumerate(labels):
        if label in labels[:at]:
            raise DuplicateObject(f'enum label "{label}" is there twice', sqlstate="23505")
    return RoutinePlan("create", name, "type", labels=tuple(labels))


def alter_type(cursor: Cursor, catalog: Catalog) -> RoutinePlan:
    name = _type_name(cursor)
    if cursor.accept("add", "value"):
        quiet = cursor.accept("if", "not", "exists")
        label = _label(cursor)
        side = cursor.accept_one("before", "after") or ""
        beside = _label(cursor) if side else ""
        return RoutinePlan(
            "add", name, "type", labels=(label,), beside=(side, beside), if_exists=quiet
        )
    if cursor.accept("rename", "to"):
        new = cursor.name()
        check_own_name(new)
        return RoutinePlan("rename", name, "type", new_name=new)
    if cursor.accept("rename", "value"):
        raise Unsupported(
            "ALTER TYPE … RENAME VALUE is not supported: rows hold the label",
            hint="ADD VALUE the new one, and UPDATE the rows",
        )
    if cursor.accept("owner", "to"):
        raise Unsupported("ALTER TYPE … OWNER TO is not supported")
    raise cursor.error()


def drop_type(cursor: Cursor, catalog: Catalog) -> RoutinePlan:
    quiet = cursor.accept("if", "exists")
    name = _type_name(cursor)
    if cursor.looking_at_op(","):
        raise Unsupported("DROP TYPE of several is not supported", hint="drop them one by one")
    is_cascade = cursor.accept_one("cascade", "restrict") == "cascade"
    if is_cascade and users_of(catalog, name):
        raise Unsupported(
            f"DROP TYPE {name} CASCADE is not supported while it is used",
            detail="\n".join(users_of(catalog, name)),
            hint="drop what uses it first",
        )
    return RoutinePlan("drop", name, "type", if_exists=quiet)


def _type_name(cursor: Cursor) -> str:
    name = cursor.name()
    if name == "public" and cursor.accept_op("."):
        return cursor.name()
    return name


def _label(cursor: Cursor) -> str:
    token = cursor.peek()
    label = cursor.string()
    if len(label.encode()) > LABEL_BYTES:
        raise InvalidParameter(
            f'invalid enum label "{label[:200]}"',
            detail=f"Labels must be {LABEL_BYTES} bytes or less.",
            sqlstate="42602",
            position=token.start + 1 if token is not None else None,
        )
    if "\x00" in label:
        raise SyntaxProblem("a string cannot contain a zero byte", sqlstate="22021")
    return label


def known_type(plan: RoutinePlan, catalog: Catalog) -> EnumType | None:
    found = catalog.types.get(plan.name)
    if found is None and not (plan.if_exists and plan.action == "drop"):
        raise UndefinedObject(f'type "{plan.name}" does not exist')
    return found


def with_label(enum: EnumType, plan: RoutinePlan) -> tuple[str, ...]:
    """The labels of a type with one more; the same when it is there and may be."""
    [label] = plan.labels
    side, beside = plan.beside
    if label in enum.labels:
        if plan.if_exists:
            return enum.labels
        raise DuplicateObject(f'enum label "{label}" already exists')
    if side and beside not in enum.labels:
        raise InvalidParameter(f'"{beside}" is not an existing enum label')
    if len(enum.labels) >= LABELS_MAX:
        raise LimitExceeded(f"an enum has at most {LABELS_MAX} labels")
    at = enum.labels.index(beside) + (side == "after") if side else len(enum.labels)
    return (*enum.labels[:at], label, *enum.labels[at:])


def users_of(catalog: Catalog, name: str) -> list[str]:
    """What cannot be without the type, a sentence for each."""
    enum = catalog.types.get(name)
    if enum is None:
        return []
    found = [
        f"column {column.name} of table {table.name} depends on type {name}"
        for table in sorted(catalog.tables.values(), key=lambda each: each.name)
        for column in table.columns
        if column.enum is not None and column.enum.id == enum.id and not column.is_dropped
    ]
    return found + texts_with(catalog, name)


def texts_with(catalog: Catalog, name: str) -> list[str]:
    """What is kept as a text that names the type."""
    kept: list[tuple[str, str]] = []
    for table in sorted(catalog.tables.values(), key=lambda each: each.name):
        kept += [
            (f"default value for column {column.name} of table {table.name}", column.default)
            for column in table.columns
            if column.default is not None
        ]
        kept += [
            (f"constraint {check.name} on table {table.name}", check.text) for check in table.checks
        ]
    kept += [(f"view {each}", catalog.views[each].body) for each in sorted(catalog.views)]
    kept += [
        (f"procedure {each}", catalog.routines[each].body) for each in sorted(catalog.routines)
    ]
    return [f"{what} depends on type {name}" for what, text in kept if _names(text, name)]


def _names(text: str, name: str) -> bool:
    """Behind `::` or AS: a column may be called like the type."""
    words = tokens(text)
    for at, each in enumerate(words[1:], 1):
        before = words[at - 1]
        is_cast = before.is_op("::") or before.is_word("as") or before.is_op(".")
        if each.kind in ("word", "quoted") and each.value == name and is_cast:
            return True
    return False


def check_no_texts(catalog: Catalog, name: str) -> None:
    users = texts_with(catalog, name)
    if users:
        hint = "they are kept as texts: drop them first, and make them again"
        raise in_use(f"type {name}", users, hint, verb="rename")


def check_unused_type(catalog: Catalog, name: str) -> None:
    users = users_of(catalog, name)
    if users:
        raise in_use(f"type {name}", users, "drop what uses it first")


#: What everybody may do: to make a type needs the right to make tables.
CREATE_RIGHT = ("create", "table", ALL_OBJECTS)
