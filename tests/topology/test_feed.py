"""The server's feed: who is told what, and what becomes of one that does not read."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from cairn.model.cluster import Cluster
from cairn.model.errors import CairnError
from cairn.model.topology import Position
from cairn.server import feed as feed_module
from cairn.server.feed import Feed


class Session:
    """A connection that keeps what is pushed to it."""

    def __init__(self, pid: int) -> None:
        self.pid, self.user, self.user_id = pid, "admin", 1
        self.pg = SimpleNamespace(raw=self.take, notice=self.take)
        self.pushed: list[Any] = []
        self.backlog = 0
        self.ended: CairnError | None = None

    def take(self, data: Any) -> None:
        self.pushed.append(data)

    push = take

    def unsent(self) -> int:
        return self.backlog

    def hang_up(self, problem: CairnError) -> None:
        self.ended = problem


def instance() -> Any:
    return SimpleNamespace(
        on_applied=[],
        on_installed=[],
        on_close=[],
        runner=SimpleNamespace(applied_term=3, applied_index=40),
        runtime=SimpleNamespace(wall_clock=lambda: 0.0, time=lambda: 0.0),
        state=SimpleNamespace(
            catalog=SimpleNamespace(allows=lambda *_: True),
            cluster=Cluster(properties={"cluster_uuid": "c"}),
        ),
    )


def applied(index: int) -> Any:
    return SimpleNamespace(term=3, index=index, events_01=["one"], events_02=["one", "two"])


def test_one_that_does_not_read_is_dropped_with_a_reason_and_costs_the_others_nothing(
    monkeypatch: Any,
) -> None:
    monkeypatch.setattr(feed_module, "timestamp", lambda runtime: "now")

    async def test() -> None:
        made = Feed(instance())
        quick, slow = Session(1), Session(2)
        for session in (quick, slow):
            await made.subscribe(session, "0.2", {})  # type: ignore[arg-type]
        slow.backlog = feed_module.MAX_UNSENT + 1
        made._applied([applied(41)])
        assert quick.ended is None and len(quick.pushed) == 2  # snapshot, then both events
        assert slow.ended is not None and "too slowly" in slow.ended.message
        assert slow.ended.hint is not None and len(slow.pushed) == 1
        assert made.dropped == 1
        assert made.view() == [
            {
                "pid": 1,
                "user": "admin",
                "version": "0.2",
                "term": 3,
                "index": 41,
                "lag": -1,
                "unsent_bytes": 0,
                "events_sent": 2,
            }
        ]
        made.close()

    asyncio.run(test())


def test_those_who_come_at_one_position_share_a_snapshot(monkeypatch: Any) -> None:
    stamps = iter(("first", "second"))
    monkeypatch.setattr(feed_module, "timestamp", lambda runtime: next(stamps))

    async def test() -> None:
        about = instance()
        made = Feed(about)
        sessions = [Session(number) for number in range(3)]
        for session in sessions[:2]:
            await made.subscribe(session, "0.2", {})  # type: ignore[arg-type]
        about.runner.applied_index = 41
        await made.subscribe(sessions[2], "0.2", {})  # type: ignore[arg-type]
        first, second, third = (session.pushed[0] for session in sessions)
        assert first is second and third != first
        assert made._position() == Position(3, 41)
        made.close()

    asyncio.run(test())


def test_a_crowd_is_told_in_slices_and_each_of_it_in_order(monkeypatch: Any) -> None:
    monkeypatch.setattr(feed_module, "timestamp", lambda runtime: "now")
    monkeypatch.setattr(feed_module, "SLICE", 2)

    async def test() -> None:
        made = Feed(instance())
        sessions = [Session(number) for number in range(7)]
        for session in sessions:
            await made.subscribe(session, "0.1", {})  # type: ignore[arg-type]
            session.pushed.clear()
        made._tell(["first"], [], Position(3, 41))
        assert [len(session.pushed) for session in sessions] == [1, 1, 0, 0, 0, 0, 0]
        made.unsubscribe(sessions[0])  # type: ignore[arg-type]
        made._tell(["second"], [], Position(3, 42))
        while made._line:
            await asyncio.sleep(0)
        for session in sessions[1:]:
            assert [b"first" in data for data in session.pushed] == [True, False]
        assert len(sessions[0].pushed) == 1
        made.close()

    asyncio.run(test())
