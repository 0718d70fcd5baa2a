"""What the driver's logic asks of its two faces: the only places where it touches a network.

An operation is a generator that yields effects and is sent their results; `aio` awaits them,
`sync` blocks on them. What fails is thrown into the generator.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, Protocol, TypeAlias, TypeVar

import msgspec

from cairn.client.flows import Flow
from cairn.pgwire.backend import Notice
from cairn.pgwire.client import PgClient

T = TypeVar("T")


class Wire:
    """A connection as operations see it: the protocol and what was prepared on it."""

    __slots__ = ("address", "names", "next_name", "pg")

    def __init__(self, address: str, pg: PgClient) -> None:
        self.address, self.pg = address, pg
        self.names: dict[str, tuple[str, int]] = {}  # text → statement name, generation
        self.next_name = 0

    def new_name(self) -> str:
        self.next_name += 1
        return f"c{self.next_name}"


class Wires(Protocol):
    """The pool, in its parts that never wait."""

    def try_acquire(self, address: str) -> Wire | None: ...
    def release(self, wire: Wire) -> None: ...
    def discard(self, wire: Wire) -> None: ...


class Acquire(msgspec.Struct, frozen=True):
    """A pooled connection to the address, waiting for one if need be."""

    address: str


class Open(msgspec.Struct, frozen=True):
    """A connection of its own. Notices go to `on_notice` from the first byte on."""

    address: str
    params: dict[str, str]
    on_notice: Callable[[Notice], None]


class Talk(msgspec.Struct, frozen=True):
    """Run a flow. If it does not end in time the connection is given up."""

    wire: Wire
    flow: Flow[Any]
    timeout_s: float | None
    silence_s: float | None = None  # between two pieces of data


class Pause(msgspec.Struct, frozen=True):
    seconds: float


class Changed(msgspec.Struct, frozen=True):
    """Wait until the topology changes, or so long."""

    seconds: float


class Together(msgspec.Struct, frozen=True):
    """Run operations side by side if the face can; each result is a value or an error."""

    operations: list[Generator[Any, Any, Any]]


Effect: TypeAlias = Acquire | Open | Talk | Pause | Changed | Together
Operation: TypeAlias = Generator[Effect, Any, T]
