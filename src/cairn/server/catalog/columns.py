"""What the columns of a query on PostgreSQL's catalogue are called, and of which type they are."""

from __future__ import annotations

from typing import Any

from sqlglot import exp

from cairn.model.types.values import LISTS, ColumnType
from cairn.server.catalog import privileges
from cairn.server.catalog.schema import LIVE, TABLES
from cairn.server.catalog.sizes import OF_ALL, SIZES
from cairn.sql.parse.naming import column_name

INTEGERS = {"oid", "int", "integer", "int2", "int4", "int8", "bigint", "smallint", "xid"}
_NUMBER_FUNCTIONS = {
    *("array_length", "array_upper", "length", "char_length", "row_number", "pg_backend_pid"),
    *(*SIZES, OF_ALL),
}
_ENDS = (  # in `pg_schema.TABLES`
    (":i", ColumnType.INTEGER),
    (":d", ColumnType.DOUBLE),
    (":b", ColumnType.BOOLEAN),
    (":t", ColumnType.DATETIME),
)
_NAMES_OID = 1003  # name[]
_NAMES = frozenset(
    ("attname", "relname", "nspname", "typname", "conname", "rolname", "datname", "enumlabel")
)
_TIMES = {word[:-2] for words in TABLES.values() for word in words.split() if word.endswith(":t")}
_TRUTHS: tuple[type[exp.Expr], ...] = (
    exp.Boolean,
    exp.Predicate,
    exp.And,
    exp.Or,
    exp.Not,
    exp.RegexpLike,
    exp.RegexpILike,
    exp.Operator,
)
_VISIBILITY = ("pg_table_is_visible", "pg_relation_is_publishable", "pg_is_in_recovery")
_MOMENTS = (
    *("now", "clock_timestamp", "pg_postmaster_start_time", "pg_conf_load_time"),
    "pg_last_xact_replay_timestamp",
)
_TRUTH_FUNCTIONS = {
    *(*_VISIBILITY, "bool_and", "bool_or", "pg_cancel_backend", "pg_terminate_backend"),
    *("pg_is_wal_replay_paused", "pg_is_in_backup", *privileges.NAMES),
}


def names_and_types(tree: exp.Expr) -> list[tuple[str, ColumnType | None]] | None:
    """What each item of the select list is called, and its type where the text says it.

    None: there is a star in it, and SQLite knows better.
    """
    select = tree
    while isinstance(select, (exp.SetOperation, exp.Subquery)):
        select = select.this
    if not isinstance(select, exp.Select) or select.is_star:
        return None
    return [(_name(item), _type(item, select)) for item in select.expressions]


def told_oids(tree: exp.Expr) -> list[int]:
    """Of lists of names: drivers take `name[]` for a text where they would read a `text[]`."""
    select = tree if isinstance(tree, exp.Select) else exp.select()
    return [_NAMES_OID if _are_names(item) else 0 for item in select.expressions]


def _are_names(item: exp.Expr) -> bool:
    node = item.unalias()
    if isinstance(node, exp.Subquery) and isinstance(node.this, exp.Select):
        return any(map(_are_names, node.this.expressions[:1]))
    if isinstance(node, exp.Case):
        return any(_are_names(each.args["true"]) for each in node.args["ifs"])
    if not isinstance(node, exp.Anonymous) or str(node.this).lower() != "array_agg":
        return False
    first = node.expressions[0] if node.expressions else None
    inside = first.this if isinstance(first, exp.Order) else first
    return isinstance(inside, exp.Column) and inside.name in _NAMES


def _name(item: exp.Expr) -> str:
    if isinstance(item, exp.Alias):
        alias = item.args["alias"]
        return str(alias.this) if alias.args.get("quoted") else str(alias.this).lower()
    if isinstance(item, exp.Dot):
        item = item.expression
    if isinstance(item, exp.Anonymous) and str(item.this).upper() == "ARRAY":
        return "array"
    return column_name(item)


