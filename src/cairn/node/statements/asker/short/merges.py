"""A few rows of several owners become one answer on the event loop: appended, or by one statement
of SQLite over the bytes in which they came. No table is made, no thread is asked."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from cairn.model.errors import ProtocolViolation
from cairn.native.library import PACKED_WIDTH
from cairn.node.statements.asker.owners import Params
from cairn.sql import plans
from cairn.sql.functions.function_list import calls_late
from cairn.storage.files.pieces import Packed, Piece, Row, plain
from cairn.storage.readers import RowReader

#: A merge that would only hand the gathered rows through.
PLAIN_MERGE = re.compile(r"SELECT (r\d+)\.x0 AS x0(?:, \1\.x(\d+) AS x\2)* FROM m0 AS \1")
FIRST_OF_THEM = re.compile(rf"{PLAIN_MERGE.pattern} LIMIT (?P<limit>\d+)")
ANSWER_BYTES = 256 * 1024  # of a merge: what is larger is told in pieces
KNOWN = 2_000  # plans


class ShortMerge:
    """How the rows of one plan are merged. `text` is empty where they are only appended."""

    __slots__ = ("limit", "text")

    def __init__(self, text: str = "", limit: int | None = None) -> None:
        self.text, self.limit = text, limit

    def rows(self, reader: RowReader, args: Sequence[Any], parts: list[Packed]) -> list[Row] | None:
        """None: it takes long."""
        if not self.text:
            found = [row for part in parts for row in part.unpacked()]
            return found if self.limit is None else found[: self.limit]
        packed = b"".join(data for part in parts for data in part.parts)
        piece: Piece | None = reader.quick_piece(self.text, (*args, packed), ANSWER_BYTES)
        return None if piece is None else plain(piece.rows)


APPENDED = ShortMerge()


class ShortMerges:
    """Of all plans that were merged so; None for those that cannot be. What asks for facts of a
    session is left to the long way, which knows whose it is."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, int, int], ShortMerge | None] = {}

    def of(self, plan: plans.ScatterRead, params: Params) -> tuple[ShortMerge, Params] | None:
        """The way of a plan with one fragment, and the values of its last statement."""
        args, width = plan.bind(params), len(plan.fragments[0].types)
        key = (plan.sql, width, len(args))
        if key not in self._known:
            if len(self._known) >= KNOWN:
                self._known.clear()
            self._known[key] = None if calls_late(plan.merged) else _made(*key)
        found = self._known[key]
        return None if found is None else (found, args)


def _made(sql: str, width: int, values: int) -> ShortMerge | None:
    if PLAIN_MERGE.fullmatch(sql):
        return APPENDED
    if limited := FIRST_OF_THEM.fullmatch(sql):
        return ShortMerge(limit=int(limited["limit"]))
    if sql.startswith("WITH") or width > PACKED_WIDTH:
        return None
    names = ", ".join(f"x{at}" for at in range(width))
    shown = ", ".join(f"c{at}" for at in range(width))
    rows = f"SELECT {shown} FROM packed_rows(?{values + 1}, {width})"
    return ShortMerge(f"WITH m0({names}) AS ({rows}) {sql}")


def packed(data: bytes) -> Packed:
    """Rows as they travel: a list in MessagePack, without its head."""
    first = data[0] if data else 0
    if 0x90 <= first <= 0x9F:
        return Packed(first & 0xF, [data[1:]])
    size = {0xDC: 3, 0xDD: 5}.get(first, 0)
    if not size or len(data) < size:
        raise ProtocolViolation("rows of another instance are no list")
    return Packed(int.from_bytes(data[1:size], "big"), [data[size:]])
