"""Arrays and functions that give rows: `ARRAY[…]`, subscripts, generate_series, unnest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlglot import exp

from cairn.model.errors import CairnError, Unsupported
from cairn.model.types.interval_text import parse_interval
from cairn.model.types.intervals import Interval
from cairn.model.types.values import ELEMENTS, LISTS, ColumnType
from cairn.sql.bind.expressions.expr import HANDLERS, bind_expr, join_lists
from cairn.sql.bind.expressions.functions import folded, scalar
from cairn.sql.bind.scope import Binder, Scope
from cairn.sql.functions.lists import LETTERS
from cairn.sql.ir import Call, Case, Const, Expr, Unnest, Values
from cairn.sql.parse.dialect import walk_position
from cairn.sql.parse.tree import refuse
from cairn.sql.typing_rules import JSON, B, I, M, S, T, common_type, no_function

LIST_FUNCTIONS = (
    *("array_length", "array_upper", "cardinality", "array_to_string"),
    *("array_append", "array_prepend", "array_cat", "array_remove", "array_position"),
    *("array_positions", "array_replace", "array_lower", "array_ndims", "trim_array"),
)
_KINDS = (("json", ColumnType.ANY), ("jsonb", ColumnType.JSONB))
#: Functions in FROM that are a list: its function, and the type of its values.
_LISTED: dict[str, tuple[str, ColumnType]] = {
    "string_to_table": ("string_to_array", S),
    "regexp_split_to_table": ("regexp_split_to_array", S),
    "regexp_matches": ("a_regexp_matches", ColumnType.STRINGS),
    **{f"{kind}_array_elements": ("a_json_items", type_) for kind, type_ in _KINDS},
    **{f"{kind}_array_elements_text": ("a_json_texts", S) for kind in ("json", "jsonb")},
    **{f"{kind}_object_keys": ("a_json_keys", S) for kind in ("json", "jsonb")},
    "jsonb_path_query": ("a_path_items", ColumnType.JSONB),
    **{f"{kind}_each": ("a_json_pairs", type_) for kind, type_ in _KINDS},
    **{f"{kind}_each_text": ("a_json_text_pairs", S) for kind in ("json", "jsonb")},
}
MAX_PLACE = (1 << 63) - 1
ROW_FUNCTIONS = ("generate_series", "unnest", *_LISTED)


def interval_of(node: exp.Expr) -> Interval | None:
    """`INTERVAL '…'` or `'…'::interval`; None: not one."""
    while isinstance(node, exp.Paren):
        node = node.this
    is_cast = isinstance(node, exp.Cast) and str(node.to.this) == str(exp.DType.INTERVAL)
    if not is_cast and not isinstance(node, exp.Interval):
        return None
    value = node.this
    if not isinstance(value, exp.Literal):
        raise Unsupported(
            "an interval that is not a literal is not supported",
            hint="write INTERVAL '1 day'",
            position=walk_position(node),
        )
    unit = node.args.get("unit")
    if unit is None:
        size = parse_interval(value.name)
    elif isinstance(unit, exp.IntervalSpan):  # a bare number counts the smaller of the two
        size = parse_interval(f"{value.name} {unit.expression.name}")
    elif isinstance(unit, exp.Anonymous):  # INTERVAL '1.234' SECOND(2)
        return parse_interval(f"{value.name} {unit.this}").rounded(_digits(unit))
    else:
        size = parse_interval(f"{value.name} {unit.name}")
    return size.rounded(_digits(node.to)) if isinstance(node, exp.Cast) else size


def _digits(node: exp.Expr) -> int:
    """Behind the point of the seconds; 6 if nothing is said."""
    names = [each.name for each in node.expressions]
    if len(names) > 1 or (names and not names[0].isdigit()):
        raise refuse(node, "this kind of interval")
    return min(int(names[0]), 6) if names else 6


def _array(scope: Scope, node: exp.Array) -> Expr:
    if not node.expressions:
        raise CairnError(
            "cannot determine type of empty array",
            hint="Explicitly cast to the desired type, for example '{}'::integer[].",
            sqlstate="42P18",
            position=walk_position(node),
        )
    if any(isinstance(each, (exp.Query, exp.Array)) for each in node.expressions):
        raise refuse(node, "ARRAY of a query, or of arrays,")
    items = [bind_expr(scope, each) for each in node.expressions]
    type_ = common_type([each.type for each in items], "ARRAY") or S
    if type_ not in LISTS:
        raise refuse(node, f"an array of {type_}")
    return folded(
        Call(LISTS[type_], "a_make", tuple(scope.binder.coerce(each, type_) for each in items))
    )


def item_of(list_: Expr, at: Expr) -> Expr:
    """`list_[at]`, counted from 1."""
    assert list_.type is not None
    return folded(Call(ELEMENTS[list_.type], f"{LETTERS[list_.type]}_item", (list_, at)))


def slice_of(binder: Binder, list_: Expr, edges: Sequence[Expr | None]) -> Expr:
    """`list_[1:2]`; an edge that is left out is that of the list."""
    assert list_.type is not None
    first, last = edges
    start = Const(I, 1) if first is None else binder.coerce(first, I)
    end = Const(I, MAX_PLACE) if last is None else binder.coerce(last, I)
    return folded(Call(list_.type, "a_slice", (list_, start, end)))


def sorting_key(list_: Expr) -> Expr:
    """A text that sorts as the list does."""
    assert list_.type is not None
    return Call(S, "a_key", (list_, Const(S, list_.type.value)))


def list_function(binder: Binder, name: str, args: Sequence[Expr], position: int | None) -> Expr:
    if name == "array_prepend" and len(args) == 2:
        of = ELEMENTS.get(args[1].type or S)
        first = args[0] if args[0].type or of is None else binder.coerce(args[0], of)
        return join_lists(binder, first, args[1])
    known = args[0].type if args else None
    if known is None or known not in ELEMENTS:
        raise no_function(name, [arg.type for arg in args], position)
    if name == "cardinality" and len(args) == 1:
        return folded(Call(I, "a_size", tuple(args)))
    if name == "array_append" and len(args) == 2:
        last = args[1] if args[1].type else binder.coerce(args[1], ELEMENTS[known])
        return join_lists(binder, args[0], last)
    if name == "array_cat" and len(args) == 2:
        return join_lists(binder, *args)
    if name == "array_position" and len(args) in (2, 3):
        value = binder.coerce(args[1], ELEMENTS[known])
        start = (binder.coerce(each, I) for each in args[2:])
        return folded(Call(I, "a_place", (args[0], value, *start)))
    if name == "array_remove" and len(args) == 2:
        value = binder.coerce(args[1], ELEMENTS[known])
        return folded(Call(known, "a_without", (args[0], value)))
    if name in ("array_length", "array_upper") and len(args) == 2:
        return folded(Call(I, "a_length", (args[0], binder.coerce(args[1], I))))
    if name == "array_to_string" and len(args) in (2, 3):
        texts = (binder.coerce(arg, S) for arg in args[1:])
        return folded(Call(S, f"{LETTERS[known]}_joined", (args[0], *texts)))
    if name == "array_positions" and len(args) == 2:
        value = binder.coerce(args[1], ELEMENTS[known])
        return folded(Call(ColumnType.INTEGERS, "a_places", (args[0], value)))
    if name == "array_replace" and len(args) == 3:
        values = (binder.coerce(arg, ELEMENTS[known]) for arg in args[1:])
        return folded(Call(known, "a_replaced", (args[0], *values)))
    if name == "trim_array" and len(args) == 2:
        return folded(Call(known, "a_trimmed", (args[0], binder.coerce(args[1], I))))
    if name in ("array_lower", "array_ndims") and len(args) == 1 + (name == "array_lower"):
        # Each has one dimension that begins at 1, an empty one has none.
        dimension = binder.coerce(args[1], I) if len(args) == 2 else Const(I, 1)
        size = Call(I, "a_length", (args[0], dimension))
        return Case(I, ((Call(B, ">", (size, Const(I, 0))), Const(I, 1)),), None)
    raise no_function(name, [arg.type for arg in args], position)


def rows_of(
    scope: Scope, name: str, nodes: list[exp.Expr], position: int | None, *, numbered: bool = False
) -> Values:
    """A function in FROM as a query."""
    found = _rows_of(scope, name, nodes, position)
    if not numbered:
        return found
    if not isinstance(found, Unnest):
        raise Unsupported(f"WITH ORDINALITY after {name} is not supported", position=position)
    return replace(found, names=(*found.names, "ordinality"), types=(*found.types, I))


def _listed(binder: Binder, name: str, args: list[Expr], position: int | None) -> Values:
    function, type_ = _LISTED[name]
    if type_ is S and not function.startswith("a_"):
        list_ = scalar(binder, function, args, position)
        return Unnest(((list_,),), (name,), (S,))
    if name == "regexp_matches" and len(args) in (2, 3):
        texts = tuple(binder.coerce(arg, S) for arg in args)
        return Unnest(((folded(Call(ColumnType.STRINGS, function, texts)),),), (name,), (type_,))
    if name == "jsonb_path_query" and 2 <= len(args) <= 4 and args[0].type in (None, *JSON):
        wanted = (ColumnType.ANY, S, ColumnType.ANY, B)
        given = tuple(binder.coerce(arg, type_) for arg, type_ in zip(args, wanted, strict=False))
        return Unnest(((folded(Call(ColumnType.STRINGS, function, given)),),), (name,), (type_,))
    if len(args) != 1 or args[0].type not in (None, *JSON):
        raise no_function(name, [arg.type for arg in args], position)
    list_ = folded(Call(ColumnType.STRINGS, function, (binder.coerce(args[0], ColumnType.ANY),)))
    if function.endswith("pairs"):
        return Unnest(((list_,),), ("key", "value"), (S, type_), width=2)
    return Unnest(((list_,),), ("value" if "elements" in name else name,), (type_,))


def _rows_of(scope: Scope, name: str, nodes: list[exp.Expr], position: int | None) -> Values:
    inner = Scope(scope.binder, scope)  # its arguments see what stands before it in FROM
    step = interval_of(nodes[2]) if name == "generate_series" and len(nodes) == 3 else None
    if step is not None:
        edges = [bind_expr(inner, each) for each in nodes[:2]]
        type_ = M if all(each.type is M for each in edges) else T
        given = (
            *(scope.binder.coerce(each, type_) for each in edges),
            *(Const(I, part) for part in step),
        )
        return Unnest(((Call(LISTS[type_], "a_times", given),),), (name,), (type_,))
    if name == "generate_series" and len(nodes) == 3 and _is_text(nodes[2]):
        return _rows_of(scope, name, [*nodes[:2], exp.cast(nodes[2].copy(), "interval")], position)
    args = [bind_expr(inner, each) for each in nodes]
    if name in _LISTED:
        return _listed(scope.binder, name, args, position)
    if name == "generate_series":
        return _series(scope.binder, args, position)
    if name != "unnest":
        raise Unsupported(
            f"{name} in FROM is not supported",
            hint=f"functions that may stand there: {', '.join(ROW_FUNCTIONS)}",
            position=position,
        )
    types = [ELEMENTS[arg.type] for arg in args if arg.type in ELEMENTS]
    if not args or len(types) < len(args):
        raise no_function(name, [arg.type for arg in args], position)
    if len(args) == 1:
        return Unnest(((args[0],),), (name,), tuple(types))
    zipped = folded(Call(ColumnType.STRINGS, "a_zip", tuple(args)))
    return Unnest(((zipped,),), (name,) * len(args), tuple(types), width=len(args))


def _is_text(node: exp.Expr) -> bool:
    """`'1 day'`: a text that can only be meant as an interval."""
    is_text = isinstance(node, exp.Literal) and node.is_string
    return is_text and not node.name.strip().lstrip("+-").isdigit()


def _series(binder: Binder, args: list[Expr], position: int | None) -> Values:
    types = [arg.type for arg in args]
    if len(args) not in (2, 3):
        raise no_function("generate_series", types, position)
    if any(type_ not in (None, I) for type_ in types):
        raise Unsupported(
            "generate_series of anything but integers, or times and an interval, is not supported",
            hint="make the other values from the integers",
            position=position,
        )
    step: Expr = args[2] if len(args) == 3 else Const(I, 1)
    given = tuple(binder.coerce(arg, I) for arg in (*args[:2], step))
    return Unnest(((Call(ColumnType.INTEGERS, "a_series", given),),), ("generate_series",), (I,))


HANDLERS[exp.Array] = _array
