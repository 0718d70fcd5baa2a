"""The driver's logic, shared by both faces: route, prepare, execute, and what to do when it fails.

The rule about failures: what was certainly not executed is tried again, on the new owner, for
`retry_for_s`; what may have been executed is not, unless it only reads. A read is also tried again
when the instance it went to could not reach the one that has the rows.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from cairn.client.logic import flows
from cairn.client.logic.effects import (
    Acquire,
    Changed,
    MayLeave,
    Operation,
    Ready,
    Talk,
    Wire,
    Wires,
    always,
)
from cairn.client.logic.hints import Hints
from cairn.client.logic.metadata import Metadata, MetadataCache
from cairn.client.logic.quick import Quick
from cairn.client.logic.router import Route, Router
from cairn.client.settings import ReadFrom, Settings
from cairn.client.stats import Stats
from cairn.model.errors import CairnError, OutcomeUnknown, TimedOut, Unreachable
from cairn.pgwire.client.backend import Result, ServerError
from cairn.pgwire.client.replies import Prepared
from cairn.topology.routing_table import RoutingTable

#: Certainly not executed: not the owner, not the leader, no master, not Online yet.
NOT_EXECUTED: Final = frozenset(("PC001", "PC002", "PC003", "57P03"))
#: Another instance did not answer the one that was asked: a write may have arrived there.
DID_NOT_ANSWER: Final = frozenset(("58000", "08001", "08006"))
INVALIDATED: Final = "42999"
NO_STATEMENT: Final = "26000"
_READS: Final = re.compile(r"\s*(select|values|show|explain|table)\b", re.IGNORECASE)
MAX_PREPARED: Final = 256  # statements kept on one connection
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.01, 0.5


class Core:
    def __init__(
        self,
        settings: Settings,
        wires: Wires,
        *,
        clock: Callable[[], float],
        chance: random.Random,
    ) -> None:
        self.settings, self.wires, self.clock, self.chance = settings, wires, clock, chance
        self.stats = Stats()
        self.table = RoutingTable(
            batch_records=settings.batch_records, batch_age_s=settings.batch_age_s
        )
        self.metadata = MetadataCache(settings.metadata_cache_size)
        self.router = Router(settings, self.table, self.stats, chance, clock)
        self.hints = Hints(self.table, self.stats, chance)
        self.on_doubt: Callable[[float], None] = lambda delay_s: None  # set by the face

    # --- one statement ------------------------------------------------------------------------

    def execute(
        self,
        sql: str,
        params: Sequence[Any] = (),
        *,
        read_from: ReadFrom | None = None,
        timeout_s: float | None = None,
        at: str | None = None,
    ) -> Operation[Result]:
        """Every case but the usual one, which is `direct`. `at` is an address chosen before."""
        self.stats.statements += 1
        role: ReadFrom = read_from or self.settings.read_from
        attempt = Attempt(self, sql, timeout_s or self.settings.timeout_s, at)
        if role != "master" and not attempt.only_reads:
            role = "master"
        return (yield from self._execute(sql, params, role, attempt))

    def direct(self, sql: str, params: Sequence[Any]) -> Wire | None:
        """The usual case: all is known, and a connection to the owner has it prepared.

        The face then runs the flow itself: no operation, nothing in between. If that fails, it
        goes on with `after_direct`.
        """
        metadata = self.metadata.get(sql)
        if metadata is None:
            return None
        address = self.router.direct(metadata, params)
        wire = None if address is None else self.wires.try_acquire(address)
        if wire is None:
            return None
        ready = wire.names.get(sql)
        cache = self.metadata
        if ready is None or (
            ready.generation != cache.generation and ready.generation < cache.dropped_at(sql)
        ):
            self.wires.release(wire)
            return None
        return wire

    def direct_done(self, wire: Wire) -> None:
        self.wires.put_back(wire)
        if wire.hints:
            self._take_hints(wire)
        stats = self.stats
        stats.statements += 1
        stats.metadata_hits += 1
        if self.settings.routing:
            stats.routed += 1
        else:
            stats.fallbacks["switched_off"] += 1

    def done(self, wire: Wire) -> None:
        """The answer is here: the connection is free again, and what it hinted is weighed."""
        self.wires.release(wire)
        if wire.hints:
            self._take_hints(wire)

    def _take_hints(self, wire: Wire) -> None:
        hints, wire.hints = wire.hints, []
        for message in hints:
            delay_s = self.hints.heard(message)
            if delay_s is not None:
                self.on_doubt(delay_s)

    def after_direct(
        self, error: CairnError, wire: Wire, sql: str, params: Sequence[Any], timeout_s: float
    ) -> Operation[Result]:
        """Try again if that is safe; raises if it is not."""
        self.stats.statements += 1
        attempt = Attempt(self, sql, timeout_s)
        attempt.sent = True
        yield from self.after_failure(error, wire, attempt)
        return (yield from self._execute(sql, params, "master", attempt))

    def _execute(
        self, sql: str, params: Sequence[Any], role: ReadFrom, attempt: Attempt
    ) -> Operation[Result]:
        """Learn, connect, prepare, execute, and try again while that is safe."""
        while True:
            wire: Wire | None = None
            try:
                wire, route = yield from self.wire_for(sql, params, role, attempt)
                attempt.sent = True
                if params:
                    ready = wire.names[sql]
                    may_leave = ready.may_leave
                    flow = flows.execute(wire.pg, ready.name, params, ready.quick)
                else:
                    may_leave = always if attempt.only_reads else self.if_missed(wire)
                    flow = flows.run_once(wire.pg, sql)
                result: Result = yield Talk(wire, flow, attempt.timeout_s, None, may_leave)
            except CairnError as error:
                yield from self.after_failure(error, wire, attempt)
                continue
            except BaseException:
                if wire is not None:
                    self.wires.discard(wire)
                raise
            if role != "master":
                wire.hints.clear()  # sent to a replica on purpose
            self.done(wire)
            self.router.count(sql, route)
            return result

    def wire_for(
        self, sql: str, params: Sequence[Any], role: ReadFrom, attempt: Attempt
    ) -> Operation[tuple[Wire, Route]]:
        """A connection to where the statement belongs, with the statement prepared on it."""
        attempt.sent = False
        wire: Wire | None
        if attempt.at is not None:
            wire = yield from self.acquire(attempt.at)
            yield from self._have(wire, sql, attempt)
            return wire, Route(attempt.at)
        if not params:
            route = self.router.anywhere("no_parameters")
            return (yield from self.acquire(route.address)), route
        metadata = self.metadata.get(sql)
        cached = metadata is not None
        wire = None
        if metadata is None:
            self.stats.metadata_misses += 1
            wire = yield from self.acquire(self.router.any_instance()[0])
            metadata = yield from self._prepare(wire, sql, attempt)
        else:
            self.stats.metadata_hits += 1
        route = self.router.route(metadata, params, role, cached)
        if wire is not None and wire.address != route.address:
            if route.reason:
                return wire, route  # anywhere will do, and here it is prepared
            self.wires.release(wire)
            wire = None
        if wire is None:
            address = route.address
            wire = self.wires.try_acquire(address)
            if wire is None:
                wire = yield from self.acquire(address)
        yield from self._have(wire, sql, attempt)
        return wire, route

    def _have(self, wire: Wire, sql: str, attempt: Attempt) -> Operation[None]:
        """See to it that the statement is prepared on the connection, and not before a change."""
        known = wire.names.get(sql)
        if known is None or known.generation < self.metadata.dropped_at(sql):
            yield from self._prepare(wire, sql, attempt)

    def acquire(self, address: str) -> Operation[Wire]:
        wire = self.wires.try_acquire(address)
        if wire is None:
            try:
                wire = yield Acquire(address, self.router.patience_s(address))
            except (Unreachable, TimedOut):
                self.router.failed(address)
                raise
            assert wire is not None
            self.router.reached(address)
        return wire

    def acquire_any(self) -> Operation[Wire]:
        """A connection to whoever lets us in."""
        tried: set[str] = set()
        while True:
            address = self.router.any_instance(but=frozenset(tried))[0]
            try:
                return (yield from self.acquire(address))
            except (Unreachable, TimedOut):
                if address in tried:
                    raise  # so were all others
                tried.add(address)

    def _prepare(self, wire: Wire, sql: str, attempt: Attempt) -> Operation[Metadata]:
        """On failure the connection is given back here: the caller has not got it yet."""
        if sql in wire.names:
            yield from self._close(wire, sql)
        elif len(wire.names) >= MAX_PREPARED:
            yield from self._close(wire, next(iter(wire.names)))
        name = wire.new_name()
        try:
            flow = flows.prepare(wire.pg, name, sql)
            metadata: Metadata = yield Talk(wire, flow, attempt.timeout_s, None, always)
        except BaseException:
            self._give_back(wire)
            raise
        quick = Quick(name, wire.pg.statements[name])
        may_leave = always if attempt.only_reads else self.if_missed(wire)
        wire.names[sql] = Ready(name, self.metadata.generation, quick, may_leave)
        self.metadata.put(sql, metadata)
        return metadata

    def _close(self, wire: Wire, sql: str) -> Operation[None]:
        known = wire.names.pop(sql, None)
        if known is not None and wire.pg.is_idle:
            flow = flows.close_statement(wire.pg, known.name)
            try:
                yield Talk(wire, flow, self.settings.connect_timeout_s)
            except CairnError:
                return  # then the connection is broken, and whoever uses it next will say so

    def if_missed(self, wire: Wire) -> MayLeave:
        """A write is given up, with an unknown end, only if the cluster misses the instance too."""
        return partial(self.router.is_missed, wire.address)

    def _give_back(self, wire: Wire) -> None:
        if wire.pg.is_idle:
            self.wires.release(wire)
        else:
            self.router.failed(wire.address)
            self.wires.discard(wire)

    # --- failures -----------------------------------------------------------------------------

    def after_failure(
        self, error: CairnError, wire: Wire | None, attempt: Attempt
    ) -> Operation[None]:
        """Returns when the statement is to be tried again; raises otherwise."""
        lost = wire is not None and not wire.pg.is_idle
        stale = error.sqlstate in (INVALIDATED, NO_STATEMENT) and isinstance(error, ServerError)
        if wire is not None and stale and not lost:
            yield from self._close(wire, attempt.sql)
        if wire is not None:
            self._give_back(wire)
        if stale:
            if attempt.reprepared:
                raise error
            attempt.reprepared = True
            self.stats.reprepares += 1
            self.metadata.drop(attempt.sql)
            return
        if isinstance(error, ServerError) and error.sqlstate == OutcomeUnknown.sqlstate:
            self.stats.outcome_unknown += 1
            raise OutcomeUnknown(error.message, detail=error.detail, hint=error.hint) from error
        if isinstance(error, ServerError) and not lost and not attempt.may_repeat(error.sqlstate):
            raise error
        attempt.check_repeatable(error, lost)
        self.stats.retries[error.sqlstate] += 1
        if self.table.batch:
            self.table.flush()  # a wrong owner answered: what waits may say who is the right one
            return
        yield Changed(attempt.next_pause())

    # --- showing ------------------------------------------------------------------------------

    def explain_route(
        self, sql: str, params: Sequence[Any] = (), *, read_from: ReadFrom | None = None
    ) -> Operation[Route]:
        """Where `execute` would go now, and why. Prepares the statement if it is not known."""
        role = read_from or self.settings.read_from
        if not params:
            return self.router.anywhere("no_parameters")
        cached = self.metadata.get(sql) is not None
        metadata = yield from self.learn(sql)
        return self.router.route(metadata, params, role, cached)

    def learn(self, sql: str) -> Operation[Metadata]:
        """The metadata of a text, asked for at any instance if it is not known."""
        attempt = Attempt(self, sql, self.settings.timeout_s)
        while True:
            metadata = self.metadata.get(sql)
            if metadata is not None:
                return metadata
            try:
                wire = yield from self.acquire(self.router.any_instance()[0])
                yield from self._prepare(wire, sql, attempt)
            except CairnError as error:
                yield from self.after_failure(error, None, attempt)
                continue
            self.wires.release(wire)

    def describe(self, sql: str) -> Operation[Prepared]:
        """A statement as any instance describes it: parameters and columns."""
        attempt = Attempt(self, sql, self.settings.timeout_s)
        while True:
            try:
                wire = yield from self.acquire(self.router.any_instance()[0])
                yield from self._have(wire, sql, attempt)
            except CairnError as error:
                yield from self.after_failure(error, None, attempt)
                continue
            self.wires.release(wire)
            return wire.pg.statements[wire.names[sql].name]


class Attempt:
    """What is known of one statement on its way: how long it may take, and whether it left."""

    def __init__(self, core: Core, sql: str, timeout_s: float, at: str | None = None) -> None:
        self._core, self.sql, self.timeout_s = core, sql, timeout_s
        self.at = at  # an address that was chosen beforehand; forgotten after a failure
        self._until: float | None = None  # tries end then; set by the first failure
        self._pause = _FIRST_PAUSE_S
        self.only_reads = _READS.match(sql) is not None
        self.reprepared = False
        self.sent = False  # whether it may have been executed

    def may_repeat(self, sqlstate: str) -> bool:
        """Whether what the server says allows to try again."""
        harmless = self.only_reads or not self.sent  # not sent: it was being prepared
        return sqlstate in NOT_EXECUTED or (harmless and sqlstate in DID_NOT_ANSWER)

    def check_repeatable(self, error: CairnError, lost: bool) -> None:
        """Raise unless it was certainly not executed, or only reads; and unless time is up."""
        refused = isinstance(error, ServerError) and error.sqlstate in NOT_EXECUTED
        if lost and self.sent and not self.only_reads and not refused:
            self._core.stats.outcome_unknown += 1
            raise OutcomeUnknown(
                f"the connection broke before the answer came: {error.message}",
                hint="the statement may or may not have taken effect; look before repeating it",
            ) from error
        if not lost and not isinstance(error, ServerError | Unreachable | TimedOut):
            raise error  # ours, such as a parameter that cannot be sent
        self.at = None
        now = self._core.clock()
        if self._until is None:
            self._until = now + self._core.settings.retry_for_s
        if now >= self._until:
            raise error

    def next_pause(self) -> float:
        """Doubling, with jitter, so that many clients do not come back together."""
        pause, self._pause = self._pause, min(self._pause * 2, _LONGEST_PAUSE_S)
        return pause * (0.5 + self._core.chance.random())
