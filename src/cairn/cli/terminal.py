"""Tables for people: whole where nobody looks, and with fewer columns on a narrow terminal."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.table import Table

NEVER_WRAP = 100_000  # columns, where nobody looks: a pipe or a file
SENTENCE = 24  # columns, at most, that a long text asks for


def console() -> Console:
    """Standard output as wide as it is; in a pipe nothing is wrapped or left out."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else NEVER_WRAP)


class Fitted:
    """A table that leaves out columns, in the order of `less`, until it fits into the terminal.

    Words broken into pieces of four letters can be read by nobody. What is left out is named below.
    The column `long` has sentences, which may be broken.
    """

    def __init__(self, table: Table, *less: str, long: str = "") -> None:
        self._table = table
        self._less = less
        self._long = long

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.text import Text

        gone = []
        for title in self._less:
            if self._width(console, options) <= options.max_width:
                break
            kept = [column for column in self._table.columns if column.header != title]
            if len(kept) < len(self._table.columns):
                self._table.columns = kept
                gone.append(title)
        yield self._table
        if gone:
            yield Text(f" narrow terminal, not shown: {', '.join(gone)}", style="dim")

    def _width(self, console: Console, options: ConsoleOptions) -> int:
        from rich.measure import Measurement

        sentences = [column for column in self._table.columns if column.header == self._long]
        for column in sentences:
            column.max_width = SENTENCE
        wide = options.update(max_width=NEVER_WRAP)
        width = Measurement.get(console, wide, self._table).maximum
        for column in sentences:
            column.max_width = None
        return width
