"""What the leader does about moves, given what it sees and what masters told it."""

from __future__ import annotations

import random
from typing import NoReturn

import msgspec
import pytest

from cairn.model.members.cluster import Cluster
from cairn.model.members.moves import MoveReport, Phase
from cairn.model.members.topology import ReplicasetState
from cairn.moves import ranges, shares, steps
from cairn.moves.decide import Decisions, MovesView, decide
from cairn.moves.outlook import Outlook
from tests.moves.maps import (
    applied,
    begun,
    cluster_of,
    final_report,
    frozen,
    handed_over,
    move_of,
    offline,
    phases,
    row,
    view,
    with_set,
    without_set,
)

HERE = "buckets 11–20 of default from s to t"
NEAR = MoveReport(1, "t1", attempt=1, is_near=True)
EMPTY_S = MoveReport(1, "s1", is_empty=True)
EMPTY_T = MoveReport(1, "t1", is_empty=True)


def said(found: Decisions) -> list[str]:
    return [step.say for step in found.steps]


def quiet(cluster: Cluster) -> Cluster:
    """Nothing new is to be begun: the weights are as the buckets will lie."""
    s = with_set(cluster, "s", weight=2.0, weight_origin="user")
    return with_set(s, "t", weight=1.0, weight_origin="user")


def copying() -> Cluster:
    return quiet(begun(cluster_of()))


def held() -> Cluster:
    return quiet(frozen(begun(cluster_of())))


def given() -> Cluster:
    return quiet(handed_over(frozen(begun(cluster_of()))))


# --- one move from its start to its end -----------------------------------------------------------


def test_buckets_are_begun_to_move_when_somebody_lacks_his_share() -> None:
    assert said(decide(view(cluster_of()))) == ["buckets 16–30 of default from s to t: begun"]


def test_a_range_is_frozen_when_its_target_is_near() -> None:
    assert said(decide(view(copying(), NEAR))) == [f"{HERE}: frozen for the last records"]


@pytest.mark.parametrize(
    ("report", "why"),
    [
        (None, "no word of t yet"),
        (MoveReport(1, "t1", rows=5, lag=300), "5 rows copied, 300 records behind"),
        (msgspec.structs.replace(NEAR, problem="no disk"), "no disk"),
    ],
)
def test_a_range_is_not_frozen_before_and_it_is_said_why(
    report: MoveReport | None, why: str
) -> None:
    found = decide(view(copying(), *([report] if report is not None else [])))
    assert (said(found), found.waits) == ([], [f"{HERE}: {why}"])


def test_the_word_of_the_target_hands_the_range_over() -> None:
    cluster = held()
    assert said(decide(view(cluster, final_report(cluster)))) == [f"{HERE}: handed over"]


def test_a_frozen_range_waits_for_its_target_half_a_second_and_no_longer() -> None:
    assert said(decide(view(held(), frozen_s={1: 0.4}))) == []
    late = decide(view(held(), frozen_s={1: 0.6}))
    assert said(late) == [f"{HERE}: not handed over yet: it took too long"]


@pytest.mark.parametrize(("thaws", "ends_s"), [(0, 0.5), (1, 1.0), (2, 2.0), (9, 2.0)])
def test_freezes_after_one_that_took_too_long_may_take_longer(thaws: int, ends_s: float) -> None:
    """Instances may be far from each other; statements wait for two seconds at most."""
    cluster = held()
    moves = {1: msgspec.structs.replace(move_of(cluster), thaws=thaws)}
    cluster = msgspec.structs.replace(cluster, moves=moves)
    assert said(decide(view(cluster, frozen_s={1: ends_s - 0.1}))) == []
    late = decide(view(cluster, frozen_s={1: ends_s + 0.1}))
    assert said(late) == [f"{HERE}: not handed over yet: it took too long"]


def test_a_range_is_done_when_the_old_rows_are_gone() -> None:
    found = decide(view(given()))
    assert (said(found), found.waits) == ([], [f"{HERE}: s has to drop the old rows"])
    assert said(decide(view(given(), EMPTY_S))) == [f"{HERE}: done"]
    assert said(decide(view(given(), EMPTY_T))) == []  # the wrong side


