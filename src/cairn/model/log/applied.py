"""What applying an entry of the Raft log did: the words in which everybody is told."""

from __future__ import annotations

from typing import Any

import msgspec

from cairn.model.errors import CairnError
from cairn.model.log import ops


class Change(msgspec.Struct, frozen=True, array_like=True):
    """One row before and after; None where there was or is none. Neither: the table was emptied."""

    table: int
    old: tuple[Any, ...] | None
    new: tuple[Any, ...] | None


class Applied(msgspec.Struct):
    """What applying one entry did."""

    index: int
    term: int
    request_id: str = ""
    timestamp: str = ""
    op: ops.Op | None = None  # None: an empty entry or a change of the Raft configuration
    changes: list[Change] = []
    error: CairnError | None = None
    events_01: list[str] = []  # what subscribers of topology 0.1 are told, as JSON
    events_02: list[str] = []
