"""The table of docs/reference/metrics.md, from what an instance tells at /metrics."""

from __future__ import annotations

import re

_BLOCK = re.compile(r"<!-- metrics -->\n.*?<!-- end -->", re.DOTALL)
_FAMILY = re.compile(r"^# HELP (cairn_\w+) (.*)\n# TYPE \1 (\w+)$", re.MULTILINE)


def page_of(page: str, told: str) -> str:
    """`page` with the table written anew; `told` is the answer of /metrics."""
    lines = ["| Metric | Kind | What |", "|---|---|---|"]
    lines += [f"| `{name}` | {kind} | {about} |" for name, about, kind in _FAMILY.findall(told)]
    return _BLOCK.sub("<!-- metrics -->\n" + "\n".join(lines) + "\n<!-- end -->", page)
