"""Long rows are no work for the event loop: a brief statement that meets one is taken back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cairn.model.settings import limits
from cairn.storage.data_db.shapes import TooLongHere
from tests.replication.builders import TABLE, Site

T = TABLE.physical_name
LONG = "x" * (limits.QUICK_VALUE_BYTES + 1)
STATEMENTS = {
    "a column beside it": f"UPDATE {T} SET c0 = c0 WHERE c0 = ?1",
    "it itself": f"UPDATE {T} SET c1 = 'y' WHERE c0 = ?1",
    "all columns, unseen": f"INSERT INTO {T} VALUES (1, ?1, 'y') "
    "ON CONFLICT (bucket_id, c0) DO UPDATE SET c1 = excluded.c1",
    "a delete": f"DELETE FROM {T} WHERE bucket_id = 1 AND c0 = ?1",
    "a look": f"UPDATE {T} SET c1 = 'y' WHERE bucket_id = 1 AND c0 = ?1 RETURNING c1",
    "one that grows": f"UPDATE {T} SET c1 = c1 || '{'y' * limits.QUICK_VALUE_BYTES}' WHERE c0 = ?1",
}


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path, "A")
    made.master(1)
    made.create()
    made.insert(1, LONG)
    made.insert(2)
    yield made
    made.close()


def run(site: Site, text: str, key: int) -> int:
    def work() -> int:
        site.store.connection.execute(text, (key,)).fetchall()
        return site.store.count_rows()

    return int(site.group(lambda: site.store.statement(work, brief=True))[0])


@pytest.mark.parametrize("what", STATEMENTS)
def test_a_brief_statement_that_meets_a_long_row_is_taken_back(site: Site, what: str) -> None:
    with pytest.raises(TooLongHere):
        run(site, STATEMENTS[what], 1)
    assert site.rows() == [(1, LONG), (2, "x")]
    assert site.store.vclock == {"A": 3}  # nor is there a record
    assert site.run(STATEMENTS[what].replace("?1", "1")) == (1, 4)  # elsewhere it may


@pytest.mark.parametrize("what", [each for each in STATEMENTS if each != "one that grows"])
def test_beside_a_short_row_it_goes_on(site: Site, what: str) -> None:
    assert run(site, STATEMENTS[what], 2) == 1
