"""The driver for asyncio.

pool = await cairn.client.connect("postgresql://admin:…@127.0.0.1:4327/cairn")
await pool.execute("INSERT INTO t VALUES ($1, $2)", 1, "one")
rows = await pool.fetch("SELECT * FROM t WHERE id = $1", 1)
print(await pool.explain_route("SELECT * FROM t WHERE id = $1", 1))
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar, cast

from cairn.client.aio_wire import AioWire, Wires, open_wire
from cairn.client.logic import flows
from cairn.client.logic.bulk import Split, execute_many, statement
from cairn.client.logic.copying import PULL_BYTES, PULL_ITEMS, copy_in, pulled
from cairn.client.logic.core import Core
from cairn.client.logic.effects import (
    Acquire,
    Changed,
    MayLeave,
    Open,
    Operation,
    Pause,
    Pull,
    Send,
    Talk,
    Together,
    always,
)
from cairn.client.logic.router import Route
from cairn.client.logic.service import Service
from cairn.client.settings import ReadFrom, Settings, parse_dsn
from cairn.client.stats import Stats
from cairn.model.errors import CairnError, Unreachable
from cairn.pgwire.client.backend import Result
from cairn.topology.routing_table import RoutingTable

T = TypeVar("T")


class Pool:
    """Connections to a whole cluster. Use `connect` to make one."""

    def __init__(self, settings: Settings, *, chance: random.Random | None = None) -> None:
        self.settings = settings
        self._wires = Wires(settings)
        self._core = Core(
            settings, self._wires, clock=time.monotonic, chance=chance or random.Random()
        )
        self._service = Service(self._core, self._wake)
        self._core.on_doubt = self._look_later
        self._splits: dict[str, Split | None] = {}
        self._news: list[asyncio.Future[None]] = []
        self._tick: asyncio.TimerHandle | None = None
        self._looking: asyncio.TimerHandle | None = None
        self._swept = 0  # the table's `changes` when connections to those who left were closed
        self._following: asyncio.Task[None] | None = None

    async def open(self) -> Pool:
        """Begin to follow the topology and wait for its first snapshot."""
        self._following = asyncio.create_task(self._drive(self._service.run()))
        until = time.monotonic() + self.settings.opening_s
        while not self.topology.is_ready:
            left = until - time.monotonic()
            error = self._service.error
            if error is not None and (left <= 0 or self._service.has_given_up):
                await self.close()
                raise error
            if left <= 0:
                await self.close()
                raise Unreachable(f"no topology from {', '.join(self.settings.hosts)} in time")
            await self._changed(left)
        return self

    async def close(self) -> None:
        for timer in (self._tick, self._looking):
            if timer is not None:
                timer.cancel()
        if self._following is not None:
            self._following.cancel()
            with suppress(asyncio.CancelledError):
                await self._following
        self._wires.close()

    async def __aenter__(self) -> Pool:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # --- statements ---------------------------------------------------------------------------

    async def run(
        self,
        sql: str,
        params: Sequence[Any] = (),
        *,
        read_from: ReadFrom | None = None,
        timeout_s: float | None = None,
    ) -> Result:
        """The whole result: columns, rows, tag."""
        core, limit = self._core, timeout_s or self.settings.timeout_s
        if params and (read_from or self.settings.read_from) == "master":
            wire = cast("AioWire | None", core.direct(sql, params))
            if wire is not None:
                try:
                    ready = wire.names[sql]
                    flow = flows.execute(wire.pg, ready.name, params, ready.quick)
                    result = await wire.talk(flow, limit, None, ready.may_leave)
                except CairnError as error:
                    again = core.after_direct(error, wire, sql, params, limit)
                    return cast(Result, await self._drive(again))
                except BaseException:
                    self._wires.discard(wire)
                    raise
                core.direct_done(wire)
                return cast(Result, result)
        operation = statement(
            self._core, self._splits, sql, params, read_from=read_from, timeout_s=timeout_s
        )
        return cast(Result, await self._drive(operation))

    async def execute(self, sql: str, *params: Any, **options: Any) -> str:
        """The command tag, such as `INSERT 0 1`."""
        return (await self.run(sql, params, **options)).tag or ""

    async def fetch(self, sql: str, *params: Any, **options: Any) -> list[tuple[Any, ...]]:
        return (await self.run(sql, params, **options)).rows

    async def fetchrow(self, sql: str, *params: Any, **options: Any) -> tuple[Any, ...] | None:
        rows = (await self.run(sql, params, **options)).rows
        return rows[0] if rows else None

    async def fetchval(self, sql: str, *params: Any, **options: Any) -> Any:
        row = await self.fetchrow(sql, *params, **options)
        return row[0] if row else None

    async def executemany(self, sql: str, rows: Iterable[Sequence[Any]]) -> int:
        """Each row a statement of its own, sent to its owner in pipelines. Rows touched."""
        return cast(int, await self._drive(execute_many(self._core, sql, list(rows))))

    async def explain_route(
        self, sql: str, *params: Any, read_from: ReadFrom | None = None
    ) -> Route:
        """`str()` of it reads "bucket 1934 → r2 → i5, metadata cached"."""
        operation = self._core.explain_route(sql, params, read_from=read_from)
        return cast(Route, await self._drive(operation))

    # --- one connection for a while -----------------------------------------------------------

    @asynccontextmanager
    async def connection(self, address: str | None = None) -> AsyncIterator[Connection]:
        """A connection of one's own, to any instance or a given one: for BEGIN … COMMIT, COPY."""
        core = self._core
        acquired = core.acquire_any() if address is None else core.acquire(address)
        wire = cast(AioWire, await self._drive(acquired))
        try:
            yield Connection(wire, self.settings.timeout_s, core.if_missed(wire))
        finally:
            self._wires.release(wire)

    async def copy_in(self, sql: str, source: Iterable[Any] | AsyncIterable[Any]) -> str:
        """COPY … FROM STDIN; the tag. If `source` fails, so does the COPY.

        `source` gives pieces of text, or rows; each row goes straight to its owner.
        """
        items = source if isinstance(source, AsyncIterable) else iter(source)
        return cast(str, await self._drive(copy_in(self._core, sql, items)))

    async def copy_out(self, sql: str) -> AsyncIterator[bytes]:
        """COPY … TO STDOUT, in pieces as they come."""
        async with self.connection() as connection:
            async for chunk in connection.copy_out(sql):
                yield chunk

    # --- what is known ------------------------------------------------------------------------

    @property
    def topology(self) -> RoutingTable:
        """The routing table; append to `topology.listeners` to hear of changes."""
        return self._core.table

    @property
    def stats(self) -> Stats:
        self._core.stats.connections_opened = self._wires.opened
        self._core.stats.cancels = self._wires.cancelled
        return self._core.stats

    def metrics(self) -> str:
        return self.stats.to_prometheus(time.monotonic())

    def refresh(self) -> None:
        """Apply bucket events that wait for their batch."""
        self._core.table.flush()

    # --- carrying out effects -----------------------------------------------------------------

    async def _drive(self, operation: Operation[Any]) -> Any:
        step, argument = operation.send, None
        while True:
            try:
                effect = step(argument)
            except StopIteration as done:
                return done.value
            try:
                if type(effect) is Talk:
                    wire = cast(AioWire, effect.wire)
                    argument = await wire.talk(
                        effect.flow, effect.timeout_s, effect.silence_s, effect.may_leave
                    )
                else:
                    argument = await self._carry_out(effect)
                step = operation.send
            except BaseException as error:
                argument, step = error, operation.throw

    async def _carry_out(self, effect: Any) -> Any:
        match effect:
            case Acquire(address=address, within_s=within_s):
                return await self._wires.acquire(address, within_s)
            case Open(address=address, params=params, on_notice=on_notice, within_s=within_s):
                return await open_wire(self.settings, address, params, on_notice, within_s)
            case Pause(seconds=seconds):
                return await asyncio.sleep(seconds)
            case Changed(seconds=seconds):
                return await self._changed(seconds)
            case Send(wire=AioWire() as wire, data=data, may_leave=may_leave):
                return await wire.send(data, self.settings.timeout_s, may_leave)
            case Pull(source=source):
                return await _pulled(source)
            case Together(operations=operations):
                driven = [self._drive(each) for each in operations]
                return await asyncio.gather(*driven, return_exceptions=True)
        raise AssertionError(effect)

    async def _changed(self, seconds: float) -> None:
        waiter = asyncio.get_running_loop().create_future()
        self._news.append(waiter)
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await waiter

    def _wake(self) -> None:
        """News from the service connection."""
        news, self._news = self._news, []
        for waiter in news:
            if not waiter.done():
                waiter.set_result(None)
        deadline = self._core.table.batch.deadline
        if deadline is not None and self._tick is None:
            delay = max(0.0, deadline - time.monotonic())
            self._tick = asyncio.get_running_loop().call_later(delay, self._flush)
        if self._core.table.is_ready and self._core.table.changes != self._swept:
            self._swept = self._core.table.changes
            self._wires.keep_only(self._core.table.addresses() | set(self.settings.hosts))

    def _flush(self) -> None:
        self._tick = None
        self._core.table.tick(time.monotonic())

    def _look_later(self, delay_s: float) -> None:
        self._looking = asyncio.get_running_loop().call_later(delay_s, self._look)

    def _look(self) -> None:
        """A hint's grace is over."""
        wire = self._service.leave_if_behind()
        if wire is not None:
            cast(AioWire, wire).close()


