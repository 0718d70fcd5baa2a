"""CREATE, ALTER and DROP SEQUENCE. What a sequence is, `model/tables/sequences.py` says."""

from __future__ import annotations

from dataclasses import replace

from msgspec import structs

from cairn.model.errors import (
    CairnError,
    DuplicateTable,
    InvalidTableDefinition,
    LimitExceeded,
    UndefinedTable,
    Unsupported,
)
from cairn.model.log.ops import CreateTable, Ddl, DropTable
from cairn.model.quoting import literal
from cairn.model.tables.catalog import ALL_OBJECTS, Catalog
from cairn.model.tables.schema import Table
from cairn.model.tables.sequences import numbering_of, sequence_table
from cairn.model.types.values import INT64_MAX
from cairn.sql.parse.lexer import plain_name, tokens
from cairn.sql.statements.cursor import Cursor
from cairn.sql.statements.schema.common import (
    MAX_TABLES,
    DdlStatement,
    Tail,
    check_own_name,
    ddl_statement,
    finish,
    one_by_one,
    read_tail,
)
from cairn.sql.statements.schema.dependents import in_use

_TYPES = ("bigint", "integer", "int", "smallint", "int8", "int4", "int2")


def create_sequence(cursor: Cursor, catalog: Catalog, user_id: int) -> DdlStatement:
    quiet = cursor.accept("if", "not", "exists")
    name = cursor.name()
    check_own_name(name, catalog)
    tail = Tail(skipped=f'relation "{name}" already exists, skipping')
    start, step = _options(cursor, name, tail)
    draft = sequence_table(name, start, step, user_id)

    def build(now: Catalog, schema_version: int, table_id: int) -> Ddl | None:
        if name in now.tables or name in now.views:
            if quiet:
                return None
            raise DuplicateTable(f'relation "{name}" already exists')
        if len(now.tables) >= MAX_TABLES:
            raise LimitExceeded(f"a limit on the total number of tables: {MAX_TABLES}")
        made = structs.replace(draft, id=table_id, schema_version=schema_version, operable=False)
        return CreateTable(made)

    rights = (("create", "table", ALL_OBJECTS, name),)
    return DdlStatement("CREATE SEQUENCE", tail.plan(build), rights)


def _options(cursor: Cursor, name: str, tail: Tail) -> tuple[int, int]:
    """START and INCREMENT. Others are taken if they say what is so anyway."""
    start, least, step = None, 1, 1
    while cursor.peek() is not None:
        if cursor.accept("as"):
            if cursor.name() not in _TYPES:
                raise InvalidTableDefinition(
                    "sequence type must be smallint, integer, or bigint", sqlstate="22023"
                )
        elif cursor.accept("increment"):
            cursor.accept("by")
            step = _whole(cursor)
        elif cursor.accept("start"):
            cursor.accept("with")
            start = _whole(cursor)
        elif cursor.accept("minvalue"):
            least = _whole(cursor)
        elif cursor.accept("maxvalue"):
            if (most := _whole(cursor)) < (1 << 31) - 1:
                raise Unsupported(f"a sequence does not end at MAXVALUE {most}")
        elif cursor.accept("cache"):
            _whole(cursor)
        elif cursor.accept("owned", "by"):
            _owned_by(cursor, name, tail)
        elif cursor.accept("cycle"):
            raise Unsupported("a sequence does not CYCLE")
        elif not (
            cursor.accept("no", "minvalue")
            or cursor.accept("no", "maxvalue")
            or cursor.accept("no", "cycle")
            or read_tail(cursor, tail)
        ):
            raise cursor.error()
    if step < 1:
        raise Unsupported("a sequence counts upwards: INCREMENT is 1 or more", sqlstate="22023")
    begin = least if start is None else start
    if begin < least:
        raise CairnError(
            f"START value ({begin}) cannot be less than MINVALUE ({least})", sqlstate="22023"
        )
    if begin < 1:
        raise Unsupported("the numbers of a sequence begin with 1 or more", sqlstate="22023")
    return begin, step


def _whole(cursor: Cursor) -> int:
    sign = -1 if cursor.accept_op("-") else 1
    token = cursor.take()
    if token.kind != "number" or not token.value.isdigit():
        cursor.at -= 1
        raise cursor.error()
    found = sign * int(token.value)
    if abs(found) > INT64_MAX:
        raise CairnError(f'value "{token.value}" is out of range for type bigint', sqlstate="22003")
    return found


