"""Reading sqlglot's tree: names, places, and the refusal of what nobody asked for."""

from __future__ import annotations

from typing import Any

from sqlglot import exp

from cairn.model.errors import UndefinedObject, Unsupported
from cairn.sql.parse.dialect import walk_position

#: What people call it, where sqlglot's class has another name.
_SHOWN = {
    "Into": "SELECT INTO",
    "TableSample": "TABLESAMPLE",
    "WithinGroup": "WITHIN GROUP",
    "GroupingSets": "GROUPING SETS",
    "Tuple": "a row as a value",
    "AtIndex": "AT",
    "MatchRecognize": "MATCH_RECOGNIZE",
    "Qualify": "QUALIFY",
    "PropertyEQ": ":=",
    "Bracket": "a subscript",
}
_HINTS = {
    "Into": "write CREATE TABLE name AS SELECT …",
}


def name_of(node: Any) -> str:
    """An identifier as PostgreSQL folds it."""
    if isinstance(node, exp.Identifier):
        return str(node.this) if node.args.get("quoted") else str(node.this).lower()
    return str(getattr(node, "name", node)).lower()


def without_schema(node: Any) -> Any:
    """`pg_catalog.x` is `x`."""
    if isinstance(node, exp.Dot):
        schema, inner = node.this, node.expression
    elif isinstance(node, exp.Column):
        schema, inner = node.args.get("table"), node.this
    else:
        return node
    if schema is not None and name_of(schema) not in ("pg_catalog", "public"):
        raise UndefinedObject(f'schema "{name_of(schema)}" does not exist', sqlstate="3F000")
    return inner


def refuse(node: exp.Expr, what: str | None = None) -> Unsupported:
    kind = type(node).__name__
    shown = what or _SHOWN.get(kind, kind.upper())
    return Unsupported(
        f"{shown} is not supported", hint=_HINTS.get(kind), position=walk_position(node)
    )


def allow(node: exp.Expr, names: frozenset[str] | set[str]) -> None:
    """Refuse whatever else sqlglot understood: nothing is ignored in silence."""
    for key, value in node.args.items():
        if key not in names and value:
            shown = value[0] if isinstance(value, list) else value
            if type(shown).__name__ in _SHOWN:
                raise refuse(shown)
            what = type(shown).__name__ if isinstance(shown, exp.Expr) else key
            raise refuse(node, f"{what.upper()} in {type(node).__name__.upper()}")
