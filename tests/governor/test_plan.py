"""The governor decides: one step at a time, always in the same order."""

from __future__ import annotations

import random
from dataclasses import dataclass

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cairn.governor.actions import (
    Action,
    ChangeVoters,
    HandOverLeadership,
    Idle,
    Propose,
    SealAndName,
    SwitchMaster,
    SyncRaft,
)
from cairn.governor.buckets import shares
from cairn.governor.plan import plan
from cairn.governor.rules.leaving import (
    hand_over_leadership,
    put_replicaset,
    replace_master,
    spare_damaged_master,
    switch_master,
)
from cairn.governor.rules.voters import change_voters, wanted_voters
from cairn.governor.view import ClusterView
from cairn.governor.waiting import waits
from cairn.model.members.holders import EXPEL, EXPEL_BY_FORCE
from cairn.model.members.topology import Grade, State, Tier
from tests.governor.builders import World, instance, replicaset, view_of

NEW = State(Grade.OFFLINE, 0)
ONLINE = State(Grade.ONLINE, 1)
OFFLINE = State(Grade.OFFLINE, 1)
EXPELLED = State(Grade.EXPELLED, 1)


@pytest.mark.parametrize(
    ("instances", "voters"), [(1, 1), (2, 2), (3, 3), (4, 3), (5, 5), (6, 5), (50, 5)]
)
def test_the_number_of_voters_follows_the_seed(instances: int, voters: int) -> None:
    assert wanted_voters(instances) == voters


def test_a_newcomer_becomes_a_learner_before_anything_else() -> None:
    view = view_of(instance("i1", 1), instance("i2", 2, NEW, State(Grade.ONLINE, 1)), voters={1})
    view = msgspec.structs.replace(view, learners=frozenset())
    assert plan(view) == ChangeVoters(step="conf change", subject="raft", add_learners=(2,))


def test_an_instance_that_comes_up_is_first_asked_for_its_raft_log() -> None:
    view = view_of(instance("i1", 1), instance("i2", 2, NEW, State(Grade.ONLINE, 1)), voters={1})
    assert plan(view) == SyncRaft(step="sync raft log", subject="i2", instances=("i2",))


def test_voters_are_spread_over_failure_domains() -> None:
    view = view_of(
        instance("i1", 1, domain={"DC": "A"}),
        instance("i2", 2, domain={"DC": "A"}),
        instance("i3", 3, domain={"DC": "B"}),
        instance("i4", 4, domain={"DC": "C"}),
        voters={1},
    )
    assert plan(view) == ChangeVoters(step="conf change", subject="raft", add_voters=(3, 4))


def test_a_leaving_leader_hands_over_and_is_never_demoted_by_itself() -> None:
    view = view_of(
        instance("i1", 1, ONLINE, OFFLINE, reason="shutdown"),
        instance("i2", 2, replicaset="r2"),
        instance("i3", 3, replicaset="r3"),
    )
    assert plan(view) == HandOverLeadership(step="transfer raft leader", subject="i2", to=2)


def test_one_of_two_that_says_goodbye_is_demoted_so_that_the_other_keeps_its_quorum() -> None:
    leaving = instance("i2", 2, ONLINE, OFFLINE, reason="shutdown", replicaset="r2")
    assert plan(view_of(instance("i1", 1), leaving)) == ChangeVoters(
        step="conf change", subject="raft", add_learners=(2,)
    )


@pytest.mark.parametrize("target", [OFFLINE, EXPELLED], ids=["stopped", "expelled"])
def test_who_leaves_takes_no_quorum_along(target: State) -> None:
    """i2 is dead: of i1 and i2 alone nothing could be decided any more."""
    view = view_of(
        instance("i1", 1, replicaset="r1"),
        instance("i2", 2, OFFLINE, replicaset="r2"),
        instance("i3", 3, ONLINE, target, replicaset="r3", reason="shutdown"),
        voters={1, 2, 3},
    )
    silent = msgspec.structs.replace(view, silent=frozenset({2}))
    changes = [action for action in change_voters(silent) if isinstance(action, ChangeVoters)]
    assert changes == [ChangeVoters(step="conf change", subject="raft", add_learners=(2, 3))]
    [there] = change_voters(view)  # it answers: its vote is good
    assert there == ChangeVoters(step="conf change", subject="raft", add_learners=(3,))


