"""A finding: how bad, where, what, and what to do. And how they are told."""

from __future__ import annotations

import json
from collections.abc import Sequence

import msgspec

from cairn.cli.options import NOT_WORKING

BAD, WARNING, REMARK, GOOD = "bad", "warning", "remark", "good"
_SIGNS = {BAD: "✗", WARNING: "!", REMARK: "·", GOOD: "✓"}
_ORDER = (BAD, WARNING, REMARK, GOOD)


class Finding(msgspec.Struct, frozen=True):
    level: str
    where: str
    what: str
    do: str = ""


def tell(findings: Sequence[Finding], *, as_json: bool) -> int:
    """The worst first. 0: nothing is to be done; 6: something does not work; 1: it may soon."""
    ordered = sorted(findings, key=lambda each: _ORDER.index(each.level))
    if as_json:
        print(json.dumps({"findings": msgspec.to_builtins(ordered)}, ensure_ascii=False))
    else:
        for each in ordered:
            print(f"{_SIGNS[each.level]} {each.where}: {each.what}")
            if each.do:
                print(f"    {each.do}")
        wrong = sum(each.level in (BAD, WARNING) for each in ordered)
        print("nothing is wrong" if not wrong else f"{wrong} to look at")
    levels = {each.level for each in findings}
    return NOT_WORKING if BAD in levels else 1 if WARNING in levels else 0
