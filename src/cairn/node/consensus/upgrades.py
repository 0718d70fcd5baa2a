"""What each version of the system catalogue changes, as operations for the governor's queue.

Lists are append-only: a released one is never edited, a mistake is mended by a later version. There
is no older release yet, so `CAIRN_TEST_CATALOG=N` makes a process behave as version 0.N.0; the same
code serves real releases.
"""

from __future__ import annotations

import os

import cairn
from cairn.governor.view import QueuedOperation

#: version → SQL, in order
UPGRADES: dict[str, tuple[str, ...]] = {
    "0.1.0": (
        "GRANT READ ON TABLE _pico_governor_queue TO super",
        "GRANT WRITE ON TABLE _pico_governor_queue TO super",
    ),
}

#: What a release after this one would bring; only for processes that are told to be it.
TEST_UPGRADES: dict[str, tuple[str, ...]] = {
    "0.2.0": (
        "ALTER TABLE _pico_db_config ADD COLUMN note TEXT",
        "CREATE TABLE _pico_note (id INT PRIMARY KEY, note TEXT) DISTRIBUTED GLOBALLY",
        "INSERT INTO _pico_note VALUES (1, 'made by the upgrade')",
    ),
}

FIRST_UPGRADE_TABLE_ID = 700  # tables made by upgrades live in the system's id range


def own_version() -> str:
    """The version this process runs."""
    tested = os.environ.get("CAIRN_TEST_CATALOG")
    return f"0.{int(tested)}.0" if tested else cairn.__version__


def key(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdecimal())


def operations(after: str, upto: str, first_id: int) -> tuple[QueuedOperation, ...]:
    """The batches of all versions after one and up to another, numbered from `first_id`."""
    found: list[QueuedOperation] = []
    for version, statements in {**UPGRADES, **TEST_UPGRADES}.items():
        if not key(after) < key(version) <= key(upto):
            continue
        for statement in statements:
            found.append(
                QueuedOperation(
                    id=first_id + len(found),
                    batch_id=version,
                    op=statement,
                    kind="upgrade",
                    description=f"upgrade to catalog version {version}",
                )
            )
    return tuple(found)
