"""The DEFAULT of a column that is added: one value for all rows that are there."""

from __future__ import annotations

from cairn.model.errors import Unsupported
from cairn.model.tables.catalog import Catalog
from cairn.model.tables.schema import Column
from cairn.sql.bind.defaults import check_default, default_of
from cairn.sql.bind.queries.bind import binder_of
from cairn.sql.functions.function_list import told_anew
from cairn.sql.ir import Param, walk
from cairn.sql.plan.closed import evaluator
from cairn.sql.render.render import literal
from cairn.sql.zeros import keeping_zeros


def constant_default(catalog: Catalog, column: Column) -> str:
    """SQLite's literal of a DEFAULT that is the same for every row; "" of one that is NULL."""
    check_default(binder_of(catalog), column)
    expr = keeping_zeros(default_of(binder_of(catalog), None, column))
    found = evaluator(expr)
    is_param = any(isinstance(each, Param) for each in walk(expr))  # now() is one
    if is_param or found is None or told_anew(expr):
        raise Unsupported(
            f'the DEFAULT of column "{column.name}" is no constant: rows that are there would '
            "have to be written anew",
            hint="add the column without it, UPDATE the rows, then ALTER COLUMN … SET DEFAULT",
        )
    value = found(())
    return "" if value is None else literal(value)
