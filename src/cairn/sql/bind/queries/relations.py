"""FROM to relations: tables, derived tables, CTEs and joins."""

from __future__ import annotations

from sqlglot import exp

from cairn.model.errors import (
    CairnError,
    NotInPrerequisiteState,
    SyntaxProblem,
    UndefinedColumn,
    Unsupported,
)
from cairn.model.tables.catalog import View
from cairn.model.tables.schema import Table
from cairn.sql.bind.expressions.expr import bind_boolean, compare
from cairn.sql.bind.expressions.lists import rows_of
from cairn.sql.bind.queries.lateral import bind_lateral
from cairn.sql.bind.queries.records import RECORDS, records
from cairn.sql.bind.queries.recursive import (
    bind_itself,
    bind_recursion,
    check_columns,
    is_itself,
    names_itself,
)
from cairn.sql.bind.queries.rows_in_items import ROWS
from cairn.sql.bind.queries.sets import bind_values
from cairn.sql.bind.scope import Cte, GivenRows, Scope, Visible
from cairn.sql.functions.function_list import KEPT_FIRST, told_anew
from cairn.sql.ir import (
    TRUE,
    Call,
    Derived,
    Expr,
    Given,
    Join,
    Query,
    Rel,
    Scan,
    Select,
    SetOp,
    Unnest,
    conjunction,
    conjuncts,
    is_tied,
    output,
)
from cairn.sql.parse.dialect import walk_position
from cairn.sql.parse.lexer import tokens
from cairn.sql.parse.parse import parse_query
from cairn.sql.parse.tree import allow, name_of, refuse
from cairn.sql.scales import known
from cairn.sql.typing_rules import S, cast, common_type


def bind_ctes(scope: Scope, tree: exp.Expr) -> None:
    with_ = tree.args.get("with_")
    if with_ is None:
        return
    if with_.args.get("search"):
        raise refuse(with_, "SEARCH and CYCLE")
    for cte in with_.expressions:
        alias = cte.args["alias"]
        name = name_of(alias.this)
        if isinstance(cte.this, (exp.Insert, exp.Update, exp.Delete)):
            raise Unsupported(
                "WITH clause containing a data-modifying statement must be at the top level",
                position=walk_position(cte.this),
            )
        if name in scope.ctes:
            raise CairnError(f'WITH query name "{name}" specified more than once', sqlstate="42712")
        inner = Scope(scope.binder, scope.parent)
        inner.ctes = dict(scope.ctes)
        columns = [name_of(each) for each in alias.args.get("columns") or ()]
        found = Cte(name, cte.this, columns, inner)
        found.recursive = bool(with_.args.get("recursive")) and names_itself(cte)
        scope.ctes[name] = found
        # Bound once even if nobody uses it, for its errors; each use binds it anew (see _table).
        _cte_query(found)


#: Functions of one value that tools ask for by SELECT * FROM.
SCALARS = ("current_schema", "current_database", "current_catalog", "version", "now")


def _cte_query(cte: Cte) -> Query:
    query = bind_recursion(cte) if cte.recursive else cte.scope.query(cte.tree)
    check_columns(cte, query)
    return query


def _check_aliases(alias: str, columns: list[str], found: int) -> None:
    if len(columns) > found:
        raise CairnError(
            f'table "{alias}" has {found} columns available but {len(columns)} columns specified',
            sqlstate="42P10",
        )


def _derived(scope: Scope, query: Query, alias: str, columns: list[str]) -> Rel:
    shown = output(query)
    _check_aliases(alias, columns, len(shown))
    names = columns + [name for name, _ in shown[len(columns) :]]
    rel = scope.binder.next_rel()
    types = [type_ for _, type_ in shown]
    seen = Visible(alias, rel, names, types, [True] * len(names), scales=known(query))
    seen.unnamed = _unnamed(query, len(columns))
    scope.add(seen)
    return Derived(rel, query, alias, tuple(names))


def _unnamed(query: Query, named: int) -> dict[str, int]:
    """Columns of the first SELECT that have no name of their own, by Picodata's."""
    while isinstance(query, SetOp):
        query = query.left
    items = query.items if isinstance(query, Select) else ()
    return {
        f"col_{each.number}": at for at, each in enumerate(items) if each.number and at >= named
    }


