"""Topology notices to service connections: a snapshot, then every change as it is applied.

All of it happens on the event loop, where pictures of the cluster change one entry at a time: a
subscriber is added together with the snapshot it gets, so nothing is missed and nothing comes
twice. A slow one costs nobody anything: it is dropped with a reason.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import Any, TypeAlias

from cairn.model.errors import (
    AccessDenied,
    BehindPosition,
    CairnError,
    InvalidParameter,
    LimitExceeded,
)
from cairn.model.log.applied import Applied
from cairn.model.members.events import VERSIONS, Version, encode
from cairn.model.members.topology import Position
from cairn.model.tables.system_tables import (
    CAIRN_EVENT,
    CAIRN_MOVE,
    PICO_BUCKET,
    PICO_INSTANCE,
    PICO_PROPERTY,
)
from cairn.node.instance import Instance
from cairn.node.runtime import spawn, timestamp
from cairn.node.watching.client import Client
from cairn.pgwire.messages import notice_response
from cairn.topology.snapshot import heartbeat, hello, snapshot_end, snapshot_events

log = logging.getLogger("cairn.feed")

MAX_UNSENT = 4 * 1024 * 1024  # bytes of one subscriber that reads slowly
ALL_UNSENT, LEAST_UNSENT = 256 * 1024 * 1024, 64 * 1024  # of all: many have less each
SLICE = 500  # subscribers written to in one turn of the loop
HEARTBEAT_S = 2.0
GATHER_S = 0.1  # between two writes while buckets move: many moves are few writes
GATHER_MAX = 1_000  # events
AHEAD_S = 2.0  # how long a client that knows more than this instance is waited for
_OF_MOVES = {PICO_BUCKET.id, CAIRN_MOVE.id, PICO_PROPERTY.id}
_ALIASES = ("smart_connector", "_pq_.smart_connector")


def asked_version(options: dict[str, str], params: dict[str, str]) -> Version | None:
    """The version a client subscribes to; None for ordinary connections."""
    asked = None
    for name in _ALIASES:
        asked = options.get(name, params.get(name, asked))
    if asked is None and options.get("picodata_catalog_cdc") == "1":
        return "0.1"
    if asked is None:
        return None
    for version in VERSIONS:
        if asked == version:
            return version
    why = f"version {asked} is not spoken here" if asked else "has no version"
    raise InvalidParameter(
        f"smart_connector {why}", hint=f"write smart_connector={' or '.join(VERSIONS)}"
    )


class Subscriber:
    """One service connection: what it speaks and how far it has been told."""

    __slots__ = ("position", "sent", "session", "version")

    def __init__(self, session: Client, version: Version, position: Position) -> None:
        self.session, self.version, self.position = session, version, position
        self.sent = 0


#: Some subscribers, what those of each version get, how many events that is, and its position.
_Slice: TypeAlias = tuple[list[Subscriber], dict[str, bytes], dict[str, int], Position]


class Feed:
    def __init__(self, instance: Instance) -> None:
        self._instance = instance
        self._subscribers: dict[Client, Subscriber] = {}
        self._snapshots: dict[Version, tuple[Position, bytes]] = {}
        self._line: deque[_Slice] = deque()  # what is still to be written, in order
        self._gathered_01: list[str] = []
        self._gathered_02: list[str] = []
        self._gathered_at: Position | None = None  # None: nothing is gathered
        self._next_at = 0.0  # before this moment events of moves are gathered
        self._timer: asyncio.TimerHandle | None = None
        self.events_sent = 0
        self.dropped = 0
        instance.news.on_applied.append(self._applied)
        instance.news.on_installed.append(self._installed)
        self._beating = spawn(self._beat(), "topology heartbeats")
        instance.on_close.append(self.close)

    def close(self) -> None:
        self._beating.cancel()
        if self._timer is not None:
            self._timer.cancel()

    # --- subscribing ------------------------------------------------------------------------------

    async def subscribe(self, session: Client, version: Version, options: dict[str, str]) -> None:
        """Send what the client lacks and add it; ReadyForQuery is the session's to send."""
        catalog = self._instance.state.catalog
        if not catalog.allows(session.user_id, "read", "table", PICO_INSTANCE.id):
            raise AccessDenied(
                f"Read access to space '_pico_instance' is denied for user '{session.user}'"
            )
        after = _position(options.get("smart_connector_after"))
        if after is not None and version != "0.1":
            await self._wait_for(after)
        self._flush()  # to those who are here: it is part of what the new one gets
        position = self._position()
        if after is None or version == "0.1" or not self._resume(session, after, position):
            self._send_snapshot(session, version, position)
        self._subscribers[session] = Subscriber(session, version, position)

    def _position(self) -> Position:
        runner = self._instance.runner
        return Position(runner.applied_term, runner.applied_index)

    def _send_snapshot(self, session: Client, version: Version, position: Position) -> None:
        """Made once for all that come at one position: after a failover many do."""
        made = self._snapshots.get(version)
        if made is None or made[0] != position:
            stamp = timestamp(self._instance.runtime)
            events = snapshot_events(
                self._instance.state.cluster, position=position, timestamp=stamp, version=version
            )
            data = b"".join(notice_response(encode(each), "NOTICE", "00000") for each in events)
            made = self._snapshots[version] = (position, data)
        session.pg.raw(made[1])

    async def _wait_for(self, after: Position) -> None:
        """Never send the past to one who knows more: wait, then send it elsewhere."""
        runner = self._instance.runner
        try:
            await runner.wait_applied(after.index, AHEAD_S)
        except CairnError:
            raise BehindPosition(
                f"this instance is behind: it has applied {runner.applied_index}, "
                f"the client knows {after.index}",
                hint="connect to another instance",
            ) from None

    def _resume(self, session: Client, after: Position, position: Position) -> bool:
        """Only what came after; False when that cannot be told from what is kept."""
        instance = self._instance
        try:
            if instance.runner.view.term(after.index) != after.term:
                return False  # another history
        except CairnError:
            return False  # compacted: nobody can tell whether it is the same history
        reader = instance.state.reader
        row = reader.execute("SELECT value FROM raft_state WHERE key = 'events_from'").fetchone()
        if row is not None and after.index < row[0]:
            return False
        session.pg.notice(encode(hello(self._instance.state.cluster)))
        query = (
            f"SELECT c5 FROM {CAIRN_EVENT.physical_name} WHERE c1 > ? AND c1 <= ? "
            "ORDER BY c0, c1, c2"
        )
        for (body,) in reader.execute(query, (after.index, position.index)).fetchall():
            session.pg.notice(str(body))
        session.pg.notice(encode(snapshot_end(position, reset=False)))
        return True

    def unsubscribe(self, session: Client) -> None:
        self._subscribers.pop(session, None)

    # --- telling ----------------------------------------------------------------------------------

    def _applied(self, done: list[Applied]) -> None:
        last = Position(done[-1].term, done[-1].index)
        told_01 = [text for each in done for text in each.events_01]
        told_02 = [text for each in done for text in each.events_02]
        if self._gathered_at is None and not told_01 and not told_02:
            self._tell([], [], last)
            return
        self._gathered_01 += told_01
        self._gathered_02 += told_02
        self._gathered_at = last
        may_wait = all(
            change.table in _OF_MOVES
            for each in done
            if each.events_01 or each.events_02
            for change in each.changes
        )
        loop = asyncio.get_running_loop()
        is_due = loop.time() >= self._next_at or len(self._gathered_02) > GATHER_MAX
        if is_due or not may_wait:
            self._flush()
        elif self._timer is None:
            self._timer = loop.call_at(self._next_at, self._flush)

    def _flush(self) -> None:
        """What was gathered is one write to each subscriber."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._gathered_at is None:
            return
        told_01, told_02, position = self._gathered_01, self._gathered_02, self._gathered_at
        self._gathered_01, self._gathered_02, self._gathered_at = [], [], None
        self._next_at = asyncio.get_running_loop().time() + GATHER_S
        self._tell(told_01, told_02, position)

    def _installed(self, told_01: list[str], told_02: list[str]) -> None:
        self._flush()
        self._tell(told_01, told_02, self._position())

    def _tell(self, told_01: list[str], told_02: list[str], position: Position) -> None:
        if not self._subscribers:
            return
        if not told_01 and not told_02 and not self._line:
            for each in self._subscribers.values():
                each.position = position
            return
        messages = {
            "0.1": b"".join(notice_response(text, "NOTICE", "00000") for text in told_01),
            "0.2": b"".join(notice_response(text, "NOTICE", "00000") for text in told_02),
        }
        self._queue(messages, {"0.1": len(told_01), "0.2": len(told_02)}, position)

    def _queue(
        self, messages: dict[str, bytes], counts: dict[str, int], position: Position
    ) -> None:
        """In slices, so that ten thousand subscribers do not stop the loop; in one line, so that
        nobody is told a later entry first."""
        everybody = list(self._subscribers.values())
        idle = not self._line
        for start in range(0, len(everybody), SLICE):
            self._line.append((everybody[start : start + SLICE], messages, counts, position))
        if idle and self._line:
            self._write_slice()

    def _write_slice(self) -> None:
        part, messages, counts, position = self._line[0]
        try:
            for each in part:
                if each.session in self._subscribers:  # else it is gone since
                    self._write(each, messages[each.version], counts[each.version], position)
        finally:
            self._line.popleft()
            if self._line:
                asyncio.get_running_loop().call_soon(self._write_slice)

    def _write(self, to: Subscriber, data: bytes, count: int, position: Position) -> None:
        to.position = position
        if not data:
            return
        share = ALL_UNSENT // len(self._subscribers)
        if to.session.unsent() > min(max(share, LEAST_UNSENT), MAX_UNSENT):
            self._drop(to)
            return
        to.session.push(data)
        to.sent += count
        self.events_sent += count

    def _drop(self, slow: Subscriber) -> None:
        self.dropped += 1
        self._subscribers.pop(slow.session, None)
        log.warning("a topology subscriber reads too slowly and is dropped")
        slow.session.hang_up(
            LimitExceeded(
                "this client reads topology events too slowly",
                hint="connect again: a new snapshot will be sent",
            )
        )

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(HEARTBEAT_S)
            self._flush()
            position = self._position()
            data = notice_response(encode(heartbeat(position)), "NOTICE", "00000")
            if not self._line:  # else they are being told more than a heartbeat would
                self._queue({"0.1": b"", "0.2": data}, {"0.1": 0, "0.2": 0}, position)

    def view(self) -> list[dict[str, Any]]:
        """Who is subscribed and how far they have been told."""
        applied = self._instance.runner.applied_index
        return [
            {
                "pid": each.session.pid,
                "user": each.session.user,
                "version": each.version,
                "term": each.position.term,
                "index": each.position.index,
                "lag": applied - each.position.index,
                "unsent_bytes": each.session.unsent(),
                "events_sent": each.sent,
            }
            for each in self._subscribers.values()
        ]


def _position(text: str | None) -> Position | None:
    if text is None:
        return None
    term, colon, index = text.partition(":")
    if not colon or not term.isdecimal() or not index.isdecimal():
        raise InvalidParameter(f"smart_connector_after={text}: write TERM:INDEX")
    return Position(int(term), int(index))