def test_a_silent_learner_gets_no_vote() -> None:
    view = view_of(
        instance("i1", 1, replicaset="r1"),
        instance("i2", 2, replicaset="r2"),
        instance("i3", 3, ONLINE, EXPELLED, replicaset="r3"),
        instance("i4", 4, replicaset="r4"),
        voters={1, 2, 3},
    )
    silent = msgspec.structs.replace(view, silent=frozenset({4}))
    assert list(change_voters(silent)) == [
        ChangeVoters(step="conf change", subject="raft", add_learners=(3,))
    ]


def test_leadership_goes_to_one_that_answers_first() -> None:
    view = view_of(
        instance("i1", 1, ONLINE, OFFLINE, replicaset="r1"),
        instance("i2", 2, replicaset="r2"),
        instance("i3", 3, replicaset="r3"),
        voters={1, 2, 3},
    )
    silent = msgspec.structs.replace(view, silent=frozenset({2}))
    assert [heir.subject for heir in hand_over_leadership(silent)] == ["i3", "i2"]


def test_a_silent_voter_beside_a_majority_keeps_its_vote() -> None:
    view = view_of(
        *(instance(f"i{at}", at, replicaset=f"r{at}") for at in (1, 2, 3, 4)),
        instance("i5", 5, ONLINE, EXPELLED, replicaset="r5"),
        voters={1, 2, 3, 4, 5},
    )
    view = msgspec.structs.replace(view, silent=frozenset({2}))
    [change] = change_voters(view)
    assert isinstance(change, ChangeVoters) and 2 not in change.add_learners


def test_a_silent_voter_keeps_its_vote_until_somebody_can_take_it() -> None:
    silent = instance("i3", 3, ONLINE, OFFLINE, reason="silent", replicaset="r3")
    three = [instance("i1", 1), instance("i2", 2, replicaset="r2"), silent]
    assert not isinstance(plan(view_of(*three)), ChangeVoters)
    four = [*three, instance("i4", 4, replicaset="r4")]
    view = view_of(*four, voters={1, 2, 3})
    assert plan(view) == ChangeVoters(
        step="conf change", subject="raft", add_voters=(4,), add_learners=(3,)
    )


def test_a_lost_master_is_replaced_only_by_a_member_that_has_the_rows() -> None:
    dead = instance("i1", 2, ONLINE, OFFLINE, reason="silent")
    fresh = instance("i2", 3)
    has_rows = instance("i3", 4)
    leader = instance("i9", 1, replicaset="r9")
    sets = (replicaset("r1", "i1", ("i1", "i3")),)
    action = plan(view_of(leader, dead, fresh, has_rows, voters={1, 3, 4}, sets=sets))
    assert isinstance(action, Propose)
    assert action.step == "update target replication leader"
    assert "i3 shall replace i1" in action.say


def test_a_damaged_master_hands_over_to_a_replica_that_is_not_damaged() -> None:
    leader = instance("i9", 1, replicaset="r9")
    members = (instance("i1", 2), instance("i2", 3), instance("i3", 4))
    sets = (replicaset("r1", "i1", ("i1", "i2", "i3")),)
    view = view_of(leader, *members, sets=sets, voters={1, 2, 3})
    damaged = msgspec.structs.replace(view, damaged=frozenset({"i1", "i2"}))
    action = plan(damaged)
    assert isinstance(action, Propose)
    assert action.say == "r1: i3 shall replace i1: it has damaged rows"
    nobody = msgspec.structs.replace(view, damaged=frozenset({"i1", "i2", "i3"}))
    assert list(spare_damaged_master(nobody)) == []


