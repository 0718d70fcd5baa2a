"""`CALL cairn_restore(…)`: a backup put into an empty cluster, a step at a time.

`check` · `begin` (users) · `table` for each · `cairn_restore_rows` · `index` for each · `keys`
(foreign ones) for each · `end` (rights, numbers, settings, types, views, migrations). A fact of
the cluster tells from `begin` to `end` what has been made (`restore_unfinished`), so that `undo`
can remove it, whoever asks and whenever. Ids of users and tables are given anew: none is ever used
twice.
"""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Any, TypeVar

import msgspec

from cairn.model.backups import RESTORED, UNFINISHED, RestoreBegin, RestoreEnd
from cairn.model.errors import InvalidParameter, NotInPrerequisiteState
from cairn.model.log import ops
from cairn.model.log.ranges import one_key, whole_table
from cairn.model.tables import rows as made
from cairn.model.tables import system_tables as system
from cairn.model.tables.catalog import Catalog
from cairn.model.tables.schema import Index, Table
from cairn.node.consensus.changing import propose_rows
from cairn.node.statements.asker.writing import put_by_bucket
from cairn.node.statements.changes.access import LAST_USER_ID
from cairn.node.statements.changes.routines import LAST_ROUTINE_ID
from cairn.server.caller import Caller
from cairn.server.calls.bulk import from_base64
from cairn.sql.plans import DdlPlan
from cairn.storage.data_db.packed_insert import insert_text

LAST_BUILT_IN = 32  # ids of users that every cluster has
FIRST_OWN = 1000  # ids of the queue that are not the cluster's own
ACTIONS = ("check", "begin", "table", "index", "keys", "end", "undo")
T = TypeVar("T")
_decode_rows = msgspec.msgpack.Decoder(list[tuple[Any, ...]]).decode


async def restore(caller: Caller, action: str, body: str = "") -> Any:
    match action:
        case "check":
            return _check(caller)
        case "begin":
            return await _begin(caller, _read(body, RestoreBegin))
        case "table":
            return await _table(caller, _read(body, Table))
        case "index":
            return await _index(caller, _read(body, Index))
        case "keys":
            return await _keys(caller, _read(body, Table))
        case "end":
            return await _end(caller, _read(body, RestoreEnd))
        case "undo":
            return await _undo(caller)
    raise InvalidParameter(
        f"cairn_restore does not know '{action}'", hint=f"one of {', '.join(ACTIONS)}"
    )


async def rows(caller: Caller, name: str, piece: str, body: str) -> Any:
    """Physical rows of one table. `piece` names them: when they come again nothing happens."""
    _must_be_begun(caller)
    table = caller.catalog.table(name)
    if table is None or table.is_system:
        raise InvalidParameter(f"there is no table {name} to restore")
    found = _decode_rows(from_base64(body))
    if table.is_global:
        replaces = tuple(ops.Replace(table.id, row) for row in found)
        await propose_rows(caller.instance.proposer, lambda: (replaces, (whole_table(table.id),)))
        return {"rows": len(found)}
    by_bucket: defaultdict[int, list[Any]] = defaultdict(list)
    put_by_bucket(found, by_bucket)
    assert table.sharding is not None
    # With the table's id: after an undo the same pieces come again, for another table.
    context = msgspec.structs.replace(caller.context, operation=f"restore:{table.id}:{piece}")
    count = await caller.executor.writes.insert_rows(
        table, table.sharding.tier, insert_text(table), by_bucket, context, is_bulk=True
    )
    return {"rows": count}


def _read(body: str, kind: type[T]) -> T:
    try:
        return msgspec.msgpack.decode(from_base64(body), type=kind)
    except msgspec.MsgspecError as problem:
        raise InvalidParameter(f"this step of a restore cannot be read: {problem}") from None


# --- the steps ------------------------------------------------------------------------------------


