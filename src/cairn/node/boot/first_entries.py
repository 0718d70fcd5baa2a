"""The first entries of a new cluster's log, written by the bootstrap leader (start_boot).

They are ordinary entries: every instance, the first one too, learns the cluster by applying them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cairn.model.errors import ConfigProblem
from cairn.model.log import ops
from cairn.model.members.topology import Grade, Instance, State
from cairn.model.rpc import JoinRequest
from cairn.model.settings.parameters import SETTINGS
from cairn.model.tables import rows
from cairn.model.tables import system_tables as system
from cairn.model.tables.catalog import (
    ADMIN_ID,
    GUEST_ID,
    PUBLIC_ID,
    SERVICE_ID,
    SUPER_ID,
    Privilege,
    User,
)
from cairn.node.boot.config import InstanceConfig
from cairn.node.consensus.upgrades import own_version
from cairn.raft.types import ConfChangeSingle, ConfChangeV2, Entry, EntryType
from cairn.topology.admission import first_replicaset, joining_ops

MakeVerifier = Callable[[str], str]


def first_instance(config: InstanceConfig, uuid: str, replicaset_uuid: str) -> Instance:
    tier = config.tier
    if tier not in {known.name for known in config.tiers}:
        raise ConfigProblem(f'--tier {tier}: the configuration has no tier "{tier}"')
    replicaset = config.replicaset_name or f"{tier}_1"
    return Instance(
        name=config.instance_name or f"{replicaset}_1",
        uuid=uuid,
        raft_id=1,
        replicaset_name=replicaset,
        replicaset_uuid=replicaset_uuid,
        current_state=State(Grade.OFFLINE),
        target_state=State(Grade.OFFLINE),
        failure_domain=config.failure_domain,
        tier=tier,
        version=own_version(),
    )


def first_entries(
    config: InstanceConfig,
    instance: Instance,
    cluster_uuid: str,
    timestamp: str,
    make_verifier: MakeVerifier,
) -> list[Entry]:
    """Entries 1…n of term 1; the last one makes instance 1 the sole voter."""
    batches = [
        _tiers(config),
        _properties(config, cluster_uuid),
        _member(config, instance),
        _settings(),
        _users(config, make_verifier),
        _tables(),
    ]
    entries = [
        Entry(
            term=1,
            index=at,
            data=ops.encode(ops.Envelope(ops.Batch(batch), f"bootstrap-{at}", timestamp)),
        )
        for at, batch in enumerate(batches, start=1)
    ]
    change = ConfChangeV2(changes=(ConfChangeSingle("add_voter", instance.raft_id),))
    entries.append(Entry(1, len(entries) + 1, EntryType.CONF_CHANGE, change.encode()))
    return entries


def _member(config: InstanceConfig, instance: Instance) -> tuple[ops.Dml, ...]:
    replicaset = first_replicaset(
        instance.replicaset_name, instance.replicaset_uuid, instance.tier, instance.name
    )
    request = JoinRequest(
        cluster_id=config.cluster_name,
        instance_uuid=instance.uuid,
        advertise_address=config.advertise,
        version=instance.version,
        pg_address=config.pg_advertise,
        http_address=config.http_listen,
    )
    return joining_ops(instance, request, replicaset)


def _tiers(config: InstanceConfig) -> tuple[ops.Dml, ...]:
    return tuple(ops.Insert(system.PICO_TIER.id, rows.tier_row(tier)) for tier in config.tiers)


def _properties(config: InstanceConfig, cluster_uuid: str) -> tuple[ops.Dml, ...]:
    facts: dict[str, Any] = {
        "cluster_name": config.cluster_name,
        "cluster_uuid": cluster_uuid,
        "cluster_version": own_version(),
        "system_catalog_version": "0",  # the first upgrade batch brings it up
        "global_schema_version": 0,
        "next_schema_version": 1,
        "last_raft_id": 1,
    }
    table = system.PICO_PROPERTY.id
    return tuple(ops.Insert(table, (key, rows.to_json(value))) for key, value in facts.items())


def _settings() -> tuple[ops.Dml, ...]:
    table = system.PICO_DB_CONFIG.id
    return tuple(
        ops.Insert(table, (key, "", rows.to_json(value))) for key, value in SETTINGS.items()
    )


def _users(config: InstanceConfig, make_verifier: MakeVerifier) -> tuple[ops.Dml, ...]:
    auth = None
    if config.admin_password:
        auth = ("scram-sha256", make_verifier(config.admin_password))
    users = (
        User(GUEST_ID, "guest"),
        User(ADMIN_ID, "admin", auth=auth),
        User(PUBLIC_ID, "public", "role"),
        User(SUPER_ID, "super", "role"),
        User(SERVICE_ID, "pico_service"),
    )
    found: list[ops.Dml] = [ops.Insert(system.PICO_USER.id, rows.user_row(user)) for user in users]
    rights = [Privilege(ADMIN_ID, "login", "universe", 0)]
    rights += [
        Privilege(PUBLIC_ID, "read", "table", table.id) for table in system.READABLE_BY_PUBLIC
    ]
    found += [ops.Insert(system.PICO_PRIVILEGE.id, rows.privilege_row(each)) for each in rights]
    return tuple(found)


def _tables() -> tuple[ops.Dml, ...]:
    found: list[ops.Dml] = []
    for table in system.GLOBAL_TABLES:
        if table is system.PICO_GOVERNOR_QUEUE:
            continue  # step 0 of the governor makes it known
        found.append(ops.Insert(system.PICO_TABLE.id, rows.table_row(table)))
        index = rows.index_row(rows.primary_index(table))
        found.append(ops.Insert(system.PICO_INDEX.id, index))
    return tuple(found)
