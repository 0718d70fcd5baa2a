"""What each version of the system catalogue changes, as operations for the governor's queue.

Lists are append-only: a released one is never edited, a mistake is mended by a later version.
"""

from __future__ import annotations

from cairn.governor.view import QueuedOperation

#: version → SQL, in order
UPGRADES: dict[str, tuple[str, ...]] = {
    "0.1.0": (
        "GRANT READ ON TABLE _pico_governor_queue TO super",
        "GRANT WRITE ON TABLE _pico_governor_queue TO super",
    ),
}


def upgrade_operations() -> tuple[QueuedOperation, ...]:
    """The batch an empty queue is filled with."""
    found: list[QueuedOperation] = []
    for version, statements in UPGRADES.items():
        found += [
            QueuedOperation(
                id=len(found) + at,
                batch_id=version,
                op=statement,
                kind="upgrade",
                description=f"upgrade to catalog version {version}",
            )
            for at, statement in enumerate(statements, 1)
        ]
    return tuple(found)
