"""Tiers of a running cluster: what may change, and what is refused with its reason."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from cairn.model.errors import CairnError
from cairn.model.log import ops
from cairn.model.members.cluster import Cluster
from cairn.model.members.topology import Grade, State, Tier
from cairn.model.tables import rows
from cairn.model.tables import system_tables as system
from cairn.topology.guard import READ, check_change
from tests.governor.builders import instance, view_of

OFFLINE = State(Grade.OFFLINE, 1)
DEFAULT = Tier("default", 1, is_default=True)


def cluster_of(**states: State) -> Cluster:
    """i1, i2, i3 in r1."""
    names = enumerate(("i1", "i2", "i3"), 1)
    online = State(Grade.ONLINE, 1)
    found = [instance(name, at, states.get(name, online), replicaset="r1") for at, name in names]
    return view_of(*found).cluster


def put(tier: Tier, **changes: Any) -> ops.Dml:
    return ops.Replace(system.PICO_TIER.id, rows.tier_row(msgspec.structs.replace(tier, **changes)))


def drop(name: str) -> ops.Dml:
    return ops.Delete(system.PICO_TIER.id, (name,))


def refusal(cluster: Cluster, change: ops.Dml, sharded: frozenset[str] = frozenset()) -> str:
    with pytest.raises(CairnError) as caught:
        check_change((change,), cluster, sharded)
    return caught.value.message


def test_a_tier_may_be_added_but_no_second_default() -> None:
    assert check_change((put(Tier("hot", 2)),), cluster_of(), frozenset()) == READ
    second = put(Tier("hot", 2, is_default=True))
    assert refusal(cluster_of(), second) == "there is a default tier already"


@pytest.mark.parametrize("name", ["de fault", "x;y", "a\nb", "ü", "x" * 60, "../x", "x'"])
def test_a_tier_begins_the_names_of_its_instances(name: str) -> None:
    assert "is no name of a tier" in refusal(cluster_of(), put(Tier(name, 1)))


@pytest.mark.parametrize("change", [{"replication_factor": 3}, {"replication_mode": "sync"}])
def test_copies_and_mode_may_change(change: dict[str, Any]) -> None:
    assert check_change((put(DEFAULT, **change),), cluster_of(), frozenset()) == READ


@pytest.mark.parametrize(
    "change",
    [{"bucket_count": 10}, {"hash_version": 1}, {"can_vote": False}, {"is_default": False}],
)
def test_where_rows_lie_may_not_change(change: dict[str, Any]) -> None:
    [name] = change
    message = refusal(cluster_of(), put(DEFAULT, **change))
    assert message == f"{name} of tier default is fixed when the tier is made"


def test_sync_mode_waits_for_a_majority_so_there_must_be_one() -> None:
    one_away = cluster_of(i2=OFFLINE)
    assert check_change((put(DEFAULT, replication_mode="sync"),), one_away, frozenset()) == READ
    two_away = cluster_of(i2=OFFLINE, i3=OFFLINE)
    assert refusal(two_away, put(DEFAULT, replication_mode="sync")) == (
        "writes to r1 would wait: 1 of its 3 members are Online, sync mode needs 2"
    )


def test_a_tier_goes_when_nobody_and_nothing_is_in_it() -> None:
    cluster = cluster_of()
    tiers = {**cluster.tiers, "hot": Tier("hot", 1)}
    both = msgspec.structs.replace(cluster, tiers=tiers)
    assert check_change((drop("hot"),), both, frozenset()) == READ
    assert refusal(both, drop("hot"), frozenset({"hot"})) == "tier hot has tables"
    assert refusal(both, drop("default")) == "default is the tier of tables that name none"
    used = {name: msgspec.structs.replace(row, tier="hot") for name, row in both.instances.items()}
    full = msgspec.structs.replace(both, instances=used)
    assert refusal(full, drop("hot")) == "tier hot is not empty: i1, i2, i3"