def _value(scope: Scope, name: str, node: exp.Table) -> Rel:
    """`SELECT * FROM current_schema()`: a table of one value, with its name."""
    alias = node.args.get("alias")
    shown = name_of(alias.this) if alias is not None and alias.this else name
    columns = [name_of(each) for each in (alias.args.get("columns") or ())] if alias else []
    tree = exp.select(exp.alias_(node.this.copy(), shown, quoted=True))
    return _derived(scope, Scope(scope.binder, scope.parent).query(tree), shown, columns)


def _table(scope: Scope, node: exp.Table) -> Rel:
    allow(node, {"this", "alias", "db", "joins", "only", "indexed", "ordinality"})
    if isinstance(node.this, exp.Anonymous):
        name = str(node.this.this).lower()
        if name in SCALARS:
            return _value(scope, name, node)
        if name in RECORDS:
            shown = name_of(alias.this) if (alias := node.args.get("alias")) is not None else name
            return _derived(
                scope, Scope(scope.binder, scope.parent).query(records(node)), shown, []
            )
        return _function(scope, name, list(node.this.expressions), node)
    if node.args.get("ordinality"):
        raise refuse(node, "WITH ORDINALITY after a table")
    if not isinstance(node.this, exp.Identifier):
        raise refuse(node, "this in FROM")
    name, position = name_of(node.this), walk_position(node)
    schema = name_of(node.args["db"]) if node.args.get("db") else None
    alias = node.args.get("alias")
    shown = name_of(alias.this) if alias is not None and alias.this else name
    columns = [name_of(each) for each in (alias.args.get("columns") or ())] if alias else []
    cte = scope.cte(name) if schema is None else None
    block = scope.binder.block
    given = block.given.get(name) if block is not None and schema is None else None
    if cte is None and given is not None:
        return _given(scope, name, given, shown, columns, position)
    if cte is not None and is_itself(cte):
        return bind_itself(scope, cte, shown, columns, node)
    if cte is not None:
        scope.binder.enter_select(expanded=True)
        query = _cte_query(cte)
        cte.named_at.add(position)
        if len(cte.named_at) > 1 and told_anew(query):
            raise Unsupported(
                f'"{name}" is named twice and calls a function that tells something else each time',
                hint=KEPT_FIRST,
                position=position,
            )
        return _derived(scope, query, shown, columns or cte.columns)
    catalog = scope.binder.catalog.public if schema == "public" else scope.binder.catalog
    if schema is not None and schema != "public":
        name = f"{schema}.{name}"
    elif scope.binder.catalog.table(name) is None and name.startswith("pg_"):
        name = f"pg_catalog.{name}"
    view = catalog.views.get(name)
    if view is not None:
        return _view(scope, view, shown, columns)
    table = scope.binder.table(name, position, catalog)
    rel = scope.binder.next_rel()
    _check_aliases(shown, columns, len(table.shown_columns))
    aliases = iter(columns)
    names = [each.name if each.is_hidden else next(aliases, each.name) for each in table.columns]
    names = [
        "" if each.is_dropped else name  # no identifier is empty: nobody can name it
        for each, name in zip(table.columns, names, strict=True)
    ]
    key = set(table.primary_key)
    nullable = [each.nullable and each.name not in key for each in table.columns]
    types = [each.type for each in table.columns]
    scope.add(Visible(shown, rel, names, types, nullable, table), position)
    return Scan(rel, table, shown, _index(scope, node, table))


def _index(scope: Scope, node: exp.Table, table: Table) -> str:
    """The one that INDEXED BY names, as SQLite calls it."""
    wanted = node.args.get("indexed")
    if wanted is None:
        return ""
    if not wanted:
        raise refuse(node, "NOT INDEXED")
    name = name_of(wanted)
    for index in scope.binder.catalog.indexes.get(table.id, ()):
        if index.name == name and index.rule:
            raise Unsupported(
                f"INDEXED BY {name}, an index of some rows, is not supported",
                hint="it is used by itself where WHERE says what its own condition says",
                position=walk_position(wanted),
            )
        if index.name == name:
            return index.physical_name
    if name == table.key_name:
        return f"sqlite_autoindex_{table.physical_name}_1"
    raise CairnError(
        f'table "{table.name}" has no index "{name}"',
        sqlstate="42704",
        position=walk_position(wanted),
    )


