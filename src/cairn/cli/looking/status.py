"""`cairn status`: the cluster on one screen."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from cairn.cli.anywhere import Anywhere
from cairn.cli.options import NOT_WORKING
from cairn.cli.steering.rebalance import moves_table
from cairn.cli.talking import Target
from cairn.cli.terminal import Fitted, console
from cairn.web import health


def show_status(dsn: str | None, password_file: str | None, *, as_json: bool, watch: bool) -> int:
    cluster = Anywhere(Target(dsn, password_file))
    try:
        if as_json and not watch:
            status = cluster.status()
            print(json.dumps(status, indent=2, ensure_ascii=False))
            return _verdict(status)
        from rich.live import Live

        out = console()
        if not watch:
            status = cluster.status()
            out.print(render(status))
            return _verdict(status)
        while as_json or not sys.stdout.isatty():
            if as_json:
                print(json.dumps(cluster.status(), ensure_ascii=False), flush=True)
            else:
                out.print(render(cluster.status()))
            time.sleep(1.0)
        with Live(console=out, auto_refresh=False) as live:
            while True:
                live.update(render(cluster.status()), refresh=True)
                time.sleep(1.0)
    finally:
        cluster.close()


def _verdict(status: dict[str, Any]) -> int:
    """For scripts: it answered, but does it work? What does not is said beside the answer."""
    found = [each for each in health.judge(status, {}) if each.level == health.CRITICAL]
    for each in found:
        print(f"cairn: {each.title}. {each.action}", file=sys.stderr)
    return NOT_WORKING if health.failures(status) else 0


def render(status: dict[str, Any]) -> Any:
    from rich.console import Group
    from rich.table import Column, Table
    from rich.text import Text

    cluster, raft, governor = status["cluster"], status["raft"], status["governor"]
    head = Text(f"{cluster['name']} · {cluster['version']} · {cluster['uuid']}\n", style="bold")
    head.append(
        f"leader {raft['leader'] or 'none'} · term {raft['term']} · index {raft['index']}\n",
        style="not bold",
    )
    head.append(_governor_line(governor), style="not bold")
    if not status.get("automatic_failover", True):
        head.append("automatic failover is paused: cairn resume goes on\n", style="bold red")
    titles = ("replicaset", "tier", "master", "epoch", "weight", "state", "buckets")
    sets = Table(*(Column(title, overflow="fold") for title in titles), box=None)
    for row in status["replicasets"]:
        sets.add_row(
            row["name"],
            row["tier"],
            row["master"]
            if row["master"] == row["target_master"]
            else f"{row['master']} → {row['target_master']}",
            str(row["epoch"]),
            f"{row['weight']:g}",
            row["state"],
            str(row["buckets"]),
        )
    people = _instances(status["instances"])
    stopped = [
        f"{row['name']} stopped following {link['upstream']}: {link['problem']}\n"
        for row in status["instances"]
        for link in row.get("links", [])
        if link["state"] == "stopped"
    ]
    stopped += [
        f"writes at {row['name']} wait for {', '.join(row['waits_for'])}\n"
        for row in status["instances"]
        if row.get("waits_for")
    ]
    stopped += [f"{problem}\n" for problem in status.get("problems", [])]
    moves = [moves_table(status["moves"])] if status.get("moves") else []
    return Group(
        head,
        Fitted(sets, "tier", "epoch", "weight"),
        Text(),
        *moves,
        Fitted(people, "lag", "raft", "domain", "behind", "replicaset"),
        Text("".join(stopped), style="red"),
    )


def _instances(rows: list[dict[str, Any]]) -> Any:
    """`state` and `pg` are shown whole however narrow the terminal; an empty `domain` is not."""
    from rich.table import Column, Table
    from rich.text import Text

    states = [_state(row) for row in rows]
    addresses = [row["addresses"]["pg"] or "" for row in rows]
    with_domain = any(row["failure_domain"] for row in rows)
    people = Table(
        Column("instance", overflow="fold"),
        Column("replicaset", overflow="fold"),
        Column("state", no_wrap=True, min_width=max(map(len, states), default=0)),
        Column("raft", overflow="fold"),
        Column("lag", overflow="fold"),  # entries of the Raft log
        Column("behind", overflow="fold"),  # rows of its master
        Column("pg", no_wrap=True, min_width=max(map(len, addresses), default=0)),
        *([Column("domain", overflow="fold")] if with_domain else []),
        box=None,
    )
    for row, state, address in zip(rows, states, addresses, strict=True):
        role = "leader" if row["leader"] else "voter" if row["voter"] else "learner"
        domain = ", ".join(f"{key}={value}" for key, value in row["failure_domain"].items())
        people.add_row(
            row["name"],
            row["replicaset"],
            Text(state, style="green" if state.startswith("Online(") else "red"),
            f"{role} {row['raft_id']}",
            "?" if row["lag"] is None else str(row["lag"]),
            "?" if row.get("lag_rows") is None else str(row["lag_rows"]),
            address,
            *([domain] if with_domain else []),
        )
    return people


def _state(row: dict[str, Any]) -> str:
    current, target = row["current_state"], row["target_state"]
    return f"{current}" if current == target else f"{current} → {target}"


def _governor_line(governor: dict[str, Any]) -> str:
    line = f"governor: {governor.get('step', '?')}"
    if governor.get("subject"):
        line += f" ({governor['subject']})"
    if governor.get("since"):
        line += f" since {governor['since']}"
    if governor.get("blocked_by"):
        line += "\n  " + "\n  ".join(governor["blocked_by"])
    if governor.get("last_error"):
        line += f"\n  last error: {governor['last_error']}"
    return line + "\n"