def damaged_master(
    mode: str, wished: str, named: str = "i1", *, tried: bool = True, also: str = ""
) -> ClusterView:
    view = view_of(
        instance("i9", 1, replicaset="r9"),
        *(instance(name, number) for number, name in enumerate(("i1", "i2", "i3"), 2)),
        sets=(replicaset("r1", named, ("i1", "i2", "i3"), target_master_name=wished),),
        voters={1, 2, 3},
    )
    tiers = {"default": Tier("default", 1, is_default=True, replication_mode=mode)}
    return msgspec.structs.replace(
        view,
        cluster=msgspec.structs.replace(view.cluster, tiers=tiers),
        damaged=frozenset({"i1", also}),
        waiting=frozenset({("transfer replication leader", "r1")} if tried else ()),
    )


def test_a_damaged_master_of_which_nobody_gets_all_rows_stays_in_async_mode() -> None:
    """To name another one would lose rows that can be read. It is tried again later."""
    action = plan(damaged_master("async", "i2"))
    assert isinstance(action, Propose)
    assert action.ops == (put_replicaset(replicaset("r1", "i1", ("i1", "i2", "i3"))),)
    assert list(spare_damaged_master(damaged_master("async", "i1"))) == []
    assert list(spare_damaged_master(damaged_master("async", "i1", tried=False))) != []


def test_an_heir_of_a_damaged_master_has_all_of_its_rows_before_anybody_is_deposed() -> None:
    """A wish that cannot come true would keep clients from the rows, again and again."""
    view = damaged_master("async", "i1", tried=False)
    action = plan(view)
    assert isinstance(action, Propose)
    assert (action.holders, action.needed) == (("i2",), 1)
    one_lacks_rows = msgspec.structs.replace(view, waiting=frozenset({(action.step, "i2")}))
    action = plan(one_lacks_rows)
    assert isinstance(action, Propose)
    assert (action.holders, action.needed) == (("i3",), 1)
    both = frozenset({(action.step, name) for name in ("i2", "i3")})
    told = " ".join(waits(msgspec.structs.replace(view, waiting=both), []))
    assert "i1 stays master of r1 although it is damaged" in told
    action = plan(damaged_master("sync", "i1", tried=False))
    assert isinstance(action, Propose) and not action.needed


def test_a_damaged_master_is_not_named_again_where_a_majority_is_whole() -> None:
    """In sync mode the others have all that was acknowledged."""
    deposing = plan(damaged_master("sync", "i2"))
    assert isinstance(deposing, Propose)
    assert deposing.step == "depose master"
    naming = plan(damaged_master("sync", "i2", named=""))
    assert isinstance(naming, SealAndName)
    assert (naming.members, naming.needed) == (("i1", "i2", "i3"), 2)
    assert naming.whole == ("i2", "i3")


def test_a_damaged_master_stays_where_only_a_minority_is_whole() -> None:
    """Whoever has most would be named again and again: the damaged ones."""
    action = plan(damaged_master("sync", "i2", also="i3"))
    assert isinstance(action, Propose)
    assert action.ops == (put_replicaset(replicaset("r1", "i1", ("i1", "i2", "i3"))),)
    assert list(spare_damaged_master(damaged_master("sync", "i1", also="i3"))) == []
    assert list(spare_damaged_master(damaged_master("sync", "i1", also="i3", tried=False))) != []


def leaves(view: ClusterView, reason: str) -> ClusterView:
    """Its master i1 is to be expelled."""
    leaving = instance("i1", 2, ONLINE, EXPELLED, reason=reason)
    instances = {**view.cluster.instances, "i1": leaving}
    cluster = msgspec.structs.replace(view.cluster, instances=instances)
    return msgspec.structs.replace(view, cluster=cluster)


