"""What streams of a table are told, and connections that never look at the past."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import apsw
import msgspec
import pytest

from cairn.model import stops
from cairn.model.errors import (
    CairnError,
    InvalidParameter,
    LimitExceeded,
    MotionLimit,
    QueryCanceled,
)
from cairn.model.log.records import Kind
from cairn.server.calls import row_changes
from cairn.server.calls.row_changes import Place, _changes, _epochs, _position, _rows_at
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
    place = Place(after, {})
    changes, _ = _changes(site.path, TABLE, place, (dict(site.store.vclock), upto), 100)
    return [(change["op"], change["new"]["a"]) for change in msgspec.json.decode(changes)]


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


def rows_at(site: Site, at: dict[str, int]) -> list[int]:
    told = msgspec.json.decode(_rows_at(site.path, TABLE, Place(at, {}), (1, 3000)))
    return sorted(row["a"] for _, row in told)


def test_rows_as_they_were_are_told_in_bounds_and_until_nobody_waits(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.insert(1)
    before = dict(site.store.vclock)
    site.insert(2)
    assert rows_at(site, before) == [1]
    assert rows_at(site, dict(site.store.vclock)) == [1, 2]
    with stops.working_until(lambda: True), pytest.raises(QueryCanceled):
        rows_at(site, before)
    monkeypatch.setattr(row_changes, "MAX_ANSWER_BYTES", 10)
    with pytest.raises(LimitExceeded, match="the rows of buckets 1 to 3000 take more than"):
        rows_at(site, before)


def test_a_long_answer_of_changes_is_told_in_parts(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_changes, "LONG_ANSWER_BYTES", 10)
    site.insert(1)
    site.insert(2)
    assert told(site, {}) == [("insert", 1)]
    assert told(site, {"A": 2}) == [("insert", 2)]


def test_a_position_past_a_cut_is_lost_and_says_so(site: Site) -> None:
    site.insert(1)
    site.insert(2)
    assert told(site, {"A": 2}) == [("insert", 2)]
    site.enter(2, A=2)
    with pytest.raises(CairnError, match="A stands at 2, the position is 3: lost in a failover"):
        told(site, {"A": 3})


def test_a_position_whose_lsn_was_used_again_is_lost_and_says_so(site: Site) -> None:
    """The record that the stream took was cut off; the master leads again and has gone on."""
    site.insert(1)
    site.insert(2)
    assert _epochs(site.path, {"A": 3, "B": 0}) == {"A": 1}
    site.enter(2, A=2)
    site.enter(3, A=2)
    site.master(3)
    for key in (3, 4):
        site.insert(key)
    assert told(site, {"A": 3}) == [("insert", 4)]  # without an epoch nobody could know
    ends = dict(site.store.vclock)
    with pytest.raises(CairnError, match="A:3 is of epoch 3, the position of 1: lost in a failo"):
        _changes(site.path, TABLE, _position('{"A": [3, 1]}'), (ends, ends), 100)
    changes, reached = _changes(site.path, TABLE, _position('{"A": [3, 3]}'), (ends, ends), 100)
    found = msgspec.json.decode(changes)
    assert (len(found), reached, _epochs(site.path, reached)) == (1, {"A": 4}, {"A": 3})


@pytest.mark.parametrize("text", ["[]", '{"A": "3"}', '{"A": [3]}', '{"A": [3, null]}', "{"])
def test_what_is_no_position_is_refused(text: str) -> None:
    with pytest.raises(InvalidParameter, match="not a position"):
        _position(text)


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
    assert (1_000,) in (reader.at_once(ALL, ()) or [])


@pytest.mark.parametrize("read", ["quick", "quick_piece", "quick_rows"])
def test_what_was_begun_in_vain_on_the_event_loop_is_not_tried_there_at_once_again(
    read: str, reader: RowReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each attempt keeps everybody else waiting for some milliseconds."""
    more = () if read == "quick" else (10_000,)
    ask = partial(getattr(reader, read), ALL, (), *more)
    monkeypatch.setattr(readers, "LOOK_EVERY", 50)
    monkeypatch.setattr(readers, "QUICK_S", -1.0)
    assert ask() is None
    monkeypatch.setattr(readers, "QUICK_S", 10.0)
    tried, given = reader.count, 0
    while ask() is None:
        given += 1
    assert (given, reader.count - tried) == (readers.LONG_FOR, 1)


def test_an_answer_of_too_many_rows_is_left_to_a_thread(reader: RowReader) -> None:
    assert len(reader.quick_rows(ALL, (), 200) or []) == 200
    assert reader.quick_rows(ALL, (), 199) is None
    assert reader.connection.in_transaction is False


def test_a_scan_stopped_at_its_limit_leaves_no_cursor_open(
    site: Site, reader: RowReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readers, "TAKEN_ROWS", 20)
    with pytest.raises(MotionLimit):
        reader.rows(ALL, (), 10, threading.Event())
    site.insert(1_000)
    assert (1_000,) in reader.rows(ALL, (), 0, threading.Event())
