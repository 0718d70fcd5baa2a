"""Each step of a move as one compare-and-swap: what it writes, and what must not have changed.

Invariants, at every position of the log:
- every bucket is in exactly one row, and that row names exactly one replicaset that may write it;
- a frozen range is written by nobody, and only `copied`, `thaw` or `abort` end a freeze;
- `copied` stands for "the target has every record of the source up to its final one, on those of
  its members that count": it is void if a master of either side, or the members of the target,
  changed since the freeze was decided, because its ranges hold both rows of `_pico_replicaset`;
- from `copied` there is no way back.

The order is start → freeze (→ thaw → freeze …) → copied → finish. Before `copied` a move can be
given up: abort → aborted.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from cairn.model.log.ops import SCHEMA_RANGE, Dml, Replace
from cairn.model.log.ranges import KeyRange, key_range, one_key, whole_table
from cairn.model.members.cluster import Cluster
from cairn.model.members.moves import Move, MoveReport, Phase
from cairn.model.members.topology import BucketRange, BucketState
from cairn.model.tables import rows
from cairn.model.tables import system_tables as system
from cairn.moves import ranges
from cairn.moves.shares import Wanted

LAST_ID = "last_move_id"  # in `_pico_property`: an id is never used twice
LAST_FREEZE = "last_freeze"  # touched by every freeze: a schema change that looked before loses
PAUSED = "rebalance_paused"


class Step(msgspec.Struct, frozen=True):
    ops: tuple[Dml, ...]
    ranges: tuple[KeyRange, ...]
    say: str


def start(cluster: Cluster, tier: str, wanted: Wanted, reason: str, now: str) -> Step:
    """active → copying; the row is split so that the move has one of its own."""
    present = cluster.buckets_near(tier, wanted.start, wanted.end)
    old = ranges.of(present, wanted.start, wanted.end)
    if old is None or old.state is not BucketState.ACTIVE or old.move_id is not None:
        raise ranges.BrokenCover(f"{wanted} is not part of one range at rest")
    if old.current_replicaset != wanted.source or wanted.source == wanted.target:
        raise ranges.BrokenCover(f"{wanted} does not belong to its source")
    number = int(cluster.properties.get(LAST_ID) or 0) + 1
    move = Move(
        number,
        tier,
        wanted.start,
        wanted.end,
        wanted.source,
        wanted.target,
        reason=reason,
        started=now,
        changed=now,
    )
    piece = BucketRange(
        tier,
        wanted.start,
        wanted.end,
        BucketState.COPYING,
        wanted.source,
        wanted.target,
        move_id=number,
    )
    return Step(
        (
            *_buckets(cluster, piece, ranges.replaced),
            _put(move),
            _property(LAST_ID, number),
        ),
        (
            key_range(system.PICO_BUCKET.id, (tier, old.start), (tier, old.end)),
            *_both(move),
            whole_table(system.CAIRN_MOVE.id),
            _property_range(PAUSED),
            _property_range(LAST_ID),
        ),
        f"buckets {move}: begun",
    )


def freeze(cluster: Cluster, move: Move, now: str) -> Step:
    """Nobody writes the range from here on. A schema change and a freeze exclude each other."""
    source, target = cluster.replicasets[move.source], cluster.replicasets[move.target]
    frozen_at = cluster.position.index
    changed = msgspec.structs.replace(
        move,
        phase=Phase.FROZEN,
        frozen_at=frozen_at,
        source_epoch=source.epoch,
        target_epoch=target.epoch,
        changed=now,
    )
    return Step(
        (
            *_with_row(cluster, move, frozen_at=frozen_at),
            _put(changed),
            _property(LAST_FREEZE, frozen_at),
        ),
        (*_own(move), *_both(move), SCHEMA_RANGE, _property_range(PAUSED)),
        f"buckets {move}: frozen for the last records",
    )


def thaw(cluster: Cluster, move: Move, why: str, now: str) -> Step:
    """The freeze took too long, or a master changed in it: the source serves again."""
    changed = msgspec.structs.replace(
        move, phase=Phase.COPYING, frozen_at=0, thaws=move.thaws + 1, reason=why, changed=now
    )
    return Step(
        (*_with_row(cluster, move, frozen_at=None), _put(changed)),
        _own(move),
        f"buckets {move}: not handed over yet: {why}",
    )


def copied(cluster: Cluster, move: Move, report: MoveReport, now: str) -> Step:
    """The target owns the range. Nothing that happened since the freeze may have moved a master."""
    assert report.final is not None and report.first is not None
    changed = msgspec.structs.replace(
        move,
        phase=Phase.COPIED,
        source_final=report.final,
        target_first=report.first,
        changed=now,
    )
    return Step(
        (*_with_row(cluster, move, state=BucketState.COPIED, frozen_at=None), _put(changed)),
        (*_own(move), *_both(move), SCHEMA_RANGE),
        f"buckets {move}: handed over",
    )


def is_handed_over(cluster: Cluster, move: Move, report: MoveReport) -> bool:
    """Whether what the target reported belongs to this very freeze, and to today's masters."""
    source, target = cluster.replicasets.get(move.source), cluster.replicasets.get(move.target)
    if source is None or target is None or report.final is None or report.first is None:
        return False
    return (
        move.phase is Phase.FROZEN
        and report.frozen_at == move.frozen_at
        and report.source_epoch == move.source_epoch == source.epoch
        and report.target_epoch == move.target_epoch == target.epoch
        and source.current_master_name == source.target_master_name
        and target.current_master_name == target.target_master_name
    )


