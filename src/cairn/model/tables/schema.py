"""Tables, columns and indexes as the catalogue describes them, and their names inside SQLite."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from cairn.model.types.decimals import KEY_SQL, key_form
from cairn.model.types.enums import EnumType, checker
from cairn.model.types.sizes import Fit, fitter
from cairn.model.types.values import ELEMENTS, OIDS, SQLITE_TYPES, ColumnType, Physical
from cairn.model.types.widths import Width, width_of

FIRST_USER_TABLE_ID = 1024  # everything below belongs to the system
BUCKET_COLUMN = "bucket_id"
VARCHAR = 1043  # PostgreSQL's number of texts with a length
ROW_COLUMN = "_cairn_row"  # the hidden key of a table that was made without one
TEMP_TIER = "pg_temp"  # where the rows of temporary tables are: in their session
#: Temporary tables have numbers of their own; so large that no other table reaches them, and so
#: small that those of their indexes fit PostgreSQL's 32 bits.
FIRST_TEMP_ID, TEMP_IDS = 3_900_000, 390_000


class Identity(msgspec.Struct, frozen=True, omit_defaults=True):
    """GENERATED AS IDENTITY: numbers that the cluster gives out, unique and with gaps."""

    always: bool = False  # nobody may give one of their own
    start: int = 1


class Column(msgspec.Struct, frozen=True, omit_defaults=True):
    name: str
    type: ColumnType
    nullable: bool = True
    sizes: tuple[int, ...] = ()  # (10, 2) of NUMERIC(10, 2), (4,) of INT4: see `sizes`
    default: str | None = None  # an expression; its text, in SQL
    identity: Identity | None = None
    is_hidden: bool = False  # no part of `*`, of INSERT and COPY without a list, of catalogues
    keeps_zeros: bool = False  # a DECIMAL in its shown form: see `decimals`
    comment: str = ""
    missing: str = ""  # of one that was added: SQLite's literal, for rows written before
    is_judged: bool = False  # NOT NULL that came later: see `column_sql`
    is_dropped: bool = False  # its place stays taken: rows and records keep their width
    enum: EnumType | None = None  # of a STRING; rows of the catalogue have its number alone

    @property
    def scale(self) -> int | None:
        """Digits after the point that it is shown with."""
        numbers = (ColumnType.DECIMAL, ColumnType.DECIMALS)
        return self.sizes[1] if self.type in numbers and self.sizes else None

    @property
    def width(self) -> Width | None:
        return width_of(self.type, self.sizes)

    @property
    def oid(self) -> int:
        """PostgreSQL's number of its type; enums have numbers of their own."""
        if self.type is ColumnType.STRING and self.sizes:
            return VARCHAR
        return OIDS[self.type] if self.width is None else self.width.oid(self.type)

    @property
    def known(self) -> int | EnumType | Width | None:
        """What a statement knows of its values beforehand: see `sql/scales`."""
        return self.enum or self.width or self.scale


def type_modifier(column: Column) -> int:
    """As PostgreSQL has it for NUMERIC(10, 2), VARCHAR(20) and TIMESTAMP(3); -1 for none."""
    if not column.sizes or column.type in ELEMENTS or column.width is not None:
        return -1
    first, *second = column.sizes
    if column.type is ColumnType.STRING:
        return first + 4
    return (first << 16 | second[0]) + 4 if second else first


def fit_of(column: Column) -> Fit | None:
    """Rounds or refuses a physical value on its way into a column; None: nothing is asked.

    COPY, Arrow and what fills defaults come here; INSERT and UPDATE ask the same in SQL.
    """
    if column.enum is not None:
        return checker(column.enum.text)
    return fitter(column.type, column.sizes, column.keeps_zeros)


_PLACES = re.compile(r"'[^']*(?:''[^']*)*'|\bc(\d+)\b")  # of columns in the rule of a CHECK


class Sharded(msgspec.Struct, frozen=True):
    """Rows live in the bucket that `columns` hash to, in replicasets of `tier`."""

    columns: tuple[str, ...]
    tier: str


class Check(msgspec.Struct, frozen=True):
    """What must not be false of a row. `rule` is `text` as SQLite reads it, with columns by place
    and without functions: every connection that writes rows can judge it."""

    name: str
    text: str
    rule: str

    @property
    def places(self) -> list[int]:
        """Numbers of the columns that it looks at, counted from 1."""
        found = {int(match[1]) + 1 for match in _PLACES.finditer(self.rule) if match[1]}
        return sorted(found)


