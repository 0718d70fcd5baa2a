"""Whether one order of blocks explains all that clients were told: serializability, by lists.

Every write appends a tag of its own to the list of a key, so a read tells which writes came before
it and in which order. From that the order of versions is known, and with it who has to come before
whom: writers of neighbouring versions, a writer and who has read it, a reader and who wrote next,
and blocks of which one had ended before the other began. A circle in that is an anomaly; what lists
say by themselves may be one too. Lost updates, dirty reads, half of a block, read skew and write
skew all show.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Literal

import msgspec

Tag = str
Key = int


class Read(msgspec.Struct, frozen=True):
    key: Key
    tags: tuple[Tag, ...]


class Append(msgspec.Struct, frozen=True):
    key: Key
    tag: Tag


class Txn(msgspec.Struct, frozen=True):
    """A block as its client saw it. `end` of one whose outcome is unknown does not count."""

    name: str
    ops: tuple[Read | Append, ...]
    start: float
    end: float
    outcome: Literal["committed", "undone", "unknown"] = "committed"


def why_not_serial(history: Iterable[Txn], final: dict[Key, tuple[Tag, ...]]) -> str | None:
    """None: there is an order. `final` are the lists in the end, read after everything."""
    txns = [txn for txn in history if txn.outcome != "undone"]
    undone = {op.tag for txn in history if txn.outcome == "undone" for op in _appends(txn)}
    writers = {op.tag: txn for txn in txns for op in _appends(txn)}
    for key, tags in final.items():
        if why := _why_wrong_list(key, tags, writers, undone):
            return why
    seen = {tag for tags in final.values() for tag in tags}
    for txn in txns:
        if txn.outcome == "committed":
            for op in _appends(txn):
                if op.tag not in final.get(op.key, ()):
                    return f"{txn.name} was committed, and its {op.tag} is not in list {op.key}"
        elif 0 < sum(op.tag in seen for op in _appends(txn)) < len(_appends(txn)):
            return f"{txn.name} is there in part"
    there = [t for t in txns if t.outcome == "committed" or any(o.tag in seen for o in _appends(t))]
    for txn in there:
        if txn.outcome == "committed" and (why := _why_wrong_reads(txn, final, writers)):
            return why
    return _circle(there, final, writers)


def _appends(txn: Txn) -> list[Append]:
    return [op for op in txn.ops if isinstance(op, Append)]


def _why_wrong_list(
    key: Key, tags: Sequence[Tag], writers: dict[Tag, Txn], undone: set[Tag]
) -> str | None:
    if len(set(tags)) != len(tags):
        return f"list {key} has something twice: {tags}"
    for tag in tags:
        if tag in undone:
            return f"{tag} in list {key} was undone"
        if tag not in writers:
            return f"nobody wrote {tag} of list {key}"
    return None


def _why_wrong_reads(
    txn: Txn, final: dict[Key, tuple[Tag, ...]], writers: dict[Tag, Txn]
) -> str | None:
    """Each read is a beginning of the list, ends between blocks, and has what the block wrote."""
    own: dict[Key, list[Tag]] = defaultdict(list)
    for op in txn.ops:
        if isinstance(op, Append):
            own[op.key].append(op.tag)
            continue
        mine = own[op.key]
        others = op.tags[: len(op.tags) - len(mine)]
        if list(op.tags[len(others) :]) != mine:
            return f"{txn.name} does not see its own {mine} in {op}"
        whole = final.get(op.key, ())
        if others != whole[: len(others)]:
            return f"{txn.name} has read {op}, which is no beginning of {whole}"
        if others:
            last = writers[others[-1]]
            if others[-1] != [o.tag for o in _appends(last) if o.key == op.key][-1]:
                return f"{txn.name} has read half of {last.name} in {op}"
    return None


def _circle(
    txns: list[Txn], final: dict[Key, tuple[Tag, ...]], writers: dict[Tag, Txn]
) -> str | None:
    """Somebody who has to come before itself, and why."""
    after: dict[str, dict[str, str]] = {txn.name: {} for txn in txns}

    def put(first: Txn, second: Txn, why: str) -> None:
        if first.name != second.name:
            after[first.name].setdefault(second.name, why)

    for key, tags in final.items():
        for one, other in pairwise(tags):
            put(writers[one], writers[other], f"wrote list {key} before")
    for txn in txns:
        if txn.outcome != "committed":
            continue  # what it was told is no promise
        own: dict[Key, int] = defaultdict(int)
        for op in txn.ops:
            if isinstance(op, Append):
                own[op.key] += 1
                continue
            whole, count = final.get(op.key, ()), len(op.tags) - own[op.key]
            if count:
                put(writers[op.tags[count - 1]], txn, f"its list {op.key} was read by")
            follower = next((w for tag in whole[count:] if (w := writers[tag]) is not txn), None)
            if follower is not None:
                put(txn, follower, f"read list {op.key} before the write of")
    for txn in txns:
        if txn.outcome == "committed":
            for later in txns:
                if txn.end < later.start:
                    put(txn, later, "had ended before the begin of")
    return _shortest_circle(after)


def _shortest_circle(after: dict[str, dict[str, str]]) -> str | None:
    left = _without_ends(after)
    best: list[str] | None = None
    for start in sorted(left)[:200]:
        path = _way_back(start, after, left)
        if path is not None and (best is None or len(path) < len(best)):
            best = path
    if best is None:
        return None
    steps = [f"{one} {after[one][other]} {other}" for one, other in pairwise(best)]
    return "a circle: " + "; ".join(steps)


def _without_ends(after: dict[str, dict[str, str]]) -> set[str]:
    """Those in circles, and between them: nobody of them can come first."""
    waits = dict.fromkeys(after, 0)
    for others in after.values():
        for other in others:
            waits[other] += 1
    free = deque(name for name, count in waits.items() if not count)
    left = set(after)
    while free:
        name = free.popleft()
        left.discard(name)
        for other in after[name]:
            waits[other] -= 1
            if not waits[other]:
                free.append(other)
    return left


def _way_back(start: str, after: dict[str, dict[str, str]], left: set[str]) -> list[str] | None:
    came: dict[str, str] = {}
    queue = deque([start])
    while queue:
        name = queue.popleft()
        for other in after[name]:
            if other == start:
                path = [start, name]
                while path[-1] != start:
                    path.append(came[path[-1]])
                return path[::-1] if name != start else [start, start]
            if other in left and other not in came:
                came[other] = name
                queue.append(other)
    return None
