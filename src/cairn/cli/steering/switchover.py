"""`cairn switchover`: another instance of a replicaset becomes its master, and nothing is lost."""

from __future__ import annotations

import json
import time
from typing import Any

from cairn.cli.asking import agreed
from cairn.cli.talking import Talk, TalkProblem, Target

LOOK_S = 0.1
Row = dict[str, Any]


def run_switchover(
    replicaset: str,
    dsn: str | None,
    password_file: str | None,
    *,
    to: str | None = None,
    yes: bool = False,
    as_json: bool = False,
    timeout_s: float = 60.0,
) -> int:
    talk = Talk(Target(dsn, password_file))
    try:
        before = _replicaset(talk.call("CALL cairn_status()"), replicaset)
        heir = _heir(talk, before, to)
        question = f"{before['name']}: make {heir} master instead of {before['master']}?"
        if not agreed(question, yes=yes):
            print("nothing is changed")
            return 1
        begun = time.monotonic()
        talk.rows(
            "UPDATE _pico_replicaset SET target_master_name = $1 WHERE name = $2",
            (heir, before["name"]),
        )
        after = _switched(talk, before, heir, begun + timeout_s)
    finally:
        talk.close()
    took_s = time.monotonic() - begun
    told = {
        "replicaset": before["name"],
        "from": before["master"],
        "to": after["master"],
        "epoch": after["epoch"],
        "seconds": round(took_s, 3),
    }
    if as_json:
        print(json.dumps(told))
    else:
        print(
            f"{told['replicaset']}: {told['to']} is master instead of {told['from']}, "
            f"epoch {told['epoch']}, {took_s:.1f} s"
        )
    return 0


def _replicaset(status: Row, name: str) -> Row:
    for row in status["replicasets"]:
        if name in (row["name"], row["uuid"]):
            found: Row = row
            return found
    known = ", ".join(row["name"] for row in status["replicasets"])
    raise TalkProblem(f'there is no replicaset "{name}", known: {known}')


def _heir(talk: Talk, replicaset: Row, to: str | None) -> str:
    """The one that was asked for, or the one that is least behind; it has to be fit."""
    rows = talk.call("CALL cairn_status()")["instances"]
    mine = [row for row in rows if row["replicaset"] == replicaset["name"]]
    fit = [
        row
        for row in mine
        if row["name"] in replicaset["members"]
        and row["name"] != replicaset["master"]
        and row["current_state"].startswith("Online")
        and row["target_state"].startswith("Online")
    ]
    if replicaset["master"] != replicaset["target_master"]:
        raise TalkProblem(f"{replicaset['name']} is being given another master already")
    if to is not None:
        if to == replicaset["master"]:
            raise TalkProblem(f"{to} is the master of {replicaset['name']} already")
        if to not in [row["name"] for row in mine]:
            raise TalkProblem(f"{to} is no instance of {replicaset['name']}")
        fit = [row for row in fit if row["name"] == to]
        if not fit:
            raise TalkProblem(f"{to} cannot be master now: it is not Online, or has no rows yet")
    if not fit:
        raise TalkProblem(
            f"{replicaset['name']} has no other instance that is Online and has its rows"
        )
    return str(min(fit, key=_behind)["name"])


def _behind(row: Row) -> tuple[float, str]:
    lag = row["lag_rows"]
    return (float("inf") if lag is None else lag, row["name"])


def _switched(talk: Talk, before: Row, heir: str, deadline: float) -> Row:
    while True:
        now = _replicaset(talk.call("CALL cairn_status()"), before["name"])
        if now["master"] == heir and now["epoch"] > before["epoch"]:
            return now
        if now["epoch"] > before["epoch"]:
            raise TalkProblem(f"{now['master']} became master of {now['name']}, not {heir}")
        if time.monotonic() > deadline:
            raise TalkProblem(
                f"{heir} is not master of {now['name']} yet: see `cairn status`",
                4,
            )
        time.sleep(LOOK_S)
