"""A query on PostgreSQL's catalogue, written again for the SQLite tables of `pg_tables`."""

from __future__ import annotations

from typing import Any

from sqlglot import exp

from cairn.model.errors import UndefinedTable, Unsupported
from cairn.server.catalog.columns import INTEGERS, type_name
from cairn.server.catalog.laterals import tie_functions
from cairn.server.catalog.schema import TABLES, TYPE_FUNCTIONS, columns_of
from cairn.server.catalog.sizes import OF_ALL, SIZES, STATS
from cairn.sql.parse.dialect import walk_position

_REGEXPS = {"~": "regexp", "~*": "iregexp"}
_COMPARISONS: dict[str, type[exp.Expr]] = {
    "=": exp.EQ,
    "<>": exp.NEQ,
    "<": exp.LT,
    ">": exp.GT,
    "<=": exp.LTE,
    ">=": exp.GTE,
    "~~": exp.Like,
}
_LOOKUPS = {"regclass", "regtype", "regnamespace", "regproc", "regprocedure"}
_NAMED = {"pg_regclass", "pg_regtype"}  # as text they give a name
_EXPANDED = "_pg_expandarray"  # rows of (x, n): a value and its place, which pgjdbc asks for
_ROW_FUNCTIONS = {
    "unnest": "pg_nth",
    "generate_subscripts": "pg_subscript",
    _EXPANDED: "pg_nth",
    f"{_EXPANDED}.x": "pg_nth",
    f"{_EXPANDED}.n": "pg_place",
}
_PLACES = "row_places"
_SET_FUNCTIONS = {"unnest", "generate_series", "generate_subscripts"}
_TRUTHS = {name for table in TABLES for name, kind in columns_of(table) if kind == "BOOLEAN"}
_WORDS_OF_TRUTH = {"t": True, "true": True, "f": False, "false": False}


def translate(tree: exp.Expr) -> str:
    """The text for SQLite; what it cannot say is refused by name."""
    copy = tree.copy()
    _offer_system_tables(copy)
    tie_functions(copy)
    for alias in copy.find_all(exp.Alias):  # a word that SQLite keeps for itself may be one
        alias.set("alias", exp.to_identifier(alias.alias, quoted=True))
    for select in copy.find_all(exp.Select):
        if select.parent is None or isinstance(select.parent, exp.SetOperation):
            for item in select.expressions:
                _show_by_name(item)
    return _rewrite(copy).sql(dialect="sqlite", normalize_functions=False)


def _offer_system_tables(tree: exp.Expr) -> None:
    """psql's Tab leaves pg_catalog out unless `pg_` was typed; our names begin with `_`."""
    begun = [like.expression for like in tree.find_all(exp.Like)]
    if not any(isinstance(each, exp.Literal) and each.name.startswith("\\_") for each in begun):
        return
    for node in list(tree.find_all(exp.NEQ)):
        if isinstance(node.this, exp.Column) and node.this.name == "relnamespace":
            node.replace(exp.true())


def _show_by_name(item: exp.Expr) -> None:
    """`oid::regclass` is shown as a name; inside a query it is a number."""
    node = item.this if isinstance(item, exp.Alias) else item
    if isinstance(node, exp.Cast) and type_name(node.to) in ("regclass", "regtype"):
        node.replace(exp.Cast(this=node.copy(), to=exp.DataType.build("text")))


def _rewrite(node: exp.Expr) -> exp.Expr:
    """Children first: a handler sees what they have become."""
    for key, value in list(node.args.items()):
        if isinstance(value, list):
            node.set(
                key, [_rewrite(each) if isinstance(each, exp.Expr) else each for each in value]
            )
        elif isinstance(value, exp.Expr):
            node.set(key, _rewrite(value))
    handler = _HANDLERS.get(type(node))
    found: exp.Expr = node if handler is None else handler(node)
    return found