def _check(caller: Caller) -> dict[str, Any]:
    """What is here already; nothing is changed."""
    catalog, cluster = caller.catalog, caller.face.cluster
    queued = caller.instance.state.queue_batches()[1]
    return {
        "cluster_uuid": cluster.cluster_uuid,
        "unfinished": cluster.properties.get(UNFINISHED),
        "tables": sorted(table.name for table in catalog.tables.values() if not table.is_system),
        "objects": sorted([*catalog.views, *catalog.routines, *catalog.types]),
        "users": sorted(each.name for each in catalog.users.values() if each.id > LAST_BUILT_IN),
        "migrations": queued >= FIRST_OWN,
        "tiers": {
            tier.name: (tier.bucket_count, tier.hash_version) for tier in cluster.tiers.values()
        },
    }


async def _begin(caller: Caller, wanted: RestoreBegin) -> dict[str, Any]:
    ids: dict[int, int] = {}

    def change() -> tuple[tuple[ops.Dml, ...], tuple[Any, ...]]:
        _check_empty(caller, wanted)
        catalog, properties = caller.catalog, caller.face.cluster.properties
        last = max([LAST_BUILT_IN, *(each.id for each in catalog.users.values())])
        last = max(last, int(properties.get(LAST_USER_ID, 0)))
        ids.clear()
        ids.update({user.id: last + at for at, user in enumerate(wanted.users, 1)})
        note = {
            "backup": wanted.backup,
            "after_user": last,
            "after_table": int(properties.get("last_table_id", 0)),
            "users": [user.name for user in wanted.users],
            "tables": wanted.tables,
        }
        found: list[ops.Dml] = [_fact(UNFINISHED, note)]
        for user in wanted.users:
            new = msgspec.structs.replace(
                user, id=ids[user.id], owner=ids.get(user.owner, user.owner)
            )
            found.append(ops.Insert(system.PICO_USER.id, made.user_row(new)))
        if wanted.users:
            found.append(_fact(LAST_USER_ID, last + len(wanted.users)))
        read = (system.PICO_USER, system.PICO_TABLE, system.PICO_GOVERNOR_QUEUE)
        facts = (one_key(system.PICO_PROPERTY.id, (key,)) for key in (UNFINISHED, LAST_USER_ID))
        return tuple(found), (*(whole_table(table.id) for table in read), *facts)

    await propose_rows(caller.instance.proposer, change)
    return {"users": ids}


def _check_empty(caller: Caller, wanted: RestoreBegin) -> None:
    here = _check(caller)
    if here["unfinished"] is not None:
        raise NotInPrerequisiteState("another restore of this cluster is not finished")
    for what in ("tables", "objects", "users"):
        if here[what]:
            raise NotInPrerequisiteState(
                f"this cluster is not empty, it has the {what} {', '.join(here[what][:5])}",
                hint="a backup is put into a new or emptied cluster",
            )
    if here["migrations"]:
        raise NotInPrerequisiteState(
            "this cluster is not empty, it has migrations in _pico_governor_queue",
            hint="a backup is put into a new or emptied cluster",
        )
    for tier, (count, version) in wanted.tiers.items():
        if tier not in here["tiers"]:
            raise NotInPrerequisiteState(
                f"the backup has tables in tier {tier}, and there is none here",
                hint=f"cairn tier add {tier}, and an instance in it",
            )
        if here["tiers"][tier] != (count, version):
            raise NotInPrerequisiteState(
                f"tier {tier} of the backup has {count} buckets and hash version {version}, "
                f"here it has {here['tiers'][tier][0]} and {here['tiers'][tier][1]}"
            )


def _must_be_begun(caller: Caller) -> None:
    if UNFINISHED not in caller.face.cluster.properties:
        raise NotInPrerequisiteState("no restore has begun here")


async def _table(caller: Caller, table: Table) -> dict[str, Any]:
    _must_be_begun(caller)

    def build(now: Catalog, version: int, next_id: int) -> ops.Ddl:
        return ops.CreateTable(
            msgspec.structs.replace(
                table,
                id=next_id,
                schema_version=version,
                operable=False,
                truncated_at=0,
                foreign_keys=(),  # rows come table by table
            )
        )

    await _ddl(caller, DdlPlan(build))
    found = caller.instance.state.catalog.table(table.name)
    assert found is not None
    return {"id": found.id}


