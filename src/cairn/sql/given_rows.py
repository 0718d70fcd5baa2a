"""An INSERT of rows that are here already, for an owner that lacks what they were read from.

A block is run by the owner of its rows, which plans its statements anew. Temporary tables are not
there: so it is told the same INSERT over no rows, and the rows themselves.
"""

from __future__ import annotations

from cairn.model.quoting import identifier
from cairn.model.tables.catalog import Catalog
from cairn.model.types.values import OIDS
from cairn.sql.api import prepare
from cairn.sql.bind.dml import BoundInsert
from cairn.sql.ir import scans_in
from cairn.sql.parse.lexer import tokens
from cairn.sql.plans import InsertSelect, Prepared, Returning


def reads_others(prepared: Prepared) -> bool:
    """Whether its rows come from sharded tables too, and not from the session's alone."""
    bound = prepared.bound
    assert isinstance(bound, BoundInsert)
    scans = scans_in(bound.query if bound.query is not None else bound.rows or ())
    return any(not (scan.table.is_global or scan.table.is_temp) for scan in scans)


def inserted(prepared: Prepared) -> InsertSelect | None:
    """Into a sharded table, what a query gives; None: it is something else."""
    plan = prepared.plan.write if isinstance(prepared.plan, Returning) else prepared.plan
    return plan if isinstance(plan, InsertSelect) and not plan.table.is_temp else None


def over_no_rows(prepared: Prepared, catalog: Catalog, user_id: int) -> Prepared:
    """The statement for the owner; `catalog` is what everybody sees."""
    write = inserted(prepared)
    assert write is not None
    columns = [each for each in write.table.shown_columns if each.identity is None]
    names = ", ".join(identifier(column.name) for column in columns)
    nothing = ", ".join("NULL" for _ in columns)
    text = (
        f"INSERT INTO {identifier(write.table.name)} ({names}) SELECT {nothing} WHERE false "
        f"{_tail(prepared.text)}"
    )
    oids = tuple(OIDS[type_] for type_ in prepared.param_types)
    return prepare(text, catalog, param_oids=oids, user_id=user_id)


def _tail(text: str) -> str:
    """ON CONFLICT and RETURNING."""
    found, depth = tokens(text), 0
    for at, token in enumerate(found):
        depth += token.is_op("(") - token.is_op(")")
        is_conflict = (
            token.is_word("on") and found[at + 1 : at + 2] and found[at + 1].is_word("conflict")
        )
        if depth == 0 and (is_conflict or token.is_word("returning")):
            return text[token.start :].rstrip("; ")
    return ""
