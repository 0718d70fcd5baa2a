"""What streams are told of a table: each value as a query shows it, and no record left out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from cairn.server.calls import row_changes
from cairn.server.calls.row_changes import Place
from tests.cluster.harness import Cluster
from tests.replication.builders import TABLE, Site

VALUES = {
    "DECIMAL": ("1.5", "1.5"),
    "UUID": ("00000000-0000-0000-0000-000000000001", "00000000-0000-0000-0000-000000000001"),
    "DATE": ("2024-01-01", "2024-01-01"),
    "TIME": ("10:00", "10:00:00"),
    "TIMESTAMP": ("2024-01-01 10:00", "2024-01-01T10:00:00"),
    "TIMESTAMPTZ": ("2024-01-01 10:00+00", "2024-01-01T10:00:00+00:00"),
    "INTERVAL": ("1 month 2 days", "1 mon 2 days"),
    "BYTEA": ("\\x00ff", "\\x00ff"),
    "JSONB": ('{"a": [1]}', {"a": [1]}),
}


@pytest.mark.slow  # alone in its cluster: others may have made it forget the beginning of its log
def test_what_is_in_a_list_is_told_as_it_is_told_alone(cluster: Cluster) -> None:
    """A list of JSON was an internal error: the stream ended, and began no more."""
    names = [f"{name.lower()}_" for name in VALUES]
    columns = ", ".join(
        f"{name}s {of}[], {name} {of}" for name, of in zip(names, VALUES, strict=True)
    )
    given = ", ".join(
        f"ARRAY['{value}', NULL]::{of}[], '{value}'" for of, (value, _) in VALUES.items()
    )
    told: list[Any] = []
    cluster["i1"].sql(f"CREATE TABLE lists (k INT PRIMARY KEY, {columns})")
    cluster["i1"].sql(f"INSERT INTO lists VALUES (1, {given})")
    for node in cluster.nodes.values():
        [(answer,)] = node.sql("CALL cairn_rows('lists', '{}', 10)")
        told += [change["new"] for change in answer["changes"]]
    wanted: dict[str, Any] = {"k": 1}
    for name, (_, shown) in zip(names, VALUES.values(), strict=True):
        wanted |= {f"{name}s": [shown, None], name: shown}
    assert told == [wanted]


def test_records_that_are_forgotten_while_they_are_read_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were looked for, and gone when they were read: the stream went on behind them."""
    site = Site(tmp_path, "A")
    try:
        site.master(1)
        site.create()
        for key in range(1, 6):
            site.insert(key)
        check = row_changes._check_position

        def and_forget(*asked: Any) -> None:
            check(*asked)
            site.group(lambda: site.store.prune("A", 4))

        monkeypatch.setattr(row_changes, "_check_position", and_forget)
        ends = dict(site.store.vclock)
        told, reached = row_changes._changes(
            site.store.path, TABLE, Place({"A": 1}, {}), (ends, ends), 100
        )
        assert [change["lsn"] for change in msgspec.json.decode(told)] == [2, 3, 4, 5, 6]
        assert reached == {"A": 6}
    finally:
        site.close()