class ForeignKey(msgspec.Struct, frozen=True):
    """A row of the parent has to be there. Columns are told by their places, which stay. A row and
    the one it names lie in one bucket, or every instance has the parent."""

    name: str
    columns: tuple[int, ...]
    parent: int  # id of the table
    parent_columns: tuple[int, ...]
    on_delete: str = "no action"  # restrict, cascade, set null
    on_update: str = "no action"
    is_deferred: bool = False  # looked at when the block ends
    is_global: bool = False  # the parent: changed through Raft, and read in this instance's copy


class Table(msgspec.Struct, frozen=True):
    id: int
    name: str
    columns: tuple[Column, ...]
    primary_key: tuple[str, ...]
    sharding: Sharded | None = None  # None: global, replicated through Raft to every instance
    schema_version: int = 0
    operable: bool = True
    owner: int = 1
    description: str = ""
    truncated_at: int = 0  # schema version of the last TRUNCATE
    checks: tuple[Check, ...] = ()
    foreign_keys: tuple[ForeignKey, ...] = ()
    step: int = 0  # of a sequence, see `sequences.py`: how far apart its numbers are
    local: bool = False  # kept by each instance for itself (`_cairn_event`, `_routing`)
    named_key: str = ""  # how its primary key was called by who made it

    @property
    def is_global(self) -> bool:
        return self.sharding is None

    @property
    def lies_together(self) -> bool:
        """All rows in one bucket."""
        return self.sharding is not None and not self.sharding.columns

    @property
    def is_temp(self) -> bool:
        """Of one session, which alone sees it."""
        return self.sharding is not None and self.sharding.tier == TEMP_TIER

    @property
    def is_sequence(self) -> bool:
        return self.step > 0

    @property
    def is_system(self) -> bool:
        return self.id < FIRST_USER_TABLE_ID

    @property
    def physical_name(self) -> str:
        """By id: a rename moves nothing, and an old record never meets another table."""
        return f"t{self.id}"

    def column(self, name: str) -> Column | None:
        for column in self.columns:
            if column.name == name and not column.is_dropped:
                return column
        return None

    @property
    def shown_columns(self) -> tuple[Column, ...]:
        return tuple(column for column in self.columns if not column.is_hidden)

    @property
    def has_hidden_key(self) -> bool:
        return self.primary_key == (ROW_COLUMN,)

    @property
    def key_name(self) -> str:
        """Of the primary key. A hidden one leaves the name to one that is added later."""
        return self.named_key or f"{self.name}{ROW_COLUMN if self.has_hidden_key else '_pkey'}"

    def position(self, name: str) -> int:
        return [column.name for column in self.columns].index(name)

    @property
    def key_positions(self) -> tuple[int, ...]:
        names = [column.name for column in self.columns]
        return tuple(names.index(name) for name in self.primary_key)

    @property
    def physical_columns(self) -> tuple[str, ...]:
        """Column order on disk: the bucket first in sharded tables, then as declared."""
        names = tuple(physical_column(at) for at in range(len(self.columns)))
        return names if self.is_global else (BUCKET_COLUMN, *names)


class Computed(msgspec.Struct, frozen=True, array_like=True):
    """A part of an index that is no column."""

    at: int  # its place among all parts
    text: str  # as it was written
    rule: str  # as SQLite reads it
    type: ColumnType


class Index(msgspec.Struct, frozen=True):
    table_id: int
    id: int
    name: str
    columns: tuple[str, ...]
    unique: bool = False
    operable: bool = True
    schema_version: int = 0
    where: str = ""  # the rows that it has, if not all
    rule: str = ""  # the same as SQLite reads it, as that of a `Check`
    computed: tuple[Computed, ...] = ()  # beside its columns

    @property
    def parts(self) -> list[str | Computed]:
        """Columns and expressions in their order."""
        found: list[str | Computed] = list(self.columns)
        for each in self.computed:
            found.insert(each.at, each)
        return found

    @property
    def words(self) -> list[str]:
        return [part if isinstance(part, str) else part.text for part in self.parts]

    @property
    def physical_name(self) -> str:
        return f"i{self.table_id}_{self.id}"

    @property
    def is_key(self) -> bool:
        """Whether no two rows of the table have the same values there."""
        return self.unique and not self.rule and not self.computed

    @property
    def all_places(self) -> set[int]:
        """Places of the columns that its condition and its expressions look at."""
        rules = " ".join((self.rule, *(each.rule for each in self.computed)))
        return {int(match[1]) for match in _PLACES.finditer(rules) if match[1]}


def physical_column(position: int) -> str:
    """Columns are named by position: renaming one changes only the catalogue."""
    return f"c{position}"