def switched(view: ClusterView) -> Action:
    """What comes of an announced change; handing over has failed a moment ago."""
    return next(each for each in switch_master(view) if (each.step, "r1") not in view.waiting)


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_a_damaged_master_that_cannot_hand_over_leaves_only_by_force(mode: str) -> None:
    """Asked to leave, it was wished away and called back without end."""
    asked = leaves(damaged_master(mode, "i1", also="i3"), EXPEL)
    assert list(replace_master(asked)) == []
    forced = leaves(damaged_master(mode, "i1", also="i3"), EXPEL_BY_FORCE)
    [wish] = replace_master(forced)
    assert isinstance(wish, Propose) and "i2 shall replace i1" in wish.say
    deposing = switched(leaves(damaged_master(mode, "i2", also="i3"), EXPEL_BY_FORCE))
    assert isinstance(deposing, Propose) and deposing.step == "depose master"
    naming = switched(leaves(damaged_master(mode, "i2", named="", also="i3"), EXPEL_BY_FORCE))
    assert isinstance(naming, SealAndName)
    assert (naming.members, naming.given_up) == (("i2", "i3", "i1"), ("i1",))


def test_a_damaged_master_that_was_silent_is_deposed_as_any_other() -> None:
    view = damaged_master("async", "i2")
    silent = instance("i1", 2, ONLINE, OFFLINE, reason="silent")
    cluster = msgspec.structs.replace(
        view.cluster, instances={**view.cluster.instances, "i1": silent}
    )
    action = switched(msgspec.structs.replace(view, cluster=cluster))
    assert isinstance(action, Propose) and action.step == "depose master"


def test_one_that_comes_up_may_have_no_rows_and_is_not_counted_as_whole() -> None:
    view = damaged_master("sync", "i2")
    rising = instance("i3", 4, State(Grade.RAFT_SYNCED, 2), State(Grade.ONLINE, 2))
    cluster = msgspec.structs.replace(
        view.cluster, instances={**view.cluster.instances, "i3": rising}
    )
    action = switched(msgspec.structs.replace(view, cluster=cluster))
    assert isinstance(action, Propose) and "i1 stays master" in action.say


def test_a_demoted_master_that_answers_is_asked_for_its_last_row() -> None:
    view = view_of(
        instance("i9", 1, replicaset="r9"),
        instance("i1", 2, ONLINE, OFFLINE, reason="shutdown"),
        instance("i2", 3),
        sets=(replicaset("r1", "i1", ("i1", "i2"), target_master_name="i2"),),
        voters={1, 3},
    )
    assert plan(view) == SwitchMaster(
        step="transfer replication leader", subject="r1", replicaset="r1", old="i1", heir="i2"
    )


def silent_master(wished: str) -> ClusterView:
    return view_of(
        instance("i9", 1, replicaset="r9"),
        instance("i1", 2, ONLINE, OFFLINE, reason="silent"),
        instance("i2", 3),
        instance("i3", 4),
        sets=(replicaset("r1", "i1", ("i1", "i2", "i3"), target_master_name=wished),),
        voters={1, 3, 4},
    )


def test_a_silent_master_is_none_any_more_before_anybody_promises() -> None:
    action = plan(silent_master("i2"))
    assert isinstance(action, Propose)
    deposed = replicaset("r1", "i1", ("i1", "i2", "i3"), target_master_name="")
    assert (action.step, action.ops) == ("depose master", (put_replicaset(deposed),))


def test_a_silent_master_is_replaced_by_sealing_a_majority() -> None:
    action = plan(silent_master(""))
    assert isinstance(action, SealAndName)
    assert action.members == ("i2", "i3")


