"""The driver for threads: the same logic as `aio`, carried out by blocking."""

from __future__ import annotations

import random
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

from cairn.client import flows
from cairn.client.bulk import Split, execute_many, statement
from cairn.client.core import Core
from cairn.client.effects import Acquire, Changed, Open, Operation, Pause, Talk, Together, Wire
from cairn.client.router import Route
from cairn.client.service import Service
from cairn.client.settings import METADATA, ReadFrom, Settings
from cairn.client.stats import Stats
from cairn.client.sync_wire import SyncWire, open_wire
from cairn.model.errors import CairnError, TooManyConnections, Unreachable
from cairn.pgwire.backend import Result
from cairn.topology.routing_table import RoutingTable


class Wires:
    """Pooled connections by address. Every method is called with the pool's lock held."""

    def __init__(self, settings: Settings, news: threading.Condition) -> None:
        self._settings, self._news = settings, news
        self._idle: dict[str, deque[SyncWire]] = {}
        self._counts: dict[str, int] = {}
        self._all: set[SyncWire] = set()
        self.opened = 0

    def try_acquire(self, address: str) -> SyncWire | None:
        idle = self._idle.get(address)
        while idle:
            wire = idle.pop()
            if wire.is_usable:
                return wire
            self.discard(wire)
        return None

    def reserve(self, address: str) -> SyncWire | None:
        """A free connection, or None and the right to open one."""
        until = time.monotonic() + self._settings.acquire_timeout_s
        while self._counts.get(address, 0) >= self._settings.max_per_instance:
            wire = self.try_acquire(address)
            if wire is not None:
                return wire
            if not self._news.wait(max(0.0, until - time.monotonic())):
                raise TooManyConnections(
                    f"all {self._settings.max_per_instance} connections to {address} are in use",
                    hint="raise max_per_instance or acquire_timeout_s",
                )
        self._counts[address] = self._counts.get(address, 0) + 1
        return None

    def opened_one(self, wire: SyncWire) -> None:
        self.opened += 1
        self._all.add(wire)

    def release(self, wire: Wire) -> None:
        assert isinstance(wire, SyncWire)
        if not wire.is_idle:
            self.discard(wire)
            return
        self._idle.setdefault(wire.address, deque()).append(wire)
        self._news.notify_all()

    def discard(self, wire: Wire) -> None:
        assert isinstance(wire, SyncWire)
        wire.close()
        if wire in self._all:
            self._all.discard(wire)
            self.forget(wire.address)

    def forget(self, address: str) -> None:
        self._counts[address] -= 1
        self._news.notify_all()

    def close(self) -> None:
        for wire in list(self._all):
            self.discard(wire)
        self._idle.clear()


class _Closed(BaseException):
    """Thrown into the service operation when the pool closes."""