def create_table_sql(table: Table, *, if_not_exists: bool = False) -> str:
    """The STRICT table that holds `table`; sharded ones are ordered by bucket, then key."""
    parts = []
    if not table.is_global:
        parts.append(f"{BUCKET_COLUMN} INTEGER NOT NULL")
    parts += [column_sql(table, at, column) for at, column in enumerate(table.columns)]
    key = [physical_column(at) for at in table.key_positions]
    if not table.is_global:
        key.insert(0, BUCKET_COLUMN)
    parts.append(f"PRIMARY KEY ({', '.join(key)})")
    for at, check in enumerate(table.checks):  # the name tells which one it was that failed
        parts.append(f'CONSTRAINT "{table.physical_name}/{at}" CHECK ({check.rule})')
    exists = "IF NOT EXISTS " if if_not_exists else ""
    return f"CREATE TABLE {exists}{table.physical_name} ({', '.join(parts)}) STRICT, WITHOUT ROWID"


def column_sql(table: Table, at: int, column: Column) -> str:
    """A column as the table declares it.

    A NOT NULL that came later is a check, which judges what clients write and nothing else
    (`RowTables.judge`): rows on their way from the time before may still be NULL here for a while,
    in buckets that come or go. Its name is that of a column, so that its error can be told alike.
    """
    name = physical_column(at)
    text = f"{name} {SQLITE_TYPES[column.type]}"
    if column.missing:
        text += f" DEFAULT {column.missing}"
    if column.name in table.primary_key or not (column.nullable or column.is_judged):
        return f"{text} NOT NULL"
    if column.is_judged and not column.nullable:
        text += f' CONSTRAINT "{table.physical_name}.{name}" CHECK ({name} IS NOT NULL)'
    return text


def missing_value(column: Column) -> Physical:
    """What a row has that was written before the column was added."""
    text = column.missing
    if not text:
        return None
    if text.startswith("'"):
        return text[1:-1].replace("''", "'")
    if text.startswith("x'"):
        return bytes.fromhex(text[2:-1])
    text = text.strip("()")
    return int(text) if text.lstrip("-").isdigit() else float(text)


def filled_row(table: Table, row: Sequence[Any]) -> tuple[Any, ...]:
    """A physical row of an older version, the bucket first, as it reads now."""
    return (*row, *(missing_value(column) for column in table.columns[len(row) - 1 :]))


def compared_column(table: Table, at: int, alias: str = "") -> str:
    """What SQLite compares of a column: of a DECIMAL with its zeros only the key."""
    name = f"{alias}.{physical_column(at)}" if alias else physical_column(at)
    return KEY_SQL.format(name) if table.columns[at].keeps_zeros else name


def compared_values(
    table: Table, places: Iterable[int], row: Sequence[Any]
) -> tuple[Physical, ...]:
    """The same of physical values."""
    return tuple(
        key_form(row[at]) if table.columns[at].keeps_zeros and row[at] is not None else row[at]
        for at in places
    )


def index_parts(table: Table, index: Index) -> list[str]:
    """What SQLite keeps of a row in an index, before its key."""
    return [
        compared_column(table, table.position(part)) if isinstance(part, str) else part.rule
        for part in index.parts
    ]


def create_index_sql(table: Table, index: Index) -> str:
    unique = "UNIQUE " if index.unique else ""
    where = f" WHERE {index.rule}" if index.rule else ""
    columns = ", ".join(index_parts(table, index))
    made = f"CREATE {unique}INDEX {index.physical_name} ON {table.physical_name} ({columns})"
    return made + where


def distribution_json(table: Table) -> dict[str, Any]:
    """`_pico_table.distribution`, in the shape drivers read."""
    if table.sharding is None:
        return {"Global": None}
    return {"ShardedImplicitly": [list(table.sharding.columns), "murmur3", table.sharding.tier]}


def format_json(table: Table) -> list[dict[str, Any]]:
    """`_pico_table.format`, in the shape drivers read."""
    return [
        {"name": column.name, "field_type": column.type.value, "is_nullable": column.nullable}
        | ({"sizes": list(column.sizes)} if column.sizes else {})
        | ({"default": column.default} if column.default is not None else {})
        | ({"identity": msgspec.to_builtins(column.identity)} if column.identity else {})
        | ({"hidden": True} if column.is_hidden else {})
        | ({"zeros": True} if column.keeps_zeros else {})
        | ({"comment": column.comment} if column.comment else {})
        | ({"missing": column.missing} if column.missing else {})
        | ({"judged": True} if column.is_judged else {})
        | ({"dropped": True} if column.is_dropped else {})
        | ({"enum": column.enum.id} if column.enum is not None else {})
        for column in table.columns
    ]
