"""What SQL may not write, whoever asks."""

from __future__ import annotations

import pytest

from cairn.model.errors import AccessDenied
from cairn.model.log.ops import Delete, Dml, Insert, Update
from cairn.model.tables import system_tables as system
from cairn.model.tables.schema import Table
from cairn.node.consensus.protected import check_writable

BUCKET, ADDRESS = system.PICO_BUCKET, system.PICO_PEER_ADDRESS


@pytest.mark.parametrize(
    ("table", "change"),
    [
        (BUCKET, Update(BUCKET.id, ("default", 1), ((4, "r2"),))),
        (BUCKET, Delete(BUCKET.id, ("default", 1))),
        (BUCKET, Insert(BUCKET.id, ("default", 1, 3000, "active", "r1", None, None))),
        (ADDRESS, Update(ADDRESS.id, (1, "pgproto"), ((1, "evil:1"),))),
        (ADDRESS, Delete(ADDRESS.id, (1, "pgproto"))),
        (ADDRESS, Insert(ADDRESS.id, (9, "evil:1", "pgproto"))),
    ],
)
def test_owners_of_buckets_and_addresses_are_not_written_by_sql(table: Table, change: Dml) -> None:
    with pytest.raises(AccessDenied, match=f"{table.name} cannot be written by SQL") as caught:
        check_writable(table, (change,))
    assert caught.value.hint


def test_who_says_that_it_is_unsafe_may() -> None:
    for table, key in ((BUCKET, ("default", 1)), (ADDRESS, (1, "pgproto"))):
        check_writable(table, (Delete(table.id, key),), is_unsafe=True)
    with pytest.raises(AccessDenied):
        check_writable(system.PICO_USER, (Delete(system.PICO_USER.id, (1,)),), is_unsafe=True)


def test_every_global_system_table_is_protected_or_open_on_purpose() -> None:
    """A table that is new must be thought of in `protected.py`."""
    for table in system.GLOBAL_TABLES:
        if table is system.PICO_GOVERNOR_QUEUE:
            continue
        with pytest.raises(AccessDenied):
            check_writable(table, (Delete(table.id, ()),))
