"""Streams go on exactly where their checkpoint says."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cairn.client.sync_pool import SyncPool


def test_topology_events_come_once_in_raft_order(
    run: Callable[..., list[Any]], pool: SyncPool
) -> None:
    batches = run("topology", maxRowsPerTrigger=5)
    places = [(row.term, row["index"], row.n) for batch in batches for row in batch]
    known = pool.fetch("SELECT term, index, n FROM _cairn_event ORDER BY term, index, n")
    assert len(batches) > 1
    assert sorted(places) == known
    assert run("topology") == []  # nothing new: the checkpoint holds


@pytest.mark.slow
def test_an_entry_is_never_cut_in_two(run: Callable[..., list[Any]]) -> None:
    batches = run("topology", maxRowsPerTrigger=1)
    entries = [{(row.term, row["index"]) for row in batch} for batch in batches]
    assert all(not one & other for at, one in enumerate(entries) for other in entries[at + 1 :])


@pytest.mark.slow
def test_a_stream_starts_where_it_is_told(run: Callable[..., list[Any]], pool: SyncPool) -> None:
    [(term, index)] = pool.fetch("SELECT term, index FROM _cairn_event ORDER BY index LIMIT 1")
    assert run("topology", "latest", startingOffset="latest") == []
    given = json.dumps({"term": term, "index": index})
    [batch] = run("topology", "given", startingOffset=given)
    assert all(row["index"] > index for row in batch)


@pytest.mark.parametrize(
    ("stream", "said"),
    [
        ("table:nowhere", r'\[42P01\] table with name "nowhere" not found'),
        ("table:_routing", r"\[22023\] _routing has no history"),
        ("rows", r'\[22023\] option\("stream", "rows"\) is not known'),
    ],
)
def test_a_stream_that_cannot_be_made_says_why(
    run: Callable[..., list[Any]], stream: str, said: str
) -> None:
    with pytest.raises(Exception, match=said):
        run(stream)


def test_changes_of_rows_are_told_with_old_and_new(
    run: Callable[..., list[Any]], pool: SyncPool, table: Callable[[str], str]
) -> None:
    name = table("id INTEGER PRIMARY KEY, s TEXT")
    pool.executemany(f"INSERT INTO {name} VALUES ($1, $2)", [(i, f"s{i}") for i in range(20)])
    pool.execute(f"UPDATE {name} SET s = 'new' WHERE id = 3")
    first = [row for batch in run(f"table:{name}") for row in batch]
    assert sorted(json.loads(row.key)["id"] for row in first if row.op == "insert") == [*range(20)]
    [update] = [row for row in first if row.op == "update"]
    assert (json.loads(update.old)["s"], json.loads(update.new)["s"]) == ("s3", "new")

    pool.execute(f"DELETE FROM {name} WHERE id = 4")
    again = [row for batch in run(f"table:{name}") for row in batch]
    assert [(row.op, json.loads(row.old), row.new) for row in again] == [
        ("delete", {"id": 4, "s": "s4"}, None)
    ]


def test_micro_batches_of_rows_are_limited_and_complete(
    run: Callable[..., list[Any]], pool: SyncPool, table: Callable[[str], str]
) -> None:
    name = table("id INTEGER PRIMARY KEY")
    pool.executemany(f"INSERT INTO {name} VALUES ($1)", [(i,) for i in range(100)])
    batches = run(f"table:{name}", maxRowsPerTrigger=40)
    assert len(batches) > 1
    assert sorted(json.loads(row.key)["id"] for batch in batches for row in batch) == [*range(100)]


def test_a_checkpoint_of_another_cluster_is_refused(
    run: Callable[..., list[Any]], tmp_path: Path
) -> None:
    run("topology", "other")
    for offsets in (tmp_path / "other" / "offsets").iterdir():
        if not offsets.name.startswith("."):
            text = offsets.read_text()
            begin = text.index('"cluster"')
            old = text[begin : text.index(",", begin)]
            offsets.write_text(text.replace(old, '"cluster":"another"'))
    for crc in (tmp_path / "other" / "offsets").glob(".*.crc"):
        crc.unlink()
    with pytest.raises(Exception, match="belongs to cluster another"):
        run("topology", "other")
