"""A replicaset that has the name of one that left took over nothing of what that one took."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from cairn.model.members.moves import Move, Phase
from cairn.node.rows.moves.moving import Moving
from tests.moves.maps import cluster_of


def taken_over(first: dict[str, tuple[int, int]], vclock: dict[str, int]) -> list[int]:
    move = Move(4, "default", 1, 10, "s", "t", Phase.DONE, target_first=first)
    moving: Any = object.__new__(Moving)
    moving._name, moving._data = "t2", SimpleNamespace(vclock=vclock)
    moving._state = SimpleNamespace(cluster=cluster_of(moves={4: move}))
    return [each.id for each in moving.taken_over()]


def test_what_a_namesake_took_is_not_waited_for() -> None:
    mine = cluster_of().instances["t1"].uuid
    assert taken_over({mine: (7, 1)}, {}) == [4]  # its rows are still to come to this replica
    assert taken_over({"left": (7, 1)}, {"left": 9}) == [4]  # of a member that left since
    assert taken_over({"left": (7, 1)}, {mine: 3}) == []
