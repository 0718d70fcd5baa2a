"""The page of the report, drawn from findings that are made up."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

from cairn.spark.report.analytics import Findings
from cairn.spark.report.histories import UNRECORDED
from cairn.spark.report.page import page

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
            skew={"t": [(1, 300, 300), (7, 100, 100)]},
            table_tiers={"t": "default"},
            bucket_counts={"default": 10, "cold": 20},
            names={name: name for name in ("r1", "r2", "r3")},
        )
    )
    assert cells(text)[1:] == [["r1", "300", "75.0 %", "300 B"], ["r2", "100", "25.0 %", "100 B"]]
    assert "8 of 10 are empty" in text


def test_moves_tell_from_where_to_where_and_how_quickly() -> None:
    moved = {"term": 1, "index": 9, "ts": BEGIN + timedelta(days=10), "tier": "default",
             "from_replicaset": "r1", "to_replicaset": "r2", "start": 1, "end": 10,
             "buckets": 10}  # fmt: skip
    text = page(findings(intervals=[state("u", "Online", 0, None)], moves=[moved]))
    assert cells(text)[1:] == [["r1", "r2", "10"]]
    assert "at most 10 in 12.0 h" in text


def test_a_tiny_table_has_no_skew() -> None:
    table = {"skew": {"t": [(1, 3, 30)]}, "table_tiers": {"t": "default"}}
    text = page(
        findings(
            intervals=[state("u", "Online", 0, None)], bucket_counts={"default": 3000}, **table
        )
    )
    assert "too few for 3,000 buckets" in text
    assert "the mean" not in text


def test_rows_that_were_changed_as_often_as_others_are_not_shown_as_hot() -> None:
    def told(seen: int, *keys: tuple[str, int]) -> str:
        return page(
            findings(
                intervals=[state("u", "Online", 0, None)],
                skew={"t": [(1, 1, 30)]},
                table_tiers={"t": "default"},
                bucket_counts={"default": 3000},
                changed_keys={"t": (seen, [*keys])},
            )
        )

    assert "1 row, 30 B" in told(1)
    assert "One change." in told(1)
    even = told(1100, ("20", 2), ("30", 2), ("25", 2))
    assert "none was changed more than 2 times" in even
    assert "Most changed rows" not in even
    assert "Most changed rows" in told(1100, ("20", 9), ("30", 2))


def test_a_replicaset_that_was_expelled_has_no_master_any_more() -> None:
    def ended(last_state: str) -> float:
        states = [state("u", "Online", 0, 86_400), state("u", last_state, 86_400, None)]
        master = {"replicaset_uuid": "r", "term": 1, "index": 1, "ts": BEGIN, "master": "u",
                  "before": None}  # fmt: skip
        text = page(findings(intervals=states, masters=[master], names={"u": "i1", "r": "r1"}))
        lane = text.partition("Masters and failovers")[2].partition("</svg>")[0]
        [bar] = re.findall(r'width="([\d.]+)"[^>]*style="fill:var\(--c0\)', lane)
        return float(bar)

    assert ended("Expelled") == ended("Gone") < ended("Offline") / 20


def test_the_page_says_which_cluster_what_lags_and_what_took_long() -> None:
    link = {"instance": "i2", "upstream": "i1", "state": "follow", "problem": None,
            "lag_rows": 1200, "lag_s": 7.0}  # fmt: skip
    slow = {"kind": "operation", "what": "ADD <i>", "began": BEGIN, "seconds": 600.0,
            "state": "done", "is_under_way": False}  # fmt: skip
    text = page(
        findings(
            intervals=[state("u", "Online", 0, None)],
            cluster_name="a & b",
            links=[link],
            lasting=[slow],
            skew={"t": [(1, 3, 30)]},
            table_tiers={"t": "default"},
            bucket_counts={"default": 10},
            changed_keys={"t": (50, [("7", 40)])},
        )
    )
    assert "<title>Cluster a &amp; b</title>" in text
    rows = cells(text)
    assert ["i2", "i1", "follow", "1,200", "7 s", ""] in rows
    assert ["operation", "ADD &lt;i&gt;", f"{BEGIN:%Y-%m-%d %H:%M:%S}", "10 min", "done"] in rows
    assert "40 changes, 80.0 %" in text


def test_times_that_nobody_recorded_are_said_and_count_as_away() -> None:
    states = [
        state("u", "Online", 0, 1000),
        state("u", UNRECORDED, 1000, 2000),
        state("u", "Offline", 2000, 2005),
        state("u", "Online", 2005, None),
    ]
    text = page(findings(intervals=states, names={"u": "i1"}))
    [[_, share, outages, away, _]] = cells(text)
    assert (outages, away) == ("1", "17 min")
    assert share < "99.97 %"
    assert "there was no quorum" in text
