"""Real sessions in simulated instances: the wire protocol on both ends, and no socket between.

A client speaks inside the process that it is connected to: it dies with it and stands still with
it. What it is told, it is told by the session that every driver has, by the same shortcuts.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

from cairn.model.errors import CairnError
from cairn.node.instance import Instance
from cairn.pgwire.client.client import PgClient
from cairn.server import statements
from cairn.server.catalog import pg_catalog
from cairn.server.face import PgFace
from cairn.server.session import session
from cairn.server.session.session import Session
from cairn.sim.cluster.loop import Process
from cairn.sim.cluster.node import SimNode
from cairn.sim.cluster.world import World

PASSWORD = "Simulated1"
UNKNOWN = "40003"  # whether it was done


class Faces:
    """What gives every life of every instance its face for clients."""

    def __init__(self, world: World) -> None:
        pg_catalog._empty()  # of all instances: made here, it is not closed with one of them
        self._faces: WeakKeyDictionary[Instance, PgFace] = WeakKeyDictionary()
        world.equip = self._equip
        world.real_limits += [(statements, "TURN_S"), (session, "TURN_S")]

    def _equip(self, node: SimNode, instance: Instance) -> None:
        face = self._faces[instance] = PgFace(instance, node.config, None)
        instance.on_goodbye.append(face.say_goodbye)
        instance.on_close.append(face.close)
        # How long a statement takes by the clock of this machine, and is explained for, is chance.
        face.slow_log.set_threshold(0)
        face.slow_log.set_threshold = lambda milliseconds: None  # type: ignore[method-assign]
        assert node.process is not None
        # Statements that C has prepared are unknown to Python, and keep their file open.
        node.process.on_files_closed.append(instance.execution.reads.reader.close)
        # Their threads are real, and would keep all of a dead instance.
        node.process.on_files_closed += [face.audit.close, face.slow_log.close]

    def of(self, node: SimNode) -> PgFace:
        assert node.instance is not None
        return self._faces[node.instance]


class _Pipe(asyncio.Transport):
    """From a session to its client, as fast as memory."""

    def __init__(self, client: WireClient) -> None:
        super().__init__({"peername": ("10.0.0.1", 1)})
        self._client, self._is_closing = client, False

    def write(self, data: Any) -> None:
        if not self._is_closing:
            self._client.told(bytes(data))

    def is_closing(self) -> bool:
        return self._is_closing

    def close(self) -> None:
        if not self._is_closing:
            self._is_closing = True
            asyncio.get_running_loop().call_soon(self._client.lost)

    abort = close

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def pause_reading(self) -> None:
        pass

    resume_reading = pause_reading

    def can_write_eof(self) -> bool:
        return False


class WireClient:
    """One connection of a driver that prepares each text once. All of it inside one process."""

    def __init__(self, face: PgFace) -> None:
        self._pg = PgClient("admin", password=PASSWORD, random_bytes=os.urandom)
        self._session = Session(face)
        self._waiting: asyncio.Future[None] | None = None
        self._problem: CairnError | None = None
        self._names: dict[str, str] = {}
        self._is_taken = False  # somebody has asked, and has not looked at the answer yet

    async def connect(self) -> None:
        self._session.connection_made(_Pipe(self))
        await self._answered(self._pg.connect())

    async def run(self, text: str, params: Sequence[Any]) -> tuple[list[tuple[Any, ...]], int]:
        """Its rows, and how many it touched. Whoever is not answered hangs up."""
        self._is_taken = True
        try:
            return await self._run(text, params)
        finally:
            self._is_taken = False

    async def run_many(
        self, text: str, rows: Sequence[Sequence[Any]]
    ) -> tuple[int, CairnError | None]:
        """Once for each of `rows`, sent together: how many were done, and what ended it."""
        self._is_taken = True
        try:
            name = await self._prepared(text)
            await self._answered(self._pg.execute_many(name, rows))
            [outcome] = self._pg.take_outcomes()
            return len(outcome.results), outcome.error
        finally:
            self._is_taken = False

    async def _run(self, text: str, params: Sequence[Any]) -> tuple[list[tuple[Any, ...]], int]:
        name = await self._prepared(text)
        await self._answered(self._pg.execute_prepared(name, params))
        [result] = self._pg.take_results()
        return result.rows, result.row_count

    async def _prepared(self, text: str) -> str:
        if text not in self._names:
            name = f"s{len(self._names)}"
            await self._answered(self._pg.prepare(name, text))
            self._pg.take_results()
            self._names[text] = name
        return self._names[text]

    async def ask(self, text: str) -> list[tuple[Any, ...]]:
        """The rows of one text, by simple query."""
        self._is_taken = True
        try:
            await self._answered(self._pg.query(text))
            return self._pg.take_results()[0].rows
        finally:
            self._is_taken = False

    async def copied(self, text: str) -> bytes:
        """What COPY … TO STDOUT tells."""
        self._is_taken = True
        try:
            await self._answered(self._pg.query(text, copy=True))
            told = b"".join(self._pg.take_copy())
            self._pg.take_results()
            return told
        finally:
            self._is_taken = False

    async def copy_in(self, text: str, lines: bytes) -> None:
        """COPY … FROM STDIN."""
        self._is_taken = True
        try:
            await self._answered(self._pg.query(text, copy=True))
            if self._pg.wants_copy_data:
                await self._answered(self._pg.copy_data(lines) + self._pg.copy_done())
            self._pg.take_results()
        finally:
            self._is_taken = False

    @property
    def is_free(self) -> bool:
        return self._pg.is_idle and not self._is_taken

    @property
    def _is_my_turn(self) -> bool:
        return self._pg.is_idle or self._pg.wants_copy_data

    @property
    def is_over(self) -> bool:
        return self._problem is not None

    def cancel(self) -> None:
        """What is under way is to end, if it can."""
        self._session.cancel()

    def close(self) -> None:
        """The client goes: whatever is under way is nobody's any more."""
        self._session.transport.close()

    async def _answered(self, data: bytes) -> None:
        if self._problem is not None:
            raise self._problem
        self._waiting = asyncio.get_running_loop().create_future()
        self._session.data_received(data)
        try:
            if not self._is_my_turn:
                await self._waiting
        except asyncio.CancelledError:
            self.close()
            raise
        if self._problem is not None:
            raise self._problem

    # --- from the session -------------------------------------------------------------------------

    def told(self, data: bytes) -> None:
        if self._pg.is_closed:
            return
        try:
            back = self._pg.receive(data)
        except CairnError as problem:
            self._end(problem)
            return
        if back:
            asyncio.get_running_loop().call_soon(self._session.data_received, back)
        if self._is_my_turn:
            self._wake()

    def lost(self) -> None:
        self._session.connection_lost(None)
        if not self._pg.is_closed:
            self._end(self._pg.connection_lost())

    def _end(self, problem: CairnError) -> None:
        """The last words of a connection say nothing about what was under way."""
        text = f"the connection ended: {problem.sqlstate} {problem}"
        self._problem = CairnError(text, sqlstate=UNKNOWN)
        self._wake()

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)


class Connections:
    """Connections of some clients to each process, as a pool of a driver has them."""

    def __init__(self, faces: Faces) -> None:
        self._faces = faces
        self._open: dict[tuple[int, Process], list[WireClient]] = {}

    async def free(self, whose: int, node: SimNode) -> WireClient:
        """One at which nothing is under way; called inside the process."""
        assert node.process is not None
        theirs = self._open.setdefault((whose, node.process), [])
        for each in theirs:
            if each.is_free:
                return each
        made = WireClient(self._faces.of(node))
        await made.connect()
        theirs[:] = [each for each in theirs if not each.is_over] + [made]
        return made
