"""WITH RECURSIVE: a first part, and a step that reads the rows that the last one found."""

from __future__ import annotations

from typing import Any

from sqlglot import exp

from cairn.model.errors import CairnError, DatatypeMismatch, Unsupported
from cairn.sql.bind.queries.sets import known_types, retyped
from cairn.sql.bind.scope import Cte, Scope, Visible
from cairn.sql.ir import (
    Again,
    Join,
    Query,
    Recursion,
    Rel,
    Select,
    has_aggregate,
    has_window,
    output,
    walk,
)
from cairn.sql.parse.dialect import walk_position
from cairn.sql.parse.tree import name_of
from cairn.sql.typing_rules import S, common_type, plain

_MODIFIERS = ("with_", "order", "limit", "offset", "alias")


class _First(Cte):
    """Stands for the query inside its own first part, where it must not be named."""


class _Step(Cte):
    """Stands for the query inside its own step."""

    number = 0
    uses = 0
    types: tuple[Any, ...] = ()


def names_itself(cte: exp.CTE) -> bool:
    name = name_of(cte.args["alias"].this)
    return any(
        isinstance(table.this, exp.Identifier)
        and name_of(table.this) == name
        and not table.args.get("db")
        for table in cte.this.find_all(exp.Table)
    )


def bind_recursion(cte: Cte) -> Query:
    """The query that a recursive CTE stands for."""
    tree, binder = cte.tree, cte.scope.binder
    if not isinstance(tree, exp.Union):
        raise _wrong(
            f'recursive query "{cte.name}" does not have the form non-recursive-term '
            "UNION [ALL] recursive-term",
            tree,
        )
    for key, word in (("order", "ORDER BY"), ("limit", "LIMIT"), ("offset", "OFFSET")):
        if tree.args.get(key):
            raise Unsupported(f"{word} in a recursive query is not supported")
    if tree.args.get("with_"):
        raise Unsupported("WITH inside a recursive query is not supported")
    first = _around(cte, _First(cte.name, tree, cte.columns, cte.scope)).query(tree.this)
    check_columns(cte, first)
    types = [type_ or S for _, type_ in known_types(first)]
    first = retyped(cte.scope, first, types)
    names = [*cte.columns, *(name for name, _ in output(first)[len(cte.columns) :])]
    step = _Step(cte.name, tree, names, cte.scope)
    step.number, step.types = binder.next_rel(), tuple(types)
    step.scope = _around(cte, step)
    inner = tree.expression
    while isinstance(inner, exp.Subquery) and not any(map(inner.args.get, _MODIFIERS)):
        inner = inner.this
    second = step.scope.query(inner)
    if not step.uses:  # an inner WITH had the name
        return cte.scope.query(tree)
    _check_step(cte, second, inner)
    _check_types(cte, types, second, inner)
    word = "UNION ALL" if not tree.args.get("distinct", True) else "UNION"
    second = retyped(cte.scope, second, types)
    return Recursion(word, first, second, tuple(names), tuple(types), number=step.number)


def check_columns(cte: Cte, query: Query) -> None:
    found = len(output(query))
    if len(cte.columns) > found:
        raise CairnError(
            f'WITH query "{cte.name}" has {found} columns available but '
            f"{len(cte.columns)} columns specified",
            sqlstate="42P10",
        )


def _around(cte: Cte, own: Cte) -> Scope:
    """What the parts of the query see: what is around it, and itself."""
    scope = Scope(cte.scope.binder, cte.scope.parent)
    scope.ctes = {**cte.scope.ctes, cte.name: own}
    return scope


def bind_itself(scope: Scope, cte: Cte, alias: str, columns: list[str], node: exp.Expr) -> Rel:
    """The name of a recursive query inside itself."""
    about = f'recursive reference to query "{cte.name}" must not appear'
    if not isinstance(cte, _Step):
        raise _wrong(f"{about} within its non-recursive term", node)
    if scope.parent is not cte.scope:
        raise _wrong(f"{about} within a subquery", node)
    if cte.uses:
        raise _wrong(f"{about} more than once", node)
    cte.uses += 1
    rel = scope.binder.next_rel()
    names = columns + cte.columns[len(columns) :]
    scope.add(Visible(alias, rel, names, list(cte.types), [True] * len(names)))
    return Again(rel, cte.number, alias, tuple(names))


def is_itself(cte: Cte) -> bool:
    return isinstance(cte, _First | _Step)


def _check_step(cte: Cte, step: Query, tree: exp.Expr) -> None:
    """Refuse what asks for all rows of a round at once: rows are taken one after the other."""
    if not isinstance(step, Select):
        raise Unsupported(f'the recursive term of "{cte.name}" must be one SELECT')
    exprs = [item.expr for item in step.items]
    if any(map(has_aggregate, (*exprs, step.having))):
        raise _wrong(
            "aggregate functions are not allowed in a recursive query's recursive term", tree
        )
    grouped = step.group is not None or step.having is not None or step.distinct
    limits = step.limit is not None or step.offset is not None
    if grouped or limits or step.order or any(map(has_window, exprs)):
        raise Unsupported(
            "DISTINCT, GROUP BY, ORDER BY, LIMIT and window functions are not supported "
            "in a recursive term",
            position=walk_position(tree),
        )
    if _is_optional(step.source):
        raise _wrong(
            f'recursive reference to query "{cte.name}" must not appear within an outer join', tree
        )


def _is_optional(source: Rel | None, *, optional: bool = False) -> bool:
    """Whether the rows of the last round are on a side that an outer join may leave empty."""
    if isinstance(source, Join):
        left, right = source.kind == "full", source.kind != "inner"
        sides = ((source.left, left), (source.right, right))
        return any(_is_optional(side, optional=optional or empty) for side, empty in sides)
    return optional and any(isinstance(node, Again) for node in walk(source))


def _check_types(cte: Cte, types: list[Any], step: Query, tree: exp.Expr) -> None:
    shown = known_types(step)
    if len(shown) != len(types):
        raise CairnError(
            "each UNION query must have the same number of columns",
            sqlstate="42601",
            position=walk_position(tree),
        )
    for at, (had, (_, type_)) in enumerate(zip(types, shown, strict=True), 1):
        overall = common_type((had, type_), "UNION") or S
        if plain(overall) is not plain(had):
            raise DatatypeMismatch(
                f'recursive query "{cte.name}" column {at} has type {had} in non-recursive term '
                f"but type {overall} overall",
                hint="Cast the output of the non-recursive term to the correct type.",
            )


def _wrong(text: str, tree: exp.Expr) -> CairnError:
    return CairnError(text, sqlstate="42P19", position=walk_position(tree))
