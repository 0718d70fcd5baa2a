"""`cairn switchover`: another instance of a replicaset becomes its master, and nothing is lost.

With `--spread` it chooses them itself, so that no machine has more masters than it must.
"""

from __future__ import annotations

import json
import time
from typing import Any

from cairn.cli.asking import agreed
from cairn.cli.steering.spreading import Switch, fit_for, masters_of, wished
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
        status = talk.call("CALL cairn_status()")
        before = _replicaset(status, replicaset)
        heir = _heir(status, before, to)
        question = f"{before['name']}: make {heir} master instead of {before['master']}?"
        if not agreed(question, yes=yes):
            print("nothing is changed")
            return 1
        told = _switch(talk, before, heir, timeout_s)
    finally:
        talk.close()
    print(json.dumps(told) if as_json else _said(told))
    return 0


def run_spread(
    dsn: str | None,
    password_file: str | None,
    *,
    yes: bool = False,
    as_json: bool = False,
    timeout_s: float = 60.0,
) -> int:
    talk = Talk(Target(dsn, password_file))
    done: list[Row] = []
    try:
        status = talk.call("CALL cairn_status()")
        wanted, places = wished(status)
        if wanted and not agreed(_question(wanted, places), yes=yes):
            print("nothing is changed")
            return 1
        for each in wanted:
            status = talk.call("CALL cairn_status()")  # others may have switched meanwhile
            before = _replicaset(status, each.replicaset)
            done.append(_switch(talk, before, _heir(status, before, each.to), timeout_s))
            if not as_json:
                print(_said(done[-1]))
        after = {
            row["name"]: row["master"] for row in talk.call("CALL cairn_status()")["replicasets"]
        }
    finally:
        talk.close()
    counted = masters_of(
        {name: master for name, master in after.items() if master in places}, places
    )
    if as_json:
        print(json.dumps({"switched": done, "masters": counted}, sort_keys=True))
    else:
        told = ", ".join(f"{place} has {count}" for place, count in sorted(counted.items()))
        print(f"masters: {told}" if done else f"masters are spread already: {told}")
    return 0


def _question(wanted: list[Switch], places: dict[str, str]) -> str:
    lines = [
        f"{each.replicaset}: {each.before} ({places[each.before]}) → {each.to} ({places[each.to]})"
        for each in wanted
    ]
    return "\n".join((*lines, "make these the masters?"))


def _switch(talk: Talk, before: Row, heir: str, timeout_s: float) -> Row:
    begun = time.monotonic()
    talk.rows(
        "UPDATE _pico_replicaset SET target_master_name = $1 WHERE name = $2",
        (heir, before["name"]),
    )
    after = _switched(talk, before, heir, begun + timeout_s)
    return {
        "replicaset": before["name"],
        "from": before["master"],
        "to": after["master"],
        "epoch": after["epoch"],
        "seconds": round(time.monotonic() - begun, 3),
    }


def _said(told: Row) -> str:
    return (
        f"{told['replicaset']}: {told['to']} is master instead of {told['from']}, "
        f"epoch {told['epoch']}, {told['seconds']:.1f} s"
    )


def _replicaset(status: Row, name: str) -> Row:
    for row in status["replicasets"]:
        if name in (row["name"], row["uuid"]):
            found: Row = row
            return found
    known = ", ".join(row["name"] for row in status["replicasets"])
    raise TalkProblem(f'there is no replicaset "{name}", known: {known}')


def _heir(status: Row, replicaset: Row, to: str | None) -> str:
    """The one that was asked for, or the one that is least behind; it has to be fit."""
    mine = [row for row in status["instances"] if row["replicaset"] == replicaset["name"]]
    fit = fit_for(status, replicaset)
    if replicaset["master"] != replicaset["target_master"]:
        raise TalkProblem(f"{replicaset['name']} is being given another master already")
    if to is not None:
        if to == replicaset["master"]:
            raise TalkProblem(f"{to} is the master of {replicaset['name']} already")
        if to not in [row["name"] for row in mine]:
            names = ", ".join(row["name"] for row in mine)
            raise TalkProblem(f"{to} is no instance of {replicaset['name']}, which has {names}")
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
