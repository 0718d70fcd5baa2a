"""The statement after binding: every name resolved, every expression with its type, all frozen.

Relations have numbers that are unique in the statement, so a column `(rel, at)` means the same
wherever it is moved; planning moves expressions between replicasets and coordinator freely.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields, replace
from typing import Any

from cairn.model import stops
from cairn.model.tables.schema import Table
from cairn.model.types.enums import EnumType
from cairn.model.types.values import ColumnType, Physical
from cairn.model.types.widths import Width

Type = ColumnType | None  # None: not known yet (a quoted literal, NULL, a bare parameter)
#: Digits after the point of a DECIMAL, the enum that a text is a label of, or how wide a whole
#: number is: see `scales`.
Known = int | EnumType | Width | None
BUCKET_AT = -1  # the place of the hidden column `bucket_id`


@dataclass(frozen=True, slots=True)
class Expr:
    type: Type


@dataclass(frozen=True, slots=True)
class Const(Expr):
    value: Physical  # in physical form once the type is known
    place: int | None = field(default=None, compare=False, repr=False)  # in the text
    scale: Known = field(default=None, compare=False, repr=False)  # of a DECIMAL, as written


@dataclass(frozen=True, slots=True)
class Param(Expr):
    number: int  # from 1; numbers above the client's are values filled in by the plan


@dataclass(frozen=True, slots=True)
class Col(Expr):
    rel: int
    at: int
    name: str
    nullable: bool = True
    place: int | None = field(default=None, compare=False, repr=False)  # in the text
    scale: Known = field(default=None, compare=False, repr=False)  # if declared
    is_key: bool = field(default=False, compare=False, repr=False)  # a DECIMAL without its zeros


@dataclass(frozen=True, slots=True)
class Call(Expr):
    """An operator or a function; `render` and `functions` know the names."""

    name: str
    args: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Case(Expr):
    whens: tuple[tuple[Expr, Expr], ...]
    default: Expr | None


@dataclass(frozen=True, slots=True)
class SubQuery(Expr):
    kind: str  # scalar exists in
    query: Query
    operands: tuple[Expr, ...] = ()  # left of IN


@dataclass(frozen=True, slots=True)
class Agg(Expr):
    name: str
    args: tuple[Expr, ...]
    distinct: bool = False
    filter: Expr | None = None
    order: tuple[Order, ...] = ()


@dataclass(frozen=True, slots=True)
class Window(Expr):
    func: Agg
    partition: tuple[Expr, ...]
    order: tuple[Order, ...]
    frame: str  # as SQLite writes it, empty for the default


@dataclass(frozen=True, slots=True)
class Order:
    expr: Expr
    desc: bool = False
    nulls_first: bool = False


@dataclass(frozen=True, slots=True)
class Item:
    name: str
    expr: Expr
    number: int = field(default=0, compare=False, repr=False)  # among those that nobody named


# --- relations ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Scan:
    rel: int
    table: Table
    alias: str
    index: str = ""  # INDEXED BY: its name in SQLite
    is_copied: bool = False  # its rows are copied before they are joined


@dataclass(frozen=True, slots=True)
class Derived:
    rel: int
    query: Query
    alias: str
    names: tuple[str, ...]
    is_copied: bool = False


@dataclass(frozen=True, slots=True)
class Join:
    kind: str  # inner left full
    left: Rel
    right: Rel
    on: Expr | None


@dataclass(frozen=True, slots=True)
class Gathered:
    """Rows of a fragment, at the coordinator: table `m<index>` with columns x0, x1, …

    With a `key` each of several instances has those rows of which it hashes to that instance.
    """

    rel: int
    index: int
    key: tuple[Expr, ...] = ()


@dataclass(frozen=True, slots=True)
class Again:
    """Inside a recursion: the rows that its last round found."""

    rel: int
    number: int  # of the recursion
    alias: str
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Given(Again):
    """Rows that a part of the statement told when it wrote them: table `g<number>`."""


Rel = Scan | Derived | Join | Gathered | Again


@dataclass(frozen=True, slots=True)
class Select:
    items: tuple[Item, ...]
    source: Rel | None = None
    where: Expr | None = None
    group: tuple[Expr, ...] | None = None  # None: no GROUP BY; () with aggregates is one group
    having: Expr | None = None
    distinct: bool = False
    order: tuple[Order, ...] = ()
    limit: Expr | None = None
    offset: Expr | None = None


@dataclass(frozen=True, slots=True)
class SetOp:
    op: str  # UNION, EXCEPT, INTERSECT, each with " ALL" or not
    left: Query
    right: Query
    names: tuple[str, ...]
    types: tuple[ColumnType, ...]
    order: tuple[tuple[int, bool, bool], ...] = ()  # column, desc, nulls_first
    limit: Expr | None = None
    offset: Expr | None = None


@dataclass(frozen=True, slots=True)
class Recursion(SetOp):
    """WITH RECURSIVE: `left` once, then `right` over what was found last, while it finds rows."""

    number: int = 0


@dataclass(frozen=True, slots=True)
class Values:
    rows: tuple[tuple[Expr, ...], ...]
    names: tuple[str, ...]
    types: tuple[ColumnType, ...]
    order: tuple[tuple[int, bool, bool], ...] = ()
    limit: Expr | None = None
    offset: Expr | None = None


@dataclass(frozen=True, slots=True)
class Unnest(Values):
    """A row for each value of a list; `rows` holds that one expression.

    With a `width` each value is a list of so many columns. One column more than that is the number
    of the row (WITH ORDINALITY).
    """

    width: int = 0


Query = Select | SetOp | Values


def is_tied(source: Any) -> bool:
    """A function in FROM whose arguments name what stands before it."""
    is_function = isinstance(source, Derived) and isinstance(source.query, Unnest)
    return is_function and bool(columns_in(source.query))


TRUE, FALSE = Const(ColumnType.BOOLEAN, 1), Const(ColumnType.BOOLEAN, 0)
NULL = Const(None, None)


def output(query: Query) -> list[tuple[str, ColumnType]]:
    """Names and types of a query's columns."""
    if isinstance(query, Select):
        return [(item.name, item.expr.type or ColumnType.STRING) for item in query.items]
    return list(zip(query.names, query.types, strict=True))