def test_who_is_away_is_named_where_old_rows_wait_for_it() -> None:
    found = decide(view(offline(given(), "s1")))
    said_why = "s has to drop the old rows; that waits for s1: start it again, or expel it"
    assert found.waits == [f"{HERE}: {said_why}"]


def test_a_move_that_is_given_up_ends_when_the_target_is_empty() -> None:
    cluster = copying()
    cluster = applied(cluster, steps.abort(cluster, move_of(cluster), "asked", "now"))
    found = decide(view(cluster))
    assert found.waits == [f"{HERE}: t has to drop what it copied"]
    assert said(decide(view(cluster, EMPTY_S))) == []
    assert said(decide(view(cluster, EMPTY_T)))[0] == f"{HERE}: back at rest"


def test_a_target_that_cannot_take_more_is_left_alone_for_a_while_and_it_is_said_why() -> None:
    full = MoveReport(1, "t1", is_hopeless=True, problem="no space")
    found = decide(view(copying(), full))
    assert said(found) == [f"{HERE}: given up: no space"]
    found = decide(view(cluster_of(), refused={"t": "no space"}))
    assert (said(found), found.waits) == ([], ["tier default: t takes nothing for now: no space"])
    assert decide(view(cluster_of(), refused={"s": "no space"})).steps  # it only gives


# --- what ends a freeze ---------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "who"), [("s", "source"), ("t", "target")])
def test_a_master_that_changes_in_a_freeze_ends_it(name: str, who: str) -> None:
    cluster = held()
    word = final_report(cluster)
    other = with_set(cluster, name, epoch=2)
    assert said(decide(view(other, word))) == [
        f"{HERE}: not handed over yet: the {who} has another master"
    ]


def test_a_report_of_an_earlier_freeze_hands_nothing_over() -> None:
    early = held()
    word = final_report(early)
    cluster = applied(early, steps.thaw(early, move_of(early), "slow", "now"))
    cluster = frozen(cluster)
    assert said(decide(view(cluster, word))) == []


def test_after_a_freeze_that_took_too_long_the_next_waits_longer_and_longer() -> None:
    def may_freeze(thaws: int, resting_s: float) -> bool:
        cluster = copying()
        move = msgspec.structs.replace(move_of(cluster), thaws=thaws)
        cluster = msgspec.structs.replace(cluster, moves={1: move})
        return bool(decide(view(cluster, NEAR, resting_s={1: resting_s})).steps)

    assert may_freeze(0, 0.0)
    waits = [next(s for s in range(60) if may_freeze(thaws, s + 0.01)) for thaws in range(1, 9)]
    assert waits == [1, 2, 4, 8, 16, 30, 30, 30]


def test_a_new_leader_that_saw_no_freeze_end_does_not_wait() -> None:
    cluster = copying()
    move = msgspec.structs.replace(move_of(cluster), thaws=5)
    cluster = msgspec.structs.replace(cluster, moves={1: move})
    assert said(decide(view(cluster, NEAR))) == [f"{HERE}: frozen for the last records"]


# --- what stands in the way -----------------------------------------------------------------------


def test_a_pending_schema_change_keeps_ranges_from_being_frozen() -> None:
    found = decide(view(copying(), NEAR, has_pending_ddl=True))
    assert (said(found), found.waits) == ([], [f"{HERE}: a schema change is pending"])


def test_of_one_source_one_range_is_frozen_at_a_time() -> None:
    cluster = begun(begun(cluster_of(sets="stu")), 21, 25, "u")
    cluster = frozen(cluster, 2)
    found = decide(view(cluster, NEAR))
    assert f"{HERE}: another range of s is frozen" in found.waits
    assert said(found) == []


@pytest.mark.parametrize("name", ["s", "t"])
def test_nothing_is_frozen_or_begun_while_a_master_is_away(name: str) -> None:
    found = decide(view(offline(copying(), f"{name}1"), NEAR))
    assert (said(found), found.waits) == ([], [f"{HERE}: {name} has no master"])
    found = decide(view(offline(cluster_of(), f"{name}1")))
    assert (said(found), found.waits) == ([], [f"tier default: s → t: {name} is down"])