def _type(item: exp.Expr, select: exp.Select) -> ColumnType | None:
    node = item.this if isinstance(item, exp.Alias) else item
    while isinstance(node, exp.Paren):
        node = node.this
    if isinstance(node, exp.Dot):
        node = node.expression
    if isinstance(node, exp.Cast):
        word = type_name(node.to)
        return ColumnType.INTEGER if word in INTEGERS else ColumnType.STRING
    if isinstance(node, exp.Anonymous):
        name = str(node.this).lower()
        if name == "array" and node.expressions and isinstance(node.expressions[0], exp.Query):
            inner = names_and_types(node.expressions[0])
            return LISTS.get((inner[0][1] if inner else None) or ColumnType.STRING)
        if name == "array_agg" and node.expressions:
            first = node.expressions[0]
            inside = first.this if isinstance(first, exp.Order) else first
            return LISTS.get(_type(inside, select) or ColumnType.STRING)
        if name in ("json_build_object", "jsonb_build_object"):
            return ColumnType.MAP
        if name in ("min", "max", "sum", "abs") and len(node.expressions) == 1:
            return _type(node.expressions[0], select)
        if name == "avg":
            return ColumnType.DOUBLE
        if name == "round" and node.expressions:
            return ColumnType.DOUBLE
        if name in _TRUTH_FUNCTIONS or name.startswith("has_"):
            return ColumnType.BOOLEAN
        if name in _MOMENTS:
            return ColumnType.DATETIME
        is_number = name in _NUMBER_FUNCTIONS or name == "count"
        return ColumnType.INTEGER if is_number else None
    if isinstance(node, exp.Column):
        return _column_type(node, select)
    if isinstance(node, exp.Sub) and is_time(node.this) and is_time(node.expression):
        return ColumnType.INTERVAL
    if isinstance(node, exp.Case):
        kinds = {_type(branch.args["true"], select) for branch in node.args["ifs"]}
        return kinds.pop() if len(kinds) == 1 else None
    if isinstance(node, exp.Extract):
        return ColumnType.DOUBLE
    if is_time(node):
        return ColumnType.DATETIME
    if isinstance(node, exp.Subquery):
        inner = names_and_types(node.this)
        return inner[0][1] if inner else None
    if isinstance(node, (exp.Add, exp.Sub, exp.Mul, exp.Div)):
        sides = {_type(node.this, select), _type(node.expression, select)}
        if sides <= {ColumnType.INTEGER, ColumnType.DOUBLE}:
            return ColumnType.DOUBLE if ColumnType.DOUBLE in sides else ColumnType.INTEGER
    if isinstance(node, exp.Literal) and not node.is_string:
        return ColumnType.INTEGER if node.is_int else ColumnType.DOUBLE
    return ColumnType.BOOLEAN if isinstance(node, _TRUTHS) else None


def _column_type(column: exp.Column, select: exp.Select) -> ColumnType | None:
    """What the tables declare, also through derived ones."""
    joins = [join.this for join in select.args.get("joins") or ()]
    source = select.args.get("from_")
    for relation in [*joins, *([source.this] if source is not None else [])]:
        if isinstance(relation, exp.Subquery) and relation.alias == column.table:
            return dict(names_and_types(relation.this) or ()).get(column.name)
        if isinstance(relation, exp.Table) and (
            column.table in (relation.alias, relation.name)
            or (not column.table and relation.name in LIVE)
        ):
            words = TABLES.get(relation.name, "").split()
            return next((type_ for end, type_ in _ENDS if column.name + end in words), None)
    return None


def is_time(node: exp.Expr) -> bool:
    """Whether it is a moment: a column that is one, or the present."""
    if isinstance(node, exp.Column):
        return node.name in _TIMES
    if isinstance(node, exp.Anonymous):
        return str(node.this).lower() in _MOMENTS
    return isinstance(node, exp.CurrentTimestamp)


def type_name(to: exp.Expr) -> str:
    kind: Any = to.args.get("kind")
    if kind is None:
        return str(getattr(to.this, "value", to.this)).lower()
    return str(kind.name if not isinstance(kind, exp.Dot) else kind.expression.name).lower()
