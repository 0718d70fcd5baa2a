"""Connections of one Python worker, and where each bucket lives.

Spark reuses its workers: pools and idle connections are kept by process and DSN, and made anew in
a forked or restarted worker. Nothing here is pickled; tasks carry addresses and ranges only.
"""

from __future__ import annotations

import gc
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, TypeVar

import msgspec

from cairn.client.logic import flows
from cairn.client.logic.effects import always
from cairn.client.settings import Settings, parse_dsn
from cairn.client.sync_pool import SyncPool
from cairn.client.sync_wire import SyncWire, open_wire
from cairn.model.errors import CairnError, TimedOut, Unreachable

#: Certainly nothing was answered yet: look at the topology again and ask somebody else.
MOVED = frozenset({"PC001", "PC003", "PC004", "57014", "57P01", "57P03", "58000"})
#: Also those after which nobody knows what was written: only for what may be repeated.
UNSURE = MOVED | {"40003", "40001", "PC006", "53300"}
CERTAIN = frozenset({"PC001", "PC003", "PC004", "57P03", "40001", "53300"})  # not executed
REPLAN_S = 30.0

T = TypeVar("T")
_pools: dict[tuple[int, str], SyncPool] = {}
_idle: dict[tuple[int, str, str, str], list[SyncWire]] = {}
_guard = threading.Lock()
_settled_pid = 0


def pool(dsn: str) -> SyncPool:
    """The driver's pool for this process: it follows the topology."""
    key = (os.getpid(), dsn)
    with _guard:
        found = _pools.get(key)
        if found is None:
            found = _pools[key] = SyncPool(settings(dsn)).open()
        return found


def settle() -> None:
    """To be called when a task or a plan begins: what is there by now is never taken for garbage.

    Spark collects garbage after each task of a worker that it keeps, and looks through every
    object of every module for it: 30 ms, as much as reading 100,000 rows.
    """
    global _settled_pid
    if _settled_pid != os.getpid():
        _settled_pid = os.getpid()
        gc.freeze()


def settings(dsn: str, read_from: str = "master") -> Settings:
    return parse_dsn(dsn, application_name="cairn-spark", read_from=read_from)


def close_all() -> None:
    """For tests: leave nothing open."""
    with _guard:
        for found in _pools.values():
            found.close()
        _pools.clear()
        for wires in _idle.values():
            for wire in wires:
                wire.close()
        _idle.clear()


# --- who owns what --------------------------------------------------------------------------------


class Owner(msgspec.Struct, frozen=True):
    """A replicaset with the buckets it serves and where to ask for them."""

    uuid: str
    ranges: tuple[tuple[int, int], ...]
    addresses: tuple[str, ...]  # in the order in which to try


def owners(dsn: str, tier: str, read_from: str = "master") -> list[Owner]:
    """The tier's replicasets, as the topology has them now."""
    table = pool(dsn).topology
    table.flush()
    ranges: dict[str, list[tuple[int, int]]] = {}
    intervals = table.view.buckets.get(tier)
    for start, end, served in intervals.ranges() if intervals is not None else ():
        ranges.setdefault(served.owner, []).append((start, end))
    if not ranges:
        raise Unreachable(f"tier {tier} has no buckets yet", hint="wait until the cluster is ready")
    return [
        Owner(uuid, tuple(found), _addresses(table, uuid, read_from))
        for uuid, found in sorted(ranges.items())
    ]


def _addresses(table: Any, uuid: str, read_from: str) -> tuple[str, ...]:
    master = table.master(uuid)
    first = [master.address] if master is not None else []
    others = [each.address for each in table.online(uuid) if each.address not in first]
    if read_from == "master":
        return tuple(first)
    if read_from == "replica":
        return tuple(others or first)
    return tuple(others + first) if os.getpid() % 2 else tuple(first + others)


def any_address(dsn: str, turn: int = 0) -> str:
    """An instance that is Online; another one at the next turn, if there is one."""
    found = [str(each.address) for each in pool(dsn).topology.online() if each.address]
    if not found:
        raise Unreachable("no instance is Online")
    return found[turn % len(found)]


