"""The leader may die at any step of any migration: each ends once, in order, as it should."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest

from cairn.governor import plan as planning
from cairn.governor.actions import Action
from cairn.governor.rules import queue as rules
from cairn.governor.view import ClusterView
from cairn.model.errors import CairnError, CasRetry, NotLeader
from cairn.model.log import ops
from cairn.model.rpc import WriteRequest, WriteResponse
from cairn.node.statements.global_tables.global_writes import GlobalWrites
from cairn.node.statements.owner.writes import OwnerWrites
from cairn.node.steering import queue_runner
from cairn.node.steering.governor_steps import Steps
from cairn.node.steering.queue_runner import QueueRunner
from cairn.sim.cluster.queue.queue_kills import Blow, How, Struck, all_blows, blows, strike
from cairn.sim.cluster.queue.queue_scene import BATCH, FIRST_ID

Patch = pytest.MonkeyPatch


@pytest.fixture(autouse=True)
def silence(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("CRITICAL", logger="cairn")


@functools.cache
def undisturbed() -> Struck:
    return strike(Blow(0))


# --- the whole ------------------------------------------------------------------------------------


def test_without_a_fault_every_operation_ends_as_it_should() -> None:
    assert undisturbed().failure is None


def test_a_point_is_the_same_moment_in_every_run() -> None:
    struck = strike(Blow(190))
    assert struck.failure is None
    assert struck.points == undisturbed().points[:190]


#: Points spread over the batch: deaths for good and for a while, and other losses of leadership.
SAMPLE = [
    Blow(12),
    Blow(111, leader_is_master=False),
    Blow(545),
    Blow(329, leader_is_master=False, how="deposed"),
    Blow(240, how="cut off"),
]


@pytest.mark.parametrize(
    "blow",
    [
        *SAMPLE[1:4],
        *(pytest.param(blow, marks=pytest.mark.slow) for blow in (SAMPLE[0], SAMPLE[4])),
    ],
    ids=str,
)
def test_a_struck_leader_changes_nothing_in_the_result(blow: Blow) -> None:
    assert strike(blow).failure is None


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("part", range(16))
def test_the_leader_is_struck_at_every_step(part: int) -> None:
    for blow in blows(16, first=part + 1):
        outcome = strike(blow)
        assert outcome.failure is None, f"{blow} ({outcome.points[-1:]}): {outcome.failure}"


@pytest.mark.slow
def test_every_kind_of_step_is_among_the_points() -> None:
    kinds = {point.partition(" (")[0] for point in undisturbed().points}
    assert kinds >= {
        "leader begins: run sql operation step",
        "leader ends: run sql operation step",
        "leader begins: apply clusterwide schema change",
        "leader ends: apply clusterwide schema change",
        "leader asks write_rows",
        "leader is answered write_rows",
        "leader asks apply_schema_change",
        "leader is answered apply_schema_change",
        "leader before a synced group of the raft writer",
        "leader after a synced group of the raft writer",
        "leader before a synced group of the data writer",
        "leader after a synced group of the data writer",
        "leader after a lazy group of the raft writer",
        "follower after a synced group of the raft writer",
        "follower after a synced group of the data writer",
    }
    assert len({(blow.leader_is_master, blow.how) for blow in all_blows()}) == 6


# --- planted bugs ---------------------------------------------------------------------------------


def status_in_an_entry_of_its_own(patch: Patch) -> None:
    run = GlobalWrites.run

    async def apart(self: GlobalWrites, plan: Any, params: Any, tables: Any, context: Any) -> Any:
        done = await run(self, plan, params, tables, msgspec.structs.replace(context, queued=None))
        proposer = self._proposer
        await proposer.cas(ops.Batch(tuple(context.queued.end())), proposer.predicate(()))
        return done

    patch.setattr(GlobalWrites, "run", apart)


def rows_without_the_operations_name(patch: Patch) -> None:
    write = OwnerWrites._write

    def forgetful(self: OwnerWrites, request: WriteRequest, *how: Any) -> WriteResponse:
        return write(self, msgspec.structs.replace(request, operation=None), *how)

    patch.setattr(OwnerWrites, "_write", forgetful)


def failed_on_a_timeout(patch: Patch) -> None:
    def hasty(problem: CairnError) -> bool:
        return not isinstance(problem, CasRetry | NotLeader)

    patch.setattr(queue_runner, "is_verdict", hasty)


def a_silent_master_is_a_verdict(patch: Patch) -> None:
    """And the governor waits for it, although replacing it is its own work."""
    abort = Steps._abort

    async def final(self: Steps, version: int, reason: str, who: str, **_: bool) -> None:
        await abort(self, version, reason, who)

    patch.setattr(Steps, "_abort", final)
    patch.setattr(Steps, "_are_masters", lambda self, masters: True)


def next_while_one_is_failed(patch: Patch) -> None:
    def greedy(view: ClusterView) -> Iterator[Action]:
        others = tuple(each for each in view.queue if each.status != "failed")
        return rules.run_queue(msgspec.structs.replace(view, queue=others))

    changed = tuple(greedy if rule is rules.run_queue else rule for rule in planning.RULES)
    patch.setattr(planning, "RULES", changed)


def a_deposed_leader_goes_on(patch: Patch) -> None:
    patch.setattr(QueueRunner, "_claim", lambda self, action: None)


class Planted(msgspec.Struct, frozen=True):
    plant: Callable[[Patch], None]
    operation: str = ""  # around which to strike; empty: it shows without a blow
    how: How = "killed"
    moves_points: bool = False  # the operation takes other steps, even when nothing happens


PLANTED = [
    Planted(status_in_an_entry_of_its_own, "UPDATE g SET n = n + 1", moves_points=True),
    Planted(rows_without_the_operations_name, "INSERT INTO s VALUES"),
    pytest.param(Planted(failed_on_a_timeout, "DELETE FROM s"), marks=pytest.mark.slow),
    Planted(a_silent_master_is_a_verdict, "ALTER TABLE s"),
    Planted(next_while_one_is_failed),
    Planted(a_deposed_leader_goes_on, "CREATE USER worker", "deposed"),
]


def candidates(planted: Planted) -> Iterator[Blow]:
    """Blows between the beginning and the end of the operation, from its middle outwards."""
    if not planted.operation:
        yield Blow(0)
        return
    number = min(at for at, each in enumerate(BATCH, FIRST_ID) if planted.operation in each.op)
    points = (strike(Blow(0)) if planted.moves_points else undisturbed()).points
    marks = [at for at, point in enumerate(points, 1) if f"(operation {number})" in point]
    found = range(marks[0], marks[-1] + 1)
    middle = found[len(found) // 2]
    for point in sorted(found, key=lambda point: abs(point - middle)):
        yield Blow(point, how=planted.how)


@pytest.mark.parametrize("planted", PLANTED, ids=lambda each: each.plant.__name__)
def test_the_planted_bug_is_caught(planted: Planted, monkeypatch: Patch) -> None:
    undisturbed()
    planted.plant(monkeypatch)
    assert any(strike(blow).failure is not None for blow in candidates(planted))


def test_a_statement_that_breaks_the_planner_fails_alone(monkeypatch: Patch) -> None:
    """A bug in planning must not kill leader after leader."""
    prepare = queue_runner.prepare

    def broken(text: str, *arguments: Any, **options: Any) -> Any:
        if text == "UPDATE g SET":
            raise KeyError("a bug of the planner")
        return prepare(text, *arguments, **options)

    monkeypatch.setattr(queue_runner, "prepare", broken)
    outcome = strike(Blow(0))
    assert outcome.failure is not None
    assert "the statement cannot be planned: KeyError" in outcome.failure
