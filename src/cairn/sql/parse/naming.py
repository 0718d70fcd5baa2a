"""What a result column is called when nobody named it: PostgreSQL's rules."""

from __future__ import annotations

from sqlglot import exp

_CAST_NAMES = {
    "int": "int4",
    "integer": "int4",
    "bigint": "int8",
    "smallint": "int2",
    "double": "float8",
    "float": "float4",
    "decimal": "numeric",
    "boolean": "bool",
    "timestamptz": "timestamptz",
    "varchar": "varchar",
    "char": "bpchar",
    "nchar": "bpchar",
    "varbinary": "bytea",
}
_WORDS: dict[type[exp.Expr], str] = {
    exp.Exists: "exists",
    exp.CurrentTimestamp: "current_timestamp",
    exp.CurrentDate: "current_date",
    exp.Localtimestamp: "localtimestamp",
    exp.Localtime: "localtime",
    exp.StrPosition: "position",
    exp.Overlaps: "overlaps",
    exp.Extract: "extract",
    exp.CurrentUser: "current_user",
    exp.Boolean: "bool",
    exp.Array: "array",
    exp.SessionUser: "session_user",
    exp.CurrentSchema: "current_schema",
    exp.CurrentCatalog: "current_catalog",
    exp.AtTimeZone: "timezone",
    exp.Interval: "interval",
}


def column_name(node: exp.Expr) -> str:
    """The name of an unnamed item of a select list."""
    return _name(node) or "?column?"


def _name(node: exp.Expr) -> str | None:
    if isinstance(node, exp.Column):
        this = node.this
        return str(this.this) if this.args.get("quoted") else str(this.this).lower()
    if isinstance(
        node, (exp.Paren, exp.Filter, exp.Window, exp.Bracket, exp.WithinGroup, exp.Collate)
    ):
        return _name(node.this)
    if isinstance(node, exp.Anonymous):
        return str(node.this).lower()
    if isinstance(node, exp.Case):
        last: exp.Expr | None = node.args.get("default")
        is_named = last is not None and not isinstance(last, (exp.Literal, exp.Boolean))
        return (_name(last) if last is not None and is_named else None) or "case"
    if isinstance(node, exp.Trim):
        side = str(node.args.get("position") or "BOTH").upper()
        return {"LEADING": "ltrim", "TRAILING": "rtrim"}.get(side, "btrim")
    if isinstance(node, exp.Cast):
        inner = _name(node.this)
        if inner is not None and not isinstance(node.this, (exp.Boolean, exp.Cast)):
            return inner
        to = node.to
        if str(getattr(to.this, "name", to.this)).lower() == "array" and to.expressions:
            to = to.expressions[0]  # of `x::int[]`
        word = str(getattr(to.this, "name", to.this)).lower()
        if word == "userdefined":
            word = str(to.args["kind"].name).lower()
        return _CAST_NAMES.get(word, word)
    if isinstance(node, exp.Subquery):
        inner_query = node.this
        if isinstance(inner_query, exp.Select) and len(inner_query.expressions) == 1:
            item = inner_query.expressions[0]
            return item.alias.lower() if isinstance(item, exp.Alias) else _name(item)
        return None
    return _WORDS.get(type(node))
