"""One admission for every way to a change of the topology."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from cairn.governor.buckets import given_away
from cairn.model.errors import CairnError
from cairn.model.log import ops
from cairn.model.members.cluster import Cluster
from cairn.model.members.holders import EXPEL_BY_FORCE
from cairn.model.members.topology import (
    BucketRange,
    BucketState,
    Grade,
    Replicaset,
    ReplicasetState,
    State,
)
from cairn.model.tables import rows
from cairn.model.tables import system_tables as system
from cairn.topology.guard import READ, check_change, picture_after
from tests.governor.builders import instance, replicaset, view_of

INSTANCES, REPLICASETS = system.PICO_INSTANCE, system.PICO_REPLICASET
OFFLINE = State(Grade.OFFLINE, 1)
SHARDED = frozenset({"default"})


def cluster_of(*sets: Replicaset, **states: State) -> Cluster:
    """i1, i2 in r1 and i3, i4 in r2, Online unless `states` says other; half the buckets each."""
    rows_ = [
        instance(name, at, states.get(name, State(Grade.ONLINE, 1)), replicaset=f"r{(at + 1) // 2}")
        for at, name in enumerate(("i1", "i2", "i3", "i4"), 1)
    ]
    cluster = view_of(*rows_, sets=sets).cluster
    buckets = (
        BucketRange("default", 1, 1500, BucketState.ACTIVE, "r1"),
        BucketRange("default", 1501, 3000, BucketState.ACTIVE, "r2"),
    )
    return msgspec.structs.replace(cluster, buckets=buckets)


def target(name: str, state: State) -> ops.Update:
    at = INSTANCES.position("target_state")
    return ops.Update(INSTANCES.id, (name,), ((at, rows.state_json(state)),))


def expelled(name: str) -> ops.Update:
    return target(name, State(Grade.EXPELLED, 1))


def refusal(cluster: Cluster, *changes: ops.Dml, **how: Any) -> str:
    with pytest.raises(CairnError) as caught:
        check_change(changes, cluster, SHARDED, **how)
    return caught.value.message


def test_one_of_two_copies_may_go_and_the_decision_covers_what_it_read() -> None:
    assert check_change((expelled("i1"),), cluster_of(), SHARDED) == READ


def test_the_second_of_two_copies_may_not_follow_while_the_first_is_leaving() -> None:
    cluster = picture_after(cluster_of(), (expelled("i1"),))
    assert refusal(cluster, expelled("i2")) == (
        "r1 owns buckets 1–1500 and i2 is the last instance that is known to have their rows"
    )
    assert check_change((expelled("i2"),), cluster, SHARDED, force=True) == READ


def test_both_copies_may_not_go_in_one_statement() -> None:
    assert "1–1500" in refusal(cluster_of(), expelled("i1"), expelled("i2"))


def test_the_only_copy_may_not_go() -> None:
    cluster = cluster_of(replicaset("r1", "i1", ("i1",)))
    assert "1–1500" in refusal(cluster, expelled("i1"))
    assert check_change((expelled("i2"),), cluster, SHARDED) == READ  # it has no rows
    assert check_change((expelled("i1"),), cluster, frozenset()) == READ  # nobody has


def test_a_dead_master_may_not_go_while_the_other_copy_is_away() -> None:
    cluster = cluster_of(i1=OFFLINE, i2=OFFLINE)
    assert "1–1500" in refusal(cluster, expelled("i1"))
    assert check_change((expelled("i2"),), cluster, SHARDED) == READ  # the master has every row


def test_buckets_go_only_to_somebody_who_can_take_them() -> None:
    cluster = cluster_of(
        replicaset("r1", "i1", ("i1", "i2")), replicaset("r2", "i3", ("i3",), weight=0.0)
    )
    first = picture_after(cluster, (expelled("i1"),))
    assert "no other replicaset of tier default" in refusal(first, expelled("i2"), force=True)


def test_an_instance_that_leaves_is_not_called_back() -> None:
    cluster = picture_after(cluster_of(), (expelled("i1"),))
    assert refusal(cluster, target("i1", State(Grade.ONLINE, 2))) == (
        'cannot update expelled instance "i1"'
    )


def test_rows_are_given_up_by_force_alone() -> None:
    at = INSTANCES.position("target_state_reason")
    change = ops.Update(INSTANCES.id, ("i1",), ((at, EXPEL_BY_FORCE),))
    assert "rows are not given up by UPDATE" in refusal(cluster_of(), change)


def test_a_past_incarnation_is_no_target() -> None:
    cluster = cluster_of(i1=State(Grade.ONLINE, 3))
    assert "incarnation 1 is past" in refusal(cluster, target("i1", State(Grade.ONLINE, 1)))
    assert check_change((target("i1", State(Grade.ONLINE, 4)),), cluster, SHARDED) == ()


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            ops.Update(REPLICASETS.id, ("r1",), ((3, "nobody"),)),
            'there is no instance of r1 named "nobody"',
        ),
        (
            ops.Update(REPLICASETS.id, ("r1",), ((3, "i3"),)),
            'there is no instance of r1 named "i3"',
        ),
        (ops.Delete(INSTANCES.id, ("i1",)), "i1 is a member of the cluster"),
        (ops.Delete(REPLICASETS.id, ("r1",)), "r1 still has instances: i1, i2"),
        (
            ops.Insert(system.PICO_PEER_ADDRESS.id, (9, "h:1", "http")),
            "an address (http) of instance 9, which does not exist",
        ),
        (
            ops.Update(system.PICO_BUCKET.id, ("default", 1), ((4, "r2"),)),
            "bucket 1 of default belongs to r1, and its rows would stay there",
        ),
        (
            ops.Update(system.PICO_BUCKET.id, ("default", 1), ((4, "r9"),)),
            'there is no replicaset of tier default named "r9"',
        ),
        (
            ops.Delete(system.PICO_BUCKET.id, ("default", 1)),
            "bucket 1 of default would have no owner",
        ),
        (
            ops.Update(system.PICO_BUCKET.id, ("default", 1), ((2, 1600),)),
            "bucket 1501 of default has two owners",
        ),
        (
            ops.Update(system.PICO_BUCKET.id, ("default", 1501), ((2, 9000),)),
            "1501–9000 are no buckets of default",
        ),
    ],
)
def test_names_belong_to_somebody_and_buckets_keep_their_owner(
    change: ops.Dml, sentence: str
) -> None:
    assert refusal(cluster_of(), change) == sentence


def test_who_lacks_the_rows_is_not_made_master() -> None:
    cluster = cluster_of(replicaset("r1", "i1", ("i1",)))
    change = ops.Update(REPLICASETS.id, ("r1",), ((3, "i2"),))
    assert refusal(cluster, change) == "i2 does not have the rows of r1 yet"


def test_a_session_that_says_unsafe_may_move_buckets_without_their_rows() -> None:
    change = ops.Update(system.PICO_BUCKET.id, ("default", 1), ((4, "r2"),))
    assert check_change((change,), cluster_of(), SHARDED, is_unsafe=True) == READ


def test_only_the_ranges_of_a_lost_replicaset_get_new_owners() -> None:
    sets = [
        replicaset(name, f"i{at}", (f"i{at}",)) for at, name in enumerate(("r1", "r2", "r3"), 1)
    ]
    cluster = view_of(
        *(instance(f"i{at}", at, replicaset=f"r{at}") for at in (1, 2, 3)), sets=tuple(sets)
    ).cluster
    ranges = [(1, 1000, "r1"), (1001, 2000, "r2"), (2001, 3000, "r3")]
    before = tuple(BucketRange("default", a, b, BucketState.ACTIVE, r) for a, b, r in ranges)
    cluster = msgspec.structs.replace(cluster, buckets=before)
    moved = given_away(cluster, "default", "r2")
    ended = msgspec.structs.replace(sets[1], state=ReplicasetState.TO_BE_EXPELLED, weight=0.0)
    put = ops.Replace(REPLICASETS.id, rows.replicaset_row(ended))
    check_change((*moved, put), cluster, SHARDED)
    after = [(each.start, each.end, each.owner) for each in picture_after(cluster, moved).buckets]
    assert after == [(1, 1000, "r1"), (1001, 1500, "r1"), (1501, 2000, "r3"), (2001, 3000, "r3")]
