"""The server's feed: who is told what, and what becomes of one that does not read."""

from __future__ import annotations

import asyncio
import re
from types import SimpleNamespace
from typing import Any

from cairn.model.errors import CairnError
from cairn.model.members.cluster import Cluster
from cairn.model.members.topology import Position
from cairn.model.tables.system_tables import PICO_BUCKET, PICO_REPLICASET
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
        news=SimpleNamespace(on_applied=[], on_installed=[]),
        on_close=[],
        runner=SimpleNamespace(applied_term=3, applied_index=40),
        runtime=SimpleNamespace(wall_clock=lambda: 0.0, time=lambda: 0.0),
        state=SimpleNamespace(
            catalog=SimpleNamespace(allows=lambda *_: True),
            cluster=Cluster(properties={"cluster_uuid": "c"}),
        ),
    )


def applied(index: int, *texts: str, table: int = PICO_BUCKET.id) -> Any:
    return SimpleNamespace(
        term=3,
        index=index,
        events_01=list(texts or ["one"]),
        events_02=list(texts or ["one", "two"]),
        changes=[SimpleNamespace(table=table)],
    )


def told(session: Session) -> list[str]:
    """The events that were pushed, whatever the writes."""
    return re.findall(r"move-\d+", b"".join(session.pushed).decode("latin-1"))


def test_of_many_that_do_not_read_each_may_have_less(monkeypatch: Any) -> None:
    """Ten thousand with 4 MiB each would be 40 GB."""
    monkeypatch.setattr(feed_module, "timestamp", lambda runtime: "now")
    monkeypatch.setattr(feed_module, "ALL_UNSENT", 4 * feed_module.LEAST_UNSENT)

    async def test() -> None:
        made = Feed(instance())
        sessions = [Session(pid) for pid in range(1, 5)]
        for session in sessions:
            await made.subscribe(session, "0.2", {})  # type: ignore[arg-type]
        sessions[0].backlog = feed_module.LEAST_UNSENT
        sessions[1].backlog = feed_module.LEAST_UNSENT + 1
        made._applied([applied(41)])
        assert [session.ended is not None for session in sessions] == [False, True, False, False]
        made.close()

    asyncio.run(test())


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


def test_three_thousand_moves_are_a_few_writes_to_each_of_many_subscribers(
    monkeypatch: Any,
) -> None:
    monkeypatch.setattr(feed_module, "timestamp", lambda runtime: "now")

    async def test() -> None:
        made = Feed(instance())
        sessions = [Session(number) for number in range(300)]
        for session in sessions:
            await made.subscribe(session, "0.2", {})  # type: ignore[arg-type]
            session.pushed.clear()
        loop = asyncio.get_running_loop()
        begun = loop.time()
        names = [f"move-{number}" for number in range(3_000)]
        for index, name in enumerate(names, 41):
            made._applied([applied(index, name)])
        while any(told(session)[-1:] != names[-1:] for session in sessions):
            await asyncio.sleep(0.01)
        # At once, then one for each time of gathering, begun or ended while we looked.
        most = 3 + int((loop.time() - begun) / feed_module.GATHER_S)
        assert all(told(session) == names for session in sessions)
        assert max(len(session.pushed) for session in sessions) <= most < 300
        assert {each["index"] for each in made.view()} == {3_040}
        made.close()

    asyncio.run(test())


def test_what_is_not_about_buckets_is_told_at_once_behind_what_was_gathered(
    monkeypatch: Any,
) -> None:
    monkeypatch.setattr(feed_module, "timestamp", lambda runtime: "now")
    monkeypatch.setattr(feed_module, "GATHER_S", 1_000.0)

    async def test() -> None:
        made = Feed(instance())
        session, late = Session(1), Session(2)
        await made.subscribe(session, "0.2", {})  # type: ignore[arg-type]
        session.pushed.clear()
        for number in range(3):
            made._applied([applied(41 + number, f"move-{number}")])
        assert told(session) == ["move-0"]  # the first after a quiet time is not kept back
        made._applied([applied(44, "move-3", table=PICO_REPLICASET.id)])
        assert told(session) == ["move-0", "move-1", "move-2", "move-3"]
        assert len(session.pushed) == 2
        made._applied([applied(45, "move-4")])
        await made.subscribe(late, "0.2", {})  # type: ignore[arg-type]
        assert told(session)[-1] == "move-4"  # it is in the snapshot of the late one
        assert told(late) == []
        made.close()

    asyncio.run(test())
