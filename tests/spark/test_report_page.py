"""The page of the report, drawn from findings that are made up."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

from cairn.spark.analytics import Findings
from cairn.spark.report_page import page

BEGIN = datetime.now(UTC) - timedelta(days=30)


def state(uuid: str, word: str, begin_s: int, end_s: int | None) -> dict[str, Any]:
    begin = BEGIN + timedelta(seconds=begin_s)
    until = None if end_s is None else BEGIN + timedelta(seconds=end_s)
    return {"instance_uuid": uuid, "term": 1, "index": begin_s, "ts": begin, "until": until,
            "until_index": end_s, "state": word}  # fmt: skip


def findings(**more: Any) -> Findings:
    facts: dict[str, Any] = {
        "cluster": "c", "intervals": [], "masters": [], "failovers": [], "moves": [],
        "ownership": [], "leaders": [], "skew": {}, "table_tiers": {}, "hot_keys": {}, "names": {},
        "bucket_counts": {}, "frames": {},
    }  # fmt: skip
    return Findings(**(facts | more))


def cells(text: str) -> list[list[str]]:
    rows = re.findall(r"<tr>(.*?)</tr>", text, re.S)
    return [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in rows if "<td" in row]


def test_an_outage_of_seconds_in_a_month_can_be_seen() -> None:
    outage = [
        state("u", "Online", 0, 1000),
        state("u", "Offline", 1000, 1005),
        state("u", "Online", 1005, None),
    ]
    text = page(findings(intervals=outage, names={"u": "i1"}))
    assert cells(text) == [["i1", "99.99981 %", "1", "5 s", "Online"]]
    bars = re.findall(r'width="([\d.]+)"[^>]*style="fill:var\(--(ok|bad)\)', text)
    assert [colour for _, colour in bars][-1] == "bad"  # on top of its neighbours
    assert float(bars[-1][0]) >= 4


def test_rows_of_a_table_are_counted_with_the_owners_of_its_own_tier() -> None:
    owned = [
        {"tier": "default", "start": 1, "end": 5, "replicaset": "r1"},
        {"tier": "default", "start": 6, "end": 10, "replicaset": "r2"},
        {"tier": "cold", "start": 1, "end": 20, "replicaset": "r3"},
    ]
    text = page(
        findings(
            intervals=[state("u", "Online", 0, None)],
            ownership=owned,
            skew={"t": [(1, 30, 300), (7, 10, 100)]},
            table_tiers={"t": "default"},
            bucket_counts={"default": 10, "cold": 20},
            names={name: name for name in ("r1", "r2", "r3")},
        )
    )
    assert cells(text)[1:] == [["r1", "30", "75.0 %", "300 B"], ["r2", "10", "25.0 %", "100 B"]]
    assert "8 of 10 are empty" in text


def test_moves_tell_from_where_to_where_and_how_quickly() -> None:
    moved = {"term": 1, "index": 9, "ts": BEGIN + timedelta(days=10), "tier": "default",
             "from_replicaset": "r1", "to_replicaset": "r2", "start": 1, "end": 10,
             "buckets": 10}  # fmt: skip
    text = page(findings(intervals=[state("u", "Online", 0, None)], moves=[moved]))
    assert cells(text)[1:] == [["r1", "r2", "10"]]
    assert "at most 10 in 12.0 h" in text
