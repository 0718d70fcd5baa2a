"""The one table of what peers may ask of an instance: the name, the request's type, who answers,
and which class of right it takes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum
from typing import Any, NamedTuple

import msgspec

from cairn.net.link import Handler


class Right(Enum):
    """What a peer needs to be allowed. Every member has all three today."""

    RAFT = "the log and the members of the cluster"
    ROWS = "rows of sharded tables"
    ADMIN = "what a person asks for: expelling, looking at the state"


class PeerCall(NamedTuple):
    name: str
    request: type[Any]
    answer: Callable[..., Any]  # given the request, and the link before it if `sees_link`
    right: Right
    sees_link: bool = False


def handlers(calls: Iterable[PeerCall]) -> dict[str, Handler]:
    """What a link needs: by name, from the bytes of a request to its answer."""
    return {call.name: _handler(call) for call in calls}


def _handler(call: PeerCall) -> Handler:
    decode, answer = msgspec.msgpack.Decoder(call.request).decode, call.answer
    if call.sees_link:
        return lambda link, body: answer(link, decode(body))
    return lambda link, body: answer(decode(body))
