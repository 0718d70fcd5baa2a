"""What clients did to a few rows and were told, and whether one order of events explains it all.

A row's text says which statements made it ("1.4+2.7": client 1 put it, client 2 added to it), so
one that is lost, done twice, invented or out of order shows. Rows of one group lie in one bucket
and some statements change several of them: a read has to see all of that or nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Literal

import msgspec

from cairn.sim.linear import FOREVER, Undecided, has_order

ROWS = 3  # of one group
Content = tuple[str | None, ...]
#: A text of which only the end is known: what was added since nobody knows what was there.
Known = tuple[str | tuple[str] | None, ...]
MAX_STEPS = 300_000


class Operation(msgspec.Struct, frozen=True):
    """`places` are the rows that it changes; a read is always of all. `end` FOREVER: unknown."""

    kind: Literal["put", "append", "delete", "read"]
    start: float
    end: float
    places: tuple[int, ...] = ()
    tag: str = ""
    found: Content = ()


def step(state: Known, operation: Operation) -> Known | None:
    """The rows after `operation`, or None if it cannot have happened."""
    if operation.kind == "read":
        fits = all(_fits(known, text) for known, text in zip(state, operation.found, strict=True))
        return operation.found if fits else None
    if operation.tag and operation.tag in tags_of(tuple(map(_text, state))):
        return None  # it has happened already
    after = list(state)
    for place in operation.places:
        after[place] = _changed(after[place], operation)
    return tuple(after)


def _fits(known: str | tuple[str] | None, text: str | None) -> bool:
    if isinstance(known, tuple):
        return text is None or text.endswith(known[0])
    return known == text


def _text(known: str | tuple[str] | None) -> str | None:
    return known[0] if isinstance(known, tuple) else known


def _changed(known: str | tuple[str] | None, operation: Operation) -> str | tuple[str] | None:
    if operation.kind != "append":
        return operation.tag if operation.kind == "put" else None
    if isinstance(known, tuple):
        return (known[0] + "+" + operation.tag,)
    return None if known is None else f"{known}+{operation.tag}"


def tags_of(content: Content) -> list[str]:
    return [tag for text in content if text is not None for tag in text.split("+")]


class History:
    """Operations of one group, as they ended. What was refused did not happen and is not here."""

    def __init__(self) -> None:
        self.operations: list[Operation] = []

    def add(self, operation: Operation) -> None:
        self.operations.append(operation)

    # --- judging ----------------------------------------------------------------------------------

    def why_wrong(self, epochs: Sequence[float] | None = None) -> str | None:
        """None: all is explained.

        Without `epochs` nothing acknowledged may be lost: one order explains every answer. With
        them (the moments at which masters were named) rows may be lost at those moments: then what
        happened inside each of the times between is explained by some content at its beginning.
        """
        return self.why_invented() or (
            _why_unordered(self.operations, (None,) * ROWS)
            if epochs is None
            else self._why_unordered_inside(epochs)
        )

    def why_invented(self) -> str | None:
        made = {each.tag: each for each in self.operations if each.tag}
        for read in self.operations:
            for place, text in enumerate(read.found):
                why = None if text is None else _why_no_text(text.split("+"), place, made, read)
                if why:
                    return f"{why}: {text} in row {place}"
        return None

    def _why_unordered_inside(self, epochs: Sequence[float]) -> str | None:
        for begin, end in pairwise([-1.0, *sorted(epochs), float(FOREVER)]):
            inside = list(_clipped(self.operations, begin, end))
            why = _why_unordered(inside, (("",),) * ROWS, begin)
            if why:
                return f"between {begin:.3f} and {end:.3f}: {why}"
        return None


def _why_no_text(
    tags: list[str], place: int, made: dict[str, Operation], read: Operation
) -> str | None:
    """A put and what was added to it, in the order in which each client did it, each once."""
    for tag in tags:
        writing = made.get(tag)
        if writing is None or place not in writing.places or writing.start > read.end:
            return f"{tag} was never written"
    if [made[tag].kind for tag in tags] != ["put"] + ["append"] * (len(tags) - 1):
        return "what was added outlived what it was added to"
    by_client: dict[str, list[int]] = defaultdict(list)
    for tag in tags:
        client, _, number = tag.partition(".")
        if made[tag].end < FOREVER:  # one with an unknown end may happen after the next ones
            by_client[client].append(int(number))
    if any(numbers != sorted(numbers) for numbers in by_client.values()):
        return "statements out of order"
    return "a statement done twice" if len(set(tags)) < len(tags) else None


def _clipped(operations: Iterable[Operation], begin: float, end: float) -> Iterable[Operation]:
    """What was or may have been between two namings; a read across one of them proves nothing."""
    for each in operations:
        if each.end < begin or each.start > end:
            continue
        if each.start > begin and each.end < end:
            yield each
        elif each.kind != "read":
            yield msgspec.structs.replace(each, start=max(each.start, begin), end=float(FOREVER))


def _why_unordered(operations: list[Operation], initial: Known, begin: float = -1.0) -> str | None:
    wanted = _bounded(operations, begin)
    try:
        if has_order(wanted, step, initial, MAX_STEPS):
            return None
    except Undecided as problem:
        return f"undecided, the load asks too much: {problem}"
    return f"no order explains it: {_shortest(wanted, initial)}"


def _bounded(operations: list[Operation], begin: float) -> list[Operation]:
    """Unknown ends, as far as reads tell: what a read saw had happened by then; what no read ever
    saw may as well not have happened, for nothing that was told depends on it. What was under way
    at `begin` may have happened before it, seen or not: it keeps its unknown end.
    """
    reads = sorted((each for each in operations if each.found), key=lambda each: each.end)
    first_seen: dict[str, float] = {}
    for read in reads:
        for tag in tags_of(read.found):
            first_seen.setdefault(tag, read.end)
    found = []
    for each in operations:
        if each.end >= FOREVER and each.tag:
            if each.tag not in first_seen:
                continue
            if each.start > begin:
                each = msgspec.structs.replace(each, end=max(first_seen[each.tag], each.start))
        if each.end < FOREVER or each.kind != "read":
            found.append(each)
    return found


def _shortest(operations: list[Operation], initial: Known) -> str:
    """The first read that cannot be explained, and what led to it."""
    reads = sorted((each for each in operations if each.found), key=lambda each: each.end)
    for count in range(1, len(reads) + 1):
        late = reads[count - 1].end
        part = [each for each in operations if each.start <= late and each not in reads[count:]]
        try:
            if not has_order(part, step, initial, MAX_STEPS):
                last = sorted(part, key=lambda each: each.start)[-12:]
                return "; ".join(map(_told, last))
        except Undecided:
            break
    return f"{len(operations)} operations"


def _told(operation: Operation) -> str:
    end = "?" if operation.end >= FOREVER else f"{operation.end:.3f}"
    what = operation.found if operation.kind == "read" else (operation.tag, operation.places)
    return f"[{operation.start:.3f}…{end}] {operation.kind} {what}"
