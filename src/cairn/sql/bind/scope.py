"""What a name means where it stands: relations in view, CTEs, parameters and their types."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from cairn.model.errors import (
    AmbiguousColumn,
    CairnError,
    IndeterminateType,
    LimitExceeded,
    TooComplex,
    UndefinedColumn,
    UndefinedTable,
)
from cairn.model.tables.catalog import Catalog
from cairn.model.tables.schema import BUCKET_COLUMN, Table
from cairn.model.types.enums import EnumType
from cairn.model.types.values import TYPE_OF_OID, ColumnType
from cairn.sql.ir import BUCKET_AT, Col, Expr, Known, Param, Query, children
from cairn.sql.typing_rules import (
    ASSIGNMENT,
    IMPLICIT,
    POSTGRES_NAMES,
    S,
    can_cast,
    cast,
    plain,
)

if TYPE_CHECKING:
    from sqlglot import exp

MAX_SELECTS, MAX_EXPANDED, MAX_DEPTH, MAX_ARGUMENTS, MAX_PARAMS = 50, 500, 200, 127, 65535
MAX_NODES = 250_000  # of one expression
NOW = 0  # the parameter that stands for the statement's time until the others are counted


@dataclass
class Visible:
    """A relation in FROM, under its alias."""

    alias: str
    rel: int
    names: list[str]
    types: list[ColumnType]
    nullable: list[bool]
    table: Table | None = None
    hidden: set[str] = field(default_factory=set)  # merged away by USING
    scales: list[Known] = field(default_factory=list)  # of a query's columns
    filled: dict[int, Expr] = field(default_factory=dict)  # what stands for some of its columns
    unnamed: dict[str, int] = field(default_factory=dict)  # col_1, col_2 …: see `_unnamed`

    @property
    def shown(self) -> list[tuple[int, str]]:
        """Columns that `*` means, with their places."""
        columns = self.table.columns if self.table is not None else ()
        return [
            (at, name)
            for at, name in enumerate(self.names)
            if not (columns and columns[at].is_hidden)
        ]

    def column(self, at: int) -> Col:
        scale = self.scales[at] if self.scales else None
        is_key = False
        if self.table is not None:
            scale = self.table.columns[at].known
            is_key = not self.table.columns[at].keeps_zeros
        type_, name, nullable = plain(self.types[at]), self.names[at], self.nullable[at]
        return Col(type_, self.rel, at, name, nullable, scale=scale, is_key=is_key)

    def expr(self, at: int) -> Expr:
        return self.filled.get(at) or self.column(at)


@dataclass(frozen=True)
class GivenRows:
    """What a part of WITH that writes tells; without names it tells nothing."""

    number: int
    names: list[str] | None
    types: list[ColumnType]
    scales: list[Known]


@dataclass(frozen=True)
class BlockNames:
    """What a statement of a block sees of the others: parameters, and variables set by LET."""

    last: int  # number of the last parameter, variables included
    variables: dict[str, int] = field(default_factory=dict)  # to the number of their parameter
    types: dict[int, ColumnType] = field(default_factory=dict)
    given: dict[str, GivenRows] = field(default_factory=dict)


@dataclass
class Cte:
    name: str
    tree: exp.Expr
    columns: list[str]
    scope: Scope
    recursive: bool = False  # it names itself
    named_at: set[int | None] = field(default_factory=set)  # places in the text


class Binder:
    """What one statement collects while it is bound; made by `bind.binder_of`.

    Expressions hold queries, and queries expressions: so the one that binds queries is given.
    """

    def __init__(
        self,
        bind_query: Callable[[Scope, exp.Expr], Query],
        catalog: Catalog,
        param_oids: Sequence[int],
        known: dict[int, ColumnType],
        user_name: str = "",
        block: BlockNames | None = None,
    ) -> None:
        self.bind_query = bind_query
        self.catalog = catalog
        self.user_name = user_name
        self.block = block
        self.params: dict[int, ColumnType] = dict(known)
        self.declared: set[int] = set()
        for number, oid in enumerate(param_oids, 1):
            if oid in TYPE_OF_OID:
                self.params[number] = TYPE_OF_OID[oid]
                self.declared.add(number)
        self.top_param = len(param_oids)
        if block is not None:
            self.params |= block.types
            self.declared |= block.types.keys()
            self.top_param = max(self.top_param, block.last)
        self.used: set[int] = set()
        self.loose = False  # a parameter was met before anything told its type
        self.wanted: ColumnType | None = None  # the number that is made of what is bound now
        self.uses_now = False
        self.locks = False  # FOR UPDATE or its like was said
        self.may_skip = False  # it is an UPDATE or DELETE that may take its rows in one go
        self.skips: exp.Expr | None = None  # where SKIP LOCKED was said
        self.tables: dict[int, Table] = {}
        self.numbered: dict[int, Table] = {}  # whose next numbers it takes by name
        self.labels: dict[int, EnumType] = {}  # parameters that have to be labels
        self.views: dict[int, int] = {}  # with their versions; types too
        self.selects = 0
        self.depth = 0
        self._sizes: dict[int, tuple[Any, int]] = {}  # by id, of nodes that are kept for it
        self._rel = 0

    def next_rel(self) -> int:
        self._rel += 1
        return self._rel

    def enter_select(self, *, expanded: bool) -> None:
        self.selects += 1
        if self.selects > (MAX_EXPANDED if expanded else MAX_SELECTS):
            raise LimitExceeded(f"more than {MAX_SELECTS} SELECTs in one statement")

    def deeper(self) -> None:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise TooComplex(f"an expression is nested more than {MAX_DEPTH} levels deep")

    def weighed(self, expr: Expr) -> Expr:
        """`expr`, unless it is too large. A form that names an operand twice doubles it: forty of
        them in each other are a short text, and nobody sees the end of what they stand for.
        """
        if self._size(expr) > MAX_NODES:
            raise TooComplex(f"an expression stands for more than {MAX_NODES} others")
        return expr

    def _size(self, node: Any) -> int:
        """As a tree: what is shared counts each time."""
        known = self._sizes.get(id(node))
        if known is None:
            known = node, 1 + sum(map(self._size, children(node)))
            self._sizes[id(node)] = known
        return known[1]

    def param(self, number: int, position: int | None) -> Param:
        if not 1 <= number <= MAX_PARAMS:
            raise CairnError(
                f"there is no parameter ${number}", sqlstate="42P02", position=position
            )
        self.used.add(number)
        self.top_param = max(self.top_param, number)
        type_ = self.params.get(number)
        if type_ is None:
            self.loose = True
        return Param(None if type_ is None else plain(type_), number)

    def coerce(self, expr: Expr, to: ColumnType, level: int = IMPLICIT) -> Expr:
        """`expr` as `to`; a parameter without a type takes this one, as in PostgreSQL."""
        if isinstance(expr, Param) and expr.type is None:
            known = self.params.setdefault(expr.number, to)
            expr = Param(plain(known), expr.number)
        if isinstance(expr, Param):
            if can_cast(expr.type, to, ASSIGNMENT):
                level = max(level, ASSIGNMENT)
            elif expr.number not in self.declared and not can_cast(expr.type, to, level):
                raise IndeterminateType(
                    f"inconsistent types deduced for parameter ${expr.number}",
                    detail=f"{POSTGRES_NAMES[expr.type]} versus {POSTGRES_NAMES[to]}",
                    hint="use a parameter of its own for each type",
                    sqlstate="42P08",
                )
        return cast(expr, to, level)

    def table(
        self, name: str, position: int | None = None, catalog: Catalog | None = None
    ) -> Table:
        found = (catalog or self.catalog).table(name)
        if found is None and name in self.catalog.views:
            raise CairnError(
                f'"{name}" is a view, and a view cannot be changed',
                sqlstate="42809",
                hint="change the tables that it reads",
                position=position,
            )
        if found is not None and found.is_sequence:
            raise CairnError(
                f'"{name}" is a sequence, not a table',
                sqlstate="42809",
                hint=f"nextval('{name}') is its next number",
                position=position,
            )
        if found is None:
            near = nearest(name, (each for each in self.catalog.tables if each[0] != "_"))
            raise UndefinedTable(
                f'table with name "{name}" not found',
                hint=None if near is None else f'Perhaps you meant the table "{near}".',
                position=position,
            )
        self.tables[found.id] = found
        return found

    def param_types(self) -> tuple[ColumnType, ...]:
        found = []
        for number in range(1, self.top_param + 1):
            type_ = self.params.get(number)
            if type_ is None and number not in self.used and self.block is None:
                raise IndeterminateType(f"could not determine data type of parameter ${number}")
            found.append(type_ or S)
        return tuple(found)


@dataclass
class AskedAggregates:
    """Aggregates of a block that stand in its sub-queries: columns 0, 1, … of relation `rel`."""

    rel: int
    exprs: list[Expr] = field(default_factory=list)


class Scope:
    """Names of one query block; what is not found here is looked up around it."""

    def __init__(self, binder: Binder, parent: Scope | None = None) -> None:
        self.binder, self.parent = binder, parent
        self.visible: list[Visible] = []
        self.merged: dict[str, Expr] = {}
        self.ctes: dict[str, Cte] = {}
        self.windows: dict[str, exp.Expr] = {}
        self.no_aggregates: str | None = "this place"
        self.no_windows: str | None = "this place"
        self.asked: AskedAggregates | None = None  # by sub-queries, over columns of this block
        self.has_sets = False  # GROUP BY with several grouping sets

    def query(self, tree: exp.Expr) -> Query:
        """A query that stands inside: in an expression, in FROM, in another query."""
        return self.binder.bind_query(self, tree)

    def cte(self, name: str) -> Cte | None:
        scope: Scope | None = self
        while scope is not None:
            if name in scope.ctes:
                return scope.ctes[name]
            scope = scope.parent
        return None

    def add(self, visible: Visible, position: int | None = None) -> None:
        if any(each.alias == visible.alias for each in self.visible):
            raise CairnError(
                f'table name "{visible.alias}" specified more than once',
                sqlstate="42712",
                position=position,
            )
        self.visible.append(visible)

    def by_alias(self, alias: str, position: int | None = None) -> Visible:
        scope: Scope | None = self
        while scope is not None:
            for each in scope.visible:
                if each.alias == alias:
                    return each
            scope = scope.parent
        raise UndefinedTable(f'missing FROM-clause entry for table "{alias}"', position=position)

    def column(self, name: str, alias: str | None, position: int | None = None) -> Expr:
        if alias is not None:
            visible = self.by_alias(alias, position)
            found = _in_relation(visible, name) or _unnamed([visible], name)
            if found is None:
                raise no_column(name, visible.names, position, alias)
            return replace(found, place=position) if isinstance(found, Col) else found
        scope: Scope | None = self
        while scope is not None:
            expr = scope._own_column(name, position)
            if expr is not None:
                self._check_no_variable(name, position)
                return replace(expr, place=position) if isinstance(expr, Col) else expr
            scope = scope.parent
        block = self.binder.block
        if block is not None and name in block.variables:
            return self.binder.param(block.variables[name], position)
        scope = self
        while scope is not None:
            expr = _unnamed(scope.visible, name)
            if expr is not None:
                return expr
            scope = scope.parent
        owner, near = self._nearest_column(name)
        raise no_column(name, near, position, owner)

    def _check_no_variable(self, name: str, position: int | None) -> None:
        block = self.binder.block
        if block is not None and name in block.variables:
            raise AmbiguousColumn(
                f'column reference "{name}" is ambiguous: '
                "it could refer to either a LET variable or a table column",
                hint="put the table's name before the column's, or name the variable otherwise",
                position=position,
            )

    def _nearest_column(self, name: str) -> tuple[str | None, list[str]]:
        """Alias and name of the column that looks most like it."""
        places = {column: each.alias for each in reversed(self.visible) for column in each.names}
        near = nearest(name, places)
        return (None, []) if near is None else (places[near], [near])

    def _own_column(self, name: str, position: int | None) -> Expr | None:
        if name in self.merged:
            return self.merged[name]
        hits = [
            found
            for each in self.visible
            if name not in each.hidden and (found := _in_relation(each, name)) is not None
        ]
        if len(hits) > 1:
            raise AmbiguousColumn(f'column reference "{name}" is ambiguous', position=position)
        return hits[0] if hits else None


def _unnamed(visible: Iterable[Visible], name: str) -> Expr | None:
    """What nobody named is COL_1, COL_2 … in Picodata; here where nothing else has the name."""
    hits = [each.expr(at) for each in visible if (at := each.unnamed.get(name.lower())) is not None]
    if len(hits) > 1:
        raise AmbiguousColumn(f'column reference "{name}" is ambiguous')
    return hits[0] if hits else None


def no_column(
    name: str, known: Iterable[str], position: int | None, table: Table | str | None = None
) -> UndefinedColumn:
    """The error for a column that is not there, with the one that may have been meant."""
    near = nearest(name, known)
    owner = table.name if isinstance(table, Table) else table
    shown = f"{owner}.{near}" if owner else near
    return UndefinedColumn(
        f'column with name "{name}" not found',
        hint=None if near is None else f'Perhaps you meant to reference the column "{shown}".',
        position=position,
    )


def nearest(name: str, known: Iterable[str]) -> str | None:
    """What somebody may have wanted to type."""
    found = get_close_matches(name, list(known), n=1, cutoff=0.6)
    return found[0] if found else None


def _in_relation(visible: Visible, name: str) -> Expr | None:
    count = visible.names.count(name)
    if count > 1:
        raise AmbiguousColumn(f'column reference "{name}" is ambiguous')
    if count:
        return visible.expr(visible.names.index(name))
    if name == BUCKET_COLUMN and visible.table is not None and not visible.table.is_global:
        return Col(ColumnType.INTEGER, visible.rel, BUCKET_AT, BUCKET_COLUMN, nullable=False)
    return None
