"""Rows on a terminal, as psql shows them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any
from unicodedata import east_asian_width


def shown(value: Any) -> str:
    """A value as the server's own text has it; NULL is empty."""
    match value:
        case None:
            return ""
        case bool():
            return "t" if value else "f"
        case bytes():
            return "\\x" + value.hex()
        case datetime():
            return value.isoformat(" ")
        case dict() | list():
            return json.dumps(value, ensure_ascii=False, default=str)
        case _:
            return str(value)


def table(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    cells = [[shown(value).replace("\n", "↵") for value in row] for row in rows]
    is_number = [
        bool(rows) and all(_is_number(row[at]) for row in rows) for at in range(len(names))
    ]
    widths = [
        max([_width(name), *(_width(row[at]) for row in cells)]) for at, name in enumerate(names)
    ]
    head = "|".join(f" {_centred(name, width)} " for name, width in zip(names, widths, strict=True))
    line = "+".join("-" * (width + 2) for width in widths)
    body = [
        "|".join(
            f" {_padded(cell, width, right=right)} "
            for cell, width, right in zip(row, widths, is_number, strict=True)
        ).rstrip()
        for row in cells
    ]
    count = "(1 row)" if len(rows) == 1 else f"({len(rows)} rows)"
    return "\n".join([head.rstrip(), line, *body, count]) + "\n"


def records(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """One column a line, for wide rows."""
    width = max(map(_width, names), default=0)
    lines = []
    for number, row in enumerate(rows, 1):
        lines.append(f"-[ RECORD {number} ]".ljust(width + 3, "-"))
        lines += [
            f"{_padded(name, width)} | {shown(value)}".rstrip()
            for name, value in zip(names, row, strict=True)
        ]
    return "\n".join(lines or ["(0 rows)"]) + "\n"


def as_json(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    found = [dict(zip(names, row, strict=True)) for row in rows]
    return json.dumps(found, ensure_ascii=False, default=_plain)


def _plain(value: Any) -> Any:
    return value.isoformat() if isinstance(value, date | time) else shown(value)


def _is_number(value: Any) -> bool:
    return value is None or type(value) in (int, float, Decimal)


def _width(text: str) -> int:
    return sum(2 if east_asian_width(each) in "WF" else 1 for each in text)


def _padded(text: str, width: int, *, right: bool = False) -> str:
    blanks = " " * (width - _width(text))
    return blanks + text if right else text + blanks


def _centred(text: str, width: int) -> str:
    free = width - _width(text)
    return " " * (free // 2) + text + " " * (free - free // 2)
