"""Where an origin stands is read off its log: also when its newest records are gone, and in a file
of the layout of before."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.replication.builders import Site

BEFORE = """
CREATE TABLE old_vclock (origin TEXT PRIMARY KEY, lsn INTEGER NOT NULL) STRICT, WITHOUT ROWID;
INSERT INTO old_vclock SELECT origin, lsn FROM vclock;
CREATE TABLE old_log (
    origin INTEGER NOT NULL, lsn INTEGER NOT NULL, epoch INTEGER NOT NULL, body BLOB NOT NULL,
    PRIMARY KEY (origin, lsn)
) STRICT;
INSERT INTO old_log SELECT origin, lsn, epoch, body FROM row_log;
DROP VIEW vclock; DROP TABLE row_log;
ALTER TABLE old_vclock RENAME TO vclock; ALTER TABLE old_log RENAME TO row_log;
ALTER TABLE origin DROP COLUMN base;
"""


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Site, Site]:
    """Two members: each has written some, and both have all of it."""
    first, second = Site(tmp_path, "a"), Site(tmp_path, "b")
    for site in (first, second):
        site.enter(1)
    first.master(1)
    first.create()
    for key in range(5):
        first.insert(key)
    second.follow(first)
    for site in (first, second):
        site.enter(2, a=6)
    second.master(2)
    for key in range(5, 8):
        second.insert(key)
    first.follow(second)
    return first, second


def test_a_log_that_was_forgotten_to_its_end_still_says_where_it_ended(
    pair: tuple[Site, Site],
) -> None:
    site = pair[0]
    assert site.group(lambda: site.store.prune("a", 4)) == 4
    assert (site.reader.oldest("a"), site.reader.oldest("b")) == (5, 1)
    assert site.group(lambda: site.store.prune("a", 6, limit=1)) == 1
    assert site.group(lambda: site.store.prune("a", 6)) == 1
    assert site.group(lambda: site.store.prune("a", 6)) == 0
    site.reopen()
    assert site.store.vclock == {"a": 6, "b": 3}
    assert [record.lsn for record in site.log_of("b")] == [1, 2, 3]
    assert site.log_of("a") == []


def test_records_of_one_origin_are_not_taken_for_those_of_another(pair: tuple[Site, Site]) -> None:
    site = pair[1]
    assert [(record.origin, record.lsn) for record in site.log_of("a", 4)] == [("a", 5), ("a", 6)]
    assert site.log_of("nobody") == []
    assert (site.reader.epoch_at("a", 6), site.reader.epoch_at("a", 7)) == (1, 0)
    assert site.reader.oldest("nobody") == 0


def test_what_was_taken_back_is_not_in_the_vclock_of_the_file(pair: tuple[Site, Site]) -> None:
    site = pair[1]
    site.insert(9)
    site.enter(3, a=6, b=3)
    site.reopen()
    assert site.store.vclock == {"a": 6, "b": 3}


def test_a_file_of_the_layout_of_before_goes_on_where_it_was(pair: tuple[Site, Site]) -> None:
    first, second = pair
    first.group(lambda: first.store.prune("a", 6))  # what the log lacks, the old vclock has
    logs = {origin: first.log_of(origin) for origin in ("a", "b")}
    first.group(lambda: first.store.connection.execute(BEFORE))
    first.reopen()
    assert first.store.vclock == {"a": 6, "b": 3}
    assert {origin: first.log_of(origin) for origin in ("a", "b")} == logs
    second.insert(9)
    first.enter(2, a=6)
    assert first.follow(second) == 1
    assert first.rows() == second.rows()