def _given(
    scope: Scope, name: str, rows: GivenRows, shown: str, columns: list[str], position: int | None
) -> Rel:
    """What another part of the statement told."""
    if rows.names is None:
        raise Unsupported(
            f'WITH query "{name}" does not have a RETURNING clause', position=position
        )
    rel = scope.binder.next_rel()
    names = columns + rows.names[len(columns) :]
    nullable = [True] * len(names)
    scope.add(Visible(shown, rel, names, list(rows.types), nullable, scales=list(rows.scales)))
    return Given(rel, rows.number, shown, tuple(names))


def _view(scope: Scope, view: View, shown: str, columns: list[str]) -> Rel:
    """Its query, bound anew at each use, seeing nothing of what is around it."""
    binder = scope.binder
    binder.enter_select(expanded=True)
    binder.views[view.id] = view.schema_version
    around, binder.catalog = binder.catalog, binder.catalog.public
    try:
        query = Scope(binder).query(parse_query(tokens(view.body), view.body))
    except CairnError as problem:
        problem.position = None  # it would point into the view
        raise
    finally:
        binder.catalog = around
    if len(output(query)) != len(view.columns):  # columns were added to a table that it takes by *
        raise NotInPrerequisiteState(
            f'the tables of view "{view.name}" have other columns now',
            hint="CREATE OR REPLACE VIEW, with the columns by name",
        )
    return _derived(scope, query, shown, [*columns, *view.columns[len(columns) :]])


def _function(scope: Scope, name: str, args: list[exp.Expr], node: exp.Expr) -> Rel:
    """`generate_series(1, 5) AS g(n)`; an alias of the table is the column's name too."""
    offset = node.args.get("offset")  # sqlglot's word for the second column of unnest
    numbered = bool(offset or node.args.get("ordinality"))
    query = rows_of(scope, name, args, walk_position(node), numbered=numbered)
    alias = node.args.get("alias")
    shown = name_of(alias.this) if alias is not None and alias.this else name
    columns = [name_of(each) for each in (alias.args.get("columns") or ())] if alias else []
    if isinstance(offset, exp.Identifier) and columns:
        columns.append(name_of(offset))
    own = [] if isinstance(query, Unnest) and query.width else [shown]
    if name.endswith(("elements", "elements_text")) and not (alias is not None and alias.this):
        own = []
    found = _derived(scope, query, shown, columns or own)
    if shown == ROWS:
        scope.visible[-1].hidden.update(scope.visible[-1].names)  # it is no part of *
    return found


def _lateral_function(scope: Scope, node: exp.Lateral) -> Rel:
    """A function sees what stands before it, with the word or without."""
    allow(node, {"this", "alias", "ordinality"})
    if isinstance(node.this, exp.Subquery):  # the first of FROM has no neighbours
        return bind_relation(scope, exp.Subquery(this=node.this.this, alias=node.args.get("alias")))
    if isinstance(node.this, exp.Unnest):
        node.this.set("alias", node.args.get("alias"))
        return _function(scope, "unnest", list(node.this.expressions), node.this)
    if not isinstance(node.this, exp.Anonymous):
        raise refuse(node, "this use of LATERAL")
    return _function(scope, str(node.this.this).lower(), list(node.this.expressions), node)


def bind_relation(scope: Scope, node: exp.Expr) -> Rel:
    found: Rel
    if isinstance(node, exp.Table):
        found = _table(scope, node)
    elif isinstance(node, exp.Paren) or (
        isinstance(node, exp.Subquery) and isinstance(node.this, exp.Table)
    ):
        found = bind_relation(scope, node.this)
    elif isinstance(node, exp.Subquery):
        alias = node.args.get("alias")
        allow(node, {"this", "alias", "joins", "with_"})
        # A derived table sees what is around the query, but not its neighbours in FROM.
        query = _without_relations(scope).query(node.this)
        columns = [name_of(each) for each in (alias.args.get("columns") or ())] if alias else []
        shown = name_of(alias.this) if alias is not None else f"*{scope.binder.next_rel()}"
        found = _derived(scope, query, shown, columns)
    elif isinstance(node, exp.Unnest):
        found = _function(scope, "unnest", list(node.expressions), node)
    elif isinstance(node, exp.Values):
        alias = node.args.get("alias")
        query = bind_values(Scope(scope.binder, scope.parent), node)
        columns = [name_of(each) for each in (alias.args.get("columns") or ())] if alias else []
        shown = name_of(alias.this) if alias is not None else f"*{scope.binder.next_rel()}"
        found = _derived(scope, query, shown, columns)
    elif isinstance(node, exp.Lateral):
        found = _lateral_function(scope, node)
    else:
        raise refuse(node, f"{type(node).__name__.upper()} in FROM")
    for join in node.args.get("joins") or ():
        found = bind_join(scope, found, join)
    return found


