"""The governor's part in what happens to rows: who is sealed, and whom it does not wait for."""

from __future__ import annotations

import msgspec
import pytest

from cairn.governor.actions import Idle, Propose, SealAndName
from cairn.governor.plan import plan
from cairn.governor.view import ClusterView
from cairn.model.members.topology import Grade, State
from tests.governor.builders import instance, replicaset, view_of

SILENT = State(Grade.ONLINE, 1), State(Grade.OFFLINE, 1)


def two_failovers() -> ClusterView:
    """The masters of r1 and r2 are silent, and their successors are known."""
    return view_of(
        instance("i9", 1, replicaset="r9"),
        instance("i1", 2, *SILENT, reason="silent"),
        instance("i2", 3),
        instance("i3", 4, *SILENT, reason="silent", replicaset="r2"),
        instance("i4", 5, replicaset="r2"),
        sets=(
            replicaset("r1", "i1", ("i1", "i2"), target_master_name=""),
            replicaset("r2", "i3", ("i3", "i4"), target_master_name=""),
        ),
        voters={1, 3, 5},
    )


def test_a_replicaset_whose_seal_fails_holds_up_no_other() -> None:
    view = two_failovers()
    assert plan(view).subject == "r1"
    backing_off = frozenset({("seal and name master", "r1")})
    action = plan(msgspec.structs.replace(view, waiting=backing_off))
    assert (action.step, action.subject) == ("seal and name master", "r2")


@pytest.mark.parametrize(("mode", "needed"), [("sync", 2), ("async", 1)])
def test_a_seal_takes_a_majority_of_the_recorded_members_in_sync_mode(
    mode: str, needed: int
) -> None:
    """In async mode all that can be reached are enough."""
    view = view_of(
        instance("i9", 1, replicaset="r9"),
        instance("i1", 2, *SILENT, reason="silent"),
        instance("i2", 3),
        instance("i3", 4, *SILENT, reason="silent"),
        sets=(replicaset("r1", "i1", ("i1", "i2", "i3"), target_master_name=""),),
        voters={1, 3},
    )
    tiers = {
        name: msgspec.structs.replace(tier, replication_mode=mode)
        for name, tier in view.cluster.tiers.items()
    }
    cluster = msgspec.structs.replace(view.cluster, tiers=tiers)
    action = plan(msgspec.structs.replace(view, cluster=cluster))
    assert isinstance(action, SealAndName)
    assert (action.members, action.needed) == (("i2",), needed)


def test_one_that_is_to_be_expelled_still_promises() -> None:
    """A majority of two is both: without it nobody could be named, and it could never leave."""
    leaving = (State(Grade.ONLINE, 2), State(Grade.EXPELLED, 2))
    view = view_of(
        instance("i9", 1, replicaset="r9"),
        instance("i1", 2, *leaving),
        instance("i2", 3),
        sets=(replicaset("r1", "i1", ("i1", "i2"), target_master_name=""),),
        voters={1, 3},
    )
    action = plan(view)
    assert isinstance(action, SealAndName)
    assert (action.members, action.needed) == (("i2", "i1"), 1)


@pytest.mark.parametrize(("mode", "needed"), [("sync", 2), ("async", 0)])
def test_in_sync_mode_rows_must_be_with_those_who_stay_before_one_is_expelled(
    mode: str, needed: int
) -> None:
    """Any majority of the three that stay then has somebody with every row."""
    view = view_of(
        instance("i9", 1, replicaset="r9"),
        *(instance(f"i{n}", n + 1) for n in (1, 2, 3)),
        instance("i4", 5, State(Grade.ONLINE, 1), State(Grade.EXPELLED, 1)),
        sets=(replicaset("r1", "i1", ("i1", "i2", "i3", "i4")),),
        voters={1, 2, 3},
    )
    tiers = {
        name: msgspec.structs.replace(tier, replication_mode=mode)
        for name, tier in view.cluster.tiers.items()
    }
    cluster = msgspec.structs.replace(view.cluster, tiers=tiers)
    found = plan(msgspec.structs.replace(view, cluster=cluster))
    assert isinstance(found, Propose)
    assert (found.step, found.subject, found.needed) == ("expel instance", "i4", needed)
    assert found.holders == (("i1", "i2", "i3") if needed else ())


def test_an_idle_governor_says_which_links_stopped_and_why() -> None:
    why = "i2 stopped following i1: record i1:7 cannot be read"
    waiting = frozenset({("distribute buckets", "default")})
    view = msgspec.structs.replace(view_of(instance("i1", 1)), waiting=waiting)
    action = plan(msgspec.structs.replace(view, stopped_links=(why,)))
    assert isinstance(action, Idle)
    assert why in action.blocked_by
