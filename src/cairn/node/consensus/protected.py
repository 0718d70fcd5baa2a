"""What SQL may not write, whoever asks: the governor's own facts and the catalogue."""

from __future__ import annotations

import msgspec

from cairn.model.errors import AccessDenied, CheckViolation
from cairn.model.log.ops import Dml, Insert, Replace, Update
from cairn.model.tables import system_tables as system
from cairn.model.tables.schema import Table
from cairn.topology.tier_guard import CHANGEABLE

_OWN_STATEMENTS = {
    system.PICO_TABLE.id: "use CREATE, ALTER and DROP TABLE",
    system.PICO_INDEX.id: "use CREATE and DROP INDEX",
    system.PICO_USER.id: "use CREATE, ALTER and DROP USER or ROLE",
    system.PICO_PRIVILEGE.id: "use GRANT and REVOKE",
    system.PICO_DB_CONFIG.id: "use ALTER SYSTEM",
    system.PICO_ROUTINE.id: "use CREATE, ALTER and DROP PROCEDURE",
    system.CAIRN_VIEW.id: "use CREATE, ALTER and DROP VIEW",
    system.CAIRN_TYPE.id: "use CREATE, ALTER and DROP TYPE",
    system.PICO_PROPERTY.id: "these are facts that only the cluster establishes",
    system.CAIRN_SEQUENCE.id: "instances take numbers for INSERT",
    system.CAIRN_LOCK.id: "use pg_advisory_lock() and pg_advisory_unlock()",
    system.CAIRN_CLOSING.id: "DELETE and UPDATE of global tables write it",
    system.CAIRN_MOVE.id: "use CALL cairn_rebalance(…) or `cairn rebalance`",
}
#: What is dangerous and may be needed by tests of drivers and for repairs.
_UNSAFE = {
    system.PICO_BUCKET.id: "the governor gives buckets out; rows do not move with what SQL says",
    system.PICO_PEER_ADDRESS.id: "each instance tells its own: start it with another --advertise",
}
_ANYWAY = "for tests and repairs: SET unsafe_system_writes = on"

#: Tables of which some columns may be updated; their rows come and go by the governor alone.
_OPEN_COLUMNS = {
    system.PICO_INSTANCE.id: ("target_state", "target_state_reason", "failure_domain"),
    system.PICO_REPLICASET.id: ("target_master_name", "weight", "weight_origin"),
    system.PICO_TIER.id: CHANGEABLE,
}
_COME_AND_GO = {system.PICO_TIER.id: "use CALL cairn_tier('add', …) or `cairn tier add`"}


def check_writable(
    table: Table, changes: tuple[Dml, ...], *, is_upgrade: bool = False, is_unsafe: bool = False
) -> None:
    """Refuse a statement that would write what is not its to write."""
    if not table.is_system or is_upgrade:
        return
    changes = tuple(change for change in changes if change.table == table.id)
    if table.local:
        raise AccessDenied(f"{table.name} is kept by each instance for itself")
    if table.id in _OWN_STATEMENTS:
        raise AccessDenied(f"{table.name} cannot be written by SQL", hint=_OWN_STATEMENTS[table.id])
    if table.id in _UNSAFE and not is_unsafe:
        raise AccessDenied(
            f"{table.name} cannot be written by SQL", hint=f"{_UNSAFE[table.id]}; {_ANYWAY}"
        )
    if table.id == system.PICO_GOVERNOR_QUEUE.id:
        for change in changes:
            _check_queued(change)
    allowed = _OPEN_COLUMNS.get(table.id)
    if allowed is None:
        return
    for change in changes:
        if not isinstance(change, Update):
            raise AccessDenied(
                f"rows of {table.name} come and go by the governor alone",
                hint=_COME_AND_GO.get(table.id),
            )
        for at, _ in change.changes:
            name = system.BY_ID[table.id].columns[at].name
            if name not in allowed:
                raise AccessDenied(
                    f"changing {name} of {table.name} is not allowed",
                    hint=f"SQL may set {', '.join(allowed)}",
                )


_WEIGHT = system.PICO_REPLICASET.position("weight")
_WEIGHT_ORIGIN = system.PICO_REPLICASET.position("weight_origin")


def completed(changes: tuple[Dml, ...]) -> tuple[Dml, ...]:
    """A weight that a person sets is theirs: the governor leaves it alone from then on."""
    return tuple(
        msgspec.structs.replace(change, changes=(*change.changes, (_WEIGHT_ORIGIN, "user")))
        if isinstance(change, Update)
        and change.table == system.PICO_REPLICASET.id
        and any(at == _WEIGHT for at, _ in change.changes)
        and not any(at == _WEIGHT_ORIGIN for at, _ in change.changes)
        else change
        for change in changes
    )


def _check_queued(change: Dml) -> None:
    """Batches of kind upgrade are the governor's own. `table_checks.py` judges other values."""
    at = system.PICO_GOVERNOR_QUEUE.position("kind")
    match change:
        case Insert(row=row) | Replace(row=row):
            kind = row[at]
        case Update(changes=assigned):
            kind = dict(assigned).get(at)
        case _:
            return
    if kind == "upgrade":
        raise CheckViolation(
            "kind 'upgrade' is not known to the governor's queue", hint="use custom"
        )
