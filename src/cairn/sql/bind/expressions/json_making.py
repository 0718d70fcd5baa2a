"""Values and rows to JSON: to_json, json_build_object, row_to_json, json_agg."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sqlglot import exp

from cairn.model.errors import CairnError
from cairn.model.types.values import ELEMENTS, ColumnType
from cairn.sql.bind.scope import Binder, Scope, Visible
from cairn.sql.ir import Call, Const, Expr
from cairn.sql.parse.tree import name_of
from cairn.sql.typing_rules import ASSIGNMENT, JSON, B, D, I, M, N, S, T, no_function

ANY, MAP = ColumnType.ANY, ColumnType.MAP
#: Those that take a whole row: `row_to_json(t)`.
OF_ROWS = frozenset(("row_to_json", "to_json", "to_jsonb", "json_agg", "jsonb_agg"))
JSON_MAKERS = frozenset(
    (
        *("to_json", "to_jsonb", "row_to_json", "array_to_json"),
        *("json_build_object", "jsonb_build_object", "json_build_array", "jsonb_build_array"),
    )
)


def to_json(binder: Binder, value: Expr) -> Expr:
    """The value as JSON; NULL stays NULL."""
    type_ = value.type
    if type_ is None:
        return Call(ANY, "j_text", (binder.coerce(value, S),))
    if type_ in JSON:
        return value if type_ is not ColumnType.ARRAY else Call(ANY, "same", (value,))
    if type_ in ELEMENTS:
        return Call(ANY, "j_list", (value, Const(S, type_.value)))
    if type_ is B:
        return Call(ANY, "j_bool", (value,))
    text = value if type_ is S else binder.coerce(value, S, ASSIGNMENT)
    if type_ in (I, N):
        return Call(ANY, "same", (text,))
    name = "j_double" if type_ is D else "j_time" if type_ in (T, M) else "j_text"
    return Call(ANY, name, (text,))


def json_maker(binder: Binder, name: str, args: Sequence[Expr], position: int | None) -> Expr:
    """A call of one of `JSON_MAKERS`."""
    if name.endswith("_build_array"):
        return Call(ANY, "j_array", tuple(to_json(binder, arg) for arg in args))
    if name.endswith("_build_object"):
        if len(args) % 2:
            raise CairnError(
                "argument list must have even number of elements", sqlstate="22023",
                hint=f"The arguments of {name}() must consist of alternating keys and values.",
                position=position,
            )  # fmt: skip
        parts: list[Expr] = []
        for key, value in zip(args[::2], args[1::2], strict=True):
            if key.type in JSON or key.type in ELEMENTS:
                raise CairnError(
                    "key value must be scalar, not array, composite, or json",
                    sqlstate="22023",
                    position=position,
                )
            parts += (binder.coerce(key, S, ASSIGNMENT), to_json(binder, value))
        return Call(MAP, "j_object", tuple(parts))
    if len(args) != 1 or (name == "array_to_json" and args[0].type not in ELEMENTS):
        raise no_function(name, [arg.type for arg in args], position)
    return to_json(binder, args[0])


def bind_argument(scope: Scope, node: exp.Expr, bind: Callable[[Scope, exp.Expr], Expr]) -> Expr:
    """An argument that may be a whole row: the name of a relation, if no column has it."""
    if isinstance(node, exp.Column) and not node.args.get("table"):
        name = name_of(node.this)
        if not any(name in each.names for each in scope.visible):
            row = next((each for each in scope.visible if each.alias == name), None)
            if row is not None:
                return _row(scope, row)
    return bind(scope, node)


def _row(scope: Scope, row: Visible) -> Expr:
    parts: list[Expr] = []
    for at, name in row.shown:
        parts += (Const(S, name), to_json(scope.binder, row.expr(at)))
    return Call(MAP, "j_object", tuple(parts))
