"""`cairn tier`: tiers of a running cluster, and what follows from a change of theirs."""

from __future__ import annotations

import json
from typing import Any

from cairn.cli.asking import agreed
from cairn.cli.steering.expel import run_expel
from cairn.cli.talking import Talk, TalkProblem, Target
from cairn.cli.terminal import Fitted, console
from cairn.model.quoting import literal

Tier = dict[str, Any]


def run_tier(
    dsn: str | None,
    password_file: str | None,
    action: str,
    name: str,
    options: dict[str, Any],
    *,
    release: bool = False,
    yes: bool = False,
    as_json: bool = False,
) -> int:
    words = " ".join(f"{key}={value}" for key, value in options.items() if value is not None)
    if action != "list" and not name:
        raise TalkProblem(f"say which tier: cairn tier {action} NAME", 2)
    if action in ("list", "drop") and words:
        raise TalkProblem(f"cairn tier {action} takes no options", 2)
    if action == "set" and not words:
        raise TalkProblem("say what to set: --replication-factor or --replication-mode", 2)
    if release and options.get("replication_factor") is None:
        raise TalkProblem("--release goes with --replication-factor", 2)
    talk = Talk(Target(dsn, password_file))
    try:
        found = talk.call(f"CALL cairn_tier({literal(action)}, {literal(name)}, {literal(words)})")
        status = talk.call("CALL cairn_status()") if action == "set" else None
    finally:
        talk.close()
    if as_json:
        print(json.dumps(found, ensure_ascii=False), flush=True)
    elif action == "list":
        _show(found)
    else:
        _say(action, name, found)
    if status is None:
        return 0
    mine = next(each for each in found if each["name"] == name)
    surplus = surplus_of(mine, {row["name"]: row["master"] for row in status["replicasets"]})
    if not surplus:
        return 0
    if not release:
        commands = "; ".join(f"cairn expel {each}" for each in surplus)
        print(f"more instances than asked for: {', '.join(surplus)}. To release them: {commands}")
        return 0
    return _released(surplus, dsn, password_file, yes=yes)


def surplus_of(tier: Tier, masters: dict[str, str]) -> list[str]:
    """Replicas above the replication factor, the last ones by name; masters stay."""
    found: list[str] = []
    for replicaset, members in tier["replicasets"].items():
        replicas = sorted(name for name in members if name != masters.get(replicaset))
        many = len(members) - tier["replication_factor"]
        found += replicas[len(replicas) - many :] if many > 0 else []
    return found


def _released(names: list[str], dsn: str | None, password_file: str | None, *, yes: bool) -> int:
    if not agreed(f"expel {', '.join(names)}? Their processes end for good.", yes=yes):
        print("nothing is expelled")
        return 1
    for name in names:
        code = run_expel(name, dsn, password_file, force=False, timeout_s=60.0)
        if code:
            return code
    return 0


def _say(action: str, name: str, found: list[Tier]) -> None:
    if action == "drop":
        print(f"tier {name} is gone")
        return
    tier = next(each for each in found if each["name"] == name)
    print(
        f"tier {name}: replication factor {tier['replication_factor']}, "
        f"{tier['replication_mode']}, {tier['bucket_count']} buckets"
    )
    if action == "add":
        print(f"it has no instances yet: cairn run --tier {name} …")
    for replicaset, members in tier["replicasets"].items():
        lacking = tier["replication_factor"] - len(members)
        if lacking > 0:
            print(f"{replicaset} waits for {lacking} more: cairn run --tier {name} …")


def _show(found: list[Tier]) -> None:
    from rich.table import Table

    table = Table("tier", "replication", "mode", "buckets", "votes", "replicasets")
    for tier in found:
        cells = (
            tier["name"] + (" (default)" if tier["is_default"] else ""),
            tier["replication_factor"],
            tier["replication_mode"],
            tier["bucket_count"],
            "yes" if tier["can_vote"] else "no",
            ", ".join(f"{name} ({len(who)})" for name, who in tier["replicasets"].items())
            or "none",
        )
        table.add_row(*map(str, cells))
    console().print(Fitted(table, "votes", "mode", "buckets", "replication", long="replicasets"))
