"""How many digits after the point a DECIMAL is shown with, where that is known beforehand.

Stored numbers keep no trailing zeros: 1.50 and 1.5 are one value with one spelling, so that keys
and joins agree. PostgreSQL shows `NUMERIC(10, 2)` with two digits all the same, and computes the
scale of sums and products from that of their operands; so do we, from what the statement says.

Of a text the same look tells of which enum it is a label, and of a whole number whether four or two
bytes hold it: an expression has one type, so they never meet.
"""

from __future__ import annotations

from cairn.model.types.enums import EnumType
from cairn.model.types.values import ColumnType
from cairn.model.types.widths import WHOLES, Width, wider
from cairn.sql.ir import (
    Agg,
    Call,
    Case,
    Col,
    Const,
    Expr,
    Known,
    Query,
    Select,
    SetOp,
    SubQuery,
    Unnest,
    Window,
)

_SAME = frozenset(("n_neg", "n_abs", "same", "store_n", "coalesce", "only_row"))
_WIDER = frozenset(("n_add", "n_sub", "n_mod"))
_WHOLE = frozenset(("n_of_i", "n_floor", "n_ceil", "n_sign", "n_sum2", "n_quotient"))
_ELSE = frozenset(("lag", "lead"))  # where there is no such row they give another value
_WHOLE_WORDS = frozenset(each.value for each in WHOLES)
_OF_ONE = frozenset(
    ("n_sum", "min", "max", "first_value", "last_value", "lag", "lead", "nth_value")
)


MOST = 1_000  # digits after the point that functions give


def scale_of(expr: Expr | None) -> int | None:
    """None: only the value itself can tell."""
    found = known_of(expr)
    return min(found, MOST) if isinstance(found, int) else None


def enum_of(expr: Expr | None) -> EnumType | None:
    """None: it is no label, or a text like any other."""
    found = known_of(expr)
    return found if isinstance(found, EnumType) else None


def known_of(expr: Expr | None) -> Known:
    """What can be told of an expression before it has a value."""
    match expr:
        case Const(value=None, scale=scale):
            return scale if isinstance(scale, EnumType) else None
        case Const(scale=scale) | Col(scale=scale):
            return scale
        case Call(name=name, args=args):
            return _call(name, args)
        case Case(whens=whens, default=default):
            results = [result for _, result in whens]
            return _common([*results, *([default] if default is not None else [])])
        case Agg(name=name, args=args) if name in _OF_ONE:
            found = known_of(args[0])
            is_mixed = isinstance(found, Width) and len(args) > 2 and name in _ELSE
            return _common([args[0], args[2]]) if is_mixed else found
        case Agg(name="a_agg", args=args):
            return _width_of(args[0])
        case Window(func=func):
            return known_of(func)
        case SubQuery(kind="scalar", query=query):
            return known(query)[0]
    return None


def _call(name: str, args: tuple[Expr, ...]) -> Known:
    if name in _WHOLE:
        return 0
    if name == "n_item":
        return scale_of(args[0])
    if name == "i_item":
        return known_of(args[0])
    if name == "i_fit" and (size := _number(args[1])) is not None:
        return Width(size)
    if name == "store_fit" and isinstance(args[1], Const) and args[1].value in _WHOLE_WORDS:
        size = _number(args[2])
        return None if size is None else Width(size)
    if name == "n_scaled" and isinstance(args[2], Const):
        return _number(args[2])
    if name in ("s_label", "s_nth"):
        return known_of(args[1])
    if name in ("n_round", "n_trunc"):
        if len(args) == 1:
            return 0
        digits = _number(args[1])
        return None if digits is None else max(digits, 0)
    if name in _SAME:
        return _common(list(args))
    known = [scale_of(arg) for arg in args]
    if None in known or not known:
        return None
    found = [scale for scale in known if scale is not None]
    if name in _WIDER:
        return max(found)
    return sum(found) if name == "n_mul" else None


def _number(expr: Expr) -> int | None:
    return expr.value if isinstance(expr, Const) and isinstance(expr.value, int) else None


def _common(exprs: list[Expr]) -> Known:
    """Of those that are not NULL, if they agree."""
    given = [each for each in exprs if not (isinstance(each, Const) and each.value is None)]
    found = {known_of(each) for each in given}
    return found.pop() if len(found) == 1 else wider([_width_of(each) for each in given])


def _width_of(expr: Expr) -> Width | None:
    """A number in the text is an integer of four bytes, where something else is as narrow."""
    found = known_of(expr)
    if isinstance(found, Width):
        return found
    if isinstance(expr, Const) and expr.type is ColumnType.INTEGER and isinstance(expr.value, int):
        return Width.FOUR if Width.FOUR.takes(expr.value) else None
    return None


def scales(query: Query) -> list[int | None]:
    """Of each column of a query."""
    return [min(each, MOST) if isinstance(each, int) else None for each in known(query)]


def known(query: Query) -> list[Known]:
    """What can be told of each column of a query."""
    if isinstance(query, Select):
        return [known_of(item.expr) for item in query.items]
    if isinstance(query, SetOp):
        both = zip(known(query.left), known(query.right), strict=True)
        return [left if left == right else _wider(left, right) for left, right in both]
    if isinstance(query, Unnest):
        return [known_of(query.rows[0][0]), *([None] * (len(query.types) - 1))]
    return [_common([row[at] for row in query.rows]) for at in range(len(query.types))]


def _wider(left: Known, right: Known) -> Width | None:
    return wider([each if isinstance(each, Width) else None for each in (left, right)])
