"""What the driver's logic asks of its two faces: the only places where it touches a network.

An operation is a generator that yields effects and is sent their results; `aio` awaits them,
`sync` blocks on them. What fails is thrown into the generator.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, Final, Protocol, TypeAlias, TypeVar

import msgspec

from cairn.client.logic.flows import Flow
from cairn.client.logic.quick import Quick
from cairn.pgwire.client.backend import Notice
from cairn.pgwire.client.client import PgClient

T = TypeVar("T")


#: Asked when an instance stands still: whether the wait for it may end.
MayLeave: TypeAlias = Callable[[], bool]
MAX_HINTS: Final = 64  # kept between two statements; a pipeline may bring one per row


def always() -> bool:
    """For what only reads, or may be said twice."""
    return True


class Ready:
    """A text that is prepared on a connection."""

    __slots__ = ("generation", "may_leave", "name", "quick")

    def __init__(self, name: str, generation: int, quick: Quick, may_leave: MayLeave) -> None:
        self.name, self.generation, self.quick = name, generation, quick
        self.may_leave = may_leave


class Wire:
    """A connection as operations see it: the protocol and what was prepared on it."""

    __slots__ = ("address", "hints", "names", "next_name", "pg")

    def __init__(self, address: str, pg: PgClient) -> None:
        self.address, self.pg = address, pg
        self.names: dict[str, Ready] = {}  # by text
        self.next_name = 0
        self.hints: list[str] = []  # "you are one hop away", of the statement under way
        pg.on_notice.append(self._note)

    def _note(self, notice: Notice) -> None:
        if '"hop"' in notice.message and len(self.hints) < MAX_HINTS:
            self.hints.append(notice.message)

    def new_name(self) -> str:
        self.next_name += 1
        return f"c{self.next_name}"


class Wires(Protocol):
    """The pool, in its parts that never wait."""

    def try_acquire(self, address: str) -> Wire | None: ...
    def release(self, wire: Wire) -> None: ...
    def put_back(self, wire: Wire) -> None:
        """As `release`, after a whole answer: it is known to be idle."""

    def discard(self, wire: Wire) -> None: ...


class Acquire(msgspec.Struct, frozen=True):
    """A pooled connection to the address, waiting for one if need be."""

    address: str
    within_s: float  # for letting us in


class Open(msgspec.Struct, frozen=True):
    """A connection of its own. Notices go to `on_notice` from the first byte on."""

    address: str
    params: dict[str, str]
    on_notice: Callable[[Notice], None]
    within_s: float


class Talk(msgspec.Struct, frozen=True):
    """Run a flow. If it does not end in time the connection is given up."""

    wire: Wire
    flow: Flow[Any]
    timeout_s: float | None
    silence_s: float | None = None  # between two pieces of data
    may_leave: MayLeave | None = None  # when the instance stands still; None: it is not looked for


class Pause(msgspec.Struct, frozen=True):
    seconds: float


class Changed(msgspec.Struct, frozen=True):
    """Wait until the topology changes, or so long."""

    seconds: float


class Pull(msgspec.Struct, frozen=True):
    """The next piece of a source, None at its end. What the source raises is thrown in."""

    source: Any  # an iterator; for asyncio also an asynchronous one


class Send(msgspec.Struct, frozen=True):
    """Bytes outside of a flow (COPY data), waiting while the other side does not take them."""

    wire: Wire
    data: bytes
    may_leave: MayLeave


class Together(msgspec.Struct, frozen=True):
    """Run operations side by side if the face can; each result is a value or an error."""

    operations: list[Generator[Any, Any, Any]]


Effect: TypeAlias = Acquire | Open | Talk | Pause | Changed | Pull | Send | Together
Operation: TypeAlias = Generator[Effect, Any, T]
