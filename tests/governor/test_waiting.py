"""An idle governor names what it waits for, and what a person can do."""

from __future__ import annotations

import msgspec

from cairn.governor.actions import Idle, Propose
from cairn.governor.plan import plan
from cairn.governor.view import ClusterView
from cairn.model.members.holders import EXPEL, EXPEL_BY_FORCE
from cairn.model.members.topology import BucketRange, BucketState, Grade, Instance, State
from tests.governor.builders import World, instance, replicaset, view_of

DEAD = State(Grade.OFFLINE, 1)
LEAVING = State(Grade.EXPELLED, 1)


def pair(i3: Instance, i4: Instance) -> ClusterView:
    """r1 of i1, i2 is well; r2 of i3 (its master) and i4 owns the other half."""
    view = view_of(instance("i1", 1), instance("i2", 2), i3, i4, voters={1, 2})
    buckets = (
        BucketRange("default", 1, 1500, BucketState.ACTIVE, "r1"),
        BucketRange("default", 1501, 3000, BucketState.ACTIVE, "r2"),
    )
    cluster = msgspec.structs.replace(view.cluster, buckets=buckets)
    return msgspec.structs.replace(view, cluster=cluster)


def waited_for(view: ClusterView) -> tuple[str, ...]:
    world = World(view)
    world.settle()
    found = plan(world.view)
    assert isinstance(found, Idle)
    return found.blocked_by


def test_a_replicaset_whose_members_are_all_dead_is_named() -> None:
    view = pair(
        instance("i3", 3, DEAD, replicaset="r2", reason="silent"),
        instance("i4", 4, DEAD, replicaset="r2", reason="silent"),
    )
    assert waited_for(view) == (
        "r2 has no master, buckets 1501–3000 cannot be used: start i3, i4, or give the rows up "
        "with cairn expel NAME --force for each of them",
    )


def test_a_replicaset_whose_copies_are_all_damaged_is_named_with_who_could_help() -> None:
    away = instance("i4", 4, DEAD, replicaset="r2", reason="silent")
    view = msgspec.structs.replace(
        pair(instance("i3", 3, replicaset="r2"), away), damaged=frozenset({"i3"})
    )
    said = "every copy of r2 that is there is damaged (i3): "
    served = "; what can be read is served"
    assert waited_for(view) == (f"{said}start i4, or restore a backup{served}",)
    alone = msgspec.structs.replace(view, damaged=frozenset({"i3", "i4"}))
    assert f"(i3, i4): restore a backup{served}" in waited_for(alone)[0]
    healthy = pair(instance("i3", 3, replicaset="r2"), instance("i4", 4, replicaset="r2"))
    assert waited_for(healthy) == ()


def test_a_damaged_master_of_which_nobody_gets_all_rows_is_named_with_the_way_out() -> None:
    two = instance("i3", 3, replicaset="r2"), instance("i4", 4, replicaset="r2")
    view = msgspec.structs.replace(
        pair(*two),
        damaged=frozenset({"i3"}),
        waiting=frozenset({("transfer replication leader", "r2")}),
    )
    assert waited_for(view)[-1] == (
        "i3 stays master of r2 although it is damaged: nobody else gets all of its rows; "
        "cairn expel i3 --force gives up what only it has"
    )


def test_an_expulsion_that_would_lose_rows_waits_and_says_for_whom() -> None:
    view = pair(
        instance("i3", 3, State(Grade.ONLINE, 1), LEAVING, replicaset="r2", reason=EXPEL),
        instance("i4", 4, DEAD, replicaset="r2", reason="silent"),
    )
    assert waited_for(view)[-1] == (
        "i3 cannot leave: nobody else is known to have the rows of buckets 1501–3000; start "
        "another instance of r2, or lose them with cairn expel i3 --force"
    )


def test_by_force_it_goes() -> None:
    leaving = State(Grade.ONLINE, 1)
    view = pair(
        instance("i3", 3, leaving, LEAVING, replicaset="r2", reason=EXPEL_BY_FORCE),
        instance("i4", 4, DEAD, replicaset="r2", reason="silent"),
    )
    action = plan(view)
    assert isinstance(action, Propose) and action.step == "expel instance"


def test_of_two_expelled_instances_the_first_does_not_take_the_replicaset_along() -> None:
    gone = instance("i3", 3, LEAVING, replicaset="r2"), instance("i4", 4, LEAVING, replicaset="r2")
    view = msgspec.structs.replace(
        view_of(
            instance("i1", 1),
            *gone,
            sets=(replicaset("r2", "i3", ("i3", "i4")),),
            sharded=False,
            voters={1},
        ),
        learners=frozenset(),
    )
    world = World(view)
    world.step()
    assert ("i3" in world.cluster.instances, "r2" in world.cluster.replicasets) == (False, True)
    assert world.cluster.replicasets["r2"].current_master_name == ""
    assert world.cluster.replicasets["r2"].members == ("i4",)
    world.step()
    assert ("i4" in world.cluster.instances, "r2" in world.cluster.replicasets) == (False, False)