def _table(node: exp.Table) -> exp.Expr:
    schema, name = node.text("db").lower(), node.name.lower()
    if not isinstance(node.this, exp.Identifier):
        return _set_function(node)
    if schema == "information_schema":
        name = f"information_schema_{name}"
    if schema in ("pg_catalog", "information_schema") and name not in TABLES:
        shown = f"{schema}.{node.name.lower()}"
        raise UndefinedTable(f'relation "{shown}" does not exist', position=walk_position(node))
    node.set("db", None)
    node.set("this", exp.to_identifier(name))
    if schema == "information_schema" and not node.alias:
        node.set("alias", exp.TableAlias(this=exp.to_identifier(node.name.split("_", 2)[-1])))
    return node


def _set_function(node: exp.Table) -> exp.Expr:
    """`unnest(a) x` and `generate_series(1, n) x`: a column named like the alias."""
    call, alias = node.this, node.args.get("alias")
    name = str(getattr(call, "this", "")).lower()
    if name == "json_each":  # of `tie_functions`
        return node
    if isinstance(call, exp.Anonymous) and name in TABLES:  # `pg_timezone_names()`
        node.set("this", exp.to_identifier(name))
        node.set("db", None)
        return node
    if isinstance(call, exp.Anonymous) and name.startswith("pg_"):
        nothing = exp.alias_(exp.Null(), node.alias or name)
        return exp.select(nothing).where(exp.false()).subquery(node.alias or name)
    if not isinstance(call, exp.Anonymous) or name not in _SET_FUNCTIONS:
        raise Unsupported(
            "this function in FROM is not supported in queries on pg_catalog",
            position=walk_position(node),
        )
    columns = alias.args.get("columns") if alias is not None else None
    shown = columns[0].name if columns else (node.alias or name)
    source = exp.Table(this=_call("json_each", _call(f"pg_{name}", *call.expressions)))
    inner = exp.select(exp.alias_(exp.column("value"), shown)).from_(source)
    number = columns[1].name if columns and len(columns) > 1 else "ordinality"
    if node.args.get("ordinality"):
        place = exp.Add(this=exp.column("key"), expression=exp.Literal.number(1))
        inner = inner.select(exp.alias_(place, number))
    return inner.subquery(node.alias or name)


def _select(node: exp.Select) -> exp.Expr:
    """Functions in the select list that give several rows: a row for each of their places."""
    found = [
        call
        for item in node.expressions
        if isinstance(call := item.unalias(), exp.Anonymous)
        and str(call.this).lower() in _ROW_FUNCTIONS
    ]
    if not found:
        return node
    arrays = [call.expressions[0].copy() for call in found]
    places = _call("json_each", _call("pg_places", *arrays))
    node.join(exp.Table(this=places, alias=_PLACES), join_type="cross", copy=False)
    for call in found:
        name = _ROW_FUNCTIONS[str(call.this).lower()]
        place = exp.column("value", table=_PLACES)
        call.replace(_call(name, call.expressions[0].copy(), place))
    return node


def _unnest(node: exp.Unnest) -> exp.Expr:
    call = exp.Anonymous(this="unnest", expressions=node.expressions)
    alias, offset = node.args.get("alias"), node.args.get("offset")
    if isinstance(offset, exp.Identifier) and alias is not None:
        alias.append("columns", offset)
    return _set_function(exp.Table(this=call, alias=alias, ordinality=bool(offset)))


def _bracket(node: exp.Bracket) -> exp.Expr:
    return _call("pg_subscripted", node.this, node.expressions[0])


def _dot(node: exp.Dot) -> exp.Expr:
    inner = node.expression
    if isinstance(node.parent, exp.DataType):
        return node  # `x::pg_catalog.text`
    if isinstance(inner, (exp.Anonymous, exp.Func, exp.Subquery)):
        return inner
    whole = node.this.this if isinstance(node.this, exp.Paren) else None
    if isinstance(whole, exp.Anonymous) and whole.this == _EXPANDED and inner.name in ("x", "n"):
        return _call(f"{_EXPANDED}.{inner.name}", *whole.expressions)
    if isinstance(whole, exp.Column) and inner.name == "x":
        return whole  # of a column that such a function made: it is the value alone
    raise Unsupported("this use of a dot is not supported", position=walk_position(node))


