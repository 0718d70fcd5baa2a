"""Every value of every system table is checked before it is proposed, by one description."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from cairn.model.errors import CairnError
from cairn.model.log import ops
from cairn.model.members.topology import Tier
from cairn.model.tables import system_tables as system
from cairn.model.tables.schema import Table
from cairn.model.tables.table_checks import check_ops, mended
from cairn.node.boot.config import InstanceConfig
from cairn.node.boot.first_entries import first_entries, first_instance
from cairn.raft.types import EntryType

INSTANCE, REPLICASET = system.PICO_INSTANCE, system.PICO_REPLICASET


def update(table: Table, column: str, value: Any) -> ops.Update:
    key = tuple("x" if table.columns[at].type == "string" else 1 for at in table.key_positions)
    return ops.Update(table.id, key, ((table.position(column), value),))


@pytest.mark.parametrize(
    ("table", "column", "value", "sqlstate", "hint"),
    [
        (INSTANCE, "target_state", '["Onlin",1]', "23514", "Online, Offline, Expelled"),
        (INSTANCE, "target_state", '["Replicated",1]', "23514", "Online, Offline, Expelled"),
        (INSTANCE, "target_state", '["Online",-1]', "23514", "INCARNATION"),
        (INSTANCE, "target_state", '["Online"]', "23514", "INCARNATION"),
        (INSTANCE, "target_state", "Online", "23514", "INCARNATION"),
        (INSTANCE, "target_state", None, "23502", "INCARNATION"),
        (INSTANCE, "current_state", '["Up",1]', "23514", "RaftSynced"),
        (INSTANCE, "failure_domain", "[]", "23514", '{"NAME":"VALUE", …}'),
        (INSTANCE, "failure_domain", '{"dc":1}', "23514", '{"NAME":"VALUE", …}'),
        (INSTANCE, "name", "", "23514", "1 to 255 letters"),
        (REPLICASET, "weight", -1.0, "23514", "from 0 on, finite"),
        (REPLICASET, "weight", math.inf, "23514", "from 0 on, finite"),
        (REPLICASET, "weight", math.nan, "23514", "from 0 on, finite"),
        (REPLICASET, "weight", "heavy", "23514", "from 0 on, finite"),
        (REPLICASET, "weight_origin", "admin", "23514", "auto, user"),
        (REPLICASET, "state", "done", "23514", "not-ready, ready, to-be-expelled"),
        (REPLICASET, "members", '{"a":1}', "23514", "INSTANCE NAME"),
        (REPLICASET, "promotion_vclock", '{"a":"b"}', "23514", "LSN"),
        (REPLICASET, "epoch", -1, "23514", "0 or more"),
        (system.PICO_TIER, "hash_version", 3, "23514", "1 to 2"),
        (system.PICO_TIER, "replication_mode", "semi", "23514", "async, sync"),
        (system.PICO_BUCKET, "state", "lost", "23514", "active"),
        (system.PICO_PEER_ADDRESS, "address", "nowhere:port", "23514", "HOST:PORT"),
        (system.PICO_USER, "auth", '["scram-sha256"]', "23514", "VERIFIER"),
        (system.PICO_GOVERNOR_QUEUE, "op", "  ", "23514", "a statement"),
        (system.PICO_PROPERTY, "value", "{", "23514", "JSON"),
        (system.PICO_TABLE, "distribution", '{"Sharded":[]}', "23514", "ShardedImplicitly"),
        (system.PICO_TABLE, "format", '[{"name":"a"}]', "23514", "field_type"),
    ],
)
def test_a_value_that_nobody_could_read_is_refused(
    table: Table, column: str, value: Any, sqlstate: str, hint: str
) -> None:
    with pytest.raises(CairnError) as caught:
        check_ops((update(table, column, value),))
    assert caught.value.sqlstate == sqlstate
    assert column in caught.value.message and hint in str(caught.value.hint)


def test_what_a_new_cluster_writes_passes_its_own_checks() -> None:
    config = InstanceConfig(
        instance_dir=Path("/nowhere"),
        cluster_name="c",
        instance_name="i1",
        tiers=(Tier("default", 1, is_default=True),),
        failure_domain={"dc": "north"},
        admin_password="T0psecret1",
    )
    row = first_instance(config, "uuid-i1", "uuid-r1")
    entries = first_entries(config, row, "uuid-c", "now", lambda password: "verifier")
    for entry in entries:
        if entry.type != EntryType.CONF_CHANGE:
            check_ops(ops.dml_of(ops.decode(entry.data).op))


@pytest.mark.parametrize("table", system.GLOBAL_TABLES, ids=lambda table: table.name)
def test_what_is_assumed_for_an_unreadable_value_can_be_read(table: Table) -> None:
    row, problems = mended(table, tuple(object() for _ in table.columns))
    assert len(problems) == len(table.columns)
    for at, value in enumerate(row):
        if at not in table.key_positions and value is not None and value != "":
            check_ops((ops.Update(table.id, tuple(row[n] for n in table.key_positions), ()),))
            check_ops((update(table, table.columns[at].name, value),))


def test_a_mended_row_says_which_column_was_wrong() -> None:
    row = ("i1", "u", 1, "r", "u", '["Online",1]', '["Onlin",1]', "{}", "t", "0", None, None, None)
    good, problems = mended(INSTANCE, row)
    assert good == (*row[:6], '["Offline",0]', *row[7:])
    [problem] = problems
    assert problem.startswith("_pico_instance i1: target_state: '[\"Onlin\",1]' is not allowed")
