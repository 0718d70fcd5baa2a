"""`cairn watch`: topology events on the terminal as they are committed."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from cairn.cli.talking import Talk, TalkProblem, Target

SILENCE_S = 6.0  # an instance that is well says something every 2 s
GO_ON_S = 15.0  # how long another instance is looked for
_ASKED = {"smart_connector": "0.2"}
_LEFT_OUT = ("op", "map", "timestamp", "raft", "n", "last", "name", "address")
_UUIDS = {
    "instance_uuid": "instance",
    "replicaset_uuid": "replicaset",
    "current_master_uuid": "master",
    "current_replicaset_uuid": "owner",
    "next_replicaset_uuid": "next_owner",
}


def run_watch(
    dsn: str | None, password_file: str | None, *, as_json: bool, verbose: bool = False
) -> int:
    target, lines = Target(dsn, password_file), Lines(verbose=verbose)
    talk = Talk(target, _ASKED)
    position = ""  # of the last entry that was told whole
    left_out: tuple[str, ...] = ()
    try:
        while True:
            try:
                texts = talk.wait_notices(SILENCE_S)
            except TalkProblem as problem:
                talk.close()
                talk = _go_on(target, lines, position, problem)
                left_out = ("hello", "snapshot_end")
                continue
            events = [json.loads(text) for text in texts]
            for event in events:
                lines.learn(event)  # a snapshot names masters before it tells of them
                position = _position(event) or position
            for text, event in zip(texts, events, strict=True):
                if as_json:
                    print(text, flush=True)
                elif event["map"] not in left_out and (line := lines.of(event)) is not None:
                    print(line, flush=True)
    finally:
        talk.close()


def _position(event: dict[str, Any]) -> str:
    raft = event.get("raft")
    if raft and (event.get("last") or event["map"] in ("snapshot_end", "heartbeat")):
        return f"{raft['term']}:{raft['index']}"
    return ""


def _go_on(target: Target, lines: Lines, position: str, problem: TalkProblem) -> Talk:
    """The instance is gone: its successor tells what came after the last whole entry."""
    if problem.exit_code != 3:
        raise problem
    print(f"cairn: {problem}; asking another instance", file=sys.stderr, flush=True)
    asked = {**_ASKED, **({"smart_connector_after": position} if position else {})}
    deadline = time.monotonic() + GO_ON_S
    while time.monotonic() < deadline:
        for address in dict.fromkeys((*target.settings.hosts, *lines.addresses())):
            if not target.settings.allows(address):
                continue  # the password goes only where the user would send it
            try:
                talk = Talk(target.at(address), asked)
            except TalkProblem:
                continue
            print(f"cairn: following {address}", file=sys.stderr, flush=True)
            return talk
        time.sleep(0.3)
    raise problem


class Lines:
    """Events as lines for people. Remembers names and addresses: an event has what changed only.

    Uuids are shown where no name is known; beside the names only when `verbose`.
    """

    def __init__(self, *, verbose: bool = False) -> None:
        self._verbose = verbose
        self._names: dict[str, str] = {}
        self._addresses: dict[str, str] = {}

    def learn(self, event: dict[str, Any]) -> None:
        own = event.get("instance_uuid") if event["map"] == "instance" else None
        own = event.get("replicaset_uuid") if event["map"] == "replicaset" else own
        if own is not None:
            self._names[own] = event.get("name") or self._names.get(own, "")
            self._addresses[own] = event.get("address") or self._addresses.get(own, "")

    def addresses(self) -> list[str]:
        return [address for address in self._addresses.values() if address]

    def of(self, event: dict[str, Any]) -> str | None:
        if event["map"] == "heartbeat":
            return None
        self.learn(event)
        raft = event.get("raft") or {}
        place = (f"{raft['term']}:{raft['index']}" if raft else "").rjust(8)
        subject = f"{event['map']}_uuid"  # the one it is about comes first
        keys = [key for key in event if key not in _LEFT_OUT]
        keys.sort(key=lambda key: key != subject)
        words = [self._word(key, event[key]) for key in keys]
        head = f"{event.get('timestamp', '')} {place} {event.get('op', ''):8}{event['map']:13}"
        return head + " ".join(words)

    def _word(self, key: str, value: Any) -> str:
        if key == "tiers":
            tiers = (f"{tier['name']} ({tier['bucket_count']} buckets)" for tier in value)
            return f"tiers={', '.join(tiers)}"
        if key not in _UUIDS:
            return f"{key}={_short(value)}"
        name, address = self._names.get(value), self._addresses.get(value)
        shown = f"{name} ({value})" if name and self._verbose else name or str(value)
        return f"{_UUIDS[key]}={shown}" + (f" at {address}" if address else "")


def _short(value: Any) -> str:
    if isinstance(value, dict) and set(value) == {"start", "end"}:
        return f"{value['start']}–{value['end']}"
    return value if isinstance(value, str) else json.dumps(value)
