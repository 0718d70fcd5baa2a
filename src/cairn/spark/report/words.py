"""Numbers and tables as the report says them."""

from __future__ import annotations

from html import escape
from typing import Any


def in_time(value: float) -> str:
    if value < 120:
        return f"{value:.0f} s"
    if value < 7200:
        return f"{value / 60:.0f} min"
    return f"{value / 3600:.1f} h" if value < 48 * 3600 else f"{value / 86400:.1f} days"


def in_bytes(value: float) -> str:
    for unit in ("B", "KB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"


def table_of(
    head: tuple[str, ...],
    rows: list[tuple[Any, ...]],
    numbers: tuple[int, ...],
    long: int | None = None,
) -> str:
    """`numbers`: columns set to the right; `long`: one that may be broken into lines."""

    def cell(tag: str, at: int, value: Any) -> str:
        mark = " class=n" if at in numbers else " class=long" if at == long else ""
        return f"<{tag}{mark}>{escape(str(value))}</{tag}>"

    top = "".join(cell("th", at, word) for at, word in enumerate(head))
    body = "".join(
        "<tr>" + "".join(cell("td", at, value) for at, value in enumerate(row)) + "</tr>"
        for row in rows
    )
    return f"<div class=wide><table><tr>{top}</tr>{body}</table></div>"
