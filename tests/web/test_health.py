"""The banner tells the one thing that matters now, and what to do about it."""

from __future__ import annotations

from typing import Any

import pytest

from cairn.web.health import CRITICAL, GOOD, INFO, WARNING, Problem, failures, judge

ONLINE, OFFLINE = "Online(1)", "Offline(1)"


def instance(name: str, replicaset: str, **facts: Any) -> dict[str, Any]:
    return {
        "name": name,
        "replicaset": replicaset,
        "current_state": ONLINE,
        "target_state": ONLINE,
        "answers": True,
        "links": [],
        **facts,
    }


def replicaset(name: str, master: str | None, **facts: Any) -> dict[str, Any]:
    return {
        "name": name,
        "tier": "default",
        "master": master,
        "target_master": master,
        "buckets": 1500,
        "weight": 1.0,
    } | facts


def status(*instances: dict[str, Any], **facts: Any) -> dict[str, Any]:
    rows = {
        row["name"]: row
        for row in (instance("i1", "r1"), instance("i2", "r1"), instance("i3", "r2"))
    }
    rows |= {row["name"]: row for row in instances}
    return {
        "raft": {"leader": "i1", "voters": ["i1", "i2", "i3"]},
        "replicasets": [replicaset("r1", "i1"), replicaset("r2", "i3")],
        "instances": list(rows.values()),
        "governor": {"step": "idle", "blocked_by": [], "last_error": None},
        "moves": [],
        "problems": [],
        **facts,
    }


def sample(**facts: float) -> dict[str, float]:
    return {"loop_lag_ms": 3.0} | facts


def first(told: dict[str, Any], **samples: dict[str, float]) -> Problem:
    return judge(told, samples)[0]


def test_all_is_well() -> None:
    well = Problem(GOOD, "All is well", "3 instances Online, 2 replicasets, 3000 buckets served")
    assert judge(status(), {"i1": sample()}) == [well]


def test_a_lost_quorum_comes_before_everything_and_names_whom_to_start() -> None:
    lost = status(
        instance("i2", "r1", answers=False),
        instance("i3", "r2", answers=False),
        raft={"leader": None, "voters": ["i1", "i2", "i3"]},
        problems=["no quorum: only 1 of 3 voters"],
    )
    assert judge(lost, {}) == [
        Problem(
            CRITICAL,
            "No quorum: the cluster can change nothing, and rows cannot be read for sure",
            "Start i2 and i3, or mend the network to them. 1 of 2 needed voters answer.",
        )
    ]


def test_a_dead_voter_that_is_offline_already_is_named_too() -> None:
    lost = status(
        instance("i2", "r1", answers=False, current_state=OFFLINE, target_state=OFFLINE),
        raft={"leader": None, "voters": ["i1", "i2"]},
    )
    assert first(lost).action == (
        "Start i2, or mend the network to them. 1 of 2 needed voters answer."
    )


def test_an_election_is_waited_for() -> None:
    electing = status(raft={"leader": None, "voters": ["i1", "i2", "i3"]})
    assert first(electing).title == "No Raft leader"


def test_a_replicaset_without_a_master_is_told_with_its_buckets() -> None:
    told = status(instance("i3", "r2", current_state=OFFLINE, target_state=OFFLINE))
    assert judge(told, {}) == [
        Problem(
            CRITICAL,
            "Replicaset r2 has no master: 1500 buckets are closed",
            "Start i3: it waits for one that has its rows.",
        ),
        Problem(
            WARNING,
            "i3 is Offline: r2 has 0 of 1 copies of its rows",
            "Start it again; its rows catch up. `cairn expel` if it never comes back.",
        ),
    ]


def test_a_replicaset_whose_members_run_and_whose_master_is_deposed_has_none() -> None:
    """Both were Online with empty files, and all was well."""
    sets = [replicaset("r1", "i1"), replicaset("r2", "i3", target_master="")]
    assert first(status(replicasets=sets)) == Problem(
        CRITICAL,
        "Replicaset r2 has no master: 1500 buckets are closed",
        "One is named within seconds, or the governor says what it waits for.",
    )


def test_a_master_that_is_silent_is_told_before_it_is_offline() -> None:
    assert first(status(instance("i3", "r2", answers=False))) == Problem(
        CRITICAL,
        "i3, the master of r2, does not answer",
        "If it stays silent, another takes over soon.",
    )


def test_a_replica_that_is_silent_is_a_warning() -> None:
    told = first(status(instance("i2", "r1", answers=False)))
    assert told == Problem(WARNING, "i2 does not answer", "Look at its machine.")


def test_a_stopped_link_says_why() -> None:
    link = {"upstream": "i1", "state": "stopped", "problem": "a gap in the log"}
    told = first(status(instance("i2", "r1", links=[link])))
    assert told.level == CRITICAL
    assert told.title == "i2 does not follow i1 any more: a gap in the log"


@pytest.mark.parametrize(
    ("free", "used", "is_told"),
    [(5e9, 1e11, True), (1e8, 1e6, True), (2e10, 1e11, False), (1e9, 1e6, False)],
)
def test_a_disk_that_is_nearly_full(free: float, used: float, is_told: bool) -> None:
    here = status(instance("i1", "r1", disk=(free, used)))
    told = first(here)
    assert failures(here) == []  # until it is full
    assert (told.level == CRITICAL) is is_told
    assert ("The disk of i1 is nearly full" in told.title) is is_told


def test_a_weight_without_buckets() -> None:
    sets = [replicaset("r1", "i1", buckets=3000), replicaset("r2", "i3", buckets=0)]
    assert first(status(replicasets=sets)).title == "Replicaset r2 has a weight and no buckets"
    sets[1]["weight"] = 0.0
    assert first(status(replicasets=sets)).level == GOOD


def test_clocks_and_damage_are_told_as_the_instances_tell_them() -> None:
    line = "the clock of i2 is 7 s ahead"
    assert first(status(problems=[line])) == Problem(WARNING, line)


def test_what_the_governor_waits_for() -> None:
    waits = {"step": "x", "blocked_by": ["i3 is not reachable"], "last_error": None}
    assert first(status(governor=waits)).title == "The governor waits: i3 is not reachable"
    failed = {"step": "x", "blocked_by": [], "last_error": "operation 1000 failed"}
    assert first(status(governor=failed)).title == "The governor waits: operation 1000 failed"


def test_a_busy_event_loop() -> None:
    told = first(status(), i2=sample(loop_lag_ms=900.0))
    assert told.title == "i2 is too busy: everything there was 900 ms late"


def test_moves_are_news_and_no_problem() -> None:
    moves = [{"rows_to_do": 1500, "waits_for": ""}, {"rows_to_do": None, "waits_for": ""}]
    told = judge(status(moves=moves), {})
    assert [each.level for each in told] == [INFO, GOOD]
    assert told[0].title == "Buckets are moving: 2 moves, 1,500 rows to go"


def test_one_that_joins_is_news() -> None:
    joining = instance("i4", "r2", current_state="Replicated(1)")
    told = judge(status(joining), {})
    assert told[0] == Problem(INFO, "i4 is Replicated and becomes Online")


def test_paused_failover_is_told_with_the_way_back() -> None:
    told = status(instance("i3", "r2", answers=False), automatic_failover=False)
    assert judge(told, {}) == [
        Problem(
            CRITICAL,
            "i3, the master of r2, does not answer",
            "Nobody takes over, failover is paused: start it, or say `cairn resume`.",
        ),
        Problem(
            WARNING,
            "Automatic failover is paused: a master that dies is not replaced",
            "`cairn resume` when the work is done.",
        ),
    ]
