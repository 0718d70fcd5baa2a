"""The one table of what peers may ask of an instance: the name, the request's type, who answers,
and which class of right it takes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum
from typing import Any, NamedTuple

import msgspec

from cairn.model.errors import NotSent, PeerRefused
from cairn.net.link import Handler, Link


class Right(Enum):
    """What a call takes. `JOIN` is for all who know the secret, the others are for members."""

    JOIN = "finding the cluster and asking for a place"
    RAFT = "the log and the members of the cluster"
    ROWS = "rows of sharded tables"
    ADMIN = "what a person asks for: expelling, looking at the state"


class PeerCall(NamedTuple):
    name: str
    request: type[Any]
    answer: Callable[..., Any]  # given the request, and the link before it if `sees_link`
    right: Right
    sees_link: bool = False


#: Raises unless the peer of this link has the right. Asked for every call but those of `JOIN`.
Guard = Callable[[Link, Right], None]


def handlers(calls: Iterable[PeerCall], guard: Guard) -> dict[str, Handler]:
    """What a link needs: by name, from the bytes of a request to its answer."""
    return {call.name: _handler(call, guard) for call in calls}


def _handler(call: PeerCall, guard: Guard) -> Handler:
    decode, answer, right = msgspec.msgpack.Decoder(call.request).decode, call.answer, call.right
    if right is Right.JOIN:
        return lambda link, body: answer(decode(body))

    def checked(link: Link, body: msgspec.Raw) -> Any:
        guard(link, right)
        return answer(decode(body))

    def checked_with_link(link: Link, body: msgspec.Raw) -> Any:
        guard(link, right)
        return answer(link, decode(body))

    return checked_with_link if call.sees_link else checked


_NO_MEMBER = "this instance is no member of a cluster yet"


def nobody_yet(link: Link, right: Right) -> None:
    """The guard of an instance without a place: it has no cluster to be asked about."""
    raise PeerRefused(_NO_MEMBER)


def not_yet(link: Link, body: msgspec.Raw) -> None:
    """What was meant for the member that it was, or will be. Nothing was done: who asks waits for
    another master, as if nobody were here."""
    raise NotSent(_NO_MEMBER)
