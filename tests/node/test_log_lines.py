"""A line of the log is one line, whatever a stranger says."""

from __future__ import annotations

import logging

import pytest

from cairn.node.boot.child import OneLine


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("all is well: Grün, 東京", "all is well: Grün, 東京"),
        ("x\n2026-01-01 I cairn: t1 is Online", r"x\n2026-01-01 I cairn: t1 is Online"),
        ("\x1b[2J\r\x07", r"\x1b[2J\r\x07"),
        ("\u2028\u202e\ud800", r"\u2028\u202e\ud800"),
    ],
)
def test_what_others_said_stays_in_its_line(said: str, shown: str) -> None:
    record = logging.LogRecord("cairn.net", logging.WARNING, "", 0, "refused: %s", (said,), None)
    assert OneLine("%(name)s: %(message)s").format(record) == f"cairn.net: refused: {shown}"
