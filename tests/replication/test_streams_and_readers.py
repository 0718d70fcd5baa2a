"""What streams of a table are told (rule 19), and connections that never look at the past (16)."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from cairn.model.errors import CairnError, MotionLimit
from cairn.model.records import Kind
from cairn.server.row_changes import _changes
from cairn.storage import readers
from cairn.storage.readers import RowReader
from tests.replication.builders import TABLE, Site, inserted, packed

ALL = f"SELECT c0 FROM {TABLE.physical_name}"


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    found = Site(tmp_path, "A")
    found.master(1)
    found.create()
    yield found
    found.close()


def told(site: Site, after: dict[str, int]) -> list[tuple[str, int]]:
    return told_upto(site, after, dict(site.store.vclock))


def told_upto(site: Site, after: dict[str, int], upto: dict[str, int]) -> list[tuple[str, int]]:
    changes, _ = _changes(site.path, TABLE, after, (dict(site.store.vclock), upto), 100)
    return [(change["op"], change["new"]["a"]) for change in changes]


def test_rows_that_only_moved_are_not_told_as_changes(site: Site) -> None:
    site.insert(1)
    site.enter(1)
    site.take([packed("B", 1, 1, inserted(2), kind=Kind.MOVE), packed("B", 1, 2, inserted(3))])
    assert site.rows() == [(1, "x"), (2, "x"), (3, "x")]
    assert sorted(told(site, {})) == [("insert", 1), ("insert", 3)]


def test_changes_are_told_up_to_where_they_are_safe(site: Site) -> None:
    site.insert(1)
    site.insert(2)
    assert told_upto(site, {}, {"A": 2}) == [("insert", 1)]
    assert told_upto(site, {"A": 3}, {"A": 2}) == []  # it was told more before: nothing is lost


def test_a_position_past_a_cut_is_lost_and_says_so(site: Site) -> None:
    site.insert(1)
    site.insert(2)
    assert told(site, {"A": 2}) == [("insert", 2)]
    site.enter(2, A=2)
    with pytest.raises(CairnError, match="A stands at 2, the position is 3: lost in a failover"):
        told(site, {"A": 3})


@pytest.fixture
def reader(site: Site, tmp_path: Path) -> Iterator[RowReader]:
    apsw.Connection(str(tmp_path / "raft.db")).close()
    for key in range(200):
        site.insert(key)
    found = RowReader(site.path, tmp_path / "raft.db", lambda _: None)
    yield found
    found.close()


def test_a_read_given_up_half_way_leaves_no_cursor_open(
    site: Site, reader: RowReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With one open, the next read on the connection would miss what was acknowledged since."""
    monkeypatch.setattr(readers, "QUICK_S", -1.0)
    monkeypatch.setattr(readers, "LOOK_EVERY", 50)
    assert reader.quick(ALL, ()) is None
    monkeypatch.setattr(readers, "QUICK_S", 10.0)
    site.insert(1_000)
    assert (1_000,) in (reader.quick(ALL, ()) or [])


def test_a_scan_stopped_at_its_limit_leaves_no_cursor_open(site: Site, reader: RowReader) -> None:
    with pytest.raises(MotionLimit):
        reader.rows(ALL, (), 10, threading.Event())
    site.insert(1_000)
    assert (1_000,) in reader.rows(ALL, (), 0, threading.Event())
