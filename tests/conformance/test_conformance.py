"""Runs the YAML scenarios of this directory against our routing table.

The format is described in `docs/reference/topology-protocol.md`; drivers in other languages can
run the same files.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from cairn.client.logic.hints import Hints
from cairn.client.stats import Stats
from cairn.model.errors import CairnError
from cairn.model.members.events import decode
from cairn.model.members.topology import Position
from cairn.topology.routing_table import RoutingTable

CASES = sorted(Path(__file__).parent.glob("*.yaml"))


class Runner:
    def __init__(self, settings: dict[str, Any]) -> None:
        self.table = RoutingTable(
            batch_records=settings.get("batch_records", 1),
            batch_age_s=settings.get("batch_age_s", 15.0),
        )
        self.stats = Stats()
        self.hints = Hints(self.table, self.stats, random.Random(1))
        self.now = 0.0
        self.skipped = 0
        self.refused = False

    def run(self, step: dict[str, Any]) -> None:
        ((verb, value),) = step.items()
        getattr(self, f"do_{verb}")(value)

    def do_connect(self, _: Any) -> None:
        self.table.connecting()

    def do_events(self, events: list[dict[str, Any]]) -> None:
        for each in events:
            event = decode(json.dumps(each))
            if event is None:
                self.skipped += 1
                continue
            try:
                self.table.receive(event, self.now)
            except CairnError:
                self.refused = True
                self.table.lost()
                return

    def do_ready(self, _: Any) -> None:
        self.table.ready(self.now)

    def do_lost(self, _: Any) -> None:
        self.table.lost()

    def do_at(self, now: float) -> None:
        self.now = now
        self.table.tick(now)

    def do_flush(self, _: Any) -> None:
        self.table.flush()

    def do_hint(self, hint: dict[str, Any]) -> None:
        self.hints.heard(json.dumps(hint))

    def do_expect(self, expected: dict[str, Any]) -> None:
        found = described(self.table)
        resume = self.table.resume_after
        found["resume_after"] = None if resume is None else _plain(resume)
        found["skipped"] = self.skipped
        found["refused"] = self.refused
        found["hints"] = dict(self.stats.hints)
        for key in expected:
            if key == "owners":
                for owner in expected[key]:
                    got = self.table.owner(owner["tier"], owner["bucket"])
                    assert got == owner["replicaset"], owner
            elif key == "connectable":
                assert sorted(each.uuid for each in self.table.online()) == expected[key]
            elif key == "behind":
                assert self.hints.is_behind() == expected[key]
            else:
                assert found[key] == expected[key], key


def _plain(position: Position) -> dict[str, int]:
    return {"term": position.term, "index": position.index}


def described(table: RoutingTable) -> dict[str, Any]:
    """The table as plain values, which a scenario compares."""
    view = table.view
    return {
        "position": _plain(view.position),
        "replicasets": {uuid: _fields(each) for uuid, each in view.replicasets.items()},
        "instances": {uuid: _fields(each) for uuid, each in view.instances.items()},
        "buckets": {
            tier: [{"start": a, "end": b} | _fields(value) for a, b, value in ranges.ranges()]
            for tier, ranges in view.buckets.items()
        },
        "gone": sorted(table.gone),
    }


def _fields(value: msgspec.Struct) -> dict[str, Any]:
    fields = msgspec.to_builtins(value)
    return {key: each for key, each in fields.items() if each is not None and key != "uuid"}


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_scenario(path: Path) -> None:
    case = yaml.safe_load(path.read_text())
    runner = Runner(case.get("settings", {}))
    for step in case["steps"]:
        runner.run(step)


def test_there_are_at_least_ten_scenarios() -> None:
    assert len(CASES) >= 10
