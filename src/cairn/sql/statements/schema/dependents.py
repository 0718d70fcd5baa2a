"""Views are kept as texts, so what they name must not go away or be renamed under them."""

from __future__ import annotations

from cairn.model.errors import CairnError
from cairn.model.tables.catalog import Catalog
from cairn.sql.parse.lexer import tokens
from cairn.sql.parse.parse import parse_query


def in_use(what: str, users: list[str], hint: str, *, verb: str = "drop") -> CairnError:
    """PostgreSQL's words and code for what others hold."""
    return CairnError(
        f"cannot {verb} {what} because other objects depend on it",
        detail="\n".join(users),
        hint=hint,
        sqlstate="2BP01",
    )


def check_unused(
    catalog: Catalog, what: str, name: str, column: str | None = None, *, verb: str = "drop"
) -> None:
    """Refuse to change a table or a view, or a column of it, that a view names."""
    users = [view for view in sorted(catalog.views) if _uses(catalog, view, name, column, verb)]
    if not users:
        return
    whole = f"{what} {name}" if column is None else f"column {column} of {what} {name}"
    told = [f"view {view} depends on {whole}" for view in users]
    raise in_use(whole, told, f"first DROP VIEW {users[-1]}", verb=verb)


def _uses(catalog: Catalog, view: str, name: str, column: str | None, verb: str) -> bool:
    from sqlglot import exp  # here, or every start of an instance would wait for it

    from cairn.sql.parse.tree import name_of

    body = catalog.views[view].body
    tree = parse_query(tokens(body), body)
    own = {name_of(each.args["alias"].this) for each in tree.find_all(exp.CTE)}
    named = {name_of(each.this) for each in tree.find_all(exp.Table)} - own
    if name not in named:
        return False
    if column is None or any(name_of(each.this) == column for each in tree.find_all(exp.Column)):
        return True
    joins = list(tree.find_all(exp.Join))
    if any(name_of(each) == column for join in joins for each in join.args.get("using") or ()):
        return True
    # `*` and NATURAL name columns too. A new name changes nothing in what `*` tells: see `View`.
    is_star = any(True for _ in tree.find_all(exp.Star))
    return verb == "drop" and (is_star or any(join.method == "NATURAL" for join in joins))
