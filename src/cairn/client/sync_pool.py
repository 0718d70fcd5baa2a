"""The driver for threads: the same logic as `aio`, carried out by blocking."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

from cairn.client.logic import flows
from cairn.client.logic.bulk import Split, execute_many, statement
from cairn.client.logic.copying import copy_in, pulled
from cairn.client.logic.core import Core
from cairn.client.logic.effects import (
    Acquire,
    Changed,
    Open,
    Operation,
    Pause,
    Pull,
    Send,
    Talk,
    Together,
    always,
)
from cairn.client.logic.metadata import Metadata
from cairn.client.logic.router import Route
from cairn.client.logic.service import Service
from cairn.client.settings import ReadFrom, Settings
from cairn.client.stats import Stats
from cairn.client.sync_wire import SyncWire, open_wire
from cairn.client.sync_wires import Wires
from cairn.model.errors import CairnError, Unreachable
from cairn.pgwire.client.backend import Result
from cairn.pgwire.client.replies import Prepared
from cairn.topology.routing_table import RoutingTable


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
        self._core.on_doubt = self._look_later
        self._looking: threading.Timer | None = None
        self._tick: threading.Timer | None = None
        self._swept = 0  # the table's `changes` when connections to those who left were closed
        self._service_wire: SyncWire | None = None
        self._splits: dict[str, Split | None] = {}
        self._closed = False
        self._thread = threading.Thread(target=self._follow, name="cairn topology", daemon=True)

    def open(self) -> SyncPool:
        """Begin to follow the topology and wait for its first snapshot."""
        self._thread.start()
        until = time.monotonic() + self.settings.opening_s
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
            for timer in (self._looking, self._tick):
                if timer is not None:
                    timer.cancel()
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
                    result = wire.execute(wire.names[sql], params, limit)
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
                return result
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

    def fetchval(self, sql: str, *params: Any, **options: Any) -> Any:
        row = self.fetchrow(sql, *params, **options)
        return row[0] if row else None

    def executemany(self, sql: str, rows: Iterable[Sequence[Any]]) -> int:
        return cast(int, self._drive(execute_many(self._core, sql, list(rows))))

    def explain_route(self, sql: str, *params: Any, read_from: ReadFrom | None = None) -> Route:
        return cast(Route, self._drive(self._core.explain_route(sql, params, read_from=read_from)))

    def describe(self, sql: str) -> tuple[Sequence[int], Metadata]:
        """The types of its parameters, and which of them name its bucket."""
        prepared: Prepared = self._drive(self._core.describe(sql))
        return prepared.param_oids, self._drive(self._core.learn(sql))

    # --- one connection for a while -----------------------------------------------------------

    @contextmanager
    def wire(self, address: str | None = None) -> Iterator[SyncWire]:
        """A connection of one's own, to any instance or a given one."""
        core = self._core
        acquired = core.acquire_any() if address is None else core.acquire(address)
        wire = cast(SyncWire, self._drive(acquired))
        try:
            yield wire
        finally:
            with self._lock:
                self._wires.release(wire)

    def copy_in(self, sql: str, source: Iterable[Any]) -> str:
        """COPY … FROM STDIN; the tag. If `source` fails, so does the COPY.

        `source` gives pieces of text, or rows; each row goes straight to its owner.
        """
        return cast(str, self._drive(copy_in(self._core, sql, iter(source))))

    def copy_out(self, sql: str) -> Iterator[bytes]:
        """COPY … TO STDOUT, in pieces as they come."""
        with self.wire() as wire:
            flow, limit = flows.copy_out(wire.pg, sql), self.settings.timeout_s
            chunks = wire.talk(flow, limit, None, always)
            while chunks is not None:
                yield from chunks
                chunks = wire.talk(flows.copy_more(wire.pg), limit, None, always)

    # --- what is known ------------------------------------------------------------------------

    @property
    def topology(self) -> RoutingTable:
        return self._core.table

    @property
    def stats(self) -> Stats:
        self._core.stats.connections_opened = self._wires.opened
        self._core.stats.cancels = self._wires.cancelled
        return self._core.stats

    def refresh(self) -> None:
        """Apply bucket events that wait for their batch."""
        with self._lock:
            self._core.table.flush()

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
                return wire.talk(effect.flow, effect.timeout_s, effect.silence_s, effect.may_leave)
            case Acquire(address=address, within_s=within_s):
                return self._acquire(address, within_s)
            case Open(address=address, params=params, on_notice=on_notice, within_s=within_s):
                wire = open_wire(self.settings, address, params, on_notice, self._lock, within_s)
                self._service_wire = wire
                return wire
            case Pause(seconds=seconds):
                return self._wait(seconds, for_news=False)
            case Changed(seconds=seconds):
                return self._wait(seconds, for_news=True)
            case Send(wire=SyncWire() as wire, data=data, may_leave=may_leave):
                return wire.send(data, self.settings.timeout_s, may_leave)
            case Pull(source=source):
                return pulled(source)
            case Together(operations=operations):
                return self._together(operations)
        raise AssertionError(effect)

    def _together(self, operations: Sequence[Operation[Any]]) -> list[Any]:
        """Side by side, the first of them in this thread."""
        outcomes: list[Any] = [None] * len(operations)

        def run(at: int) -> None:
            try:
                outcomes[at] = self._drive(operations[at])
            except BaseException as error:
                outcomes[at] = error

        others = [
            threading.Thread(target=run, args=(at,), daemon=True)
            for at in range(1, len(operations))
        ]
        for thread in others:
            thread.start()
        run(0)
        for thread in others:
            thread.join()
        return outcomes

    def _acquire(self, address: str, within_s: float) -> SyncWire:
        with self._lock:
            found = self._wires.reserve(address)
        if found is not None:
            return found
        try:
            keys = self.settings.statement_keys()
            wire = open_wire(self.settings, address, keys, within_s=within_s)
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

    def _look_later(self, delay_s: float) -> None:
        self._looking = threading.Timer(delay_s, self._look)
        self._looking.daemon = True
        self._looking.start()

    def _look(self) -> None:
        """A hint's grace is over."""
        with self._lock:
            wire = self._service.leave_if_behind()
            if isinstance(wire, SyncWire):
                wire.close()  # the thread that reads from it then goes on elsewhere

    def _wake(self) -> None:
        with self._lock:
            now = time.monotonic()
            self._core.table.tick(now)
            deadline = self._core.table.batch.deadline
            if deadline is not None and self._tick is None and not self._closed:
                self._tick = threading.Timer(max(0.0, deadline - now), self._flush)
                self._tick.daemon = True
                self._tick.start()
            self._news.notify_all()
            if self._core.table.is_ready and self._core.table.changes != self._swept:
                self._swept = self._core.table.changes
                self._wires.keep_only(self._core.table.addresses() | set(self.settings.hosts))

    def _flush(self) -> None:
        """Bucket events have waited long enough; nothing else may come that would apply them."""
        with self._lock:
            self._tick = None
            self._wake()
