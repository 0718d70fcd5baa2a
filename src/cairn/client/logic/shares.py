"""A write on several owners that failed on some: one error that says what each of them did."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NoReturn, TypeAlias

import msgspec

from cairn.model.errors import CairnError, OutcomeUnknown, PartialWrite
from cairn.topology.routing_table import RoutingTable

State: TypeAlias = Literal["done", "in part", "not executed", "unknown"]


class Share(msgspec.Struct, frozen=True):
    """One owner's part of a write. `told` is its tag, or why it did not do it."""

    owner: str  # replicaset and address, for people
    state: State
    told: str

    def __str__(self) -> str:
        return f"{self.owner}: {self.state} ({self.told})"


class SomeWritten(PartialWrite):
    """PC006: some owners have their rows, others do not, or nobody knows."""

    shares: tuple[Share, ...] = ()


class SomeUnknown(OutcomeUnknown):
    """40003: nobody is known to have written, and somebody may have."""

    shares: tuple[Share, ...] = ()


def owner_name(table: RoutingTable, address: str) -> str:
    for instance in table.view.instances.values():
        replicaset = table.view.replicasets.get(instance.replicaset_uuid or "")
        if instance.address == address and replicaset is not None:
            return f"{replicaset.name or replicaset.uuid} at {address}"
    return address


def state_of(error: BaseException) -> State:
    """What an error says about the write: an answer is a promise, silence is none."""
    if not isinstance(error, CairnError) or error.sqlstate == OutcomeUnknown.sqlstate:
        return "unknown"
    return "in part" if error.sqlstate == PartialWrite.sqlstate else "not executed"


def failed_share(owner: str, error: BaseException, state: State | None = None) -> Share:
    code = error.sqlstate if isinstance(error, CairnError) else type(error).__name__
    return Share(owner, state or state_of(error), f"{code} {error}")


def raise_failed(shares: Sequence[Share], errors: Sequence[BaseException]) -> NoReturn:
    """The first error itself if nothing can have been written; else one that lists them all."""
    states = {share.state for share in shares}
    for error in errors:
        if not isinstance(error, CairnError):
            raise error  # the task was cancelled, or a bug of ours
    first = errors[0]
    assert isinstance(first, CairnError)
    detail = "; ".join(map(str, shares))
    made: SomeWritten | SomeUnknown
    if states & {"done", "in part"}:
        made = SomeWritten(f"written on some replicasets only: {first}", detail=detail)
    elif "unknown" in states:
        made = SomeUnknown(
            f"it is not known what was written: {first}",
            detail=detail,
            hint="look before repeating it",
        )
    else:
        first.detail = detail if first.detail is None else f"{first.detail}; {detail}"
        raise first
    made.shares = tuple(shares)
    raise made from first
