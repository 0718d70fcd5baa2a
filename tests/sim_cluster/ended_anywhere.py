"""A statement that is ended between any two callbacks of its cluster: nothing of it may be left.

The loop of the simulator runs one callback after the other, and always the same ones. So a
statement is run again and again, and ended before the first callback, before the second, and so on
until it is over by itself: among these moments are the one in which a task was made and has not
begun, and the one in which it has ended and nobody has looked at its answer.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest

from cairn.model.errors import CairnError, PartialWrite
from cairn.node.statements.asker import streams
from cairn.sim.cluster.node import SimNode
from cairn.sim.cluster.sessions import PASSWORD, UNKNOWN, Faces, WireClient
from tests.sim_cluster.scenes import founded, inside, world_of

SETTLE_S = 30.0
MOST_STEPS = 3_000


class Told(NamedTuple):
    """A statement, and what makes all as it was before."""

    text: str
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    lines: bytes = b""  # of a COPY
    counts: str = ""  # a query for a number, which the statement changes
    most: int = MOST_STEPS  # of one that waits for others and has no end of its own


def ask(client: WireClient, told: Told) -> Awaitable[Any]:
    if told.text.startswith("COPY") and "FROM" in told.text:
        return client.copy_in(told.text, told.lines)
    if told.text.startswith("COPY"):
        return client.copied(told.text)
    if told.text.startswith("$"):
        return client.run(told.text[1:], ())
    return client.ask(told.text)


class Left(NamedTuple):
    """What the work of clients has taken in one instance and not given back."""

    tasks: dict[str, int]
    open_reads: int
    kept_reads: int
    under_way: dict[int, int]
    writing: bool
    told_changes: int  # of statements that have ended, and files of those
    locks: int
    lock_rows: int
    answering: int
    asking: int
    held_bytes: int
    connections: int
    sessions: int

    @property
    def moving(self) -> int:
        """What is there for a moment only."""
        return sum(self.tasks.values()) + self.answering + self.asking


def left(node: SimNode, faces: Faces) -> Left:
    instance, face = inside(node), faces.of(node)
    gathered = instance.data.store._gathered
    reads, under_way = instance.execution.reads, instance.executor.reads.owners.under_way
    links = instance.peers._all_links()
    disk: Any = instance.data._disk
    tasks = Counter(
        task.get_coro().__qualname__
        for task in node.world.loop.tasks
        if isinstance(task, asyncio.Task) and not task.done()
    )
    return Left(
        dict(tasks),
        reads.open_reads.count,
        len(reads.open_reads._open),
        dict(under_way._writes),
        bool(disk.is_busy or disk._queue),
        len(gathered.changes) + len(gathered._file),
        len(instance.locks._holders),
        instance.state.locks.count,
        sum(len(link._tasks) for link in links),
        sum(len(link._waiting) for link in links),
        face.connections._held_by_all,
        face.connections._count,
        len(face.sessions),
    )


End = Callable[["Ended", WireClient], None]


class Ended:
    """Two instances, a replicaset each, and a client of the first one."""

    def __init__(self, *, delay_s: float = 0.001, piece_bytes: int = 100) -> None:
        self.world = world_of()
        self.faces = Faces(self.world)
        for name in "ab":
            self.world.add(name, ("a:3301", "b:3301"), admin_password=PASSWORD)
        self.node = self.world.nodes["a"]
        self.piece_bytes = piece_bytes
        self.world.loop.thread_delay_s = delay_s
        self.struck = 0  # how often the last statement was ended
        self._baselines: dict[Told, dict[str, Left]] = {}

    @contextmanager
    def _small_pieces(self) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(streams, "LEAST_PIECE", self.piece_bytes)
            patch.setattr(streams, "HELD_BYTES", self.piece_bytes)
            yield

    def run(self, schema: tuple[str, ...], live: Callable[[], Awaitable[None]]) -> None:
        async def work() -> None:
            self.other = await self.client()
            for each in (*schema, "SELECT pg_advisory_lock(5), pg_advisory_unlock(5)"):
                await self.other.ask(each)  # who has had a lock once stays known as its holder
            await live()

        async def script() -> None:
            await founded(self.world)
            assert self.node.process is not None
            await self.world.loop.create_task(work(), context=self.node.process.context)

        with self._small_pieces():
            self.world.run(script)

    async def client(self) -> WireClient:
        made = WireClient(self.faces.of(self.node))
        await made.connect()
        return made

    def _left(self) -> dict[str, Left]:
        return {name: left(node, self.faces) for name, node in self.world.nodes.items()}

    async def quiet(self, before: dict[str, Left] | None = None) -> dict[str, Left]:
        """As nothing is under way; with `before`, until it is as it was then."""
        loop, until = self.world.loop, self.world.loop.time() + SETTLE_S
        while True:
            await asyncio.sleep(0.21)
            found = self._left()
            if before is None or found == before or loop.time() > until:
                return found

    async def everywhere(self, told: Told, end: End, *, every: int = 1) -> list[str]:
        """What was left, by the moment at which it was ended."""
        problems: list[str] = []
        for step in range(0, told.most, every):
            found = await self.once(told, {step: end})
            if found:
                problems.append(f"ended at {step}: {found}")
            if self.struck == 0:
                return problems
        return [*problems, "it has no end"] if told.most == MOST_STEPS else problems

    async def once(self, told: Told, ends: dict[int, End]) -> str:
        """What is left when it is ended at these steps; "" for nothing."""
        if told not in self._baselines:
            self._baselines[told] = await self._never_ended(told)
        await self._others(told.before)
        before, count = self._baselines[told], await self._count(told)
        client = await self.client()
        answer = await self._ended_at(client, told, ends)
        why = await self._rest(client) + await self._lie(told, answer, count)
        await self._others(told.after)
        if not client.is_over:
            client.close()
        found = await self.quiet(before)
        if found != before:
            why += _differences(before, found)
            self._baselines.clear()
        return why

    async def _others(self, texts: tuple[str, ...]) -> None:
        """Whoever was without its links may have to ask again."""
        for text in texts:
            for _ in range(20):
                try:
                    await self.other.ask(text)
                    break
                except CairnError as problem:
                    last = problem
                    await asyncio.sleep(0.5)
            else:
                raise last

    async def _count(self, told: Told) -> int:
        return (await self.other.ask(told.counts))[0][0] if told.counts else 0

    async def _lie(self, told: Told, answer: str, before: int) -> str:
        """Whether what was done is something else than what the client was told."""
        if not told.counts:
            return ""
        await asyncio.sleep(0.5)  # its client may be gone before it
        has_changed = await self._count(told) != before
        if answer == "done" and not has_changed:
            return "it is told as done, and was not;"
        if answer not in ("done", UNKNOWN, PartialWrite.sqlstate) and has_changed:
            return f"{answer} was told, and it was done;"
        return ""

    async def _never_ended(self, told: Told) -> dict[str, Left]:
        """What is there afterwards, when nobody ends it."""
        for _ in range(2):
            await self._others(told.before)
            client = await self.client()
            if told.most == MOST_STEPS:
                await ask(client, told)
            client.close()
            await self._others(told.after)
        looks = [await self.quiet() for _ in range(6)]  # instances ask each other now and then
        return min(looks, key=lambda look: sum(each.moving for each in look.values()))

    async def _rest(self, client: WireClient) -> str:
        """Whether a session whose statement was ended goes on."""
        if client.is_over:
            return ""
        locks = client._session.running.locks
        if locks._holder is not None:
            known = {*locks._counts, *locks._of_block}
            if known != locks._holder.held or known != locks._holder.wanted:
                return f"it knows of {known}, and has {locks._holder.held};"
        try:
            async with asyncio.timeout(20.0):
                assert await client.ask("SELECT 7") == [(7,)]
        except TimeoutError:
            return "its session does not answer"
        except CairnError as problem:
            if problem.sqlstate not in ("25P02",) and not client.is_over:
                return f"its session: {problem.sqlstate} {problem}"
        return ""

    async def _ended_at(self, client: WireClient, told: Told, ends: dict[int, End]) -> str:
        """What the client was told; "done" if it was not refused."""
        loop, process = self.world.loop, self.node.process
        assert process is not None
        step = self.struck = 0

        def before_each() -> None:
            nonlocal step
            now, step = step, step + 1
            if now in ends:
                self.struck += 1
                process.context.copy().run(ends[now], self, client)

        asking = asyncio.ensure_future(ask(client, told))
        loop.before_each = before_each
        try:
            await asyncio.wait({asking}, timeout=60.0 if told.most == MOST_STEPS else 2.0)
            if not asking.done():  # it was ended before it had begun
                cancel(self, client)
            await asyncio.wait({asking}, timeout=5.0)
            assert asking.done(), f"{told.text} hangs, ended at {[*ends]}"
            asking.result()
        except CairnError as problem:
            return problem.sqlstate
        finally:
            loop.before_each = lambda: None
        return "done"


def _differences(before: dict[str, Left], now: dict[str, Left]) -> str:
    found = []
    for name, each in now.items():
        for field, was, is_ in zip(Left._fields, before[name], each, strict=True):
            if was != is_:
                found.append(f"{name}.{field}: {was} → {is_}")
    return "; ".join(found)


def cancel(scene: Ended, client: WireClient) -> None:
    client.cancel()


def hang_up(scene: Ended, client: WireClient) -> None:
    """The client is gone."""
    pipe: Any = client._session.transport
    if not pipe.is_closing():
        pipe._is_closing = True
        client.lost()


def lose_links(scene: Ended, client: WireClient) -> None:
    """Both instances lose the connections between them, and make new ones."""
    for link in inside(scene.node).peers._all_links():
        end: Any = link._transport
        end.reset()
        end.other.reset()


def cancel_while_others_stand_still(scene: Ended, client: WireClient) -> None:
    """They find what they were asked for and its end in one moment."""
    there = scene.world.nodes["b"]
    there.pause()
    loop = scene.world.loop
    loop.call_later(0.01, cancel, scene, client)
    loop.call_later(0.03, there.resume)
