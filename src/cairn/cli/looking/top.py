"""`cairn top`: what the cluster is doing now: statements a second, and those that take the time.

Two looks at the counters of all instances, and the difference between them.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import msgspec

from cairn.cli.anywhere import Anywhere
from cairn.cli.talking import Target
from cairn.cli.terminal import Fitted, console

MOST = 10  # statements
_COUNTERS = (
    "SELECT instance, usename, kind, query, calls, errors, total_ms, max_ms, rows "
    "FROM _cairn_statements"
)
_SESSIONS = "SELECT instance, state FROM _cairn_sessions"

Row = dict[str, Any]


class Look(msgspec.Struct):
    """Everything as of one moment."""

    at_s: float
    status: Row
    counters: dict[tuple[str, str, str, str], tuple[int, int, float, float, int]]
    sessions: list[tuple[str, str]]


def run_top(
    dsn: str | None, password_file: str | None, *, once: bool, interval_s: float, as_json: bool
) -> int:
    cluster = Anywhere(Target(dsn, password_file))
    try:
        before = _look(cluster)
        if once or as_json or not sys.stdout.isatty():
            while True:
                time.sleep(interval_s)
                before, found = _next(cluster, before)
                _print(found, as_json)
                if once:
                    return 0
        from rich.live import Live

        with Live(auto_refresh=False, screen=True) as live:
            while True:
                time.sleep(interval_s)
                before, found = _next(cluster, before)
                live.update(render(found), refresh=True)
    finally:
        cluster.close()


def _look(cluster: Anywhere) -> Look:
    return Look(
        time.monotonic(),
        cluster.status(),
        {tuple(row[:4]): tuple(row[4:]) for row in cluster.rows(_COUNTERS)},
        cluster.rows(_SESSIONS),
    )


def _next(cluster: Anywhere, before: Look) -> tuple[Look, Row]:
    now = _look(cluster)
    return now, difference(before, now)


def difference(before: Look, now: Look) -> Row:
    """What happened between two looks. A statement that was forgotten meanwhile begins at zero."""
    seconds = max(now.at_s - before.at_s, 1e-9)
    statements: dict[tuple[str, str], Row] = {}
    sums: dict[str, list[float]] = {}
    for key, (calls, errors, total_ms, max_ms, rows) in now.counters.items():
        instance, _, kind, query = key
        then = before.counters.get(key, (0, 0, 0.0, 0.0, 0))
        then = then if then[0] <= calls else (0, 0, 0.0, 0.0, 0)
        new, failed, spent = calls - then[0], errors - then[1], total_ms - then[2]
        mine = sums.setdefault(instance, [0.0, 0.0, 0.0])
        mine[0], mine[1], mine[2] = mine[0] + new, mine[1] + failed, mine[2] + spent
        if new <= 0 or query in _OURS:
            continue
        each = statements.setdefault(
            (kind, query),
            {"kind": kind, "query": query, "calls": 0, "ms": 0.0, "max_ms": 0.0, "rows": 0},
        )
        each["calls"] += new
        each["ms"] += spent
        each["rows"] += rows - then[4]
        each["max_ms"] = max(each["max_ms"], max_ms)
    masters = {row["master"] for row in now.status["replicasets"]}
    return {
        "cluster": now.status["cluster"]["name"],
        "leader": now.status["raft"]["leader"],
        "automatic_failover": now.status["automatic_failover"],
        "seconds": round(seconds, 3),
        "instances": [
            _instance(row, masters, sums.get(row["name"], [0.0, 0.0, 0.0]), now, seconds)
            for row in now.status["instances"]
        ],
        "statements": [
            {
                "calls_per_s": round(each["calls"] / seconds, 1),
                "ms_per_s": round(each["ms"] / seconds, 1),
                "mean_ms": round(each["ms"] / each["calls"], 3),
                "max_ms": round(each["max_ms"], 3),
                "rows_per_s": round(each["rows"] / seconds, 1),
                "kind": each["kind"],
                "query": each["query"],
            }
            for each in sorted(statements.values(), key=lambda each: -each["ms"])[:MOST]
        ],
    }


_OURS = (_COUNTERS, _SESSIONS, "CALL cairn_status()")


def _instance(row: Row, masters: set[str], sums: list[float], now: Look, seconds: float) -> Row:
    sessions = [state for instance, state in now.sessions if instance == row["name"]]
    return {
        "name": row["name"],
        "state": row["current_state"],
        "master": row["name"] in masters,
        "leader": row["leader"],
        "answers": row["answers"],
        "statements_per_s": round(sums[0] / seconds, 1),
        "errors_per_s": round(sums[1] / seconds, 1),
        "mean_ms": round(sums[2] / sums[0], 3) if sums[0] else 0.0,
        "sessions": len(sessions),
        "active": sessions.count("active"),
        "lag_rows": row["lag_rows"],
    }


def _print(found: Row, as_json: bool) -> None:
    if as_json:
        print(json.dumps(found, ensure_ascii=False), flush=True)
        return
    console().print(render(found))


def render(found: Row) -> Any:
    from rich.console import Group
    from rich.table import Table

    rate = sum(row["statements_per_s"] for row in found["instances"])
    head = f"{found['cluster']} · leader {found['leader'] or 'none'} · {rate:.0f} statements/s"
    if not found["automatic_failover"]:
        head += " · automatic failover is paused"
    titles = ("instance", "state", "", "stmt/s", "err/s", "mean ms", "sessions", "active", "behind")
    people = Table(*titles, box=None)
    for row in found["instances"]:
        role = " ".join(word for word in ("master", "leader") if row[word])
        people.add_row(
            row["name"],
            row["state"] if row["answers"] else f"{row['state']} silent",
            role,
            *(str(row[key]) for key in ("statements_per_s", "errors_per_s", "mean_ms")),
            *(str(row[key]) for key in ("sessions", "active")),
            "?" if row["lag_rows"] is None else str(row["lag_rows"]),
        )
    work = Table("ms/s", "calls/s", "mean ms", "max ms", "rows/s", "statement", box=None)
    for row in found["statements"]:
        keys = ("ms_per_s", "calls_per_s", "mean_ms", "max_ms", "rows_per_s")
        work.add_row(*(str(row[key]) for key in keys), " ".join(row["query"].split()))
    shown = Fitted(work, "rows/s", "max ms", "calls/s", long="statement")
    return Group(
        head,
        Fitted(people, "active", "err/s", "behind", "sessions", "mean ms"),
        "",
        shown if found["statements"] else "no statements",
    )