@pytest.mark.parametrize("grade", [Grade.RAFT_SYNCED, Grade.REPLICATED, Grade.ONLINE])
def test_who_is_expelled_while_it_comes_up_is_asked_for_its_promise(grade: Grade) -> None:
    """In a sync pair nobody can be named without it."""
    view = view_of(
        instance("i9", 1, replicaset="r9"),
        instance("i1", 2, State(grade, 2), State(Grade.EXPELLED, 2), reason="expel"),
        instance("i2", 3),
        sets=(replicaset("r1", "", ("i1", "i2"), target_master_name="i2"),),
        voters={1, 3},
    )
    action = plan(view)
    assert isinstance(action, SealAndName)
    assert action.members == ("i2", "i1")


def test_a_subject_that_backs_off_lets_the_next_one_speak() -> None:
    view = view_of(
        instance("i1", 1),
        instance("i2", 2, NEW, State(Grade.ONLINE, 1)),
        instance("i3", 3, State(Grade.SHARDING_INITIALIZED, 1), ONLINE),
        voters={1},
    )
    stuck = msgspec.structs.replace(view, waiting=frozenset({("sync raft log", "i2")}))
    world = World(stuck)
    world.dead.add("i2")
    world.settle()
    assert "update instance state to online: i3" in world.steps


def test_an_idle_governor_says_for_whom_it_waits() -> None:
    view = view_of(instance("i1", 1), factor=2, sets=(replicaset("r1", "i1", ("i1",), weight=0.0),))
    view = msgspec.structs.replace(
        view,
        cluster=msgspec.structs.replace(
            view.cluster,
            replicasets={
                "r1": replicaset(
                    "r1", "i1", ("i1",), weight=0.0, state=_not_ready(), weight_origin="auto"
                )
            },
        ),
    )
    assert plan(view) == Idle(blocked_by=("waiting for replicaset r1: 1 of 2 instances",))


def _not_ready() -> object:
    from cairn.model.members.topology import ReplicasetState

    return ReplicasetState.NOT_READY


@pytest.mark.parametrize(
    ("weights", "total", "expected"),
    [
        ([1, 1], 3000, [1500, 1500]),
        ([2, 1, 1], 3000, [1500, 750, 750]),
        ([1, 1, 1], 10, [3, 4, 3]),
        ([0, 1], 3000, [0, 3000]),
        ([0, 0], 3000, [0, 0]),
    ],
)
def test_buckets_are_shared_by_weight_without_a_rest(
    weights: list[float], total: int, expected: list[int]
) -> None:
    assert shares(weights, total) == expected


def test_a_new_cluster_of_four_comes_online_with_all_buckets_given_out() -> None:
    up = State(Grade.ONLINE, 1)
    from cairn.model.members.topology import ReplicasetState

    sets = tuple(
        replicaset(name, master, (master,), weight=0.0, state=ReplicasetState.NOT_READY)
        for name, master in (("r1", "i1"), ("r2", "i3"))
    )
    view = view_of(
        instance("i1", 1, NEW, up),
        instance("i2", 2, NEW, up),
        instance("i3", 3, NEW, up, replicaset="r2"),
        instance("i4", 4, NEW, up, replicaset="r2"),
        voters={1},
        learners=set(),
        factor=2,
        sharded=False,
        sets=sets,
    )
    world = World(view)
    world.settle()
    cluster = world.cluster
    assert {each.current_state for each in cluster.instances.values()} == {up}
    assert [(b.start, b.end, b.owner) for b in cluster.buckets] == [
        (1, 1500, "r1"),
        (1501, 3000, "r2"),
    ]
    assert len(world.view.voters) == 3


def test_expelling_ends_with_no_row_no_vote_and_no_bucket() -> None:
    world = World(
        view_of(
            instance("i1", 1),
            instance("i2", 2, replicaset="r2"),
            instance("i3", 3, replicaset="r3"),
            sharded=False,
        )
    )
    world.settle()
    world.set_target("i3", Grade.EXPELLED, "expel")
    world.settle()
    assert set(world.cluster.instances) == {"i1", "i2"}
    assert set(world.cluster.replicasets) == {"r1", "r2"}
    assert {bucket.owner for bucket in world.cluster.buckets} == {"r1", "r2"}
    assert world.view.voters == {1, 2}


