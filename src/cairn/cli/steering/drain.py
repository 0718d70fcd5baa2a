"""`cairn drain`: a replicaset gives all its buckets away, with progress, and back."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

from cairn.cli.anywhere import Anywhere, Status
from cairn.cli.asking import agreed
from cairn.cli.talking import TalkProblem, Target
from cairn.model.quoting import literal

LOOK_S = 0.5

#: Whether a replicaset is as it should be, by its name and a fresh status.
Done = Callable[[Anywhere, Status, str], bool]


def run_drain(
    replicaset: str,
    dsn: str | None,
    password_file: str | None,
    *,
    back: float | None,
    yes: bool,
    wait: bool,
    timeout_s: float,
    as_json: bool,
) -> int:
    cluster = Anywhere(Target(dsn, password_file))
    try:
        before = _replicaset(cluster.status(), replicaset)
        name = before["name"]
        if back is None:
            question = f"{name}: move its {before['buckets']} buckets to others?"
            if not agreed(question, yes=yes):
                print("nothing is changed")
                return 1
            cluster.call(f"CALL cairn_rebalance('drain', {literal(name)})")
        else:
            cluster.call(f"CALL cairn_rebalance('weight', {literal(name)}, {back})")
        begun = time.monotonic()
        if wait:
            done = is_drained if back is None else _has_its_share
            wait_for(cluster, name, done, begun + timeout_s)
        after = _replicaset(cluster.status(), name)
    finally:
        cluster.close()
    told = {
        "replicaset": name,
        "weight": after["weight"],
        "buckets": after["buckets"],
        "before": before["buckets"],
        "seconds": round(time.monotonic() - begun, 1),
    }
    if as_json:
        print(json.dumps(told))
    elif back is not None:
        print(f"{name} takes buckets again: weight {after['weight']:g}, {after['buckets']} buckets")
    elif wait:
        print(f"{name} owns no buckets any more, {told['seconds']} s")
    else:
        print(f"{name} gives its buckets away; cairn rebalance shows how far it is")
    return 0


def wait_for(cluster: Anywhere, name: str, is_done: Done, deadline: float) -> None:
    """Until it is; how far it is goes to standard error, and Ctrl-C says what goes on."""
    said = None
    try:
        while not is_done(cluster, status := cluster.status(), name):
            line = far(status, name)
            if time.monotonic() > deadline:
                raise TalkProblem(f"{line}; they go on moving: see cairn rebalance", 4)
            if line != said:
                print(line, file=sys.stderr, flush=True)
                said = line
            time.sleep(LOOK_S)
    except KeyboardInterrupt:
        way = f"cairn drain {name} --back takes it back"
        raise TalkProblem(f"stopped by Ctrl-C; the buckets go on moving, {way}", 130) from None


def is_drained(cluster: Anywhere, status: Status, name: str) -> bool:
    return not owned(status, name) and not _moves(status, name)


def _has_its_share(cluster: Anywhere, status: Status, name: str) -> bool:
    tiers = cluster.call("CALL cairn_rebalance('status')")["tiers"]
    wanted = [each for tier in tiers for each in tier["wanted"]]
    return not _moves(status, name) and all(each["target"] != name for each in wanted)


def _moves(status: Status, name: str) -> list[Any]:
    return [move for move in status["moves"] if name in (move["source"], move["target"])]


def owned(status: Status, name: str) -> int:
    return int(sum(row["buckets"] for row in status["replicasets"] if row["name"] == name))


def far(status: Status, name: str) -> str:
    moves = _moves(status, name)
    waits = next((move["waits_for"] for move in moves if move["waits_for"]), "")
    rows = sum(move["rows_to_do"] or 0 for move in moves)
    line = f"{name} owns {owned(status, name)} buckets"
    line += f", {rows} rows of those that move are left" if rows else ""
    return line + (f"; {waits}" if waits else "")


def _replicaset(status: Status, name: str) -> Any:
    for row in status["replicasets"]:
        if name in (row["name"], row["uuid"]):
            return row
    known = ", ".join(row["name"] for row in status["replicasets"])
    raise TalkProblem(f'there is no replicaset "{name}", known: {known}')
