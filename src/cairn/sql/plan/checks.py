"""CHECK constraints: expressions over one row, in a form that SQLite judges by itself."""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec.structs import replace

from cairn.model.errors import DuplicateObject, InvalidTableDefinition, Unsupported
from cairn.model.tables.catalog import Catalog
from cairn.model.tables.schema import Check, Column, Computed
from cairn.model.types.values import ColumnType
from cairn.sql.bind.expressions.expr import bind_boolean, bind_expr
from cairn.sql.bind.queries import bind  # noqa: F401 (it knows all kinds of expressions)
from cairn.sql.bind.queries.bind import binder_of
from cairn.sql.bind.scope import Scope, Visible
from cairn.sql.enum_order import is_ordering
from cairn.sql.ir import Agg, Col, Expr, Param, SubQuery, Window, walk
from cairn.sql.parse.lexer import tokens
from cairn.sql.parse.parse import parse_query
from cairn.sql.render.render import Renderer
from cairn.sql.render.slots import Slots

_STRINGS = re.compile(r"'[^']*(?:''[^']*)*'|X'[0-9A-Fa-f]*'")
_CALLED = re.compile(r"([A-Za-z_]\w*)\s*\(")
#: What stands before a parenthesis and is no function, and those that SQLite has itself.
_KNOWN = frozenset(
    (
        *("in", "and", "or", "not", "is", "case", "when", "then", "else", "between", "like"),
        *("cast", "coalesce", "nullif", "iif", "substr", "length"),
    )
)


def checks_of(
    catalog: Catalog,
    table: str,
    columns: Sequence[Column],
    given: Sequence[tuple[str, str]],
    others: Sequence[Check] = (),
) -> tuple[Check, ...]:
    """Refused when the table is made, not when the first row comes."""
    found: list[Check] = []
    for name, text in given:
        rule = _rule(catalog, table, columns, text)
        check = Check(name, text, rule)
        if not name:
            places = check.places
            only = f"_{columns[places[0] - 1].name}" if len(places) == 1 else ""
            check = replace(check, name=_free_name(f"{table}{only}_check", [*others, *found]))
        found.append(check)
    names = [check.name for check in found]
    for at, name in enumerate(names):
        if name in names[:at]:
            raise DuplicateObject(f'check constraint "{name}" already exists')
    return tuple(found)


def _free_name(wanted: str, found: Sequence[Check]) -> str:
    taken = {check.name for check in found}
    name, number = wanted, 0
    while name in taken:
        number += 1
        name = f"{wanted}{number}"
    return name


def condition(catalog: Catalog, table: str, columns: Sequence[Column], text: str) -> str:
    """Of an index of some rows."""
    return _rule(catalog, table, columns, text, "an index's WHERE")


#: Functions of ours that give the same for the same values, on every connection that writes rows.
_STABLE = frozenset(
    (
        *("c_lower", "c_upper", "c_length", "c_left", "c_right", "c_substr", "c_trim", "c_reverse"),
        *("c_replace", "c_md5", "c_position", "c_octets", "c_split_part", "c_translate"),
        *("i_abs", "i_add", "i_sub", "i_mul", "i_neg", "i_mod", "i_div", "t_trunc", "t_date"),
        *("c_json_path", "c_json_shown"),
    )
)


def computed(
    catalog: Catalog, table: str, columns: Sequence[Column], text: str, at: int
) -> Computed:
    """A part of an index: what the owners' SQLite finds in the WHERE of a query as well."""
    what = "an index's expression"
    expr = _bound(catalog, table, columns, text, what)
    rule = _rendered(
        expr,
        text,
        what,
        _STABLE,
        "functions that give the same for the same values: see the page on SQL",
    )
    type_ = expr.type
    if type_ is None or not type_.is_key or type_ is ColumnType.DECIMAL:
        shown = "unknown" if type_ is None else type_.value
        raise Unsupported(
            f"an index of an expression of type {shown} is not supported: {text}",
            hint="it is a text, a whole number, a time or a boolean",
        )
    if not any(isinstance(each, Col) for each in walk(expr)):
        raise Unsupported(f"{what} names no column: {text}")
    return Computed(at, text, rule, type_)


def _rule(
    catalog: Catalog, table: str, columns: Sequence[Column], text: str, what: str = "a CHECK"
) -> str:
    expr = _bound(catalog, table, columns, text, what, "CHECK" if what == "a CHECK" else "WHERE")
    hint = "columns and constants are compared, with AND, OR, NOT, IN, IS NULL and CASE"
    return _rendered(expr, text, what, frozenset(), hint)


def _bound(
    catalog: Catalog,
    table: str,
    columns: Sequence[Column],
    text: str,
    what: str,
    judged: str = "",
) -> Expr:
    """`judged`: it has to be a boolean."""
    whole = f"SELECT {text}"
    tree = parse_query(tokens(whole), whole)
    if len(tree.expressions) != 1 or tree.args.get("from_") is not None:
        raise InvalidTableDefinition(f"{what} is one expression", sqlstate="42601")
    scope = Scope(binder_of(catalog))
    scope.add(
        Visible(
            table,
            0,
            ["" if column.is_dropped else column.name for column in columns],
            [column.type for column in columns],
            [True] * len(columns),
            scales=[column.known for column in columns],
        )
    )
    given = tree.expressions[0]
    expr = bind_boolean(scope, given, judged) if judged else bind_expr(scope, given)
    inside = list(walk(expr))
    if any(isinstance(each, (SubQuery, Agg, Window, Param)) for each in inside):
        raise InvalidTableDefinition(
            f"{what} has no sub-queries, aggregates or parameters", sqlstate="0A000"
        )
    if any(is_ordering(each) for each in inside):
        raise Unsupported(
            f"{what} cannot compare labels of an enum by their order",
            hint="labels may be added later: name those that are allowed with IN (…)",
        )
    return expr


def _rendered(expr: Expr, text: str, what: str, allowed: frozenset[str], hint: str) -> str:
    renderer = Renderer(Slots())
    renderer.aliases[0] = ""
    rule = renderer.expr(expr)
    called = {word.lower() for word in _CALLED.findall(_STRINGS.sub("", rule))} - _KNOWN - allowed
    if called or "?" in _STRINGS.sub("", rule):
        raise Unsupported(
            f"this function or operator in {what} is not supported: {text}", hint=hint
        )
    return rule
