"""What the governor does about moves: which to begin, freeze, hand over, finish or give up.

Nothing is remembered but what the log says. Reports of masters are believed for a moment only, and
only of the freeze and the epochs that the log names; a new leader begins with none.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from cairn.model.log.ops import Delete
from cairn.model.log.ranges import one_key
from cairn.model.members.cluster import Cluster
from cairn.model.members.moves import Move, MoveReport, Phase
from cairn.model.members.topology import Grade, ReplicasetState
from cairn.model.tables.system_tables import CAIRN_MOVE
from cairn.moves import shares, steps
from cairn.moves.outlook import Outlook, weights
from cairn.moves.steps import Step

FREEZE_MAX_S = 0.5  # a freeze that takes longer is ended; the source serves again
#: Later ones may take twice and four times as long: between instances that are far from each other
#: (0.3 s there and back) no freeze would ever be short enough.
LONGER_FREEZES = 2
FIRST_PAUSE_S, LAST_PAUSE_S = 0.5, 30.0  # after a freeze that took too long
KEPT = 200  # moves that have ended, for streams that still have to follow them


class MovesView(msgspec.Struct, frozen=True):
    """Taken on the leader at one position."""

    cluster: Cluster
    outlook: Outlook
    reports: dict[tuple[int, str], MoveReport]  # by move and replicaset, not older than a moment
    frozen_s: dict[int, float]  # how long this leader has seen each freeze
    resting_s: dict[int, float]  # how long ago the last freeze of a move was ended, as seen here
    refused: dict[str, str] = {}  # who gave a move up a moment ago as its target, and why
    has_pending_ddl: bool = False
    is_paused: bool = False
    at_once: int = 1  # moves of one replicaset at the same time, as giver or taker
    now: str = ""  # the wall clock, for people


class Decisions(msgspec.Struct):
    steps: list[Step]
    waits: list[str]  # what is not going on, and why
    of_moves: dict[int, str] = {}  # the same for each move that waits
    plan: list[tuple[str, shares.Wanted]] | None = None  # to be begun; None: it was not looked at


def decide(view: MovesView) -> Decisions:
    """Moves under way come first, and while a range is frozen nothing is begun: statements wait
    for it, and to look at all buckets takes a while where there are many.
    """
    found = Decisions([], [])
    for move in sorted(view.cluster.moves.values(), key=lambda each: each.id):
        if move.is_open:
            waits: list[str] = []
            step = _about(view, move, waits)
            if step is not None:
                found.steps.append(step)
            for why in waits:
                found.of_moves[move.id] = why
                found.waits.append(f"buckets {move}: {why}")
    is_frozen = any(move.phase is Phase.FROZEN for move in view.cluster.moves.values())
    if found.steps or is_frozen:
        return found
    found.plan = view.outlook.plan()
    found.steps += _begin(view, found.plan, found.waits)
    found.steps += _forget(view)
    return found


# --- moves under way ------------------------------------------------------------------------------


def _about(view: MovesView, move: Move, waits: list[str]) -> Step | None:
    cluster = view.cluster
    if steps.is_orphan(cluster, move):
        return steps.forgotten(move, view.now)
    match move.phase:
        case Phase.COPYING:
            return _copying(view, move, waits)
        case Phase.FROZEN:
            return _frozen(view, move)
        case Phase.COPIED:
            report = view.reports.get((move.id, move.source))
            if move.source not in cluster.replicasets or (report and report.is_empty):
                return steps.finish(cluster, move, view.now)
            waits.append(f"{move.source} has to drop the old rows{_waited_for(view, move.source)}")
        case Phase.ABORTING:
            report = view.reports.get((move.id, move.target))
            if move.target not in cluster.replicasets or (report and report.is_empty):
                return steps.aborted(cluster, move, view.now)
            waits.append(
                f"{move.target} has to drop what it copied{_waited_for(view, move.target)}"
            )
        case _:
            return None
    return None


def _waited_for(view: MovesView, replicaset: str) -> str:
    """Rows are dropped when all members have what came before: one that is away is named."""
    away = sorted(
        each.name
        for each in view.cluster.members(replicaset)
        if each.current_state.grade is not Grade.ONLINE
    )
    return f"; that waits for {', '.join(away)}: start it again, or expel it" if away else ""


def _copying(view: MovesView, move: Move, waits: list[str]) -> Step | None:
    report = view.reports.get((move.id, move.target))
    if report is not None and report.is_hopeless:
        return steps.abort(view.cluster, move, report.problem, view.now)
    if why := _no_longer_wanted(view, move):
        return steps.abort(view.cluster, move, why, view.now)
    if view.is_paused:
        waits.append("paused")
        return None
    for name in (move.source, move.target):
        if not _has_master(view.cluster, name):
            waits.append(f"{name} has no master")
            return None
    if report is None:
        waits.append(f"no word of {move.target} yet")
    elif report.problem:
        waits.append(f"{report.problem}")
    elif not report.is_near:
        waits.append(f"{report.rows} rows copied, {report.lag} records behind")
    elif view.has_pending_ddl:
        waits.append("a schema change is pending")
    elif view.resting_s.get(move.id, LAST_PAUSE_S) < _pause_s(move):
        waits.append(f"the last freeze was ended, again in a moment: {move.reason}")
    elif any(
        each.phase is Phase.FROZEN and each.source == move.source
        for each in view.cluster.moves.values()
    ):
        waits.append(f"another range of {move.source} is frozen")
    else:
        return steps.freeze(view.cluster, move, view.now)
    return None


def _pause_s(move: Move) -> float:
    return 0.0 if not move.thaws else min(FIRST_PAUSE_S * 2**move.thaws, LAST_PAUSE_S)


def _frozen(view: MovesView, move: Move) -> Step | None:
    """Ended soon in any case: statements wait for it."""
    cluster = view.cluster
    report = view.reports.get((move.id, move.target))
    if report is not None and steps.is_handed_over(cluster, move, report):
        return steps.copied(cluster, move, report, view.now)
    source, target = cluster.replicasets.get(move.source), cluster.replicasets.get(move.target)
    if source is None or target is None or source.epoch != move.source_epoch:
        return steps.thaw(cluster, move, "the source has another master", view.now)
    if target.epoch != move.target_epoch:
        return steps.thaw(cluster, move, "the target has another master", view.now)
    if view.frozen_s.get(move.id, 0.0) > FREEZE_MAX_S * 2 ** min(move.thaws, LONGER_FREEZES):
        why = report.problem if report is not None and report.problem else "it took too long"
        return steps.thaw(cluster, move, why, view.now)
    return None


def _no_longer_wanted(view: MovesView, move: Move) -> str:
    """A plan changed under it: the target has its share without it, or must not get anything."""
    cluster = view.cluster
    target = cluster.replicasets.get(move.target)
    if target is None or target.state is not ReplicasetState.READY:
        return f"{move.target} is leaving"
    share = shares.shares(weights(cluster, move.tier), cluster.tiers[move.tier].bucket_count)
    have = view.outlook.held(move.tier)
    without = have.get(move.target, 0) - move.buckets
    gives = have.get(move.source, 0) + move.buckets
    if without >= share.get(move.target, 0) and gives <= share.get(move.source, 0):
        return "the weights have changed: it is no longer needed"
    return ""


# --- new ones -------------------------------------------------------------------------------------


def _begin(
    view: MovesView, plan: list[tuple[str, shares.Wanted]], waits: list[str]
) -> Iterator[Step]:
    cluster = view.cluster
    busy: dict[str, int] = {}
    for move in cluster.moves.values():
        if move.phase in (Phase.COPYING, Phase.FROZEN, Phase.ABORTING):
            for name in (move.source, move.target):
                busy[name] = busy.get(name, 0) + 1
    looked_at: set[tuple[str, str, str]] = set()
    for tier, each in plan:
        pair = (each.source, each.target)
        if (tier, *pair) in looked_at:
            continue  # whatever keeps one of them keeps all
        looked_at.add((tier, *pair))
        if view.is_paused:
            waits.append(f"tier {tier}: buckets have to move, and moving is paused")
            return
        lacking = [name for name in pair if not _has_master(cluster, name)]
        if lacking:
            waits.append(f"tier {tier}: {each.source} → {each.target}: {lacking[0]} is down")
            continue
        if each.target in view.refused:
            why = f"tier {tier}: {each.target} takes nothing for now: {view.refused[each.target]}"
            waits += [why] if why not in waits else []
            continue
        if any(busy.get(name, 0) >= view.at_once for name in pair):
            continue
        # One at a time: the next plan is made from the picture that this one leaves behind.
        yield steps.start(cluster, tier, each, "shares by weight", view.now)
        return


def _has_master(cluster: Cluster, name: str) -> bool:
    replicaset = cluster.replicasets.get(name)
    if replicaset is None or replicaset.current_master_name != replicaset.target_master_name:
        return False
    master = cluster.instances.get(replicaset.current_master_name)
    return master is not None and master.current_state.grade is Grade.ONLINE


def _forget(view: MovesView) -> Iterator[Step]:
    ended = sorted(each.id for each in view.cluster.moves.values() if not each.is_open)
    old = ended[: -KEPT or None][:100] if len(ended) > KEPT + 100 else []
    if old:
        keys = tuple(one_key(CAIRN_MOVE.id, (number,)) for number in old)
        yield Step(
            tuple(Delete(CAIRN_MOVE.id, (number,)) for number in old),
            keys,
            "old moves are forgotten",
        )
