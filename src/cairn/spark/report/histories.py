"""What the report reads out of histories: times that nobody recorded, what took long, hot keys."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

from cairn.model.errors import CairnError
from cairn.model.quoting import literal
from cairn.spark import cluster
from cairn.spark.options import Options
from cairn.spark.streams.hand_overs import stamped
from cairn.spark.streams.row_asking import RowAsker
from cairn.spark.tables import TableInfo

UNRECORDED = "not recorded"
SOON = timedelta(seconds=60)  # what a new leader finds is told by then
CHUNK = 5_000
LAST_CHANGES = 50_000  # of each origin's row log
HOT = 10
Row = dict[str, Any]


def with_unrecorded(intervals: list[Row], leaders: list[Row]) -> list[Row]:
    """States, with the times in which nobody could record that an instance was gone.

    Without a quorum nothing is recorded: who died then is told Offline by the next leader. Its
    absence began somewhere between the last thing recorded and that election. All of it is
    counted. There was no quorum if those who lived through it are no majority of the instances,
    and one of those who did not is back at once: it came to vote. (Else it had handed over.)
    """
    found = [dict(row) for row in intervals]
    proofs = sorted([row["ts"] for row in found] + [row["since"] for row in leaders])
    for leader in leaders:
        election = leader["since"]
        known = [at for at in proofs if at < election]
        if not known:
            continue
        last = known[-1]
        there = [row for row in found if row["ts"] <= last and (row["until"] or election) > last]
        members = [row for row in there if row["state"] not in ("Expelled", "Gone")]
        online = [row for row in there if row["state"] == "Online"]
        gone = [row for row in online if _is_told_gone(found, row, leader)]
        if 2 * (len(online) - len(gone)) > len(members):
            continue
        if not any(_is_back(found, row, leader) for row in gone):
            continue
        for row in gone:
            found.append({**row, "ts": last, "state": UNRECORDED})
            row["until"] = last
    return sorted(found, key=lambda row: (row["instance_uuid"], row["ts"], row["index"]))


def _is_told_gone(rows: list[Row], row: Row, leader: Row) -> bool:
    """Whether the new leader soon told that it was not there, or had begun anew."""
    until = row["until"]
    return until is not None and any(
        each["term"] == leader["term"] and each["ts"] == until
        for each in rows
        if each["instance_uuid"] == row["instance_uuid"]
        and leader["since"] - timedelta(seconds=1) <= until <= leader["since"] + SOON
    )


def _is_back(rows: list[Row], row: Row, leader: Row) -> bool:
    return any(
        each["instance_uuid"] == row["instance_uuid"]
        and each["term"] == leader["term"]
        and each["state"] not in ("Offline", "Expelled", "Gone")
        and row["until"] <= each["ts"] <= row["until"] + SOON
        for each in rows
    )


# --- what took long -------------------------------------------------------------------------------


def lasting(dsn: str) -> list[Row]:
    """Operations of the governor's queue and moves of buckets, with how long each took."""
    queue = durations(_changes(dsn, "_pico_governor_queue"), "status", ("pending", "running"))
    moves = durations(_changes(dsn, "_cairn_move"), "phase", ())
    found = [{"kind": "operation", "what": _operation(row), **row} for row in queue]
    found += [{"kind": "move of buckets", "what": _move(row), **row} for row in moves]
    return sorted(found, key=lambda row: -row["seconds"])


def durations(changes: Iterable[Row], state: str, unfinished: tuple[str, ...]) -> list[Row]:
    """From the first change of each row to the last that gave it another state."""
    found: dict[Any, Row] = {}
    for change in changes:
        row = change["new"] or change["old"]
        at = datetime.fromisoformat(change["timestamp"])
        mine = found.get(row["id"])
        if mine is None:
            if change["op"] != "insert":
                continue  # its beginning is not kept any more
            mine = found[row["id"]] = {"row": row, "began": at, "until": at, "state": row[state]}
        elif change["op"] != "delete" and row[state] != mine["state"]:
            mine.update(row=row, until=at, state=row[state])
        elif change["op"] == "delete" and mine["state"] in unfinished:
            mine.update(until=at, state="removed")
    for mine in found.values():
        mine["seconds"] = (mine["until"] - mine["began"]).total_seconds()
        mine["is_under_way"] = mine["state"] in unfinished
    return list(found.values())


def _operation(found: Row) -> str:
    row = found["row"]
    return str(row["description"] or row["op"])


def _move(found: Row) -> str:
    row = found["row"]
    buckets = f"{row['bucket_id_start']}–{row['bucket_id_end']}"
    return f"{row['tier_name']} {buckets}: {row['source']} → {row['target']}"


def _changes(dsn: str, table: str) -> list[Row]:
    """What is kept of a global table's history, by whoever keeps most of it."""
    name = literal(table)
    kept: list[tuple[int, str]] = []
    for each in cluster.pool(dsn).topology.online():
        try:
            answer = cluster.call(dsn, f"CALL cairn_changes({name})", each.address)
        except CairnError:
            continue  # one that does not answer: others tell the same
        kept.append((answer["begins"], each.address or ""))
    if not kept:
        return []
    at, address = min(kept)
    found: list[Row] = []
    while True:
        answer = cluster.call(dsn, f"CALL cairn_changes({name}, {at}, {CHUNK})", address)
        found += answer["changes"]
        if answer["after"][1] <= at:
            return found
        at = answer["after"][1]


# --- what is written most -------------------------------------------------------------------------


def changed_keys(options: Options, table: TableInfo) -> tuple[int, list[tuple[str, int]]]:
    """How many of the last changes there are, and the primary keys with most of them."""
    assert table.tier is not None
    asker = RowAsker(options, table.name, table.tier)
    oldest, newest = asker.standing("earliest"), asker.standing()
    seen: Counter[str] = Counter()
    for uuid, ends in newest.positions.items():
        first = oldest.positions.get(uuid, {})
        begins = {o: max(first.get(o, 0), lsn - LAST_CHANGES) for o, lsn in ends.items()}
        asked: Any = stamped(begins, {})
        position = begins
        while any(position.get(origin, 0) < lsn for origin, lsn in ends.items()):
            answer = asker.ask(uuid, asked)
            for change in answer["changes"]:
                row = change["new"] or change["old"]
                if row is not None:
                    seen[_key(row, answer["key"])] += 1
            if answer["after"] == position:
                break
            position, asked = answer["after"], stamped(answer["after"], answer["epochs"])
    hot = [(key, count) for key, count in seen.most_common(HOT) if count > 1]
    return seen.total(), hot


def _key(row: Row, names: Iterable[str]) -> str:
    return ", ".join(json.dumps(row.get(name), ensure_ascii=False) for name in names)