async def _keys(caller: Caller, wanted: Table) -> dict[str, Any]:
    """The foreign keys of a table, when all rows are in: the owner looks at them."""
    _must_be_begun(caller)

    def build(now: Catalog, version: int, next_id: int) -> ops.Ddl | None:
        table = now.table(wanted.name)
        if table is None or table.foreign_keys == wanted.foreign_keys:
            return None
        after = msgspec.structs.replace(table, foreign_keys=wanted.foreign_keys)
        return ops.AlterTable(after, now.indexes.get(table.id, ()))

    await _ddl(caller, DdlPlan(build))
    return {"name": wanted.name}


async def _index(caller: Caller, index: Index) -> dict[str, Any]:
    _must_be_begun(caller)
    await _ddl(caller, DdlPlan(lambda now, version, next_id: ops.CreateIndex(index)))
    return {"name": index.name}


async def _ddl(caller: Caller, plan: DdlPlan) -> None:
    context = caller.context
    await caller.instance.schema_changes.run(plan, context.user_id, deadline=context.deadline)


async def _end(caller: Caller, wanted: RestoreEnd) -> dict[str, Any]:
    """All in one entry: with it the restore is done, without it it is not."""
    _must_be_begun(caller)
    found: list[ops.Dml] = [
        ops.Delete(system.PICO_PROPERTY.id, (UNFINISHED,)),
        _fact(RESTORED, {"backup": wanted.backup, "cluster_uuid": wanted.cluster_uuid}),
    ]
    found += _revoked(caller, wanted)
    for table, content in (
        (system.PICO_PRIVILEGE, wanted.privileges),
        (system.CAIRN_SEQUENCE, wanted.sequences),
        (system.PICO_DB_CONFIG, wanted.settings),
        (system.PICO_GOVERNOR_QUEUE, wanted.queue),
        (system.CAIRN_TYPE, wanted.types),
        (system.CAIRN_VIEW, wanted.views),
        (system.PICO_ROUTINE, wanted.routines),
    ):
        found += [ops.Replace(table.id, tuple(row)) for row in content]
    if wanted.last_routine_id:
        found.append(_fact(LAST_ROUTINE_ID, wanted.last_routine_id))
    key = one_key(system.PICO_PROPERTY.id, (UNFINISHED,))
    await propose_rows(caller.instance.proposer, lambda: (tuple(found), (key,)))
    return {"restored": wanted.backup}


def _revoked(caller: Caller, wanted: RestoreEnd) -> list[ops.Dml]:
    """Rights that a new cluster gives, and that were taken away in the one that was backed up."""
    table = system.PICO_PRIVILEGE
    kept = {tuple(row[at] for at in table.key_positions) for row in wanted.privileges}
    found: list[ops.Dml] = []
    for row in caller.instance.state.rows(table):
        key = tuple(row[at] for at in table.key_positions)
        if key not in kept and row[3] == "table" and row[4] in wanted.known_tables:
            found.append(ops.Delete(table.id, key))
    return found


async def _undo(caller: Caller) -> dict[str, Any]:
    """Remove what an interrupted restore has made, and nothing else."""
    note = caller.face.cluster.properties.get(UNFINISHED)
    if note is None:
        return {"removed": []}
    removed: list[str] = []
    for name in note["tables"]:
        table = caller.instance.state.catalog.table(name)
        if table is None or table.id <= note["after_table"]:
            continue
        drop = ops.DropTable(table.id, name)
        await _ddl(caller, DdlPlan(lambda now, version, next_id, drop=drop: drop))  # type: ignore[misc]
        removed.append(name)

    def change() -> tuple[tuple[ops.Dml, ...], tuple[Any, ...]]:
        users = [
            user
            for user in caller.instance.state.catalog.users.values()
            if user.name in note["users"] and user.id > note["after_user"]
        ]
        gone = tuple(ops.Delete(system.PICO_USER.id, (user.id,)) for user in users)
        fact = ops.Delete(system.PICO_PROPERTY.id, (UNFINISHED,))
        key = one_key(system.PICO_PROPERTY.id, (UNFINISHED,))
        return (*gone, fact), (whole_table(system.PICO_USER.id), key)

    await propose_rows(caller.instance.proposer, change)
    return {"removed": [*removed, *note["users"]]}


def _fact(key: str, value: Any) -> ops.Dml:
    return ops.Replace(system.PICO_PROPERTY.id, (key, json.dumps(value)))