class Connection:
    """One connection, not routed and not retried: what happens on it is the caller's to judge."""

    def __init__(self, wire: AioWire, timeout_s: float, may_leave: MayLeave) -> None:
        self._wire, self._timeout_s, self._may_leave = wire, timeout_s, may_leave

    async def _talk(self, flow: flows.Flow[T], may_leave: MayLeave | None = None) -> T:
        leave = may_leave or self._may_leave
        return cast(T, await self._wire.talk(flow, self._timeout_s, None, leave))

    @property
    def address(self) -> str:
        return self._wire.address

    @property
    def in_transaction(self) -> bool:
        return self._wire.pg.status != "I"

    async def run(self, sql: str, params: Sequence[Any] = ()) -> Result:
        return await self._talk(flows.run_once(self._wire.pg, sql, params))

    async def execute(self, sql: str, *params: Any) -> str:
        return (await self.run(sql, params)).tag or ""

    async def fetch(self, sql: str, *params: Any) -> list[tuple[Any, ...]]:
        return (await self.run(sql, params)).rows

    async def script(self, sql: str) -> list[Result]:
        """Several statements, separated by semicolons, without parameters."""
        return await self._talk(flows.script(self._wire.pg, sql))

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Connection]:
        """BEGIN … COMMIT on this connection: all or nothing, for rows of one replicaset."""
        await self.execute("BEGIN")
        try:
            yield self
        except BaseException:
            if self._wire.is_usable or self._wire.pg.is_idle:
                with suppress(CairnError):
                    await self.execute("ROLLBACK")
            raise
        await self.execute("COMMIT")

    async def copy_in(self, sql: str, source: Iterable[bytes] | AsyncIterable[bytes]) -> str:
        wire = self._wire
        await self._talk(flows.copy_begin(wire.pg, sql))
        failure: Exception | None = None
        try:
            async for chunk in _chunks(source):
                if not wire.pg.wants_copy_data:
                    break  # the server has refused a row; its reason comes with the end
                await wire.send(wire.pg.copy_data(chunk), self._timeout_s, self._may_leave)
        except Exception as problem:
            failure = problem
        why = None if failure is None else f"the source failed: {failure}"
        try:
            result = await self._talk(flows.copy_end(wire.pg, why))
        except CairnError as error:
            raise (failure or error) from error
        return result.tag or ""

    async def copy_out(self, sql: str) -> AsyncIterator[bytes]:
        wire = self._wire
        chunks: list[bytes] | None = await self._talk(flows.copy_out(wire.pg, sql), always)
        while chunks is not None:
            for chunk in chunks:
                yield chunk
            chunks = await self._talk(flows.copy_more(wire.pg), always)


async def _pulled(source: Any) -> list[Any] | None:
    """Some items at once: an effect for each would cost more than the item."""
    if isinstance(source, AsyncIterable):
        found: list[Any] = []
        async for item in source:
            found.append(item)
            if len(found) >= PULL_ITEMS or len(item) >= PULL_BYTES:
                break
        return found or None
    return pulled(source)


async def _chunks(source: Iterable[bytes] | AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    if isinstance(source, AsyncIterable):
        async for chunk in source:
            yield chunk
    else:
        for chunk in source:
            yield chunk


async def connect(dsn: str, **settings: Any) -> Pool:
    """A pool over the whole cluster, its topology known."""
    return await Pool(parse_dsn(dsn, **settings)).open()
