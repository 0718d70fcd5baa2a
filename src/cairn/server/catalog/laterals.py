"""`FROM pg_index i, unnest(i.indkey, i.indoption) WITH ORDINALITY k(key, option, n)` for SQLite.

A query in FROM cannot see its neighbours there, a function can. So the function gives the places of
the arrays, and what stood for its columns takes the values at that place.
"""

from __future__ import annotations

from sqlglot import exp


def tie_functions(tree: exp.Expr) -> None:
    """Before anything else is translated."""
    for select in list(tree.find_all(exp.Select)):
        source = select.args.get("from_")
        aliases = {source.this.alias_or_name} if source is not None else set()
        for join in select.args.get("joins") or ():
            call = join.this
            if isinstance(call, exp.Lateral):
                call = call.this
            arrays = list(call.expressions) if isinstance(call, exp.Unnest) else []
            used = {column.table for array in arrays for column in array.find_all(exp.Column)}
            if used & aliases:
                _tie(select, join, call, arrays)
            aliases.add(join.this.alias_or_name)


def _tie(select: exp.Select, join: exp.Join, call: exp.Unnest, arrays: list[exp.Expr]) -> None:
    alias = join.this.args.get("alias") or call.args.get("alias")
    name = alias.name if alias is not None and alias.this else "unnest"
    offset = call.args.get("offset")
    given = [each.name for each in (alias.args.get("columns") or ())] if alias is not None else []
    if isinstance(offset, exp.Identifier):
        given.append(offset.name)
    place = exp.column("value", table=name)
    values: list[exp.Expr] = [
        exp.Anonymous(this="pg_nth", expressions=[array.copy(), place.copy()]) for array in arrays
    ]
    if offset:
        values.append(exp.Paren(this=exp.Add(this=place.copy(), expression=exp.Literal.number(1))))
    names = given + ([name] * (len(values) == 1) or [f"c{at}" for at in range(len(values))])
    found = dict(zip(names, values, strict=False))
    join.set(
        "this", exp.Table(this=_places(arrays), alias=exp.TableAlias(this=exp.to_identifier(name)))
    )
    _expand_stars(select, name, found)
    for column in list(select.find_all(exp.Column)):
        if (
            column.name in found
            and column.table in ("", name)
            and column.find_ancestor(exp.Join) is not join
        ):
            column.replace(found[column.name].copy())


def _places(arrays: list[exp.Expr]) -> exp.Expr:
    counted = exp.Anonymous(this="pg_places", expressions=[array.copy() for array in arrays])
    return exp.Anonymous(this="json_each", expressions=[counted])


def _expand_stars(select: exp.Select, name: str, found: dict[str, exp.Expr]) -> None:
    """`*` would show the columns of json_each."""
    items: list[exp.Expr] = []
    others = [select.args["from_"].this, *(join.this for join in select.args.get("joins") or ())]
    for item in select.expressions:
        if not isinstance(item, exp.Star):
            items.append(item)
            continue
        items += [
            exp.Column(this=exp.Star(), table=exp.to_identifier(other.alias_or_name))
            for other in others
            if other.alias_or_name != name
        ]
        items += [exp.alias_(value.copy(), shown, quoted=True) for shown, value in found.items()]
    select.set("expressions", items)