def _owned_by(cursor: Cursor, name: str, tail: Tail) -> None:
    if cursor.accept("none"):
        return
    while True:  # [schema.]table.column
        if cursor.take().kind not in ("word", "quoted"):
            cursor.at -= 1
            raise cursor.error()
        if not cursor.accept_op("."):
            break
    tail.notices.append(f'sequence "{name}" stays when its table is dropped: DROP SEQUENCE ends it')


def drop_sequence(cursor: Cursor, catalog: Catalog) -> DdlStatement:
    quiet = cursor.accept("if", "exists")
    names = [cursor.name()]
    while cursor.accept_op(","):
        names.append(cursor.name())
    cursor.accept_one("cascade", "restrict")  # what uses it keeps it in any case
    tail = finish(cursor)
    return one_by_one("DROP SEQUENCE", [_drop(name, catalog, tail, quiet) for name in names])


def _drop(name: str, catalog: Catalog, tail: Tail, quiet: bool) -> DdlStatement:
    own = replace(tail, skipped=f'sequence "{name}" does not exist, skipping')

    def build(now: Catalog, schema_version: int, table_id: int) -> Ddl | None:
        found = existing_sequence(now, name, quiet=quiet)
        if found is None:
            return None
        _check_unused(now, name)
        return DropTable(found.id, name)

    found = existing_sequence(catalog, name, quiet=quiet)
    if found is not None:
        _check_unused(catalog, name)
    return ddl_statement("DROP SEQUENCE", own, build, found, "drop")


def existing_sequence(catalog: Catalog, name: str, *, quiet: bool = False) -> Table | None:
    found = catalog.table(name)
    if found is None:
        if quiet:
            return None
        raise UndefinedTable(f'relation "{name}" does not exist')
    if not found.is_sequence:
        raise CairnError(f'"{name}" is not a sequence', sqlstate="42809")
    return found


def _check_unused(catalog: Catalog, name: str) -> None:
    """DEFAULTs and views are kept as texts: what they name must not go away under them."""
    for view in catalog.views.values():
        if _names(view.body, name):
            told = f"view {view.name} depends on sequence {name}"
            raise in_use(f"sequence {name}", [told], f"first DROP VIEW {view.name}")
    for table in catalog.tables.values():
        for column in table.columns:
            if column.default and _names(column.default, name):
                where = f"column {column.name} of table {table.name}"
                told = f"default value for {where} depends on sequence {name}"
                hint = f"ALTER TABLE {table.name} ALTER COLUMN {column.name} DROP DEFAULT first"
                raise in_use(f"sequence {name}", [told], hint)


def _names(default: str, name: str) -> bool:
    found = tokens(default)
    if not any(token.is_word("nextval") for token in found):
        return False
    return any(token.kind == "string" and plain_name(token.value) == name for token in found)


def restart_text(cursor: Cursor, catalog: Catalog) -> str | None:
    """ALTER SEQUENCE … RESTART [WITH n] in other words; None: it is another change."""
    cursor.accept("if", "exists")
    name = cursor.name()
    found = existing_sequence(catalog, name)
    assert found is not None
    if not cursor.accept("restart"):
        return None
    cursor.accept("with")
    known = numbering_of(found)
    assert known is not None
    number = known.start if cursor.peek() is None else _whole(cursor)
    cursor.end()
    return f"SELECT setval({literal(name)}, {number}, false)"


def alter_sequence(cursor: Cursor, catalog: Catalog) -> DdlStatement:
    """OWNED BY and OWNER TO, as dumps say them: nothing changes."""
    quiet = cursor.accept("if", "exists")
    name = cursor.name()
    found = existing_sequence(catalog, name, quiet=quiet)
    tail = Tail()
    if cursor.accept("owned", "by"):
        _owned_by(cursor, name, tail)
    elif cursor.accept("owner", "to"):
        user = catalog.users.get(cursor.name())
        if found is not None and (user is None or user.id != found.owner):
            raise Unsupported("ALTER SEQUENCE _ OWNER TO another user is not supported")
    else:
        raise Unsupported(
            "of ALTER SEQUENCE only RESTART, OWNED BY and OWNER TO are supported",
            hint="drop it and make it again, then setval",
        )
    cursor.end()
    tail.skipped = tail.notices.pop() if tail.notices else ""

    def build(now: Catalog, schema_version: int, table_id: int) -> Ddl | None:
        existing_sequence(now, name, quiet=quiet)
        return None

    return ddl_statement("ALTER SEQUENCE", tail, build, found, "alter")