@pytest.mark.parametrize("name", ["s", "t"])
def test_nothing_is_frozen_while_a_master_is_about_to_change(name: str) -> None:
    found = decide(view(with_set(copying(), name, target_master_name=f"{name}2"), NEAR))
    assert (said(found), found.waits) == ([], [f"{HERE}: {name} has no master"])


def test_a_pause_stops_starts_and_freezes_but_not_what_is_frozen_or_handed_over() -> None:
    assert said(decide(view(cluster_of(), is_paused=True))) == []
    assert said(decide(view(copying(), NEAR, is_paused=True))) == []
    cluster = held()
    word = final_report(cluster)
    assert said(decide(view(cluster, word, is_paused=True))) == [f"{HERE}: handed over"]
    late = decide(view(held(), is_paused=True, frozen_s={1: 1.0}))
    assert said(late) == [f"{HERE}: not handed over yet: it took too long"]
    assert said(decide(view(given(), EMPTY_S, is_paused=True))) == [f"{HERE}: done"]


def test_a_move_without_hope_is_given_up_also_in_a_pause() -> None:
    lost = MoveReport(1, "t1", problem="ten attempts", is_hopeless=True)
    for is_paused in (False, True):
        found = decide(view(copying(), lost, is_paused=is_paused))
        assert said(found)[0] == f"{HERE}: given up: ten attempts"


# --- plans that change ----------------------------------------------------------------------------


def test_a_target_that_leaves_gets_nothing() -> None:
    cluster = with_set(copying(), "t", state=ReplicasetState.TO_BE_EXPELLED)
    assert said(decide(view(cluster, NEAR)))[0] == f"{HERE}: given up: t is leaving"


def test_a_target_that_is_gone_is_not_waited_for() -> None:
    cluster = without_set(copying(), "t")
    assert said(decide(view(cluster)))[0] == f"{HERE}: given up: t is leaving"
    cluster = applied(cluster, steps.abort(cluster, move_of(cluster), "", "now"))
    assert said(decide(view(cluster)))[0] == f"{HERE}: back at rest"


def test_a_frozen_range_whose_target_is_gone_serves_again() -> None:
    cluster = without_set(held(), "t")
    assert said(decide(view(cluster)))[0].startswith(f"{HERE}: not handed over yet")


def test_a_source_that_is_gone_after_the_hand_over_has_nothing_to_drop() -> None:
    assert said(decide(view(without_set(given(), "s")))) == [f"{HERE}: done"]


def test_weights_that_change_give_up_what_is_no_longer_needed_unless_it_is_frozen() -> None:
    heavy = with_set(copying(), "t", weight=0.0, weight_origin="user")
    why = "the weights have changed: it is no longer needed"
    assert said(decide(view(heavy, NEAR)))[0] == f"{HERE}: given up: {why}"
    cluster = with_set(held(), "t", weight=0.0, weight_origin="user")
    assert said(decide(view(cluster, final_report(cluster)))) == [f"{HERE}: handed over"]


def test_a_move_whose_buckets_were_given_to_others_is_forgotten() -> None:
    cluster = msgspec.structs.replace(copying(), buckets=(row(1, 30, "t"),))
    assert said(decide(view(cluster, NEAR)))[0] == f"{HERE}: its buckets were given to others"


def test_only_so_many_at_once_and_moves_that_only_drop_do_not_count() -> None:
    cluster, more = begun(cluster_of(), 21, 25), "buckets 26–30 of default from s to t: begun"
    assert said(decide(view(cluster))) == []
    assert said(decide(view(cluster, at_once=2))) == [more]
    assert said(decide(view(handed_over(frozen(cluster))))) == [more]


# --- to the end, whatever comes between -----------------------------------------------------------


def words(cluster: Cluster) -> list[MoveReport]:
    """What masters say that do what they have to."""
    found = []
    for move in cluster.moves.values():
        source, target = f"{move.source}1", f"{move.target}1"
        match move.phase:
            case Phase.COPYING:
                found.append(MoveReport(move.id, target, is_near=True))
            case Phase.FROZEN:
                found.append(final_report(cluster, move.id))
            case Phase.COPIED:
                found.append(MoveReport(move.id, source, is_empty=True))
            case Phase.ABORTING:
                found.append(MoveReport(move.id, target, is_empty=True))
            case _:
                pass
    return found


