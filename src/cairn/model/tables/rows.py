"""Rows of the system tables, to and from the values they describe."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import msgspec

from cairn.model.members.moves import Move, Phase, Stamp
from cairn.model.members.topology import (
    BucketRange,
    BucketState,
    Instance,
    Position,
    Replicaset,
    ReplicasetState,
    State,
    Tier,
)
from cairn.model.tables import system_tables as system
from cairn.model.tables.catalog import Privilege, Routine, User, View
from cairn.model.tables.schema import (
    Check,
    Column,
    Computed,
    ForeignKey,
    Identity,
    Index,
    Sharded,
    Table,
    distribution_json,
    format_json,
)
from cairn.model.types.enums import EnumType
from cairn.model.types.values import ColumnType

Row = tuple[Any, ...]
NOWHERE = Position(0, 0)


def to_json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def state_json(state: State) -> str:
    return to_json([state.grade.value, state.incarnation])


_STATE = msgspec.json.Decoder(State)
_DOMAIN = msgspec.json.Decoder(dict[str, str])
_VCLOCK = msgspec.json.Decoder(dict[str, int])
_CUTS = msgspec.json.Decoder(dict[int, dict[str, int]])
_NAMES = msgspec.json.Decoder(tuple[str, ...])
_AUTH = msgspec.json.Decoder(tuple[str, str])
_OPTIONS = msgspec.json.Decoder(list[dict[str, list[Any]]])
_DISTRIBUTION = msgspec.json.Decoder(dict[str, tuple[tuple[str, ...], str, str] | None])
_FORMAT = msgspec.json.Decoder(list[dict[str, Any]])


def state_of(text: str) -> State:
    return _STATE.decode(text)


def instance_row(instance: Instance) -> Row:
    return (
        instance.name,
        instance.uuid,
        instance.raft_id,
        instance.replicaset_name,
        instance.replicaset_uuid,
        state_json(instance.current_state),
        state_json(instance.target_state),
        to_json(instance.failure_domain),
        instance.tier,
        instance.version,
        None,
        instance.target_state_reason,
        None,
    )


def instance_of(row: Sequence[Any]) -> Instance:
    return Instance(
        name=row[0],
        uuid=row[1],
        raft_id=row[2],
        replicaset_name=row[3],
        replicaset_uuid=row[4],
        current_state=state_of(row[5]),
        target_state=state_of(row[6]),
        failure_domain=_DOMAIN.decode(row[7]),
        tier=row[8],
        version=row[9],
        target_state_reason=row[11] or "",
    )


def replicaset_row(replicaset: Replicaset) -> Row:
    return (
        replicaset.name,
        replicaset.uuid,
        replicaset.current_master_name,
        replicaset.target_master_name,
        replicaset.tier,
        float(replicaset.weight),
        replicaset.weight_origin,
        replicaset.state.value,
        0,
        0,
        to_json(replicaset.cut),
        replicaset.epoch,
        to_json(list(replicaset.members)),
        to_json({str(epoch): cut for epoch, cut in replicaset.past_cuts.items()}),
    )


def replicaset_of(row: Sequence[Any]) -> Replicaset:
    return Replicaset(
        name=row[0],
        uuid=row[1],
        current_master_name=row[2],
        target_master_name=row[3],
        tier=row[4],
        weight=row[5],
        weight_origin=row[6],
        state=ReplicasetState(row[7]),
        cut=_VCLOCK.decode(row[10]),
        epoch=row[11],
        members=_NAMES.decode(row[12]),
        past_cuts=_CUTS.decode(row[13] or "{}"),
    )


def tier_row(tier: Tier) -> Row:
    return (
        tier.name,
        tier.replication_factor,
        int(tier.can_vote),
        0,
        0,
        0,
        tier.bucket_count,
        int(tier.is_default),
        tier.hash_version,
        tier.replication_mode,
    )


def tier_of(row: Sequence[Any]) -> Tier:
    return Tier(
        name=row[0],
        replication_factor=row[1],
        can_vote=bool(row[2]),
        bucket_count=row[6],
        is_default=bool(row[7]),
        hash_version=row[8],
        replication_mode=row[9],
    )


def bucket_row(bucket: BucketRange) -> Row:
    return (
        bucket.tier,
        bucket.start,
        bucket.end,
        bucket.state.value,
        bucket.current_replicaset,
        bucket.target_replicaset,
        bucket.frozen_at,
        bucket.move_id,
    )


def bucket_of_row(row: Sequence[Any]) -> BucketRange:
    return BucketRange(row[0], row[1], row[2], BucketState(row[3]), *row[4:8])


def move_row(move: Move) -> Row:
    return (
        move.id,
        move.tier,
        move.start,
        move.end,
        move.source,
        move.target,
        move.phase.value,
        move.source_epoch,
        move.target_epoch,
        move.frozen_at,
        move.thaws,
        to_json(move.source_final),
        to_json(move.target_first),
        move.reason,
        move.started,
        move.changed,
    )


def move_of(row: Sequence[Any]) -> Move:
    values = [*row[:6], Phase(row[6]), *row[7:11], _stamp(row[11]), _stamp(row[12]), *row[13:16]]
    return Move(*values)


def _stamp(text: str) -> Stamp:
    return {origin: (lsn, epoch) for origin, (lsn, epoch) in json.loads(text).items()}


def user_row(user: User) -> Row:
    auth = None if user.auth is None else to_json(list(user.auth))
    return (user.id, user.name, user.schema_version, auth, user.owner, user.kind)


def user_of(row: Sequence[Any]) -> User:
    auth = None if row[3] is None else _AUTH.decode(row[3])
    return User(id=row[0], name=row[1], schema_version=row[2], auth=auth, owner=row[4], kind=row[5])


def routine_row(routine: Routine) -> Row:
    params = to_json([type_.value for type_ in routine.params])
    about = ("procedure", params, "SQL", routine.body, "invoker")
    return (routine.id, routine.name, *about, routine.schema_version, routine.owner)


def routine_of(row: Sequence[Any]) -> Routine:
    params = tuple(ColumnType(name) for name in _NAMES.decode(row[3]))
    return Routine(row[0], row[1], params, row[5], owner=row[8], schema_version=row[7])


def view_row(view: View) -> Row:
    types = to_json([type_.value for type_ in view.types])
    about = (to_json(list(view.columns)), types, view.body)
    return (view.id, view.name, *about, view.schema_version, view.owner)


def view_of(row: Sequence[Any]) -> View:
    types = tuple(ColumnType(name) for name in _NAMES.decode(row[3]))
    names = _NAMES.decode(row[2])
    return View(row[0], row[1], names, types, row[4], owner=row[6], schema_version=row[5])


def enum_row(enum: EnumType) -> Row:
    labels = to_json(list(enum.labels))
    return (enum.id, enum.name, labels, enum.schema_version, enum.owner)


def enum_of(row: Sequence[Any]) -> EnumType:
    return EnumType(row[0], row[1], _NAMES.decode(row[2]), owner=row[4], schema_version=row[3])


def privilege_row(right: Privilege, grantor: int = 1) -> Row:
    return (
        grantor,
        right.grantee_id,
        right.privilege,
        right.object_type,
        right.object_id,
        0,
    )


def privilege_of(row: Sequence[Any]) -> Privilege:
    return Privilege(row[1], row[2], row[3], row[4])


def table_row(table: Table) -> Row:
    return (
        table.id,
        table.name,
        to_json(distribution_json(table)),
        to_json(format_json(table)),
        table.schema_version,
        int(table.operable),
        "memtx",
        table.owner,
        table.description,
        _options_of(table),
    )


def _options_of(table: Table) -> str | None:
    found: list[dict[str, list[Any]]] = []
    if table.truncated_at:
        found.append({"truncated_at": [table.truncated_at]})
    found += [{"check": [each.name, each.text, each.rule]} for each in table.checks]
    found += [{"foreign_key": list(msgspec.structs.astuple(each))} for each in table.foreign_keys]
    if table.step:
        found.append({"sequence": [table.step]})
    if table.named_key:
        found.append({"key": [table.named_key]})
    return to_json(found) if found else None


def index_row(index: Index) -> Row:
    return (
        index.table_id,
        index.id,
        index.name,
        "tree",
        to_json([{"unique": [index.unique]}, *_condition(index)]),
        to_json(list(index.columns)),
        int(index.operable),
        index.schema_version,
    )


def _condition(index: Index) -> list[dict[str, list[Any]]]:
    found: list[dict[str, list[Any]]] = []
    if index.rule:
        found.append({"where": [index.where, index.rule]})
    if index.computed:
        found.append({"computed": msgspec.to_builtins(index.computed)})
    return found


def primary_index(table: Table) -> Index:
    """The primary key as `_pico_index` shows it: index 0 of its table."""
    return Index(
        table_id=table.id,
        id=0,
        name=table.key_name,
        columns=table.primary_key,
        unique=True,
        schema_version=table.schema_version,
    )


def index_of(row: Sequence[Any]) -> Index:
    options = _OPTIONS.decode(row[4])
    unique = any(option.get("unique", [False])[0] for option in options)
    where, rule = next((each["where"] for each in options if "where" in each), ("", ""))
    return Index(
        table_id=row[0],
        id=row[1],
        name=row[2],
        columns=_NAMES.decode(row[5]),
        unique=unique,
        operable=bool(row[6]),
        schema_version=row[7],
        where=str(where),
        rule=str(rule),
        computed=tuple(
            msgspec.convert(each, Computed)
            for option in options
            for each in option.get("computed", ())
        ),
    )


def _identity(found: Any) -> Identity | None:
    return None if found is None else msgspec.convert(found, Identity)


def table_of_row(row: Sequence[Any]) -> Table:
    """Without its primary key, which `_pico_index` has."""
    sharded = _DISTRIBUTION.decode(row[2]).get("ShardedImplicitly")
    sharding = None if sharded is None else Sharded(sharded[0], sharded[2])
    return Table(
        id=row[0],
        name=row[1],
        columns=tuple(
            Column(
                item["name"],
                ColumnType(item["field_type"]),
                item["is_nullable"],
                tuple(item.get("sizes", ())),
                item.get("default"),
                _identity(item.get("identity")),
                bool(item.get("hidden")),
                bool(item.get("zeros")),
                str(item.get("comment") or ""),
                str(item.get("missing") or ""),
                bool(item.get("judged")),
                bool(item.get("dropped")),
                EnumType(item["enum"]) if item.get("enum") else None,
            )
            for item in _FORMAT.decode(row[3])
        ),
        primary_key=(),
        sharding=sharding,
        schema_version=row[4],
        operable=bool(row[5]),
        owner=row[7],
        description=row[8],
        truncated_at=int(_option(row[9], "truncated_at") or 0),
        step=int(_option(row[9], "sequence") or 0),
        named_key=str(_option(row[9], "key") or ""),
        checks=tuple(
            Check(*option["check"])
            for option in (_OPTIONS.decode(row[9]) if row[9] else ())
            if "check" in option
        ),
        foreign_keys=tuple(
            ForeignKey(name, tuple(own), parent, tuple(theirs), *rest)
            for option in (_OPTIONS.decode(row[9]) if row[9] else ())
            if "foreign_key" in option
            for name, own, parent, theirs, *rest in (option["foreign_key"],)
        ),
    )


def queue_row(operation: Any) -> Row:
    """`operation` has the fields of `_pico_governor_queue` as attributes."""
    return tuple(getattr(operation, column.name) for column in system.PICO_GOVERNOR_QUEUE.columns)


def _option(options: str | None, name: str) -> Any:
    for option in _OPTIONS.decode(options) if options else ():
        if name in option:
            return option[name][0]
    return None
