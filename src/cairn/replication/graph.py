"""The setting `replication_graph`: who follows whom inside a replicaset (sans-IO)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TypeAlias

from cairn.model.errors import InvalidParameter

#: (upstream, downstream): rows go from the first to the second.
Edges: TypeAlias = set[tuple[str, str]]


def edges_of(text: str, members: Collection[str]) -> Edges | None:
    """The edges among a replicaset's members; None is a full mesh.

    `i1>i2,i2>i3` → {(i1, i2), (i2, i3)}. A list that names none of them is about others.
    """
    named = [edge for edge in _parsed(text) if edge[0] in members or edge[1] in members]
    if not named:
        return None
    return {edge for edge in named if edge[0] in members and edge[1] in members}


def _parsed(text: str) -> list[tuple[str, str]]:
    found = []
    for word in filter(None, (piece.strip() for piece in text.split(","))):
        upstream, _, downstream = (part.strip() for part in word.partition(">"))
        found.append((upstream, downstream))
    return found


def check_graph(text: str, replicasets: Mapping[str, str]) -> None:
    """Refuse what would cut replicas off without a word. Instance → its replicaset is known."""
    for upstream, downstream in _parsed(text):
        if not upstream or not downstream or ">" in downstream:
            raise _invalid("write edges like i1>i2,i2>i3")
        if upstream == downstream:
            raise _invalid(f"{upstream} cannot follow itself")
        for name in (upstream, downstream):
            if name not in replicasets:
                known = f"instances: {', '.join(sorted(replicasets))}"
                raise _invalid(f"there is no instance {name}", known)
        if replicasets[upstream] != replicasets[downstream]:
            raise _invalid(f"{upstream} and {downstream} are of different replicasets")


def _invalid(why: str, hint: str | None = None) -> InvalidParameter:
    return InvalidParameter(f"invalid value for 'replication_graph': {why}", hint=hint)


def unreached(edges: Edges | None, master: str, members: Collection[str]) -> list[str]:
    """Members to which no path leads from the master."""
    if edges is None:
        return []
    found, left = {master}, [master]
    while left:
        here = left.pop()
        for upstream, downstream in edges:
            if upstream == here and downstream not in found:
                found.add(downstream)
                left.append(downstream)
    return sorted(name for name in members if name not in found)