def _without_relations(scope: Scope) -> Scope:
    bare = Scope(scope.binder, scope.parent)
    bare.ctes = scope.ctes
    return bare


def bind_join(scope: Scope, left: Rel, node: exp.Join) -> Rel:
    allow(node, {"this", "on", "using", "side", "kind", "method"})
    before = list(scope.visible)
    lateral = None
    if isinstance(node.this, exp.Lateral) and isinstance(node.this.this, exp.Subquery):
        lateral = bind_lateral(scope, node.this, left)
    right = bind_relation(scope, node.this) if lateral is None else lateral.rel
    after = scope.visible[len(before) :]
    side, kind = str(node.args.get("side") or "").upper(), str(node.args.get("kind") or "").upper()
    if kind not in ("", "INNER", "OUTER", "CROSS") or side not in ("", "LEFT", "RIGHT", "FULL"):
        raise refuse(node, f"{side} {kind} JOIN".strip())
    using = [name_of(each) for each in node.args.get("using") or ()]
    method = str(node.args.get("method") or "").upper()
    if method not in ("", "NATURAL"):
        raise refuse(node, f"{method} JOIN")
    has_condition = bool(using or node.args.get("on"))
    if has_condition == (kind == "CROSS" or method == "NATURAL"):
        words = "has no" if has_condition else "needs"
        text = f"a join of this kind {words} ON or USING"
        raise SyntaxProblem(text, position=walk_position(node))
    if method:
        theirs = {name for each in after for _, name in each.shown}
        using = [name for each in before for _, name in each.shown if name in theirs]
    on: Expr | None = None
    if using:
        on = _using(scope, before, after, using, side)
    elif node.args.get("on") is not None:
        scope.no_aggregates = scope.no_windows = "JOIN conditions"
        on = bind_boolean(scope, node.args["on"], "JOIN/ON")
    if lateral is not None:
        is_true = on is None or on == TRUE
        if side in ("RIGHT", "FULL") or (lateral.is_one and not is_true):
            raise refuse(node, "a join of this kind with LATERAL")
        on = conjunction([*conjuncts(lateral.on), *([] if is_true else conjuncts(on))])
        side = "LEFT" if lateral.is_one else side
    if side in ("RIGHT", "FULL") and is_tied(right):
        raise refuse(node, "a join of this kind with a function of its neighbours")
    if side in ("LEFT", "FULL"):
        _make_nullable(after)
    if side in ("RIGHT", "FULL"):
        _make_nullable(before)
    if side == "RIGHT":
        return Join("left", right, left, on)
    return Join({"LEFT": "left", "FULL": "full"}.get(side, "inner"), left, right, on)


def _make_nullable(visible: list[Visible]) -> None:
    for each in visible:
        each.nullable = [True] * len(each.names)


def _using(
    scope: Scope, before: list[Visible], after: list[Visible], using: list[str], side: str
) -> Expr | None:
    parts: list[Expr] = []
    for name in using:
        left = scope.merged.get(name) or _one(before, name)
        right = _one(after, name)
        equal = compare(scope, "=", left, right)
        parts.append(equal)
        for each in (*before, *after):
            each.hidden.add(name)
        merged = right if side == "RIGHT" else left
        if side == "FULL":
            type_ = common_type((left.type, right.type), "USING") or S
            merged = Call(type_, "coalesce", (cast(left, type_), cast(right, type_)))
        scope.merged[name] = merged
    return conjunction(parts)


def _one(visible: list[Visible], name: str) -> Expr:
    hits = [each.expr(each.names.index(name)) for each in visible if name in each.names]
    if len(hits) != 1:
        word = "not found" if not hits else "ambiguous"
        raise UndefinedColumn(f'column with name "{name}" in USING is {word}')
    return hits[0]
