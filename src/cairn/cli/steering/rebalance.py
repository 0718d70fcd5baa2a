"""`cairn rebalance`: which buckets move, and how to pause, plan and steer it."""

from __future__ import annotations

import json
import time
from typing import Any

from cairn.cli.talking import Talk, Target
from cairn.cli.terminal import Fitted, console
from cairn.model.quoting import literal

EVERY_S = 1.0


def run_rebalance(
    dsn: str | None,
    password_file: str | None,
    action: str,
    *,
    name: str = "",
    weight: float = 1.0,
    as_json: bool = False,
    watch: bool = False,
    wait: bool = False,
) -> int:
    talk = Talk(Target(dsn, password_file))
    try:
        found = _ask(talk, action, name, weight)
        _show(found, as_json, is_plan=action == "plan")
        while watch or (wait and not _is_calm(found)):
            time.sleep(EVERY_S)
            before, found = found, _ask(talk, "status", "", 1.0)
            if found != before:  # who watches for hours wants to see what changed
                _show(found, as_json, is_plan=False)
    finally:
        talk.close()
    return 0


def _ask(talk: Talk, action: str, name: str, weight: float) -> dict[str, Any]:
    sql = f"CALL cairn_rebalance('{action}', {literal(name)}, {weight})"
    found: dict[str, Any] = talk.call(sql)
    return found


def _is_calm(found: dict[str, Any]) -> bool:
    return not found["moves"] and not any(tier["wanted"] for tier in found["tiers"])


def _show(found: dict[str, Any], as_json: bool, *, is_plan: bool) -> None:
    if as_json:
        print(json.dumps(found, ensure_ascii=False), flush=True)
        return
    console().print(render(found, is_plan=is_plan))


def render(found: dict[str, Any], *, is_plan: bool = False) -> Any:
    from rich.console import Group
    from rich.table import Table

    parts: list[Any] = []
    if found["paused"]:
        parts.append("moving is paused: cairn rebalance resume goes on")
    for tier in found["tiers"]:
        table = Table("replicaset", "weight", "buckets", "share", title=f"tier {tier['tier']}")
        for each in tier["replicasets"]:
            columns = ("name", "weight", "buckets", "share")
            table.add_row(*(str(each[column]) for column in columns))
        parts.append(table)
    if found["moves"]:
        parts.append(moves_table(found["moves"]))
    wanted = [(tier["tier"], each) for tier in found["tiers"] for each in tier["wanted"]]
    if wanted and is_plan:
        table = Table("tier", "buckets", "from", "to", title="moves that would follow")
        for name, each in wanted:
            span = f"{each['start']}–{each['end']}"
            table.add_row(name, span, each["source"], each["target"])
        parts.append(table)
    elif wanted:
        count = sum(each["end"] - each["start"] + 1 for _, each in wanted)
        pieces = "1 piece" if len(wanted) == 1 else f"{len(wanted)} pieces"
        parts.append(f"{count} buckets are still to move, in {pieces}")
    told = {f"{move['start']}–{move['end']}" for move in found["moves"] if move["waits_for"]}
    parts += [line for line in found["waits"] if not any(f" {span} " in line for span in told)]
    if len(parts) == len(found["tiers"]):
        parts.append("nothing moves, and nothing has to")
    return Group(*parts)


def moves_table(moves: list[dict[str, Any]]) -> Any:
    """What moves, how far it is, how fast, and what it waits for."""
    from rich.table import Table

    titles = ("buckets", "from", "to", "phase", "rows", "left", "MB", "rows/s", "ETA", "behind")
    table = Table(*titles, "waits for", title="moves")
    for move in moves:
        cells = (
            f"{move['start']}–{move['end']}",
            move["source"],
            move["target"],
            move["phase"],
            move["rows"],
            _known(move["rows_to_do"]),
            f"{move['bytes'] / 1e6:.1f}",
            _known(move["rows_per_s"], "{:.0f}"),
            _known(move["eta_s"], "{:.0f} s"),
            _known(move["records_behind"]),
            move["waits_for"],
        )
        table.add_row(*map(str, cells))
    return Fitted(table, "behind", "MB", "rows", "rows/s", "left", "phase", "ETA", long="waits for")


def _known(value: float | None, form: str = "{}") -> str:
    return "?" if value is None else form.format(value)
