"""CALL: the name of a procedure and its arguments, literals or parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cairn.model.errors import CairnError, UndefinedFunction
from cairn.model.types.values import TYPE_OF_OID, ColumnType
from cairn.sql.plans import CallPlan, Placed
from cairn.sql.statements.cursor import Cursor

MAX_ARGUMENTS = 30
_WORDS = {"true": True, "false": False, "null": None}


def parse_call(
    cursor: Cursor, param_oids: Sequence[int]
) -> tuple[CallPlan, tuple[ColumnType, ...]]:
    """The plan, and the types of its parameters: text where the client does not say."""
    name = cursor.name()
    cursor.expect_op("(")
    found: list[Any] = []
    while not cursor.accept_op(")"):
        if found:
            cursor.expect_op(",")
        found.append(_argument(cursor))
        if len(found) > MAX_ARGUMENTS:
            raise UndefinedFunction(f"no procedure takes more than {MAX_ARGUMENTS} arguments")
    cursor.end()
    count = max([each.number for each in found if isinstance(each, Placed)], default=0)
    count = max(count, len(param_oids))
    oids = [*param_oids, *[0] * (count - len(param_oids))]
    types = tuple(TYPE_OF_OID.get(oid, ColumnType.STRING) for oid in oids)
    return CallPlan(name, tuple(found)), types


def _argument(cursor: Cursor) -> Any:
    negative = cursor.accept_op("-")
    token = cursor.take()
    if token.kind == "number":
        text = token.value
        number: int | float = int(text) if text.isdigit() else float(text)
        return -number if negative else number
    if token.kind == "param" and not negative:
        if not 1 <= int(token.value) <= MAX_ARGUMENTS:
            text = f"there is no parameter ${token.value}"
            raise CairnError(text, sqlstate="42P02", position=token.start + 1)
        return Placed(int(token.value))
    if token.kind == "string" and not negative:
        return token.value
    if token.kind == "word" and token.value in _WORDS and not negative:
        return _WORDS[token.value]
    cursor.at -= 1
    raise cursor.error()
