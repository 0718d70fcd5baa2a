"""`cairn restart`: instances start anew, one after the other, and clients go on.

The order of steps, for each instance: the cluster is well (everybody Online, every replica has
caught up); a master hands over to another instance that is Online; the instance leaves as with
SIGTERM; its supervisor starts it anew; it is Online and has caught up. Whatever does not come true
stops the whole: one instance too few is safe, two may not be.

Replicas come first and the leader of Raft last, so that as few things as possible move.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from cairn.cli.anywhere import Anywhere, Status
from cairn.cli.asking import agreed
from cairn.cli.talking import TalkProblem, Target
from cairn.model.quoting import literal

LOOK_S = 0.2
CAUGHT_UP_ROWS = 100  # under load a replica is always some rows behind; a hand-over waits for all

Row = dict[str, Any]


def run_restart(
    names: list[str],
    dsn: str | None,
    password_file: str | None,
    *,
    rolling: bool,
    yes: bool,
    timeout_s: float,
    as_json: bool,
) -> int:
    if rolling == bool(names):
        raise TalkProblem("name instances, or say --rolling for all of them", 2)
    cluster = Anywhere(Target(dsn, password_file))
    done: list[Row] = []
    try:
        status = cluster.status()
        order = order_of(status, names)
        if not agreed(_question(status, order), yes=yes):
            print("nothing is changed")
            return 1
        for name in order:
            done.append(_Restart(cluster, name, timeout_s).run())
            if not as_json:
                print(f"{name} is back, {done[-1]['seconds']} s", flush=True)
    except KeyboardInterrupt:
        raise TalkProblem(f"stopped by Ctrl-C; {_so_far(done)}", 130) from None
    except TalkProblem as problem:
        text = f"{problem}; {_so_far(done)}"
        raise TalkProblem(text, problem.exit_code, sqlstate=problem.sqlstate) from None
    finally:
        cluster.close()
    if as_json:
        print(json.dumps({"restarted": done}))
    return 0


def _so_far(done: list[Row]) -> str:
    names = ", ".join(row["instance"] for row in done)
    return f"restarted so far: {names}" if names else "no instance was restarted"


def order_of(status: Status, names: list[str]) -> list[str]:
    """Replicas, masters, the leader of Raft; by name among their like."""
    rows = {row["name"]: row for row in status["instances"]}
    unknown = [name for name in names if name not in rows]
    if unknown:
        raise TalkProblem(f'there is no instance "{unknown[0]}", known: {", ".join(rows)}', 2)
    masters = {row["master"] for row in status["replicasets"]}
    chosen = set(names or rows)
    return sorted(chosen, key=lambda name: (rows[name]["leader"], name in masters, name))


def _question(status: Status, order: list[str]) -> str:
    rows = status["instances"]
    mates = {row["name"]: row["replicaset"] for row in rows}
    alone = [name for name in order if list(mates.values()).count(mates[name]) == 1]
    text = f"restart {', '.join(order)}, one after the other?"
    if alone:
        text += f" Nobody else has the rows of {', '.join(alone)}: they are away for some seconds."
    return text


def problem_of(status: Status) -> str | None:
    """Why no instance may be taken away now; None: all is well."""
    if status["raft"]["leader"] is None:
        return str(next(iter(status["problems"]), "there is no Raft leader"))
    for row in status["instances"]:
        if not row["current_state"].startswith("Online") or not row["answers"]:
            return f"{row['name']} is not Online"
        if row["current_state"] != row["target_state"]:
            return f"{row['name']} is {row['current_state']}, not yet {row['target_state']}"
        if any(link["state"] == "stopped" for link in row["links"]):
            return f"{row['name']} does not follow its master"
        if row["lag_rows"] is None or row["lag_rows"] > CAUGHT_UP_ROWS:
            return f"{row['name']} is {row['lag_rows'] or 'unknown many'} rows behind"
    for replicaset in status["replicasets"]:
        if replicaset["master"] != replicaset["target_master"]:
            return f"{replicaset['name']} is being given another master"
        missing = set(replicaset["members"]) - {row["name"] for row in status["instances"]}
        if missing:
            return f"{', '.join(sorted(missing))} of {replicaset['name']} is missing"
    return None


class _Restart:
    """One instance; every wait ends at its deadline."""

    def __init__(self, cluster: Anywhere, name: str, timeout_s: float) -> None:
        self._cluster, self._name, self._timeout_s = cluster, name, timeout_s
        self._begun = time.monotonic()

    def run(self) -> Row:
        status = self._well()
        before = self._row(status)
        self._hand_over(status, before["replicaset"])
        self._well()
        life = _life(before)
        self._cluster.call(f"CALL cairn_restart({literal(self._name)}, {life})")
        self._until(
            lambda status: _life(self._row(status)) > life,
            f"{self._name} did not come back: look at its log",
        )
        self._well()
        return {
            "instance": self._name,
            "state": self._row(self._cluster.status())["current_state"],
            "seconds": round(time.monotonic() - self._begun, 1),
        }

    def _well(self) -> Status:
        """The status, once nothing is wrong with the cluster."""
        said = None
        while (why := problem_of(status := self._cluster.status())) is not None:
            self._check_time(f"stopped before {self._name}: {why}")
            if why != said:
                print(f"waiting: {why}", file=sys.stderr, flush=True)
                said = why
            time.sleep(LOOK_S)
        return status

    def _hand_over(self, status: Status, replicaset: str) -> None:
        mine = next(row for row in status["replicasets"] if row["name"] == replicaset)
        heirs = [
            row
            for row in status["instances"]
            if row["name"] in mine["members"] and row["name"] != self._name
        ]
        if mine["master"] != self._name or not heirs:
            return
        heir = min(heirs, key=lambda row: (row["lag_rows"], row["name"]))["name"]
        self._cluster.rows(
            "UPDATE _pico_replicaset SET target_master_name = $1 WHERE name = $2",
            (heir, replicaset),
        )

        def is_done(status: Status) -> bool:
            rows = {row["name"]: row for row in status["replicasets"]}
            return bool(rows[replicaset]["master"] == heir)

        self._until(is_done, f"{heir} did not become master of {replicaset}")

    def _until(self, condition: Any, otherwise: str) -> None:
        while not condition(self._cluster.status()):
            self._check_time(otherwise)
            time.sleep(LOOK_S)

    def _check_time(self, otherwise: str) -> None:
        if time.monotonic() - self._begun > self._timeout_s:
            raise TalkProblem(f"{otherwise} (waited {self._timeout_s:g} s)", 4)

    def _row(self, status: Status) -> Row:
        for row in status["instances"]:
            if row["name"] == self._name:
                found: Row = row
                return found
        raise TalkProblem(f"{self._name} was expelled meanwhile")


def _life(row: Row) -> int:
    """Which start of the instance this is; 0 while it is not Online in it."""
    grade, _, incarnation = row["current_state"].rstrip(")").partition("(")
    return int(incarnation) if grade == "Online" and row["answers"] else 0
