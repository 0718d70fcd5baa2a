"""`jsonb_to_recordset(data) AS t(a int, b text)`: each object is a row, its members are cast."""

from __future__ import annotations

from sqlglot import exp

from cairn.model.errors import CairnError
from cairn.sql.parse.dialect import walk_position
from cairn.sql.parse.tree import name_of, refuse

RECORDS = frozenset(f"{kind}_to_record{many}" for kind in ("json", "jsonb") for many in ("", "set"))
_JSON = ("json", "jsonb")


def records(node: exp.Table) -> exp.Select:
    """The same as a query of its items."""
    call, alias = node.this, node.args.get("alias")
    columns = alias.args.get("columns") or () if alias is not None else ()
    if not columns or not all(isinstance(each, exp.ColumnDef) for each in columns):
        raise CairnError(
            'a column definition list is required for functions returning "record"',
            sqlstate="42601",
            position=walk_position(node),
        )
    if len(call.expressions) != 1 or call.find(exp.Column) is not None:
        raise refuse(node, f"{call.this} of anything but one value")
    (data,) = call.expressions
    value = exp.column("value", table="e")
    items = [exp.alias_(_member(value, each), name_of(each.this), quoted=True) for each in columns]
    names = exp.TableAlias(this=exp.to_identifier("e"), columns=[exp.to_identifier("value")])
    if str(call.this).lower().endswith("set"):
        rows: exp.Expr = exp.Table(
            this=exp.Anonymous(this="jsonb_array_elements", expressions=[data.copy()]), alias=names
        )
    else:
        one = exp.select(exp.cast(data.copy(), "jsonb"))
        rows = exp.Subquery(this=one, alias=names)
    return exp.select(*items).from_(rows)


def _member(value: exp.Column, column: exp.ColumnDef) -> exp.Expr:
    kind, key = column.args["kind"], exp.Literal.string(name_of(column.this))
    word = str(getattr(kind.this, "name", kind.this)).lower()
    if word == "array":
        raise refuse(column, "an array in a row that is made of JSON")
    if word not in _JSON:
        text = exp.JSONExtractScalar(this=value.copy(), expression=key)
        return exp.Cast(this=text, to=kind.copy())
    found = exp.cast(exp.JSONExtract(this=value.copy(), expression=key), "text")
    known = exp.Anonymous(this="nullif", expressions=[found, exp.Literal.string("null")])
    return exp.Cast(this=known, to=kind.copy())