def calm(cluster: Cluster, limit: int = 400) -> Cluster:
    for _ in range(limit):
        found = decide(view(cluster, *words(cluster)))
        if not found.steps:
            return cluster
        cluster = applied(cluster, found.steps[0])
        ranges.check_cover(cluster.buckets, 30)
    raise AssertionError(f"no end: {phases(cluster)}")


def test_from_any_weights_everybody_gets_his_share_and_nothing_stays_open() -> None:
    for seed in range(40):
        chance = random.Random(seed)
        cluster = cluster_of(row(1, 9, "s"), row(10, 11, "t"), row(12, 30, "s"), sets="stu")
        for _ in range(6):
            for _ in range(chance.randint(0, 6)):  # changes in the middle of moves
                heard = [word for word in words(cluster) if chance.random() < 0.7]
                late = {move: chance.choice([0.1, 0.9]) for move in cluster.moves}
                found = decide(view(cluster, *heard, frozen_s=late))
                if found.steps:
                    cluster = applied(cluster, found.steps[0])
            name = chance.choice("stu")
            match chance.randrange(3):
                case 0:
                    weight = chance.choice([0.0, 0.5, 1.0, 3.0])
                    cluster = with_set(cluster, name, weight=weight, weight_origin="user")
                case 1:
                    cluster = with_set(cluster, name, epoch=cluster.replicasets[name].epoch + 1)
                case _:
                    cluster = with_set(cluster, name, weight_origin="auto")
        cluster = calm(cluster)
        want = shares.shares(_weights(cluster), 30)
        have = shares.held(cluster.buckets)
        if any(_weights(cluster).values()):
            near = {key: abs(have.get(key, 0) - share) <= 1 for key, share in want.items()}
            assert all(near.values()), f"seed {seed}: {have}, not {want}"
        assert not any(move.is_open for move in cluster.moves.values()), f"seed {seed}"


def _weights(cluster: Cluster) -> dict[str, float]:
    return {
        each.name: 1.0 if each.weight_origin == "auto" else each.weight
        for each in cluster.replicasets.values()
    }


def test_old_moves_are_forgotten_and_the_newest_are_kept() -> None:
    ended = {
        n: msgspec.structs.replace(move_of(copying()), id=n, phase=Phase.DONE)
        for n in range(1, 1202)
    }
    cluster = quiet(
        msgspec.structs.replace(cluster_of(row(1, 20, "s"), row(21, 30, "t")), moves=ended)
    )
    [step] = decide(view(cluster)).steps
    assert [op.key for op in step.ops] == [(n,) for n in range(1, 101)]  # type: ignore[union-attr]


def test_while_a_range_is_frozen_nobody_looks_at_all_buckets() -> None:
    """Statements wait for it: what the leader does meanwhile must not depend on their number."""

    class Blind(Outlook):
        def plan(self) -> NoReturn:
            raise AssertionError("all buckets were read")

        held = plan  # type: ignore[assignment]

    cluster = frozen(begun(cluster_of(count=60), 1, 5))
    blind = Blind(cluster, frozenset({"default"}))
    waiting = decide(view(cluster, outlook=blind))
    assert (waiting.steps, waiting.plan) == ([], None)
    [step] = decide(view(cluster, final_report(cluster), outlook=blind)).steps
    assert step.say == "buckets 1–5 of default from s to t: handed over"


def test_a_map_with_a_hole_is_told_each_time_somebody_looks() -> None:
    """Kept as an empty plan, it would look as if nothing had to move."""
    outlook = Outlook(cluster_of(row(1, 10, "s"), row(12, 30, "t")), frozenset({"default"}))
    for _ in range(2):
        with pytest.raises(ranges.BrokenCover):
            outlook.plan()


def test_the_view_of_a_leader_without_tables_begins_nothing() -> None:
    cluster = cluster_of()
    found: MovesView = view(cluster, outlook=Outlook(cluster, frozenset()))
    assert decide(found) == Decisions([], [], plan=[])
