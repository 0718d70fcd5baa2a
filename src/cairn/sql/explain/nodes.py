"""A plan as a tree of nodes, and the two ways to write it down."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

INDENT = "    "


@dataclass
class Node:
    """One step of a plan. `facts` are for JSON; the text has them in its words already."""

    text: str
    facts: dict[str, Any] = field(default_factory=dict)
    below: list[Node] = field(default_factory=list)

    def lines(self, depth: int = 0) -> list[str]:
        found = [INDENT * depth + self.text]
        for each in self.below:
            found += each.lines(depth + 1)
        return found

    def as_json(self) -> dict[str, Any]:
        found = {"Node Type": node_type(self.text), "Text": self.text, **self.facts}
        if self.below:
            found["Plans"] = [each.as_json() for each in self.below]
        return found


def node_type(text: str) -> str:
    """The words before the details: `left join` of `left join on (…)`."""
    words = []
    for word in text.split():
        if not word.isalpha() or word in ("on", "from", "into"):
            break
        words.append(word)
    return " ".join(words) or text


def chained(*found: Node) -> Node:
    """Each of them above the next; the first one is the root."""
    for upper, lower in pairwise(found):
        upper.below.insert(0, lower)
    return found[0]
