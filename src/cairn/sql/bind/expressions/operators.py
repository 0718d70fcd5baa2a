"""Operators beyond arithmetic and comparison: `^`, bits, JSON arrows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlglot import exp

from cairn.model.errors import CairnError
from cairn.model.types.values import ELEMENTS, ColumnType
from cairn.sql.bind.expressions.expr import HANDLERS, bind_expr
from cairn.sql.bind.expressions.functions import folded, scalar
from cairn.sql.bind.scope import Scope
from cairn.sql.ir import Call, Const, Expr
from cairn.sql.parse.dialect import walk_position
from cairn.sql.parse.tree import refuse
from cairn.sql.typing_rules import JSON, B, I, S, common_type, json_like, no_operator

_BITS: dict[type[Any], tuple[str, str]] = {
    exp.BitwiseAnd: ("&", "i_and"),
    exp.BitwiseOr: ("|", "i_or"),
    exp.BitwiseXor: ("#", "i_xor"),
    exp.BitwiseLeftShift: ("<<", "i_shl"),
    exp.BitwiseRightShift: (">>", "i_shr"),
}
#: Kinds of values that have no type here, by what sqlglot makes of them.
_NO_TYPE: dict[type[Any], str] = {
    exp.CurrentTime: "CURRENT_TIME",
}


def _power(scope: Scope, node: exp.Pow) -> Expr:
    args = [bind_expr(scope, node.this), bind_expr(scope, node.expression)]
    return scalar(scope.binder, "power", args, walk_position(node))


def _root(scope: Scope, node: exp.Expr) -> Expr:
    name = "sqrt" if isinstance(node, exp.Sqrt) else "cbrt"
    return scalar(scope.binder, name, [bind_expr(scope, node.this)], walk_position(node))


def _bits(scope: Scope, node: exp.Binary) -> Expr:
    symbol, name = _BITS[type(node)]
    args = [bind_expr(scope, node.this), bind_expr(scope, node.expression)]
    if any(arg.type not in (None, I) for arg in args):
        raise no_operator(symbol, *(arg.type for arg in args), position=walk_position(node))
    return folded(Call(I, name, tuple(scope.binder.coerce(arg, I) for arg in args)))


def _inverted(scope: Scope, node: exp.BitwiseNot) -> Expr:
    inner = bind_expr(scope, node.this)
    if inner.type not in (None, I):
        raise no_operator("~", inner.type, position=walk_position(node))
    return folded(Call(I, "i_not", (scope.binder.coerce(inner, I),)))


# --- JSON -----------------------------------------------------------------------------------------


def _arrow(scope: Scope, node: exp.Expr) -> Expr:
    """`j -> 'key'`, `j -> 0` and their `->>` twins, which give text."""
    inner = bind_expr(scope, node.this)
    symbol = "->" if isinstance(node, exp.JSONExtract) else "->>"
    if inner.type not in JSON:
        raise no_operator(symbol, inner.type, None, position=walk_position(node))
    step = _step(scope, node.expression)
    found = Call(json_like(inner.type), "c_json_path", (inner, step))
    return found if symbol == "->" else Call(S, "c_json_shown", (found,))


def _step(scope: Scope, node: exp.Expr) -> Expr:
    if not isinstance(node, exp.JSONPath):
        key = bind_expr(scope, node)
        return key if key.type is I else scope.binder.coerce(key, S)
    parts = [part for part in node.expressions if not isinstance(part, exp.JSONPathRoot)]
    if len(parts) != 1 or not isinstance(parts[0], (exp.JSONPathKey, exp.JSONPathSubscript)):
        raise refuse(node, "this JSON path")
    key = parts[0].this
    return Const(I, key) if isinstance(key, int) else Const(S, str(key))


def _deep_arrow(scope: Scope, node: exp.Binary) -> Expr:
    """`j #> '{a,b}'` and `#>>`, which gives text."""
    inner = bind_expr(scope, node.this)
    if inner.type not in JSON:
        raise no_operator("#>", inner.type, None, position=walk_position(node))
    path = scope.binder.coerce(bind_expr(scope, node.expression), ColumnType.STRINGS)
    found = Call(json_like(inner.type), "c_json_under", (inner, path))
    return found if isinstance(node, exp.JSONBExtract) else Call(S, "c_json_shown", (found,))


def _cut(scope: Scope, node: exp.Binary) -> Expr:
    """`j #- '{a,b}'`"""
    inner = bind_expr(scope, node.this)
    if inner.type not in JSON:
        raise no_operator("#-", inner.type, None, position=walk_position(node))
    path = scope.binder.coerce(bind_expr(scope, node.expression), ColumnType.STRINGS)
    return Call(json_like(inner.type), "j_cut", (inner, path))


def _contains(scope: Scope, node: exp.Binary) -> Expr:
    """`@>` and `<@` of JSON and of arrays."""
    sides = [bind_expr(scope, node.this), bind_expr(scope, node.expression)]
    if isinstance(node, exp.ArrayContainedBy):
        sides.reverse()
    left, right = sides
    if left.type in JSON or right.type in JSON:
        given = tuple(scope.binder.coerce(each, ColumnType.ANY) for each in sides)
        return Call(B, "b_json_contains", given)
    type_ = common_type((left.type, right.type), "@>")
    if type_ not in ELEMENTS:
        raise no_operator("@>", left.type, right.type, position=walk_position(node))
    return Call(B, "b_list_contains", tuple(scope.binder.coerce(each, type_) for each in sides))


def _path_operator(scope: Scope, node: exp.Expr) -> Expr:
    """`@?` and `@@`: the functions, which tell NULL where something is wrong with the data."""
    if isinstance(node, exp.MatchAgainst):
        sides, symbol, name = [node.expressions[0], node.this], "@@", "b_path_match"
    else:
        sides, symbol, name = [node.this, node.expression], "@?", "b_path_exists"
    inner, path = (bind_expr(scope, each) for each in sides)
    if inner.type not in JSON:
        raise no_operator(symbol, inner.type, None, position=walk_position(node))
    given = (inner, scope.binder.coerce(path, S), Const(ColumnType.ANY, "{}"), Const(B, 1))
    return Call(B, name, given)


def _has_keys(scope: Scope, node: exp.Binary) -> Expr:
    """`?`, `?|` and `?&`: keys of an object, texts of an array."""
    inner, symbol = bind_expr(scope, node.this), _KEYS[type(node)]
    if inner.type not in JSON:
        raise no_operator(symbol, inner.type, None, position=walk_position(node))
    keys = bind_expr(scope, node.expression)
    if symbol == "?":
        return Call(B, "b_json_has", (inner, scope.binder.coerce(keys, S)))
    name = "b_json_has_any" if symbol == "?|" else "b_json_has_all"
    return Call(B, name, (inner, scope.binder.coerce(keys, ColumnType.STRINGS)))


_KEYS: dict[type[Any], str] = {
    exp.JSONBContainsTopKey: "?",
    exp.JSONBContainsAnyTopKeys: "?|",
    exp.JSONBContainsAllTopKeys: "?&",
}


def _overlaps(scope: Scope, node: exp.Binary) -> Expr:
    sides = [bind_expr(scope, node.this), bind_expr(scope, node.expression)]
    type_ = common_type([each.type for each in sides], "&&")
    if type_ not in ELEMENTS:
        types = (each.type for each in sides)
        raise no_operator("&&", *types, position=walk_position(node))
    return Call(B, "b_list_overlaps", tuple(scope.binder.coerce(each, type_) for each in sides))


def _untyped(scope: Scope, node: exp.Expr) -> Expr:
    raise refuse(node, _NO_TYPE[type(node)])


def _two_strings(scope: Scope, node: exp.Concat) -> Expr:
    """`'a' 'b'` on one line: PostgreSQL refuses it too."""
    parts = node.expressions
    position = walk_position(parts[-1]) if parts else None
    raise CairnError(
        f"syntax error at or near \"'{parts[-1].name}'\"", sqlstate="42601", position=position
    )


_MORE: dict[type[Any], Callable[[Scope, Any], Expr]] = {
    exp.Pow: _power,
    exp.Sqrt: _root,
    exp.Cbrt: _root,
    **dict.fromkeys(_BITS, _bits),
    exp.BitwiseNot: _inverted,
    exp.JSONExtract: _arrow,
    exp.JSONExtractScalar: _arrow,
    exp.JSONBExtract: _deep_arrow,
    exp.JSONBExtractScalar: _deep_arrow,
    exp.JSONBDeleteAtPath: _cut,
    exp.ArrayContainsAll: _contains,
    exp.ArrayContainedBy: _contains,
    exp.ArrayOverlaps: _overlaps,
    **dict.fromkeys(_KEYS, _has_keys),
    exp.JSONBPathExists: _path_operator,
    exp.MatchAgainst: _path_operator,
    **dict.fromkeys(_NO_TYPE, _untyped),
    exp.Concat: _two_strings,
    exp.SessionUser: lambda scope, _: scalar(scope.binder, "session_user", (), None),
    exp.CurrentSchema: lambda scope, _: scalar(scope.binder, "current_schema", (), None),
    exp.CurrentCatalog: lambda scope, _: scalar(scope.binder, "current_catalog", (), None),
}
HANDLERS.update(_MORE)
