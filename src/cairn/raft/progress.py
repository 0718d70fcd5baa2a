"""What the leader knows of one follower, and how much it may send to it."""

from __future__ import annotations

from collections import deque
from enum import IntEnum

from cairn.raft.types import ProgressStatus


class Flow(IntEnum):
    PROBE = 0  # looking for where logs agree: one message, then wait
    REPLICATE = 1  # they agree: send ahead, within a window
    SNAPSHOT = 2  # too far behind: wait for the snapshot to arrive


_FLOW_NAMES: tuple[str, ...] = ("probe", "replicate", "snapshot")


class Progress:
    """`match` is acknowledged, `next` is sent next; `match < next` always."""

    __slots__ = (
        "flow",
        "inflight",
        "is_learner",
        "match",
        "next",
        "paused",
        "pending_snapshot",
        "read_acked",
        "recent_active",
        "sent_commit",
        "window",
    )

    def __init__(self, next_index: int, window: int, *, is_learner: bool) -> None:
        self.match = 0
        self.next = next_index
        self.flow = Flow.PROBE
        self.paused = False  # PROBE: a message is out; wait for an answer or a heartbeat's
        self.pending_snapshot = 0
        self.recent_active = False
        self.is_learner = is_learner
        self.sent_commit = 0
        self.read_acked = 0
        self.window = window
        self.inflight: deque[int] = deque()  # last index of each message sent and not answered

    # --- changes of flow

    def _enter(self, flow: Flow) -> None:
        self.flow = flow
        self.paused = False
        self.pending_snapshot = 0
        self.inflight.clear()
        self.sent_commit = min(self.sent_commit, self.match)

    def become_probe(self) -> None:
        floor = self.pending_snapshot if self.flow is Flow.SNAPSHOT else 0
        self._enter(Flow.PROBE)
        self.next = max(self.match, floor) + 1

    def begin_anew(self, last: int) -> None:
        """Nothing that it ever acknowledged counts; its log ends with `last`."""
        self.match = 0
        self._enter(Flow.PROBE)
        self.next = last + 1

    def become_replicate(self) -> None:
        self._enter(Flow.REPLICATE)
        self.next = self.match + 1

    def become_snapshot(self, index: int) -> None:
        self._enter(Flow.SNAPSHOT)
        self.pending_snapshot = index
        self.next = index + 1
        self.sent_commit = index  # a snapshot tells that everything in it is committed

    # --- sending

    @property
    def window_full(self) -> bool:
        return len(self.inflight) >= self.window

    def is_paused(self) -> bool:
        """No entries may be sent now. An empty message may still go when only the window is full:
        otherwise a lost window would stall for ever."""
        if self.flow is Flow.REPLICATE:
            return self.paused
        return self.flow is Flow.SNAPSHOT or self.paused

    def sent(self, count: int) -> None:
        """A message with `count` entries from `next` on has been handed out."""
        if self.flow is Flow.REPLICATE:
            if count:
                self.next += count
                self.inflight.append(self.next - 1)
            self.paused = self.window_full
        else:
            self.paused = True

    # --- answers

    def acknowledged(self, index: int) -> bool:
        """The follower has everything up to `index`. True if that is news."""
        if index <= self.match:
            return False
        self.match = index
        self.next = max(self.next, index + 1)
        self.paused = False
        return True

    def free_inflight(self, index: int) -> None:
        inflight = self.inflight
        while inflight and inflight[0] <= index:
            inflight.popleft()
        self.paused = self.window_full

    def refused(self, index: int, agree_at: int) -> bool:
        """The follower has no entry `index`. False if the refusal is stale."""
        if self.flow is Flow.REPLICATE:
            if index <= self.match:
                return False
            self.next = self.match + 1
            return True
        if self.next - 1 != index:
            return False
        self.next = max(min(index, agree_at + 1), self.match + 1)
        self.paused = False
        return True

    def snapshot_ended(self, ok: bool) -> None:
        """The driver tells how a transfer ended; without that the peer stays paused."""
        if not ok:
            self.pending_snapshot = 0
        self.become_probe()
        self.paused = True  # until it answers, or at least a heartbeat's answer arrives

    def status(self) -> ProgressStatus:
        return ProgressStatus(
            match=self.match,
            next=self.next,
            state=_FLOW_NAMES[self.flow],  # type: ignore[arg-type]
            recent_active=self.recent_active,
            paused=self.is_paused() or (self.flow is Flow.REPLICATE and self.window_full),
            is_learner=self.is_learner,
        )