def _operator(node: exp.Operator) -> exp.Expr:
    symbol = str(node.args["operator"]).removeprefix("pg_catalog.").strip()
    left, right = node.this, node.expression
    negate, plain = symbol.startswith("!"), symbol.removeprefix("!")
    found: exp.Expr
    if plain in _REGEXPS:
        found = _call(_REGEXPS[plain], right, left)
    elif plain in _COMPARISONS:
        found = _COMPARISONS[plain](this=left, expression=right)
    else:
        raise Unsupported(f"OPERATOR({symbol}) is not supported", position=walk_position(node))
    return exp.Not(this=exp.Paren(this=found)) if negate else found


def _regexp(node: exp.RegexpLike | exp.RegexpILike) -> exp.Expr:
    name = "regexp" if isinstance(node, exp.RegexpLike) else "iregexp"
    return _call(name, node.expression, node.this)


def _column(node: exp.Column) -> exp.Expr:
    """`pg_catalog.pg_class.relname` without its schema."""
    if node.name.lower() == "tableoid":
        return exp.Null()  # which table it is, is never asked for anything that has rows
    if node.args.get("db") is not None:
        node.set("db", None)
    return node


def _collate(node: exp.Collate) -> exp.Expr:
    inner: exp.Expr = node.this
    return inner


def _cast(node: exp.Cast) -> exp.Expr:
    word, inner = type_name(node.to), node.this
    if word in _LOOKUPS:
        return _call(f"pg_{word}", inner)
    if word == "text" and isinstance(inner, exp.Anonymous) and inner.this in _NAMED:
        return _call(f"{inner.this}_name", *inner.expressions)
    if word == "interval":
        return _call("pg_interval_us", inner)
    if word == "oid" and isinstance(inner, exp.Column) and inner.name in TYPE_FUNCTIONS:
        same = exp.EQ(this=exp.column("proname"), expression=inner)
        return exp.select("oid").from_("pg_proc").where(same).subquery()
    if word in INTEGERS:
        return exp.Cast(this=inner, to=exp.DataType.build("integer"))
    if word in ("text", "name", "varchar", "char"):
        return exp.Cast(this=inner, to=exp.DataType.build("text"))
    return exp.Paren(this=inner)


def _size_query(name: str, args: list[exp.Expr]) -> exp.Expr | None:
    """In place of such a function; NULL for what has no rows of its own, and for what the asker
    may not read. None: it is another function."""
    if name == OF_ALL:
        return exp.select("sum(bytes + index_bytes)").from_(STATS).subquery()
    if name not in SIZES or not args:
        return None
    # Not of the table itself: in that the word `oid` would mean its own rows.
    sums = exp.select("table_id AS of_table", f"sum({SIZES[name]}) AS size").from_(STATS)
    asked = exp.Anonymous(this="pg_regclass", expressions=[args[0]])
    found = exp.select("size").from_(sums.group_by("table_id").subquery("sizes"))
    return found.where(exp.EQ(this=exp.column("of_table"), expression=asked)).subquery()


def _anonymous(node: exp.Anonymous) -> exp.Expr:
    size = _size_query(str(node.this).lower(), node.expressions)
    if size is not None:
        return size
    if str(node.this).upper() != "ARRAY" or len(node.expressions) != 1:
        return node
    query = node.expressions[0]
    if not isinstance(query, exp.Select) or len(query.expressions) != 1:
        raise Unsupported("this ARRAY is not supported", position=walk_position(node))
    item = query.expressions[0]
    inner = item.this if isinstance(item, exp.Alias) else item
    query.set("expressions", [exp.alias_(inner.copy(), "item")])
    picked = exp.select(_call("array_agg", exp.column("item"))).from_(query.subquery("items"))
    return picked.subquery()