def ask_at(dsn: str, address: str | None, sql: str) -> list[tuple[Any, ...]]:
    """The answer of one instance."""
    with pool(dsn).wire(address) as wire:
        result = wire.talk(flows.run_once(wire.pg, sql), REPLAN_S, None, always)
    return [tuple(row) for row in result.rows]


def ask_everybody(dsn: str, sql: str) -> list[tuple[Any, ...]]:
    """The answers of all instances that are Online, for what each knows by itself."""
    found: list[tuple[Any, ...]] = []
    for each in pool(dsn).topology.online():
        with suppress(Unreachable, TimedOut):
            found += ask_at(dsn, each.address, sql)
    return found


def wait_for_news(dsn: str, seconds: float) -> None:
    """Give the topology a moment to reach this process."""
    time.sleep(seconds)
    pool(dsn).topology.flush()


def persistently(dsn: str, work: Callable[[bool], T]) -> T:
    """Do what may be done twice until it is answered, for a bounded time.

    `work` is told whether an earlier try may have done it.
    """
    until = time.monotonic() + REPLAN_S
    is_again = False
    while True:
        try:
            return work(is_again)
        except CairnError as problem:
            if problem.sqlstate not in UNSURE or time.monotonic() > until:
                raise
            is_again = is_again or problem.sqlstate not in CERTAIN
        wait_for_news(dsn, 0.3)


# --- COPY -----------------------------------------------------------------------------------------


def _acquire(dsn: str, address: str, read_from: str) -> SyncWire:
    key = (os.getpid(), dsn, address, read_from)
    with _guard:
        wires = _idle.setdefault(key, [])
        while wires:
            wire = wires.pop()
            if wire.is_usable:
                return wire
            wire.close()
    params = {"read_preference": "any"} if read_from != "master" else {}
    return open_wire(settings(dsn, read_from), address, params)


def _release(dsn: str, read_from: str, wire: SyncWire) -> None:
    if not wire.is_idle:
        wire.close()
        return
    with _guard:
        _idle.setdefault((os.getpid(), dsn, wire.address, read_from), []).append(wire)


def copy_out(
    dsn: str, address: str, sql: str, timeout_s: float, read_from: str = "master"
) -> Iterator[bytes]:
    """COPY … TO STDOUT at one instance, in pieces as they come."""
    wire = _acquire(dsn, address, read_from)
    try:
        chunks = wire.talk(flows.copy_out(wire.pg, sql), timeout_s, None, always)
        while chunks is not None:
            yield from chunks
            chunks = wire.talk(flows.copy_more(wire.pg), timeout_s, None, always)
    finally:
        _release(dsn, read_from, wire)


class CopyIn:
    """COPY … FROM STDIN at one instance, open while a task has rows for it.

    Whoever uses it can send its rows again: an instance that stands still is left.
    """

    def __init__(self, dsn: str, address: str, sql: str, timeout_s: float) -> None:
        self._dsn, self._timeout_s = dsn, timeout_s
        self._wire = _acquire(dsn, address, "master")
        self._wire.talk(flows.copy_begin(self._wire.pg, sql), timeout_s, None, always)

    def send(self, data: bytes) -> None:
        wire = self._wire
        if wire.pg.wants_copy_data:
            wire.send(wire.pg.copy_data(data), self._timeout_s, always)
        if not wire.pg.wants_copy_data:
            self.finish()  # the server has ended it: say why

    def finish(self) -> int:
        """The number of rows the server took."""
        try:
            flow = flows.copy_end(self._wire.pg)
            result = self._wire.talk(flow, self._timeout_s, None, always)
        finally:
            _release(self._dsn, "master", self._wire)
        return int((result.tag or "COPY 0").rpartition(" ")[2])

    def abandon(self) -> None:
        with suppress(CairnError, OSError):
            self._wire.close()


def call(dsn: str, text: str, address: str | None = None, timeout_s: float = 60.0) -> Any:
    """`CALL cairn_…` that may be said twice: its answer is one JSON value."""
    with pool(dsn).wire(address) as wire:
        results = wire.talk(flows.script(wire.pg, text), timeout_s, None, always)
    return results[0].rows[0][0]
