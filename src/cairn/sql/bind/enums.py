"""Labels of enums in expressions: what may meet them, and what a literal beside them is."""

from __future__ import annotations

from collections.abc import Sequence

from cairn.model.errors import CairnError, DatatypeMismatch, UndefinedFunction, Unsupported
from cairn.model.types.enums import EnumType
from cairn.model.types.values import ColumnType, list_text
from cairn.model.types.widths import WHOLES, Width, shown_whole
from cairn.sql.bind.scope import Binder
from cairn.sql.ir import Call, Const, Expr, Param
from cairn.sql.scales import enum_of, known_of
from cairn.sql.typing_rules import EXPLICIT, POSTGRES_NAMES, S, no_function


def type_name(expr: Expr) -> str:
    """As PostgreSQL calls it."""
    enum = enum_of(expr)
    return POSTGRES_NAMES[expr.type] if enum is None else enum.name


def told_type(expr: Expr) -> str:
    """As clients are told it: a whole number is as wide as it says."""
    if expr.type not in WHOLES:
        return type_name(expr)
    found = known_of(expr)
    return shown_whole(expr.type, found if isinstance(found, Width) else None)


def label(enum: EnumType, given: Const) -> Const:
    """A quoted literal as a label; what is none is refused where it stands."""
    if given.value is None:
        return Const(S, None, scale=enum)
    try:
        return Const(S, enum.check(str(given.value)), given.place, enum)
    except CairnError as error:
        error.position = given.place
        raise


def of_one_enum(binder: Binder, given: Sequence[Expr], operator: str) -> list[Expr]:
    """Values that meet (in a comparison, CASE, IN, VALUES …): beside a label there are labels.

    `operator` is what stands between them, or the word of what puts them together.
    """
    enums = [enum_of(each) for each in given]
    enum = next((each for each in enums if each is not None), None)
    if enum is None:
        return list(given)
    found: list[Expr] = []
    for each, own in zip(given, enums, strict=True):
        if own is not None and own.id == enum.id:
            found.append(each)
        elif isinstance(each, Const) and (each.type is None or each.value is None):
            found.append(label(enum, each))
        elif isinstance(each, Param) and each.type in (None, S):
            found.append(checked(binder, enum, binder.coerce(each, S)))
        else:
            raise _no_meeting(type_name(given[0]), type_name(each), operator, enum, each)
    return found


def checked(binder: Binder, enum: EnumType, expr: Expr) -> Expr:
    """A text that has to be a label; one that is none ends the statement that meets it."""
    if isinstance(expr, Param):
        binder.labels[expr.number] = enum
    return Call(S, "s_label", (expr, Const(S, enum.text, scale=enum)))


def _no_meeting(first: str, second: str, operator: str, enum: EnumType, other: Expr) -> CairnError:
    if operator.isalpha():
        return DatatypeMismatch(
            f"{operator} types {enum.name} and {type_name(other)} cannot be matched"
        )
    both = (first, second) if first != second else (enum.name, second)
    return UndefinedFunction(
        f"operator does not exist: {both[0]} {operator} {both[1]}",
        hint="No operator matches the given name and argument types. "
        "You might need to add explicit type casts.",
    )


def cast_to(binder: Binder, expr: Expr, enum: EnumType) -> Expr:
    """`CAST(expr AS enum)`."""
    own = enum_of(expr)
    if own is not None and own.id == enum.id:
        return expr
    if isinstance(expr, Const) and (expr.type is None or expr.value is None):
        return label(enum, expr)
    if own is not None or expr.type not in (None, S):
        raise DatatypeMismatch(
            f"cannot cast type {type_name(expr)} to {enum.name}", sqlstate="42846"
        )
    return checked(binder, enum, binder.coerce(expr, S))


def as_text(expr: Expr) -> Expr:
    """A label as a text like any other."""
    return expr if enum_of(expr) is None else Call(S, "s_plain", (expr,))


def assigned(binder: Binder, expr: Expr, enum: EnumType, column: str) -> Expr:
    """A value for a column of the enum."""
    own = enum_of(expr)
    if own is not None and own.id == enum.id:
        return expr
    if isinstance(expr, Const) and (expr.type is None or expr.value is None):
        return label(enum, expr)
    if isinstance(expr, Param) and expr.type in (None, S):
        return checked(binder, enum, binder.coerce(expr, S))
    raise DatatypeMismatch(
        f'column "{column}" is of type {enum.name} but expression is of type {type_name(expr)}',
        hint="You will need to rewrite or cast the expression.",
    )


def cast_to_list(binder: Binder, expr: Expr, enum: EnumType) -> Expr:
    """`CAST(expr AS enum[])`: texts that are all labels. There are no columns of such arrays."""
    if expr.type not in (None, ColumnType.STRINGS):
        raise DatatypeMismatch(
            f"cannot cast type {type_name(expr)} to {enum.name}[]", sqlstate="42846"
        )
    listed = binder.coerce(expr, ColumnType.STRINGS, EXPLICIT)
    return Call(ColumnType.STRINGS, "s_labels", (listed, Const(S, enum.text)))


def enum_function(name: str, args: Sequence[Expr], position: int | None) -> Expr:
    """enum_first, enum_last and enum_range: known when the statement is understood."""
    enum = next((found for each in args if (found := enum_of(each)) is not None), None)
    if enum is None or len(args) > (2 if name == "enum_range" else 1):
        raise no_function(name, [each.type for each in args], position)
    if name != "enum_range" and not enum.labels:
        raise CairnError(f"enum {enum.name} contains no values", sqlstate="55000")
    if name != "enum_range":
        labels = enum.labels if name == "enum_first" else enum.labels[::-1]
        return Const(S, labels[0], scale=enum)
    bounds = [each.value for each in args if isinstance(each, Const)]
    if len(args) == 2 and len(bounds) != 2:
        raise Unsupported("enum_range takes constants", position=position)
    places = {label: at for at, label in enumerate(enum.labels)}
    first, last = bounds if len(args) == 2 else (None, None)
    low = 0 if first is None else places[str(first)]
    high = len(places) if last is None else places[str(last)] + 1
    return Const(ColumnType.STRINGS, list_text(enum.labels[low:high]))