def test_without_a_master_nobody_is_taken_for_one_who_has_the_rows() -> None:
    """i2 has them and is away; i3 came after the master had been expelled."""
    kept = replicaset("r1", "", ("i2",))
    view = view_of(
        instance("i1", 1, replicaset="r2"),
        instance("i2", 2, OFFLINE),
        instance("i3", 3, State(Grade.REPLICATED, 1), ONLINE),
        sets=(kept,),
    )
    world = World(view)
    world.settle()
    after = world.cluster.replicasets["r1"]
    assert (after.current_master_name, after.members) == ("", ("i2",))


@dataclass
class Life:
    """What may happen to a cluster between two steps of its governor."""

    chance: random.Random

    def disturb(self, world: World) -> None:
        names = sorted(world.cluster.instances)
        name = self.chance.choice(names)
        row = world.cluster.instances[name]
        if row.target_state.grade is Grade.EXPELLED:
            return
        kind = self.chance.random()
        if kind < 0.3:
            world.dead.add(name)
            world.set_target(name, Grade.OFFLINE, "silent")
        elif kind < 0.5:
            world.set_target(name, Grade.OFFLINE, "shutdown")
        elif kind < 0.9:
            world.dead.discard(name)
            world.put(waiting=frozenset())
            world.set_target(name, Grade.ONLINE)
        elif len(names) > 2 and not world.view.sharded_tiers:
            world.set_target(name, Grade.EXPELLED, "expel")


@settings(max_examples=120, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    count=st.integers(2, 7),
    factor=st.integers(1, 3),
    sharded=st.booleans(),
)
def test_from_any_reachable_picture_the_governor_comes_to_rest(
    seed: int, count: int, factor: int, sharded: bool
) -> None:
    chance = random.Random(seed)
    people = [
        instance(f"i{n}", n, replicaset=f"r{(n - 1) // factor + 1}") for n in range(1, count + 1)
    ]
    world = World(view_of(*people, factor=factor, sharded=sharded))
    life = Life(chance)
    for _ in range(30):
        life.disturb(world)
        for _ in range(chance.randint(0, 6)):
            before = {name: row.current_state for name, row in world.cluster.instances.items()}
            world.step()
            check_no_grade_jumps(before, world)
        leader = world.cluster.by_raft_id(world.view.leader)
        if leader is None or leader.name in world.dead:  # somebody else is elected
            alive = [
                raft_id
                for raft_id in sorted(world.view.voters)
                if (row := world.cluster.by_raft_id(raft_id)) is not None
                and row.name not in world.dead
            ]
            if not alive:
                return
            world.put(leader=alive[0])
    world.put(waiting=frozenset())
    world.settle()
    idle = plan(world.view)
    if isinstance(idle, Idle) and not idle.blocked_by:
        check_as_it_should_be(world)


def check_as_it_should_be(world: World) -> None:
    """An idle governor that waits for nothing says: all are there, every bucket has a master."""
    cluster = world.cluster
    assert all(row.current_state == row.target_state for row in cluster.instances.values())
    for bucket in cluster.buckets:
        master = cluster.master_of(bucket.owner)
        assert master is not None and master.target_state.grade is Grade.ONLINE


ORDER = [
    Grade.OFFLINE,
    Grade.RAFT_SYNCED,
    Grade.REPLICATED,
    Grade.SHARDING_INITIALIZED,
    Grade.ONLINE,
]


def check_no_grade_jumps(before: dict[str, State], world: World) -> None:
    for name, row in world.cluster.instances.items():
        old, new = before.get(name), row.current_state
        if old is None or old == new or new.grade in (Grade.OFFLINE, Grade.EXPELLED):
            continue
        if new.grade is Grade.RAFT_SYNCED:
            continue  # a new incarnation begins here from any grade
        assert ORDER.index(new.grade) == ORDER.index(old.grade) + 1, (name, old, new)
