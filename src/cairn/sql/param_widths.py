"""Parameters that are told as integers of two or four bytes: those that only meet such columns.

As in PostgreSQL, a driver that is strict about types sends what it was told. A parameter that is
also used otherwise has 64 bits: no value that one of its places takes may be refused.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from cairn.model.types.values import OIDS, ColumnType
from cairn.model.types.widths import Width, wider
from cairn.sql.bind.dml import BoundInsert
from cairn.sql.ir import Call, Const, Expr, Param, walk
from cairn.sql.scales import known_of

_COMPARED = frozenset(("=", "<>", "<", "<=", ">", ">=", "in"))


def param_oids(bound: Any, types: Sequence[ColumnType]) -> tuple[int, ...]:
    """What to tell of parameters; nothing: what their types say."""
    if ColumnType.INTEGER not in types or not _may_be_narrow(bound):
        return ()
    met, uses = defaultdict[int, list[Width | None]](list), defaultdict[int, int](int)
    conflict = bound.conflict if isinstance(bound, BoundInsert) else None
    also = () if conflict is None else (conflict.sets, conflict.where)
    for node in (*walk(bound), *walk(also)):
        if isinstance(node, Param):
            uses[node.number] += 1
        elif isinstance(node, Call):
            width = _width_met(node)
            for arg in node.args:
                if width is not None and isinstance(arg, Param):
                    met[arg.number].append(width)
    found = [
        (type_, wider(met[number]) if len(met[number]) == uses[number] else None)
        for number, type_ in enumerate(types, 1)
    ]
    if not any(width for _, width in found):
        return ()
    return tuple(OIDS[type_] if width is None else width.oid(type_) for type_, width in found)


def _may_be_narrow(bound: Any) -> bool:
    """Rows of a long INSERT are not looked at for nothing."""
    if not isinstance(bound, BoundInsert):
        return True
    return any(column.width is not None for column in bound.table.columns)


def _width_met(call: Call) -> Width | None:
    """Of the column that the parameters of a call are stored in, or compared with."""
    if call.name == "i_fit":
        size = call.args[1]
        assert isinstance(size, Const) and isinstance(size.value, int)
        return Width(size.value)
    if call.name not in _COMPARED:
        return None
    others = [arg for arg in call.args if not _is_given(arg)]
    return wider([_known_width(arg) for arg in others])


def _is_given(arg: Expr) -> bool:
    return isinstance(arg, Param | Const)


def _known_width(arg: Expr) -> Width | None:
    found = known_of(arg)
    return found if isinstance(found, Width) else None
