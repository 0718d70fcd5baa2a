"""A copy of `data.db` for a backup has all pages with their checksums, wherever they came from."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

from cairn.storage.files.checksums import IS_LOADED
from cairn.storage.files.page_copy import PageCopy, check_pages
from tests.replication.builders import TABLE, Site
from tests.storage.rot import flip_page


@pytest.fixture
def site(tmp_path: Path) -> Site:
    site = Site(tmp_path, "A")
    site.master(1)
    site.create()
    return site


def copied(site: Site, target: Path) -> Path:
    pages = PageCopy(site.path, target)
    while not pages.step():
        pass
    return target


def test_pages_that_are_in_the_write_ahead_log_only_get_checksums(
    site: Site, tmp_path: Path
) -> None:
    """More of them than SQLite keeps in memory before it writes."""
    site.store.connection.execute("PRAGMA wal_autocheckpoint = 0")
    for key in range(1, 9):
        site.insert(key, "x" * 1_000_000)
    assert site.path.with_name("A.db-wal").stat().st_size > 8_000_000
    target = copied(site, tmp_path / "copy.db")
    assert check_pages(target) is None
    with apsw.Connection(f"file:{target}?immutable=1", flags=apsw.SQLITE_OPEN_URI | 1) as copy:
        found = copy.execute(f"SELECT count(*), sum(length(c1)) FROM {TABLE.physical_name}")
        assert found.fetchall() == [(8, 8_000_000)]
    site.close()


@pytest.mark.skipif(not IS_LOADED, reason="SQLite without checksums")
def test_a_changed_byte_of_a_copy_is_found(site: Site, tmp_path: Path) -> None:
    site.insert(1, "x" * 100_000)
    target = copied(site, tmp_path / "copy.db")
    flip_page(target, 7)
    assert check_pages(target) == "the checksum of a page is wrong"
    site.close()
