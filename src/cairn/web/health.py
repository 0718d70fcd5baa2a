"""The one thing that matters now, and what to do about it: a judgement over the cluster's status.

Pure: in go the status as `cairn status --json` prints it and the last sample of each instance, out
comes a list of problems, the worst first.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

CRITICAL, WARNING, INFO, GOOD = "critical", "warning", "info", "good"
_ORDER = (CRITICAL, WARNING, INFO, GOOD)
FREE_SHARE, FREE_BYTES = 0.1, 256 * 1024 * 1024  # below it, a disk is nearly full
LAG_MS = 500.0  # of the event loop

Status = Mapping[str, Any]
Sample = Mapping[str, float]


class Problem(msgspec.Struct, frozen=True):
    level: str
    title: str
    action: str = ""


def judge(status: Status, samples: Mapping[str, Sample]) -> list[Problem]:
    """At least one: that all is well."""
    found = [
        *_quorum(status),
        *_masters(status),
        *_paused(status),
        *_links(status),
        *_disks(status),
        *_told(status),
        *_instances(status),
        *_weights(status),
        *_governor(status),
        *_loops(samples),
        *_moves(status),
    ]
    if all(problem.level == INFO for problem in found):
        found.append(_well(status))
    return sorted(found, key=lambda problem: _ORDER.index(problem.level))


def failures(status: Status) -> list[Problem]:
    """What does not work now. With a disk that is nearly full all still does."""
    ahead = _disks(status)
    return [each for each in judge(status, {}) if each.level == CRITICAL and each not in ahead]


def _named(names: list[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1]))) if names else "nobody"


def _silent(status: Status) -> list[str]:
    """Those that should answer and do not, whatever their last known state is."""
    return [
        row["name"]
        for row in status["instances"]
        if not row["answers"] and row["target_state"].startswith("Online")
    ]


def _quorum(status: Status) -> list[Problem]:
    if status["raft"]["leader"] is not None:
        return []
    answers = {row["name"] for row in status["instances"] if row["answers"]}
    voters = [name for name in status["raft"]["voters"] if name not in answers]
    title = "No quorum: the cluster can change nothing, and rows cannot be read for sure"
    if not voters:
        return [Problem(CRITICAL, "No Raft leader", "An election takes a second or two; wait.")]
    needed = len(status["raft"]["voters"]) // 2 + 1
    have = len(status["raft"]["voters"]) - len(voters)
    start = f"Start {_named(sorted(voters))}, or mend the network to them."
    return [Problem(CRITICAL, title, f"{start} {have} of {needed} needed voters answer.")]


def _masters(status: Status) -> list[Problem]:
    rows = {row["name"]: row for row in status["instances"]}
    found = []
    for replicaset in status["replicasets"]:
        master = rows.get(replicaset["master"] or "")
        if not replicaset["buckets"] or status["raft"]["leader"] is None:
            continue
        is_deposed = not replicaset["target_master"]
        if master is None or is_deposed or not master["current_state"].startswith("Online"):
            name, count = replicaset["name"], replicaset["buckets"]
            others = [
                row["name"]
                for row in status["instances"]
                if row["replicaset"] == name and not row["current_state"].startswith("Online")
            ]
            found.append(
                Problem(
                    CRITICAL,
                    f"Replicaset {name} has no master: {count} buckets are closed",
                    f"Start {_named(others)}: it waits for one that has its rows."
                    if others
                    else "One is named within seconds, or the governor says what it waits for.",
                )
            )
        elif not master["answers"]:
            title = f"{master['name']}, the master of {replicaset['name']}, does not answer"
            found.append(Problem(CRITICAL, title, _takes_over(status)))
    return found


def _takes_over(status: Status) -> str:
    if status.get("automatic_failover", True):
        return "If it stays silent, another takes over soon."
    return "Nobody takes over, failover is paused: start it, or say `cairn resume`."


def _paused(status: Status) -> list[Problem]:
    if status.get("automatic_failover", True):
        return []
    title = "Automatic failover is paused: a master that dies is not replaced"
    return [Problem(WARNING, title, "`cairn resume` when the work is done.")]


def _links(status: Status) -> list[Problem]:
    return [
        Problem(
            CRITICAL,
            f"{row['name']} does not follow {link['upstream']} any more: {link['problem']}",
            "Its rows differ from its master's. `SELECT * FROM _cairn_link` there says more.",
        )
        for row in status["instances"]
        for link in row["links"]
        if link["state"] == "stopped"
    ]


def _disks(status: Status) -> list[Problem]:
    found = []
    for row in status["instances"]:
        if row["answers"] and (disk := row.get("disk")) is not None and _is_short(*disk):
            title = f"The disk of {row['name']} is nearly full: {disk[0] / 1e9:.1f} GB left"
            action = "Give it more space or move rows away. A full disk stops an instance."
            found.append(Problem(CRITICAL, title, action))
    return found


def _is_short(free: float, used: float) -> bool:
    return free < FREE_SHARE * (free + used) or free < FREE_BYTES


def _told(status: Status) -> list[Problem]:
    """What the instances say themselves: damage, clocks, values that cannot be read."""
    return [
        Problem(WARNING, line)
        for line in status["problems"]
        if status["raft"]["leader"] is not None or "quorum" not in line
    ]


def _instances(status: Status) -> list[Problem]:
    found = []
    silent = _silent(status) if status["raft"]["leader"] is not None else []
    masters = {row["master"] for row in status["replicasets"]}
    for row in status["instances"]:
        current, target, name = row["current_state"], row["target_state"], row["name"]
        if current.startswith("Offline"):
            action = "Start it again; its rows catch up. `cairn expel` if it never comes back."
            title = f"{name} is Offline: {_copies(status, row['replicaset'])}"
            found.append(Problem(WARNING, title, action))
        elif name in silent and name not in masters:
            found.append(Problem(WARNING, f"{name} does not answer", "Look at its machine."))
        elif current != target and not target.startswith(("Offline", "Expelled")):
            title = f"{name} is {_word(current)} and becomes {_word(target)}"
            found.append(Problem(INFO, title))
    return found


def _copies(status: Status, replicaset: str) -> str:
    rows = [row for row in status["instances"] if row["replicaset"] == replicaset]
    live = sum(row["current_state"].startswith("Online") for row in rows)
    return f"{replicaset} has {live} of {len(rows)} copies of its rows"


def _word(grade: str) -> str:
    return grade.partition("(")[0]


def _weights(status: Status) -> list[Problem]:
    given = {row["tier"] for row in status["replicasets"] if row["buckets"]}
    return [
        Problem(
            WARNING,
            f"Replicaset {row['name']} has a weight and no buckets",
            "They move to it by themselves once its instances are Online and the queue is free.",
        )
        for row in status["replicasets"]
        if row["tier"] in given and row["weight"] and not row["buckets"] and not status["moves"]
    ]


def _governor(status: Status) -> list[Problem]:
    governor = status["governor"]
    if status["raft"]["leader"] is None:
        return []
    blocked = list(governor.get("blocked_by") or ())
    lines = blocked or [governor["last_error"]] if governor.get("last_error") else blocked
    return [Problem(WARNING, f"The governor waits: {line}") for line in lines]


def _loops(samples: Mapping[str, Sample]) -> list[Problem]:
    return [
        Problem(
            WARNING,
            f"{name} is too busy: everything there was {sample['loop_lag_ms']:.0f} ms late",
            "From a second on, leases end and masters change. Look at its statements and its CPU.",
        )
        for name, sample in sorted(samples.items())
        if sample["loop_lag_ms"] > LAG_MS
    ]


def _moves(status: Status) -> list[Problem]:
    moves = status["moves"]
    if not moves or status["raft"]["leader"] is None:
        return []
    left = sum(move["rows_to_do"] or 0 for move in moves)
    title = f"Buckets are moving: {len(moves)} moves, {left:,} rows to go"
    waits = [move["waits_for"] for move in moves if move["waits_for"]]
    return [Problem(INFO, title, waits[0] if waits else "Reads and writes go on meanwhile.")]


def _well(status: Status) -> Problem:
    online = sum(row["current_state"].startswith("Online") for row in status["instances"])
    buckets = sum(row["buckets"] for row in status["replicasets"])
    count = len(status["replicasets"])
    parts = (
        f"{online} {'instance' if online == 1 else 'instances'} Online",
        f"{count} {'replicaset' if count == 1 else 'replicasets'}",
        f"{buckets} buckets served",
    )
    return Problem(GOOD, "All is well", ", ".join(parts))
