"""Links to all peers: dialled when first needed, dialled again with patience when they break."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import random
import ssl
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

import msgspec

from cairn.model.errors import CairnError, NotSent, PeerRefused, Unreachable
from cairn.net.door import Door, Visit, listeners, shares_of_files
from cairn.net.handshake import DialSide, Identity, ListenSide, Refused
from cairn.net.link import Handler, Link, Traced
from cairn.net.places import Places
from cairn.net.saying import Saying
from cairn.net.spans import Span
from cairn.net.tls import PeerTls

log = logging.getLogger("cairn.net")
T = TypeVar("T")

FIRST_RETRY_S, LAST_RETRY_S = 0.05, 1.0
LATELY_S = 5.0  # a failure before that says nothing of now
DIAL_TIMEOUT_S = 3.0
LOOK_S = 1.0


class Network(Protocol):
    """How connections are made: sockets in life, virtual links under the simulator."""

    async def dial(self, address: str, make: Callable[[], Link]) -> None: ...

    async def listen(self, address: str, make: Callable[[], Link]) -> Callable[[], None]: ...

    async def look(self) -> None:
        """Called once a second: whether certificates were exchanged."""


def split_address(address: str, default_port: int = 3301) -> tuple[str, int]:
    """host and port of `host:port`; a host alone gets the default port."""
    host, colon, port = address.rpartition(":")
    if not colon or (":" in host and not host.endswith("]")):
        return address.strip("[]"), default_port
    return host.strip("[]"), int(port)


def _family(host: str) -> int:
    """4 or 6, of an address; 0 of a name."""
    try:
        return ipaddress.ip_address(host).version
    except ValueError:
        return 0


class SocketNetwork:
    """Real TCP, with TLS if there are certificates. Dials from the host that it listens on."""

    def __init__(self, own_address: str, tls: PeerTls | None = None) -> None:
        host, _ = split_address(own_address)
        self._source = None if host in ("0.0.0.0", "::", "") else (host, 0)
        self._tls = tls

    def _from(self, host: str) -> tuple[str, int] | None:
        """An address of IPv4 is not reached from one of IPv6: the system chooses one."""
        if self._source is not None and {_family(host), _family(self._source[0])} == {4, 6}:
            return None
        return self._source

    async def dial(self, address: str, make: Callable[[], Link]) -> None:
        host, port = split_address(address)
        loop = asyncio.get_running_loop()
        if self._tls is None:
            await loop.create_connection(make, host, port, local_addr=self._from(host))
            return
        try:
            await loop.create_connection(
                make, host, port, local_addr=self._from(host), ssl=self._tls.dialling
            )
        except ssl.CertificateError as problem:
            raise PeerRefused(
                f"the certificate of {address} is not accepted: {problem.verify_message}"
            ) from None
        except (ssl.SSLError, ConnectionResetError) as problem:
            raise PeerRefused(
                f"{address} does not speak TLS with us: {str(problem) or 'it hung up'}",
                hint="give --peer-tls-cert, --peer-tls-key and --peer-tls-ca to every instance",
            ) from None

    async def listen(self, address: str, make: Callable[[], Link]) -> Callable[[], None]:
        def entering(visit: Visit) -> Link:
            link = make()
            link.visit = visit
            return link

        places = Places(shares_of_files().strangers)
        door = Door(places, entering, lambda: None if self._tls is None else self._tls.listening)
        for listener in await listeners(*split_address(address)):
            door.open(listener)
        return door.close

    async def look(self) -> None:
        """New certificates are used from the next connection on."""
        if self._tls is not None:
            self._tls.is_changed()


class Peers:
    """Every link of this instance, outgoing by address and incoming as they come."""

    def __init__(
        self,
        network: Network,
        identity: Callable[[], Identity],
        secret: bytes,
        handlers: dict[str, Handler],
        chance: random.Random,
        on_refused: Callable[[str, CairnError], None] = lambda address, problem: None,
    ) -> None:
        self._network, self._identity, self._secret = network, identity, secret
        self.handlers, self._chance = handlers, chance
        self._on_refused = on_refused
        self.gatekeeper: Callable[[Identity], Refused | None] = lambda identity: None
        self._traced: Traced = lambda trace, method: None
        self._links: dict[str, Link] = {}
        self._dialling: dict[str, asyncio.Task[None]] = {}
        self._waiters: dict[str, list[asyncio.Future[Link]]] = {}
        self._retry_s: dict[str, float] = {}
        self._not_before: dict[str, float] = {}
        self._incoming: dict[Link, None] = {}  # in the order in which they came
        self._addresses: dict[int, str] = {}
        self._stop_listening: Callable[[], None] = lambda: None
        self._closed = False
        self._in_vain: dict[
            str, float
        ] = {}  # addresses that were dialled without success, and when
        self._saying = Saying(lambda: asyncio.get_running_loop().time())

    def serve(
        self,
        handlers: dict[str, Handler],
        gatekeeper: Callable[[Identity], Refused | None],
        traced: Traced,
    ) -> None:
        """From now on these calls are answered, also by links that are there already."""
        self.handlers.clear()
        self.handlers.update(handlers)
        self.gatekeeper = gatekeeper
        self._traced = traced

    def _asked_within(self, trace: str, method: str) -> Span | None:
        return self._traced(trace, method)

    async def listen(self, address: str) -> None:
        self._stop_listening = await self._network.listen(address, self._accept)

    def close(self) -> None:
        self._closed = True
        self._stop_listening()
        for task in self._dialling.values():
            task.cancel()
        for link in self._all_links():
            link.close()

    def hang_up(self) -> None:
        """Drop all links: our identity has changed, the next ones will tell the new one."""
        for link in self._all_links():
            link.close()

    def review(self) -> None:
        """Members were deleted: whoever is not let in any more is told so when it dials again."""
        for link in list(self._incoming):
            if link.peer is not None and self.gatekeeper(link.peer) is not None:
                link.close()

    # --- who is where -------------------------------------------------------------------------

    def learn(self, addresses: dict[int, str]) -> None:
        """Addresses by raft_id as the cluster records them; others are forgotten."""
        gone = set(self._addresses.values()) - set(addresses.values())
        self._addresses = dict(addresses)
        for address in self._in_vain.keys() - set(addresses.values()):
            del self._in_vain[address]
        for address in gone:
            link = self._links.pop(address, None)
            if link is not None:
                link.close()

    def is_connected(self, raft_id: int) -> bool:
        return self._addresses.get(raft_id, "") in self._links

    def is_linked(self, raft_id: int) -> bool:
        """Whether there is any link to it, dialled by us or by it."""
        return self.is_connected(raft_id) or self._other_link(raft_id) is not None

    def unreached(self) -> dict[int, str]:
        """Peers that made a link to us, and whom we cannot call: their address is a wrong one.

        Tried again first if it was long ago: over their link we may not have had to call since.
        """
        now, found = asyncio.get_running_loop().time(), {}
        for raft_id, address in self._addresses.items():
            if address in self._in_vain and self._other_link(raft_id) is not None:
                if now - self._in_vain[address] < LATELY_S:
                    found[raft_id] = address
                else:
                    self._dial_soon(address)
        return found

    # --- who stands still -----------------------------------------------------------------------

    async def watch(self) -> None:
        """Notice peers that owe answers and have fallen silent."""
        while True:
            await asyncio.sleep(LOOK_S)
            for link in self._all_links():
                link.look()
            await self._network.look()

    def abandon(self, raft_id: int, why: str, *, if_quiet: bool = False) -> None:
        """Nobody is to wait any longer for this peer: the cluster has gone on without it.

        With `if_quiet`, only if it has been silent: one that is merely deposed still answers.
        """
        address = self._addresses.get(raft_id, "")
        for link in self._all_links():
            is_its = link is self._links.get(address) or (
                link.peer is not None and link.peer.raft_id == raft_id
            )
            if is_its and link.is_open and (link.quiet or not if_quiet):
                link.give_up(Unreachable(why))
        if not if_quiet:
            for waiter in self._waiters.pop(address, []):  # it takes calls, and does not speak
                if not waiter.done():
                    waiter.set_exception(NotSent(why))

    # --- sending ------------------------------------------------------------------------------

    def tell(self, raft_id: int, method: str, body: bytes) -> bool:
        """One-way, at once or not at all; False when it was dropped."""
        link = self.link_now(raft_id) or self._other_link(raft_id)
        return link is not None and link.tell(method, body)

    def _other_link(self, raft_id: int) -> Link | None:
        """A link by another address, or one that the peer itself made: it may have moved."""
        for link in self._all_links():
            if link.is_open and link.peer is not None and link.peer.raft_id == raft_id:
                return link
        return None

    def _all_links(self) -> list[Link]:
        """Also those that peers made: we ask over them while ours is not there."""
        return [*self._links.values(), *self._incoming]

    def link_now(self, raft_id: int) -> Link | None:
        """The open link, for callers on a hot path; None starts dialling."""
        address = self._addresses.get(raft_id)
        if address is None:
            return None
        link = self._links.get(address)
        if link is None:
            self._dial_soon(address)
        return link

    async def call(
        self,
        to: int | str,
        method: str,
        body: Any,
        answer: type[T],
        timeout_s: float,
        *,
        must_end: bool = False,
        last_word_s: float = 0.0,
    ) -> T:
        """Ask a peer by raft_id or address. Raises its error, or `Unreachable`."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        address = self._addresses.get(to) if isinstance(to, int) else to
        link = self._links.get(address or "")
        if link is None and isinstance(to, int):
            link = self._other_link(to)
        if link is None and address is None:
            raise NotSent(f"the address of instance {to} is not known")
        if link is None:
            link = await self._connected(str(address), timeout_s)
        left_s = max(deadline - loop.time(), 0.001)
        raw = await link.call(method, body, left_s, must_end=must_end, last_word_s=last_word_s)
        try:
            return msgspec.msgpack.decode(raw, type=answer)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
            raise Unreachable(f"the answer to {method} cannot be read: {problem}") from None

    async def who_is_at(self, address: str, timeout_s: float) -> Identity | None:
        """Whoever proves to be a peer there; None when nobody does."""
        try:
            return (await self._connected(address, timeout_s)).peer
        except CairnError:
            return None

    # --- dialling -----------------------------------------------------------------------------

    async def _connected(self, address: str, timeout_s: float) -> Link:
        waiter: asyncio.Future[Link] = asyncio.get_running_loop().create_future()
        self._waiters.setdefault(address, []).append(waiter)
        self._dial_soon(address)
        try:
            async with asyncio.timeout(timeout_s):
                return await waiter
        except TimeoutError:
            raise NotSent(f"{address} did not answer within {timeout_s:g} s") from None

    def _dial_soon(self, address: str) -> None:
        if address not in self._dialling and not self._closed:
            task = asyncio.get_running_loop().create_task(self._dial(address))
            self._dialling[address] = task
            task.add_done_callback(lambda _: self._dialling.pop(address, None))

    async def _dial(self, address: str) -> None:
        loop = asyncio.get_running_loop()
        wait = self._not_before.get(address, 0.0) - loop.time()
        if wait > 0:
            await asyncio.sleep(wait)
        result: asyncio.Future[Link] = loop.create_future()
        expected = next((i for i, known in self._addresses.items() if known == address), 0)

        def ready(link: Link) -> None:
            assert link.peer is not None
            if expected and link.peer.raft_id not in (0, expected):
                self._found_another(address, link, link.peer.raft_id, result)
                return
            self._links[address] = link
            if not result.done():
                result.set_result(link)

        def lost(link: Link, problem: BaseException | None) -> None:
            if self._links.get(address) is link:
                del self._links[address]
            self._incoming.pop(link, None)
            if not result.done():
                hung_up = f"{address} hung up; does it want TLS (--peer-tls-cert), or not?"
                result.set_exception(problem or Unreachable(hung_up))

        def make() -> Link:
            shake = DialSide(self._identity(), self._secret, self._chance.randbytes)
            return Link(shake, self.handlers, ready, lost, self._asked_within)

        try:
            async with asyncio.timeout(DIAL_TIMEOUT_S):
                await self._network.dial(address, make)
                link = await result
        except Exception as problem:  # an address that is none, too: peers tell each other theirs
            self._failed(address, problem)
            return
        self._retry_s.pop(address, None)
        self._not_before.pop(address, None)
        self._in_vain.pop(address, None)
        for waiter in self._waiters.pop(address, []):
            if not waiter.done():
                waiter.set_result(link)

    def _found_another(
        self, address: str, link: Link, raft_id: int, result: asyncio.Future[Link]
    ) -> None:
        """Members may have changed places while nobody led who could record it. Then this link is
        the only way to the one that was found."""
        moved = Unreachable(f"{address} is now instance {raft_id}")
        if self.is_linked(raft_id):
            link.close(moved)
            return
        self._incoming[link] = None
        if not result.done():
            result.set_exception(moved)

    def _failed(self, address: str, problem: BaseException) -> None:
        pause = min(self._retry_s.get(address, FIRST_RETRY_S / 2) * 2, LAST_RETRY_S)
        self._retry_s[address] = pause
        now = self._in_vain[address] = asyncio.get_running_loop().time()
        self._not_before[address] = now + pause * self._chance.uniform(0.7, 1.3)
        if isinstance(problem, CairnError):
            self._on_refused(address, problem)
        else:
            problem = NotSent(f"cannot connect to {address}: {problem or 'timed out'}")
        for waiter in self._waiters.pop(address, []):
            if not waiter.done():
                waiter.set_exception(problem)

    # --- being dialled ------------------------------------------------------------------------

    def _accept(self) -> Link:
        shake = ListenSide(
            self._identity, self._secret, self._chance.randbytes, lambda who: self.gatekeeper(who)
        )

        def lost(link: Link, problem: BaseException | None) -> None:
            self._incoming.pop(link, None)
            if isinstance(problem, CairnError) and self._saying.may_say(problem.message):
                log.warning("refused a peer from %s: %s", link.host, problem)

        def ready(link: Link) -> None:
            self._incoming[link] = None

        return Link(shake, self.handlers, ready, lost, self._asked_within)
