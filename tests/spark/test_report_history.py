"""What the report makes of histories: nobody is called there who may have been gone."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from cairn.spark.report.histories import UNRECORDED, durations, with_unrecorded
from tests.spark.test_report_page import BEGIN, state


def leader(term: int, since_s: int) -> dict[str, Any]:
    return {"term": term, "since": BEGIN + timedelta(seconds=since_s), "leader": "i1", "events": 0}


def told(rows: list[dict[str, Any]], uuid: str) -> list[tuple[str, int, int | None]]:
    def seconds(at: Any) -> int | None:
        return None if at is None else int((at - BEGIN).total_seconds())

    return [
        (row["state"], seconds(row["ts"]), seconds(row["until"]))  # type: ignore[misc]
        for row in rows
        if row["instance_uuid"] == uuid
    ]


def gone_and_back(uuid: str, told_s: int, term: int) -> list[dict[str, Any]]:
    """Online from 0 on, told Offline by the leader of a term, Online again a second later."""
    return [
        state(uuid, "Online", 0, told_s),
        {**state(uuid, "Offline", told_s, told_s + 1), "term": term},
        {**state(uuid, "Online", told_s + 1, None), "term": term},
    ]


def test_who_was_found_dead_after_a_time_without_quorum_is_counted_as_away_for_all_of_it() -> None:
    """Three instances: at 50 something is recorded last, at 3600 two of them are started again."""
    rows = [*gone_and_back("a", 3601, 2), *gone_and_back("b", 3601, 2)]
    rows += [state("c", "Online", 50, None)]
    found = with_unrecorded(rows, [leader(1, 0), leader(2, 3600)])
    for uuid in ("a", "b"):
        assert told(found, uuid)[:3] == [
            ("Online", 0, 50), (UNRECORDED, 50, 3601), ("Offline", 3601, 3602),
        ]  # fmt: skip
    assert told(found, "c") == [("Online", 50, None)]


def test_a_failover_with_a_quorum_leaves_no_doubt() -> None:
    rows = [*gone_and_back("a", 3601, 2), state("b", "Online", 0, None)]
    rows += [state("c", "Online", 50, None)]
    assert with_unrecorded(rows, [leader(1, 0), leader(2, 3600)]) == rows


def test_who_hands_over_and_goes_was_there_until_then() -> None:
    """Two instances: the election needed both, and the next term is when the first is back."""
    rows = [state("a", "Online", 0, 3600), {**state("a", "Offline", 3600, 3620), "term": 2}]
    rows += [{**state("a", "Online", 3620, None), "term": 3}, state("b", "Online", 50, None)]
    assert with_unrecorded(rows, [leader(1, 0), leader(2, 3600), leader(3, 3620)]) == rows


def test_who_left_long_after_an_election_was_there_before_it() -> None:
    rows = [*gone_and_back("a", 9000, 2), state("b", "Online", 0, None)]
    assert with_unrecorded(rows, [leader(1, 0), leader(2, 3600)]) == rows


def change(op: str, number: int, status: str, at_s: int) -> dict[str, Any]:
    row = {"id": number, "status": status}
    when = (BEGIN + timedelta(seconds=at_s)).isoformat()
    gone = op == "delete"
    return {"op": op, "old": row if gone else None, "new": None if gone else row, "timestamp": when}


def test_an_operation_lasts_from_when_it_was_queued_to_its_last_state() -> None:
    history = [
        change("update", 1, "done", 5),  # its beginning is not kept
        change("insert", 2, "pending", 10),
        change("insert", 3, "pending", 20),
        change("update", 2, "done", 70),
        change("delete", 2, "done", 5000),
    ]
    found = durations(history, "status", ("pending",))
    assert [(row["row"]["id"], row["seconds"], row["is_under_way"]) for row in found] == [
        (2, 60, False),
        (3, 0, True),
    ]