def finish(cluster: Cluster, move: Move, now: str) -> Step:
    """The old rows are gone from those who count: the range is at rest with its new owner."""
    piece = BucketRange(move.tier, move.start, move.end, BucketState.ACTIVE, move.target)
    changed = msgspec.structs.replace(move, phase=Phase.DONE, changed=now)
    return Step(
        (*_at_rest(cluster, move, piece), _put(changed)),
        (_neighbours(cluster, move), *_both(move), _key(move)),
        f"buckets {move}: done",
    )


def abort(cluster: Cluster, move: Move, why: str, now: str) -> Step:
    """The source serves again at once; the target has to drop what it copied."""
    changed = msgspec.structs.replace(
        move, phase=Phase.ABORTING, frozen_at=0, reason=why, changed=now
    )
    return Step(
        (*_with_row(cluster, move, state=BucketState.ABORTING_COPY, frozen_at=None), _put(changed)),
        _own(move),
        f"buckets {move}: given up: {why}",
    )


def aborted(cluster: Cluster, move: Move, now: str) -> Step:
    """The target has nothing of the range any more."""
    piece = BucketRange(move.tier, move.start, move.end, BucketState.ACTIVE, move.source)
    changed = msgspec.structs.replace(move, phase=Phase.ABORTED, changed=now)
    return Step(
        (*_at_rest(cluster, move, piece), _put(changed)),
        (_neighbours(cluster, move), *_both(move), _key(move)),
        f"buckets {move}: back at rest",
    )


def is_orphan(cluster: Cluster, move: Move) -> bool:
    """Whether its buckets were given to somebody else, because a replicaset was lost by force."""
    found = _found(cluster, move)
    return found is None or found.move_id != move.id


def forgotten(move: Move, now: str) -> Step:
    changed = msgspec.structs.replace(
        move, phase=Phase.ABORTED, reason="its buckets were given to others", changed=now
    )
    return Step((_put(changed),), (_key(move),), f"buckets {move}: {changed.reason}")


# --- pieces of entries ----------------------------------------------------------------------------


def _buckets(
    cluster: Cluster,
    piece: BucketRange,
    change: Callable[[list[BucketRange], BucketRange], list[BucketRange]],
) -> tuple[Dml, ...]:
    """The only place that changes rows of `_pico_bucket` for a move: it checks the cover."""
    before = cluster.buckets_near(piece.tier, piece.start, piece.end)
    after = change(before, piece)
    ranges.check_cover(after, before[-1].end, before[0].start)
    return ranges.difference(before, after)


def _with_row(cluster: Cluster, move: Move, **changes: object) -> tuple[Dml, ...]:
    piece = msgspec.structs.replace(_row(cluster, move), **changes)
    return _buckets(cluster, piece, ranges.replaced)


def _at_rest(cluster: Cluster, move: Move, piece: BucketRange) -> tuple[Dml, ...]:
    _row(cluster, move)
    return _buckets(cluster, piece, lambda *found: ranges.merged(ranges.replaced(*found)))


def _row(cluster: Cluster, move: Move) -> BucketRange:
    found = _found(cluster, move)
    if found is None or found.move_id != move.id:
        raise ranges.BrokenCover(f"move {move.id} has no row of its own")
    return found


def _found(cluster: Cluster, move: Move) -> BucketRange | None:
    near = cluster.buckets_near(move.tier, move.start, move.end)
    return ranges.of(near, move.start, move.end)


def _put(move: Move) -> Dml:
    return Replace(system.CAIRN_MOVE.id, rows.move_row(move))


def _property(name: str, value: int) -> Dml:
    return Replace(system.PICO_PROPERTY.id, (name, str(value)))


def _property_range(name: str) -> KeyRange:
    return one_key(system.PICO_PROPERTY.id, (name,))


def _key(move: Move) -> KeyRange:
    return one_key(system.CAIRN_MOVE.id, (move.id,))


def _own(move: Move) -> tuple[KeyRange, ...]:
    return (one_key(system.PICO_BUCKET.id, (move.tier, move.start)), _key(move))


def _neighbours(cluster: Cluster, move: Move) -> KeyRange:
    """The rows that a merge may take in: of it and a start that splits one of them, one loses."""
    found = cluster.buckets_near(move.tier, move.start, move.end)
    before = [row.start for row in found if row.end == move.start - 1]
    after = [row.end for row in found if row.start == move.end + 1]
    low, high = min([move.start, *before]), max([move.end, *after])
    return key_range(system.PICO_BUCKET.id, (move.tier, low), (move.tier, high))


def _both(move: Move) -> tuple[KeyRange, ...]:
    table = system.PICO_REPLICASET.id
    return (one_key(table, (move.source,)), one_key(table, (move.target,)))
