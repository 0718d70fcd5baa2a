"""`cairn expel`: an instance leaves for good."""

from __future__ import annotations

import json
import sys
import time
from math import inf
from typing import Any

from cairn.cli.anywhere import Anywhere
from cairn.cli.steering.drain import is_drained, owned, wait_for
from cairn.cli.talking import Talk, TalkProblem, Target
from cairn.model.quoting import literal

#: The server ends our connection, or it broke: what was asked may have been done.
_LINK_ENDED = ("57P01", "08006")
_ASK_AGAIN_S = 0.1


def run_expel(
    instance: str,
    dsn: str | None,
    password_file: str | None,
    *,
    force: bool,
    timeout_s: float,
    as_json: bool = False,
) -> int:
    deadline = time.monotonic() + timeout_s + 5.0
    target = Target(dsn, password_file)
    talk = Talk(target)
    try:
        uuid, others = _look(talk, instance)
        talk = _elsewhere(talk, target, uuid, others)
        if not force:
            drain_last(target, instance)
        try:
            answer = _ask(talk, instance, force, timeout_s)
        except TalkProblem as problem:
            if problem.exit_code != 3 and problem.sqlstate not in _LINK_ENDED:
                raise
            if not _is_gone(target, uuid, others, deadline):
                raise TalkProblem(
                    f"the connection broke; whether {instance} is expelled is not known: {problem}",
                    4,
                ) from None
            answer = {"expelled": instance}
    finally:
        talk.close()
    if as_json:
        print(json.dumps(answer))
    else:
        _tell(answer)
    return 0


def _tell(answer: Any) -> None:
    print(f"{answer['expelled']} is expelled")
    if answer.get("lost_buckets"):
        ranges = ", ".join(answer["lost_buckets"])
        tables = ", ".join(answer.get("lost_tables") or ["none yet"])
        if kept := ", ".join(answer.get("kept_by") or []):
            print(
                f"rows of buckets {ranges} that only {answer['expelled']} had are lost; "
                f"{kept} has the others and serves them when it is started"
            )
        else:
            print(f"the rows of buckets {ranges} are lost; others own these buckets now, empty")
        print(f"tables that had rows there: {tables}")


def drain_last(target: Target, instance: str) -> None:
    """The last instance of a replicaset goes when others own its buckets: they move first."""
    cluster = Anywhere(target)
    try:
        status = cluster.status()
        me = next((r for r in status["instances"] if instance in (r["name"], r["uuid"])), None)
        if me is None:
            return
        name = me["replicaset"]
        others = sum(row["replicaset"] == name for row in status["instances"]) - 1
        if others or not owned(status, name):
            return
        first = f"{me['name']} is the last instance of {name}: its buckets move to others first"
        print(first, file=sys.stderr)
        cluster.call(f"CALL cairn_rebalance('drain', {literal(name)})")
        wait_for(cluster, name, is_drained, inf)
    finally:
        cluster.close()


def _ask(talk: Talk, instance: str, force: bool, timeout_s: float) -> Any:
    sql = f"CALL cairn_expel({literal(instance)}, {'true' if force else 'false'}, {timeout_s})"
    return talk.call(sql, timeout_s + 5.0)


def _look(talk: Talk, instance: str) -> tuple[str, list[str]]:
    """The uuid of whom to expel ("" if unknown), and where the others speak pgwire."""
    rows = talk.rows("SELECT name, uuid, raft_id, current_state FROM _pico_instance")
    found = [row for row in rows if instance in (row[0], str(row[1]))]
    online = {row[2] for row in rows if row[3][0] == "Online" and row not in found}
    addresses = talk.rows(
        "SELECT raft_id, address FROM _pico_peer_address WHERE connection_type = 'pgproto'"
    )
    others = [address for raft_id, address in addresses if raft_id in online]
    return (str(found[0][1]) if found else ""), others


def _elsewhere(talk: Talk, target: Target, uuid: str, others: list[str]) -> Talk:
    """Whoever is expelled cannot tell how it ended: ask another, if one can be reached."""
    if str(talk.rows("SELECT pico_instance_uuid()")[0][0]) != uuid:
        return talk
    for address in others:
        try:
            other = Talk(target.at(address))
        except TalkProblem:
            continue
        talk.close()
        return other
    return talk


def _is_gone(target: Target, uuid: str, others: list[str], deadline: float) -> bool:
    """What the others say, until one of them does not know the instance any more."""
    while time.monotonic() < deadline and uuid:
        for address in others:
            try:
                talk = Talk(target.at(address))
            except TalkProblem:
                continue
            try:
                if not talk.rows("SELECT name FROM _pico_instance WHERE uuid = $1", (uuid,)):
                    return True
            except TalkProblem:
                continue
            finally:
                talk.close()
        time.sleep(_ASK_AGAIN_S)
    return False
