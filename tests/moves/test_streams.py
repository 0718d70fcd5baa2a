"""What streams are told of buckets that move, and what a lease says of the newest picture."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest

from cairn.model.errors import TimedOut
from cairn.model.log.records import Kind, Record
from cairn.model.rpc import LeaseResponse
from cairn.node.rows.leases import LeaseHolder
from cairn.server.calls.row_changes import _told
from tests.moves.maps import cluster_of
from tests.replication.builders import TABLE, inserted


def test_records_of_moves_are_told_to_nobody() -> None:
    change = inserted(1)
    assert _told(TABLE, Record("t1", 1, 5, Kind.MOVE, 0, (change,))) == []
    assert len(_told(TABLE, Record("t1", 1, 5, Kind.ROWS, 0, (change,)))) == 1


class _Runner:
    """A Raft that has applied nothing of late."""

    leader_id, raft_id = 9, 1

    def __init__(self, applied: int) -> None:
        self._applied = applied

    async def wait_applied(self, index: int, timeout_s: float, *, but_rows: bool) -> None:
        if index > self._applied:
            raise TimedOut("behind")


class _Leader:
    async def call(self, *args: Any) -> LeaseResponse:
        return LeaseResponse(True, 1.0, index=12)


class _Here:
    cluster = cluster_of()

    @staticmethod
    def boot_clock() -> float:
        return 5.0


@pytest.mark.parametrize(("applied", "is_held"), [(11, False), (12, True)])
def test_a_lease_counts_only_for_who_has_applied_what_was_committed_when_it_was_granted(
    applied: int, is_held: bool
) -> None:
    here: Any = _Here()
    runner: Any = _Runner(applied)
    leader: Any = _Leader()
    holder = LeaseHolder("s1", here, runner, leader, here, lambda request: None)
    holder.is_awake = True  # its instance has been named by the cluster of today

    async def ask() -> None:
        with suppress(TimedOut):
            await holder._ask()

    asyncio.run(ask())
    assert holder.is_held(1) is is_held