# --- walking and rewriting ------------------------------------------------------------------------


_FIELDS: dict[type, tuple[str, ...]] = {}


def _fields(cls: Any) -> tuple[str, ...]:
    """The fields that can hold nodes, looked up once for each class."""
    found = _FIELDS.get(cls)
    if found is None:
        names = (each.name for each in fields(cls))
        found = tuple(name for name in names if name not in ("type", "table", "alias", "place"))
        _FIELDS[cls] = found
    return found


RELATIONS = (Scan, Derived, Gathered, Again)
_LEAVES = (Const, Param, Col)
_NODES = (Expr, Order, Item, Scan, Derived, Join, Gathered, Again, Select, SetOp, Values)


def children(node: Any) -> Iterator[Any]:
    """The nodes directly below, sub-queries included."""
    if node is None:
        return
    if isinstance(node, tuple):
        for each in node:
            if isinstance(each, (tuple, *_NODES)):
                yield from children(each) if isinstance(each, tuple) else (each,)
        return
    for name in _fields(type(node)):
        value = getattr(node, name)
        if isinstance(value, _NODES):
            yield value
        elif isinstance(value, tuple):
            yield from children(value)


def walk(node: Any) -> Iterator[Any]:
    """The node and everything below it, sub-queries included.

    Planning is made of such walks, so this is where it learns that it is not wanted any more.
    """
    stops.check()
    stack = [node] if isinstance(node, _NODES) else list(children(node))
    while stack:
        current = stack.pop()
        yield current
        if not isinstance(current, _LEAVES):
            stack.extend(children(current))


def rewrite(node: Any, change: Callable[[Any], Any | None]) -> Any:
    """A copy in which every node that `change` answers for is replaced by its answer."""
    if isinstance(node, tuple):
        return tuple(rewrite(each, change) for each in node)
    if not isinstance(node, _NODES):
        return node
    new = change(node)
    if new is not None:
        return new
    if isinstance(node, _LEAVES):
        return node
    changes = {}
    for name in _fields(type(node)):
        value = getattr(node, name)
        if isinstance(value, (tuple, *_NODES)):
            other = rewrite(value, change)
            if other is not value and other != value:
                changes[name] = other
    return replace(node, **changes) if changes else node


def substitute(node: Any, mapping: dict[Expr, Expr]) -> Any:
    """A copy with every expression found in `mapping` replaced, outermost first."""
    if not mapping:
        return node
    return rewrite(node, lambda each: mapping.get(each) if isinstance(each, Expr) else None)


def conjuncts(expr: Expr | None) -> list[Expr]:
    if expr is None:
        return []
    if isinstance(expr, Call) and expr.name == "and":
        return [part for arg in expr.args for part in conjuncts(arg)]
    return [expr]


def conjunction(parts: list[Expr]) -> Expr | None:
    if not parts:
        return None
    return parts[0] if len(parts) == 1 else Call(ColumnType.BOOLEAN, "and", tuple(parts))


def rels_of(source: Rel | None) -> set[int]:
    """Numbers of the relations joined in `source`, not those inside derived tables."""
    match source:
        case None:
            return set()
        case Join(left=left, right=right):
            return rels_of(left) | rels_of(right)
        case _:
            return {source.rel}


def columns_in(node: Any) -> set[Col]:
    return {each for each in walk(node) if isinstance(each, Col)}


def scans_in(node: Any) -> list[Scan]:
    return [each for each in walk(node) if isinstance(each, Scan)]


def has_given(node: Any) -> bool:
    return any(isinstance(each, Given) for each in walk(node))


def has_aggregate(expr: Expr | None) -> bool:
    """Whether an aggregate stands in this expression itself (not in a sub-query or a window)."""
    stops.check()
    if expr is None or isinstance(expr, SubQuery):
        return expr is not None and any(has_aggregate(each) for each in expr.operands)
    if isinstance(expr, Agg):
        return True
    if isinstance(expr, Window):
        inner = (*expr.func.args, *expr.partition, *(each.expr for each in expr.order))
        return any(has_aggregate(each) for each in inner)
    return any(has_aggregate(each) for each in children(expr) if isinstance(each, Expr))


def has_window(expr: Expr) -> bool:
    stops.check()
    if isinstance(expr, Window):
        return True
    if isinstance(expr, SubQuery):
        return any(has_window(each) for each in expr.operands)
    return any(has_window(each) for each in children(expr) if isinstance(each, Expr))


def windows_in(node: Any) -> list[Window]:
    """Windows of this block; those inside sub-queries belong to them."""
    stops.check()
    if isinstance(node, Window):
        return [node]
    if isinstance(node, SubQuery):
        node = node.operands
    return [window for child in children(node) for window in windows_in(child)]


def outer_columns(query: Query) -> set[Col]:
    """Columns a query takes from around it."""
    inside = {each.rel for each in walk(query) if isinstance(each, RELATIONS)}
    return {col for col in columns_in(query) if col.rel not in inside}
