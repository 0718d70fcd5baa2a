"""A proxy in user space that can cut, delay and stall single links and single directions.

Every instance listens on an address of its own (127.0.0.N) and advertises a port of the proxy. An
instance dials from its own address, so the proxy knows who speaks to whom without root.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import threading
from pathlib import Path

from tests.cluster.harness import Cluster, Node

POLL_S = 0.005
MOST_ON_THE_WAY = 200  # pieces; then the sender waits


class Far:
    """How long bytes are on their way. What is lost on the way is sent again after a while, and all
    behind it waits: a stall."""

    def __init__(
        self, rtt_s: float, jitter_s: float = 0.0, stalls: float = 0.0, seed: int = 1
    ) -> None:
        self.rtt_s, self.jitter_s, self.stalls = rtt_s, jitter_s, stalls
        self._chance = random.Random(seed)

    def one_way_s(self) -> float:
        late = self.rtt_s / 2 + self._chance.random() * self.jitter_s
        if self._chance.random() < self.stalls:
            late += max(0.2, self.rtt_s) * self._chance.choice((1, 1, 1, 2))
        return late


class Proxy:
    """Runs in a thread of its own; its rules may be changed from any thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._names: dict[str, str] = {}  # host → instance
        self._cuts: set[tuple[str, str]] = set()
        self._delays: dict[tuple[str, str], float] = {}
        self._far: Far | None = None
        self._open: dict[asyncio.Task[None], tuple[str, str]] = {}
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def close(self) -> None:
        def stop() -> None:
            for task in asyncio.all_tasks(self._loop):
                task.cancel()
            self._loop.call_later(0.05, self._loop.stop)

        self._loop.call_soon_threadsafe(stop)
        self._thread.join(5)
        self._loop.close()

    def stand_for(self, node: Node) -> str:
        """A port that leads to `node`; the address to advertise."""
        self._names[node.host] = node.name
        listening = socket.create_server(("127.0.0.1", 0))
        port = listening.getsockname()[1]

        async def serve() -> None:
            await asyncio.start_server(
                lambda reader, writer: self._accept(node, reader, writer), sock=listening
            )

        asyncio.run_coroutine_threadsafe(serve(), self._loop).result(5)
        return f"127.0.0.1:{port}"

    # --- rules ------------------------------------------------------------------------------------

    def cut(self, here: str, there: str) -> None:
        """Bytes from `here` to `there` stand still."""
        self._cuts.add((here, there))

    def cut_both(self, one: str, other: str) -> None:
        self.cut(one, other)
        self.cut(other, one)

    def isolate(self, name: str) -> None:
        for other in set(self._names.values()) - {name}:
            self.cut_both(name, other)

    def split(self, *side: str) -> None:
        for one in side:
            for other in set(self._names.values()) - set(side):
                self.cut_both(one, other)

    def delay(self, here: str, there: str, seconds: float) -> None:
        self._delays[here, there] = seconds

    def far(self, far: Far | None) -> None:
        """All instances are far from each other."""
        self._far = far

    def heal(self) -> None:
        self._cuts.clear()
        self._delays.clear()

    def reset(self, one: str, other: str) -> None:
        """Break every connection between the two."""

        def work() -> None:
            for task, pair in list(self._open.items()):
                if set(pair) == {one, other}:
                    task.cancel()

        self._loop.call_soon_threadsafe(work)

    # --- connections ------------------------------------------------------------------------------

    async def _accept(
        self, node: Node, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        dialler = self._names.get(writer.get_extra_info("peername")[0], "?")
        task = asyncio.current_task()
        assert task is not None
        self._open[task] = (dialler, node.name)
        far: asyncio.StreamWriter | None = None
        try:
            if self._far is not None:
                await asyncio.sleep(self._far.rtt_s)
            back, far = await asyncio.open_connection(node.host, node.peer_port)
            pumps = {
                asyncio.ensure_future(self._pump(reader, far, (dialler, node.name))),
                asyncio.ensure_future(self._pump(back, writer, (node.name, dialler))),
            }
            try:
                await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for pump in pumps:
                    pump.cancel()
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            self._open.pop(task, None)
            for each in (writer, far):
                if each is not None:
                    each.close()

    async def _pump(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        way: tuple[str, str],
    ) -> None:
        """What was read is on its way while more is read, as on a real line."""
        line: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(MOST_ON_THE_WAY)
        carrier = asyncio.ensure_future(self._carry(line, writer, way))
        arrives = 0.0
        try:
            while data := await reader.read(65_536):
                late = self._delays.get(way, 0.0)
                if self._far is not None:
                    late += self._far.one_way_s()
                arrives = max(arrives, self._loop.time() + late)  # one after the other
                await line.put((arrives, data))
                if carrier.done():
                    return
            await line.put((arrives, b""))
            await carrier
        finally:
            carrier.cancel()

    async def _carry(
        self,
        line: asyncio.Queue[tuple[float, bytes]],
        writer: asyncio.StreamWriter,
        way: tuple[str, str],
    ) -> None:
        with contextlib.suppress(OSError):
            while True:
                arrives, data = await line.get()
                if not data:
                    return
                if (left := arrives - self._loop.time()) > 0:
                    await asyncio.sleep(left)
                while way in self._cuts:
                    await asyncio.sleep(POLL_S)
                writer.write(data)
                await writer.drain()


class ProxiedCluster(Cluster):
    """A cluster whose instances reach each other only through `proxy`."""

    def __init__(self, directory: Path, name: str = "test", *flags: str) -> None:
        super().__init__(directory, name, *flags)
        self.proxy = Proxy()

    def add(self, name: str) -> Node:
        node = super().add(name)
        node.host = f"127.0.0.{10 + len(self.nodes)}"
        node.advertise = self.proxy.stand_for(node)
        return node

    def close(self) -> None:
        super().close()
        self.proxy.close()
