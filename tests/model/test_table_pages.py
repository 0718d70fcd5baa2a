"""The page of system tables says what the code says.

`python -m tests.model.test_table_pages` writes it anew.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from cairn.model.tables.schema import Table
from cairn.model.tables.system_tables import SYSTEM_TABLES
from cairn.server.catalog.schema import LIVE, columns_of
from tests.model.table_pages import columns_page, page_of

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "system-tables.md"


def test_the_page_is_written_from_the_description() -> None:
    text = PAGE.read_text()
    assert page_of(text) == text, "run python -m tests.model.test_table_pages"


@pytest.mark.parametrize("table", SYSTEM_TABLES, ids=lambda table: table.name)
def test_every_system_table_is_on_the_page(table: Table) -> None:
    assert columns_page(table) in PAGE.read_text()


@pytest.mark.parametrize("name", LIVE)
def test_every_column_of_a_live_table_is_on_the_page(name: str) -> None:
    text = PAGE.read_text()
    begin = text.index("## What the cluster does")
    section = text[begin : text.index("\n## ", begin + 1)]
    same = "the columns of `pg_stat_activity`" if name == "_cairn_sessions" else ""
    assert f"`{name}`" in section and same in section
    if not same:
        columns = [column for column, _ in columns_of(name)]
        assert [column for column in columns if f"`{column}`" not in section] == []


if __name__ == "__main__":
    PAGE.write_text(page_of(PAGE.read_text()))