class SyncPool:
    """Connections to a whole cluster; safe to share between threads."""

    def __init__(self, settings: Settings, *, chance: random.Random | None = None) -> None:
        self.settings = settings
        self._lock = threading.RLock()
        self._news = threading.Condition(self._lock)
        self._wires = Wires(settings, self._news)
        self._core = Core(
            settings, self._wires, clock=time.monotonic, chance=chance or random.Random()
        )
        self._service = Service(self._core, self._wake)
        self._service_wire: SyncWire | None = None
        self._splits: dict[str, Split | None] = {}
        self._closed = False
        self._thread = threading.Thread(target=self._follow, name="cairn topology", daemon=True)

    def open(self) -> SyncPool:
        """Begin to follow the topology and wait for its first snapshot."""
        self._thread.start()
        until = time.monotonic() + self.settings.connect_timeout_s
        with self._lock:
            while not self.topology.is_ready:
                left = until - time.monotonic()
                error = self._service.error
                if error is not None and (left <= 0 or self._service.has_given_up):
                    self.close()
                    raise error
                if left <= 0:
                    self.close()
                    raise Unreachable(f"no topology from {', '.join(self.settings.hosts)} in time")
                self._news.wait(left)
        return self

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._wires.close()
            if self._service_wire is not None:
                self._service_wire.close()
            self._news.notify_all()

    def __enter__(self) -> SyncPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- statements ---------------------------------------------------------------------------

    def run(
        self,
        sql: str,
        params: Sequence[Any] = (),
        *,
        read_from: ReadFrom | None = None,
        timeout_s: float | None = None,
    ) -> Result:
        core, limit = self._core, timeout_s or self.settings.timeout_s
        if params and (read_from or self.settings.read_from) == "master":
            with self._lock:
                wire = cast("SyncWire | None", core.direct(sql, params))
            if wire is not None:
                try:
                    flow = flows.execute(wire.pg, wire.names[sql][0], params)
                    result = wire.talk(flow, limit)
                except CairnError as error:
                    return cast(
                        Result, self._drive(core.after_direct(error, wire, sql, params, limit))
                    )
                except BaseException:
                    with self._lock:
                        self._wires.discard(wire)
                    raise
                with self._lock:
                    core.direct_done(wire)
                return cast(Result, result)
        operation = statement(
            self._core, self._splits, sql, params, read_from=read_from, timeout_s=timeout_s
        )
        return cast(Result, self._drive(operation))

    def execute(self, sql: str, *params: Any, **options: Any) -> str:
        return self.run(sql, params, **options).tag or ""

    def fetch(self, sql: str, *params: Any, **options: Any) -> list[tuple[Any, ...]]:
        return self.run(sql, params, **options).rows

    def fetchrow(self, sql: str, *params: Any, **options: Any) -> tuple[Any, ...] | None:
        rows = self.run(sql, params, **options).rows
        return rows[0] if rows else None

    def executemany(self, sql: str, rows: Iterable[Sequence[Any]]) -> int:
        return cast(int, self._drive(execute_many(self._core, sql, list(rows))))

    def explain_route(self, sql: str, *params: Any, read_from: ReadFrom | None = None) -> Route:
        return cast(Route, self._drive(self._core.explain_route(sql, params, read_from=read_from)))

    # --- one connection for a while -----------------------------------------------------------

    @contextmanager
    def wire(self, address: str | None = None) -> Iterator[SyncWire]:
        """A connection of one's own, to any instance or a given one."""
        with self._lock:
            chosen = address or self._core.router.any_instance()[0]
            found = self._wires.try_acquire(chosen)
        wire = found or self._acquire(chosen)
        try:
            yield wire
        finally:
            with self._lock:
                self._wires.release(wire)

    def copy_in(self, sql: str, source: Iterable[bytes]) -> str:
        """COPY … FROM STDIN; the tag. If `source` fails, so does the COPY."""
        with self.wire() as wire:
            wire.talk(flows.copy_begin(wire.pg, sql), self.settings.timeout_s)
            failure: Exception | None = None
            try:
                for chunk in source:
                    if not wire.pg.wants_copy_data:
                        break
                    wire.send(wire.pg.copy_data(chunk), self.settings.timeout_s)
            except Exception as problem:
                failure = problem
            why = None if failure is None else f"the source failed: {failure}"
            try:
                flow = flows.copy_end(wire.pg, why)
                result = cast(Result, wire.talk(flow, self.settings.timeout_s))
            except CairnError as error:
                raise (failure or error) from error
            return result.tag or ""

    def copy_out(self, sql: str) -> Iterator[bytes]:
        """COPY … TO STDOUT, in pieces as they come."""
        with self.wire() as wire:
            chunks = wire.talk(flows.copy_out(wire.pg, sql), self.settings.timeout_s)
            while chunks is not None:
                yield from chunks
                chunks = wire.talk(flows.copy_more(wire.pg), self.settings.timeout_s)

    # --- what is known ------------------------------------------------------------------------

    @property
    def topology(self) -> RoutingTable:
        return self._core.table

    @property
    def stats(self) -> Stats:
        self._core.stats.connections_opened = self._wires.opened
        return self._core.stats

    def metrics(self) -> str:
        return self.stats.to_prometheus(time.monotonic())

    # --- carrying out effects -----------------------------------------------------------------

    def _drive(self, operation: Operation[Any]) -> Any:
        """The logic runs under the lock, the waiting does not."""
        argument: Any = None
        failed = False
        while True:
            try:
                with self._lock:
                    effect = operation.throw(argument) if failed else operation.send(argument)
            except StopIteration as done:
                return done.value
            try:
                argument, failed = self._carry_out(effect), False
            except BaseException as error:
                argument, failed = error, True

    def _carry_out(self, effect: Any) -> Any:
        match effect:
            case Talk(wire=SyncWire() as wire):
                return wire.talk(effect.flow, effect.timeout_s, effect.silence_s)
            case Acquire(address=address):
                return self._acquire(address)
            case Open(address=address, params=params, on_notice=on_notice):
                wire = open_wire(self.settings, address, params, on_notice, self._lock)
                self._service_wire = wire
                return wire
            case Pause(seconds=seconds):
                return self._wait(seconds, for_news=False)
            case Changed(seconds=seconds):
                return self._wait(seconds, for_news=True)
            case Together(operations=operations):
                return [self._outcome(each) for each in operations]
        raise AssertionError(effect)

    def _outcome(self, operation: Operation[Any]) -> Any:
        try:
            return self._drive(operation)
        except CairnError as error:
            return error

    def _acquire(self, address: str) -> SyncWire:
        with self._lock:
            found = self._wires.reserve(address)
        if found is not None:
            return found
        try:
            wire = open_wire(self.settings, address, METADATA)
        except BaseException:
            with self._lock:
                self._wires.forget(address)
            raise
        with self._lock:
            self._wires.opened_one(wire)
        return wire

    def _wait(self, seconds: float, *, for_news: bool) -> None:
        until = time.monotonic() + seconds
        with self._lock:
            while not self._closed and (left := until - time.monotonic()) > 0:
                if self._news.wait(left) and for_news:
                    return
            if self._closed and threading.current_thread() is self._thread:
                raise _Closed

    def _follow(self) -> None:
        try:
            self._drive(self._service.run())
        except _Closed:
            return

    def _wake(self) -> None:
        with self._lock:
            self._core.table.tick(time.monotonic())
            self._news.notify_all()
