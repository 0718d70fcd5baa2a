"""`CALL cairn_backup(…)`: one moment of the whole cluster, given away piece by piece."""

from __future__ import annotations

import base64
from typing import Any

import msgspec

import cairn
from cairn.model.backups import UNFINISHED, Stamp
from cairn.model.errors import InvalidParameter, NotInPrerequisiteState
from cairn.model.quoting import identifier
from cairn.node.steering.backup_taker import Moment
from cairn.server.caller import Caller

_decode_after = msgspec.json.Decoder(dict[str, Stamp]).decode


async def backup(caller: Caller, action: str, argument: str = "") -> Any:
    """`begin` with JSON, replicaset → position of the backup before; `end` with an id."""
    taker = caller.instance.backup_taker
    match action:
        case "begin":
            if UNFINISHED in caller.face.cluster.properties:
                raise NotInPrerequisiteState(
                    "a restore of this cluster is not finished: there is nothing whole to back up",
                    hint="run `cairn restore` again",
                )
            return _told(await taker.take(_after(argument)))
        case "end":
            await taker.end(argument)
            return {"ended": argument}
    raise InvalidParameter(f"cairn_backup does not know '{action}'", hint="one of begin, end")


def _after(text: str) -> dict[str, Stamp]:
    try:
        return _decode_after(text or "{}")
    except msgspec.MsgspecError as problem:
        raise InvalidParameter(
            f"not a position of a backup: {problem}",
            hint='it is JSON: {"replicaset": {"origin uuid": [lsn, epoch], …}, …}',
        ) from None


def _told(moment: Moment) -> dict[str, Any]:
    cluster = moment.cluster
    return {
        "id": moment.id,
        "version": cairn.__version__,
        "cluster_name": cluster.properties.get("cluster_name"),
        "cluster_uuid": cluster.cluster_uuid,
        "term": cluster.position.term,
        "index": cluster.position.index,
        "schema_version": moment.schema_version,
        "taken_at": moment.taken_at,
        "waits": moment.waits,
        "parts": [
            {
                "replicaset": name,
                "tier": cluster.replicasets[name].tier,
                "instance": held.instance,
                "epoch": held.epoch,
                "owned": held.owned,
                "stamp": held.stamp,
                "is_whole": held.is_whole,
            }
            for name, held in sorted(moment.held.items())
        ],
    }


async def piece(caller: Caller, moment_id: str, part: str, offset: int) -> Any:
    """Bytes from `offset` on of a replicaset's part, or of the global tables if `part` is empty."""
    found = await caller.instance.backup_taker.piece(moment_id, part, offset)
    return {
        "data": base64.b64encode(found.data).decode(),
        "copied": found.copied,
        "total": found.total,
        "is_ready": found.is_ready,
    }


async def moment(caller: Caller, table: str) -> Any:
    """One moment of the whole cluster as positions of all row logs, for who may read `table`.

    Masters are held for it as for a backup, and nothing is copied. The rows of any table at these
    positions (`cairn_rows_at`) are those of the moment, and changes after them follow it.
    """
    caller.allowed(f"SELECT * FROM {identifier(table)}")
    taker = caller.instance.backup_taker
    found = await taker.take({})
    await taker.end(found.id)
    cluster = found.cluster
    parts = {cluster.replicasets[name].uuid: held for name, held in found.held.items()}
    return {
        "cluster": cluster.cluster_uuid,
        "term": cluster.position.term,
        "index": cluster.position.index,
        "taken_at": found.taken_at,
        "rs": {uuid: {o: at[0] for o, at in held.stamp.items()} for uuid, held in parts.items()},
        "epochs": {
            uuid: {o: at[1] for o, at in held.stamp.items() if at[1]}
            for uuid, held in parts.items()
        },
        "owners": {uuid: held.owned for uuid, held in parts.items()},
    }
