"""The service connection: opened, followed, resumed and moved; it feeds the routing table."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from cairn.client.logic import flows
from cairn.client.logic.core import Core
from cairn.client.logic.effects import Open, Operation, Pause, Talk, Wire
from cairn.model.errors import CairnError, Unreachable
from cairn.model.members.events import decode
from cairn.pgwire.client.backend import Notice, ServerError

log = logging.getLogger("cairn.client")

BEHIND: Final = "PC005"
#: Refusals that no other instance will take back.
FINAL: Final = frozenset(("28000", "28P01", "42501", "08004"))
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.05, 2.0


class Service:
    """One operation that runs as long as the driver. `wake` tells who waits for news."""

    def __init__(self, core: Core, wake: Callable[[], None]) -> None:
        self.core, self._wake = core, wake
        self.version = "0.2"
        self._older: set[str] = set()  # addresses that speak 0.1 only
        self.address: str | None = None  # of the provider, while connected
        self.wire: Wire | None = None
        self.error: CairnError | None = None  # of the last try
        self.tried: set[str] = set()  # since the last success
        self._behind: set[str] = set()
        self._pause = _FIRST_PAUSE_S

    @property
    def has_given_up(self) -> bool:
        """Nobody will take us: wrong password, no right to see the topology, another cluster."""
        if self.error is None:
            return False
        return self.error.sqlstate in FINAL or self.tried >= set(self.core.settings.hosts)

    def run(self) -> Operation[None]:
        while True:
            wire: Wire | None = None
            try:
                address, _ = self.core.router.any_instance(but=frozenset(self._behind))
                wire = yield from self._open(address)
                yield from self._follow(wire)
            except CairnError as error:
                self._failed(error)
            finally:
                self.address = self.wire = None
                self.core.table.lost()
                if wire is not None:
                    self.core.wires.discard(wire)
            pause, self._pause = self._pause, min(self._pause * 2, _LONGEST_PAUSE_S)
            yield Pause(pause * (0.5 + self.core.chance.random()))

    def leave_if_behind(self) -> Wire | None:
        """After a hint's grace: the connection to close, so that another instance is asked."""
        if not self.core.hints.is_behind() or self.wire is None:
            return None
        log.info("%s has not told what another instance knows: left for another", self.address)
        self._behind.add(self.wire.address)
        return self.wire

    def _params(self) -> dict[str, str]:
        params = {"smart_connector": self.version}
        after = self.core.table.resume_after
        known = self.core.settings.hosts
        if self.version != "0.1" and after is not None and len(self._behind) < 2 * len(known):
            params["smart_connector_after"] = f"{after.term}:{after.index}"
        return params

    def _open(self, address: str) -> Operation[Wire]:
        core = self.core
        self.version = "0.1" if address in self._older else "0.2"
        core.table.connecting()
        core.stats.topology_connects += 1
        try:
            within_s = core.router.patience_s(address)
            wire: Wire = yield Open(address, self._params(), self._hear, within_s)
        except CairnError as error:
            if self.version != "0.1" and "smart_connector" in error.message:
                log.info("%s does not speak topology notices 0.2; asking for 0.1", address)
                self._older.add(address)
                return (yield from self._open(address))
            self.tried.add(address)
            if error.sqlstate == BEHIND:
                self._behind.add(address)
            elif not isinstance(error, ServerError):
                core.router.failed(address)
            raise
        core.router.reached(address)
        return wire

    def _follow(self, wire: Wire) -> Operation[None]:
        """From ReadyForQuery to the end of the connection."""
        core = self.core
        if core.table.ready(core.clock()):
            core.stats.topology_snapshots += 1
            core.metadata.clear()
        else:
            core.stats.topology_resumes += 1
        self.address, self.wire, self.error = wire.address, wire, None
        self.tried.clear()
        self._behind.clear()
        self._pause = _FIRST_PAUSE_S
        self._heard()
        silence = core.settings.silence_s if self.version != "0.1" else None
        yield Talk(wire, flows.listen(wire.pg, self._heard), None, silence)

    def _hear(self, notice: Notice) -> None:
        core = self.core
        event = decode(notice.message) if notice.code == "00000" else None
        if event is None:
            core.stats.topology_ignored += 1
            return
        core.stats.topology_events += 1
        core.table.receive(event, core.clock())

    def _heard(self) -> None:
        """Data came. Leave a provider that is leaving, if there is another."""
        core = self.core
        core.stats.topology_heard_at = core.clock()
        self._wake()
        provider = [
            each for each in core.table.view.instances.values() if each.address == self.address
        ]
        left = provider and not any(each.is_online for each in provider)
        if (left or not core.table.may_contact(self.address or "")) and core.table.online():
            raise Unreachable(f"{self.address} is leaving: the topology is followed elsewhere")

    def _failed(self, error: CairnError) -> None:
        self.core.stats.topology_failures += 1
        self.error = error
        log.info("the service connection ended: %s", error)
        self._wake()