def _as_truth(node: exp.EQ | exp.NEQ) -> None:
    """`indisprimary = 'f'`: a text beside a truth value means one."""
    for one, other in (("this", "expression"), ("expression", "this")):
        column, literal = node.args[one], node.args[other]
        if isinstance(column, exp.Column) and column.name in _TRUTHS:
            word = literal.name.lower() if isinstance(literal, exp.Literal) else ""
            if word in _WORDS_OF_TRUTH:
                node.set(other, exp.Literal.number(int(_WORDS_OF_TRUTH[word])))


def _as_function(node: exp.EQ) -> None:
    """`pg_proc.oid = typreceive`: functions of types are names here."""
    for one, other in ((node.this, node.expression), (node.expression, node.this)):
        is_function = isinstance(other, exp.Column) and other.name in TYPE_FUNCTIONS
        if is_function and isinstance(one, exp.Column) and one.name == "oid":
            one.set("this", exp.to_identifier("proname"))


def _case(node: exp.Case) -> exp.Expr:
    """`CASE indisunique WHEN 't' THEN …`"""
    if isinstance(node.this, exp.Column) and node.this.name in _TRUTHS:
        for each in node.args["ifs"]:
            word = each.this.name.lower() if isinstance(each.this, exp.Literal) else ""
            if word in _WORDS_OF_TRUTH:
                each.set("this", exp.Literal.number(int(_WORDS_OF_TRUTH[word])))
    return node


def _equals(node: exp.EQ) -> exp.Expr:
    """`x = ANY (array)`; an array is text here."""
    right = node.expression
    if not isinstance(right, exp.Any):
        _as_truth(node)
        _as_function(node)
        return node
    array = right.this.unnest() if isinstance(right.this, exp.Paren) else right.this
    if isinstance(array, (exp.Query, exp.Subquery)):
        return exp.In(this=node.this, query=array)
    if isinstance(array, exp.Array):
        return exp.In(this=node.this, expressions=array.expressions)
    return _call("pg_any", node.this, array)


def _differs(node: exp.NEQ) -> exp.Expr:
    """`x <> ALL (array)`"""
    right = node.expression
    if not isinstance(right, exp.Anonymous) or str(right.this).upper() != "ALL":
        _as_truth(node)
        return node
    (array,) = right.expressions
    if isinstance(array, (exp.Query, exp.Subquery)):
        return exp.Not(this=exp.In(this=node.this, query=array))
    return exp.Not(this=_call("pg_any", node.this, array))


def _extract(node: exp.Extract) -> exp.Expr:
    """Moments and the time between them are counts of microseconds here."""
    if node.this.name.upper() != "EPOCH":
        return _refused(node)
    return exp.Div(this=exp.Paren(this=node.expression), expression=exp.Literal.number("1e6"))


def _parameter(node: exp.Parameter) -> exp.Expr:
    return exp.Var(this=f"?{node.this}")


def _refused(node: exp.Expr) -> exp.Expr:
    raise Unsupported(
        f"{type(node).__name__.upper()} is not supported in queries on pg_catalog",
        position=walk_position(node),
    )


def _call(name: str, *args: exp.Expr) -> exp.Expr:
    return exp.Anonymous(this=name, expressions=list(args))


_HANDLERS: dict[type[exp.Expr], Any] = {
    exp.Table: _table,
    exp.Dot: _dot,
    exp.Operator: _operator,
    exp.RegexpLike: _regexp,
    exp.RegexpILike: _regexp,
    exp.Collate: _collate,
    exp.Column: _column,
    exp.Cast: _cast,
    exp.Anonymous: _anonymous,
    exp.CurrentTimestamp: lambda node: _call("now"),
    exp.Case: _case,
    exp.EQ: _equals,
    exp.NEQ: _differs,
    exp.Extract: _extract,
    exp.Parameter: _parameter,
    exp.Lateral: _refused,
    exp.Unnest: _unnest,
    exp.Bracket: _bracket,
    exp.Select: _select,
}
