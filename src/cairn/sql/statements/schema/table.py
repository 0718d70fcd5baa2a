"""CREATE TABLE: read from tokens, checked, built when its turn comes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from msgspec.structs import replace

from cairn.model.errors import (
    DuplicateColumn,
    DuplicateTable,
    InvalidTableDefinition,
    InvalidText,
    LimitExceeded,
    UndefinedColumn,
    UndefinedObject,
    Unsupported,
)
from cairn.model.log.ops import CreateTable, Ddl
from cairn.model.tables.catalog import ALL_OBJECTS, Catalog
from cairn.model.tables.schema import (
    BUCKET_COLUMN,
    ROW_COLUMN,
    TEMP_TIER,
    Check,
    Column,
    Identity,
    Sharded,
    Table,
)
from cairn.model.tables.temporary import only_temps
from cairn.model.types.enums import EnumType
from cairn.model.types.sizes import checked_sizes
from cairn.model.types.values import LISTS, ColumnType
from cairn.model.types.widths import WHOLES, width_of_word
from cairn.sql.plans import Right
from cairn.sql.statements.cursor import Cursor
from cairn.sql.statements.schema.common import (
    MAX_TABLES,
    DdlStatement,
    Tail,
    check_column_count,
    check_own_name,
    read_tail,
    storage_options,
)
from cairn.sql.statements.schema.enums import check_types, read_enum
from cairn.sql.statements.schema.foreign_keys import (
    Reference,
    are_ignored,
    keys_rights,
    notice_of,
    read_foreign_key,
    read_references,
    with_keys,
)
from cairn.sql.statements.schema.identities import read_identity
from cairn.sql.statements.schema.index import find_index, table_indexes
from cairn.sql.statements.schema.like import read_like
from cairn.sql.statements.schema.temporary import check_temp, on_commit
from cairn.sql.typing_rules import plain, type_word


@dataclass
class Definition:
    columns: list[Column] = field(default_factory=list)
    key: list[str] = field(default_factory=list)
    named_key: str = ""  # what CONSTRAINT calls it
    by: list[str] | None = None  # none of them: all rows together
    is_global: bool = False
    is_temp: bool = False
    tier: str | None = None
    types: Mapping[str, EnumType] = field(default_factory=dict)  # that people made
    int_size: int = 8  # bytes of INT and INTEGER
    checks: list[tuple[str, str]] = field(default_factory=list)  # name, or "", and text
    references: list[Reference] = field(default_factory=list)
    uniques: list[tuple[str, list[str]]] = field(default_factory=list)  # name, or "", and columns
    indexes: list[list[str]] = field(default_factory=list)  # columns: LIKE takes them over


_NO_SIZES: tuple[int, ...] = ()
_SERIALS = ("serial", "bigserial", "smallserial", "serial2", "serial4", "serial8")
_NAMED = ("not", "null", "primary", "unique", "references")  # what CONSTRAINT gives a name to
#: What may follow a DEFAULT.
_CLAUSES = (
    *("not", "null", "primary", "unique", "references", "check", "collate", "constraint"),
    "generated",
)


def read_type(cursor: Cursor, int_size: int = 8) -> tuple[ColumnType, tuple[int, ...]]:
    """A type and its sizes: the numbers in its parentheses, or how wide a whole number is."""
    token = cursor.take()
    word = token.value
    if word == "double":
        cursor.accept("precision")
    elif word == "character" and cursor.accept("varying"):
        word = "varchar"  # of any length, if it says none
    found = type_word(word, token.start + 1)
    sizes = _sizes(cursor)
    if word == "timestamp" and (zone := cursor.accept_one("with", "without")):
        cursor.expect("time", "zone")
        found = ColumnType.DATETIME if zone == "with" else found
    if word == "time" and (zone := cursor.accept_one("with", "without")):
        cursor.expect("time", "zone")
        found = type_word("time with time zone", token.start + 1) if zone == "with" else found
    if word in ("float", "int", "integer", "bigint", "smallint"):
        sizes = ()  # float(24): all of them are as wide as they can be
    if word in ("char", "character") and not sizes:
        sizes = (1,)
    if _is_array(cursor):
        found = LISTS.get(plain(found), ColumnType.ARRAY)
    if sizes and (word in ("text", "string", "name") or found in WHOLES):
        raise InvalidText(f"type modifier is not allowed for type {word}", sqlstate="42601")
    if (width := width_of_word(word, int_size)) is not None:
        return found, (width.value,)
    if sizes:
        return found, checked_sizes(found, sizes)
    if found is ColumnType.ANY:
        raise Unsupported("columns of type ANY belong to system tables")
    return found, ()


def _sizes(cursor: Cursor) -> tuple[int, ...]:
    if not cursor.accept_op("("):
        return ()
    found = [int(cursor.number())]
    while cursor.accept_op(","):
        found.append(int(cursor.number()))
    cursor.expect_op(")")
    return tuple(found)


def _is_array(cursor: Cursor) -> bool:
    """`[]`, `[3]` or `ARRAY`, as often as wanted: PostgreSQL keeps neither sizes nor dimensions."""
    is_array = cursor.accept("array")
    while cursor.accept_op("["):
        is_array = True
        if not cursor.accept_op("]"):
            cursor.take()
            cursor.expect_op("]")
    return is_array


def read_column(cursor: Cursor, definition: Definition) -> Column:
    name, identity, nullable = cursor.name(), None, True
    type_, sizes = ColumnType.INTEGER, _NO_SIZES
    enum = read_enum(cursor, definition.types)
    if enum is not None:
        type_ = ColumnType.STRING
    elif word := cursor.accept_one(*_SERIALS):
        nullable, identity = False, Identity()
        width = width_of_word(word, definition.int_size)
        sizes = () if width is None else (width.value,)
    else:
        type_, sizes = read_type(cursor, definition.int_size)
    default: str | None = None
    named = ""  # what CONSTRAINT calls the clause that follows
    while True:
        if cursor.accept("not", "null"):
            nullable = False
        elif cursor.accept("null"):
            nullable = True
        elif cursor.accept("primary", "key"):
            cursor.accept_one("asc", "desc")
            definition.key.append(name)
        elif cursor.accept("default"):
            default = default_text(cursor)
        elif cursor.accept("generated"):
            if identity is not None:
                raise InvalidTableDefinition(
                    f'multiple identity specifications for column "{name}"', sqlstate="42601"
                )
            identity, nullable = read_identity(cursor, name, type_), False
        elif read_check(cursor, definition):
            continue
        elif cursor.accept("unique"):
            definition.uniques.append((named, [name]))
        elif cursor.accept("constraint"):
            named = cursor.name()
            following = cursor.peek()
            if following is None or not following.is_word(*_NAMED):
                raise cursor.error()
        elif cursor.accept("references"):
            definition.references.append(read_references(cursor, named, [name]))
        elif cursor.accept("collate"):
            raise Unsupported("COLLATE in a column definition is not supported")
        else:
            if identity is not None and default is not None:
                raise InvalidTableDefinition(
                    f'both default and identity specified for column "{name}"', sqlstate="42601"
                )
            return Column(name, type_, nullable, sizes, default, identity, enum=enum)


def _named(cursor: Cursor, word: str) -> str | None:
    """The name of `[CONSTRAINT name] word`, "" without one; None: something else comes."""
    name, following = "", cursor.peek(2)
    if cursor.looking_at("constraint") and following is not None and following.is_word(word):
        cursor.take()
        name = cursor.name()
    return name if cursor.accept(word) else None


def read_check(cursor: Cursor, definition: Definition) -> bool:
    """`[CONSTRAINT name] CHECK (expression)`; False when it is something else."""
    name = _named(cursor, "check")
    if name is None:
        return False
    begun = cursor.peek()
    cursor.skip_parens()
    last = cursor.tokens[cursor.at - 1]
    assert begun is not None
    definition.checks.append((name, cursor.text[begun.start + 1 : last.start].strip()))
    return True


def _read_unique(cursor: Cursor, definition: Definition) -> bool:
    """`[CONSTRAINT name] UNIQUE (columns)`; False when it is something else."""
    name = _named(cursor, "unique")
    if name is None:
        return False
    definition.uniques.append((name, cursor.names()))
    return True


def default_text(cursor: Cursor) -> str:
    """An expression up to the next clause of a column."""
    return cursor.expression(*_CLAUSES)


def _read_body(cursor: Cursor, catalog: Catalog, name: str, definition: Definition) -> list[Right]:
    """What stands in the parentheses; the rights that tables need that are named by LIKE."""
    patterns: list[Right] = []
    cursor.expect_op("(")
    while True:
        _key_name(cursor, definition)
        if cursor.accept("primary", "key"):
            if definition.key:
                raise InvalidTableDefinition(f'multiple primary keys for table "{name}"')
            definition.key = cursor.names()
        elif read_check(cursor, definition) or _read_unique(cursor, definition):
            pass
        elif reference := read_foreign_key(cursor):
            definition.references.append(reference)
        elif cursor.accept("like"):
            patterns.append(read_like(cursor, catalog, definition))
        elif cursor.accept("constraint"):
            raise Unsupported("CONSTRAINT in CREATE TABLE is not supported")
        else:
            definition.columns.append(read_column(cursor, definition))
        if not cursor.accept_op(","):
            break
    cursor.expect_op(")")
    return patterns


def create_table(
    cursor: Cursor, catalog: Catalog, user_id: int, *, is_temp: bool = False
) -> DdlStatement:
    quiet = cursor.accept("if", "not", "exists")
    schema, name = cursor.qualified()
    is_temp = is_temp or schema == "pg_temp"
    if is_temp and schema == "public":
        raise InvalidTableDefinition("cannot create temporary relation in non-temporary schema")
    check_own_name(name, catalog)
    catalog = catalog if is_temp else catalog.public
    definition, tail = (
        Definition(types=catalog.types, is_temp=is_temp, int_size=catalog.int_size),
        Tail(),
    )
    if is_temp:
        tail.temp = "preserve"
    patterns = _read_body(cursor, catalog, name, definition)
    while _table_clause(cursor, definition, tail):
        pass
    cursor.end()
    if is_temp:
        check_temp(definition, catalog)
    if definition.references and are_ignored(catalog):
        tail.notices.append(notice_of(name))
    if definition.by is None and catalog.setting("table_distribution") == "together":
        definition.by = []
    identities = [each.identity for each in definition.columns if each.identity is not None]
    if len(identities) > 1:
        raise Unsupported("a table has one identity column at most")
    if not definition.key and not definition.is_global:
        _hide_key(name, definition, identities[0].start if identities else 1, tail)
    columns, key, sharding = _check_table(name, definition, catalog, tail)
    if any(column.default is not None for column in columns):
        from cairn.sql.bind.defaults import check_default  # brings sqlglot along
        from cairn.sql.bind.queries.bind import binder_of

        for column in columns:
            check_default(binder_of(catalog), column)
    checks: tuple[Check, ...] = ()
    if definition.checks:
        from cairn.sql.plan.checks import checks_of  # brings sqlglot along

        checks = checks_of(catalog, name, columns, definition.checks)
    tail.skipped = f'relation "{name}" already exists, skipping'
    if is_temp:
        catalog = only_temps(catalog)
    draft = Table(0, name, columns, key, sharding, named_key=definition.named_key)
    unique = table_indexes(catalog, draft, definition.uniques, definition.indexes)
    rights, parents = keys_rights(catalog, with_keys(catalog, draft, unique, definition.references))

    def build(now: Catalog, schema_version: int, table_id: int) -> Ddl | None:
        if name in now.tables:
            if quiet:
                return None
            raise DuplicateTable(f"table {name} already exists")
        if name in now.views:
            raise DuplicateTable(f"view {name} already exists")
        check_types(now, columns)
        if len(now.tables) >= MAX_TABLES:
            raise LimitExceeded(f"a limit on the total number of tables: {MAX_TABLES}")
        table = Table(
            id=table_id,
            name=name,
            columns=columns,
            primary_key=key,
            sharding=sharding,
            schema_version=schema_version,
            operable=False,
            owner=user_id,
            checks=checks,
            named_key=definition.named_key,
        )
        if definition.named_key and find_index(now, table.key_name) is not None:
            raise DuplicateTable(f'relation "{table.key_name}" already exists')
        uniques = table_indexes(now, table, definition.uniques, definition.indexes)
        return CreateTable(with_keys(now, table, uniques, definition.references), uniques)

    # A temporary one harms nobody: every user has the right to it.
    if not is_temp:
        patterns.append(("create", "table", ALL_OBJECTS, name))
    return DdlStatement("CREATE TABLE", tail.plan(build), (*patterns, *rights), parents)


def _hide_key(name: str, definition: Definition, start: int, tail: Tail) -> None:
    """Rows of a table without a key are told apart by a number that nobody sees.

    Where they lie should be what a primary key that is added later says: that is most often a
    column that is declared NOT NULL.
    """
    numbered = Column(
        ROW_COLUMN, ColumnType.INTEGER, False, identity=Identity(True, start), is_hidden=True
    )
    firm = [each.name for each in definition.columns if not each.nullable and each.type.is_key]
    if any(each.name == ROW_COLUMN for each in definition.columns):
        raise InvalidTableDefinition(f'the column name "{ROW_COLUMN}" is reserved')
    if definition.by is None:
        definition.by = firm[:1] or [ROW_COLUMN]
    definition.columns.append(numbered)
    definition.key = [ROW_COLUMN]
    if definition.is_temp:
        return
    by = "a hidden number" if definition.by == [ROW_COLUMN] else ", ".join(definition.by)
    by = by or "nothing, they lie together"
    tail.notices.append(f'table "{name}" has no primary key: its rows are distributed by {by}')


def _key_name(cursor: Cursor, definition: Definition) -> None:
    """`CONSTRAINT pk PRIMARY KEY (…)`, as tools write it."""
    following = cursor.peek(2)
    if not cursor.looking_at("constraint") or following is None or not following.is_word("primary"):
        return
    cursor.take()
    definition.named_key = cursor.name()


def _table_clause(cursor: Cursor, definition: Definition, tail: Tail) -> bool:
    if on_commit(cursor, tail):
        return True
    if cursor.accept("using"):
        engine = cursor.name()
        if engine == "vinyl":
            raise Unsupported("the vinyl engine is not supported", hint="use memtx, the default")
        if engine != "memtx":
            raise UndefinedObject(f"unknown engine {engine}")
        return True
    if cursor.accept("distributed", "globally"):
        definition.is_global = True
        return True
    if cursor.accept("distributed", "by"):
        following = cursor.peek(1)
        is_empty = cursor.looking_at_op("(") and following is not None and following.is_op(")")
        cursor.at += 2 * is_empty
        definition.by = [] if is_empty else cursor.names()
        if cursor.accept("in", "tier"):
            definition.tier = cursor.name()
        return True
    if cursor.accept("in", "tier"):
        definition.tier = cursor.name()
        return True
    if cursor.accept("with"):
        tail.notices += storage_options(cursor)
        return True
    if cursor.accept("partition", "by"):
        cursor.name()
        cursor.skip_parens()
        tail.notices.append("PARTITION BY is ignored: rows are placed by DISTRIBUTED BY")
        return True
    return read_tail(cursor, tail)


def _check_table(
    name: str, definition: Definition, catalog: Catalog, tail: Tail
) -> tuple[tuple[Column, ...], tuple[str, ...], Sharded | None]:
    names = [column.name for column in definition.columns]
    check_column_count(len(names))
    for each in names:
        if names.count(each) > 1:
            raise DuplicateColumn(f"several fields have the same name: {each}")
    if BUCKET_COLUMN in names:
        raise InvalidTableDefinition('the column name "bucket_id" is reserved')
    if not definition.key:
        raise InvalidTableDefinition(
            "Primary key must be declared", hint="add PRIMARY KEY (…) to the table"
        )
    key = [each for each in definition.key if each != BUCKET_COLUMN]
    if not key:
        raise InvalidTableDefinition(
            "primary key must include at least one column in addition to bucket_id"
        )
    _check_key_columns(definition, key, "primary key")
    columns = tuple(
        with_zeros(replace(each, nullable=each.nullable and each.name not in key))
        if each.name not in (*key, *(definition.by or ()))
        else replace(each, nullable=each.nullable and each.name not in key)
        for each in definition.columns
    )
    if definition.is_global:
        if definition.tier is not None:
            raise InvalidTableDefinition("a global table is in every tier; IN TIER has no meaning")
        return columns, tuple(key), None
    if definition.is_temp:
        return columns, tuple(key), Sharded((), TEMP_TIER)
    by = key if definition.by is None else definition.by
    _check_key_columns(definition, by, "distribution key")
    if not set(by) <= set(key) and key != [ROW_COLUMN]:
        tail.notices.append(
            f'primary key of "{name}" does not include its distribution key: '
            "it is unique in each bucket only, not in the whole table"
        )
    return columns, tuple(key), Sharded(tuple(by), _check_tier(definition.tier, catalog))


def with_zeros(column: Column) -> Column:
    """A DECIMAL without a scale keeps its zeros, unless it is part of a key."""
    keeps = column.type is ColumnType.DECIMAL and not column.sizes
    return replace(column, keeps_zeros=keeps) if keeps else column


def _check_key_columns(definition: Definition, key: list[str], what: str) -> None:
    types = {column.name: column.type for column in definition.columns}
    for each in key:
        if each not in types:
            raise UndefinedColumn(f"no field with name: {each}")
        if key.count(each) > 1:
            raise DuplicateColumn(f'column "{each}" appears twice in the {what}')
        if not types[each].is_key:
            raise InvalidTableDefinition(
                f'column "{each}" of type {types[each]} cannot be part of the {what}'
            )


def _check_tier(name: str | None, catalog: Catalog) -> str:
    tier_name = name or catalog.default_tier
    tier = catalog.tiers.get(tier_name)
    if tier is None:
        raise UndefinedObject(f"specified tier '{tier_name}' doesn't exist")
    if tier.bucket_count == 0:
        raise InvalidTableDefinition(
            f"specified tier '{tier_name}' has bucket_count=0 and cannot store sharded data"
        )
    return tier_name
