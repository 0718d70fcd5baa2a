"""All histories of one small move: two replicasets of two, a leader, crashes, late messages.

`python -m tests.moves.model [large]` explores every order of steps within the bounds. What decides
is the product's own: `moves.decide`, `moves.steps`, `moves.delta`, `raft.cas`, the fence. Only what
carries it out, disks, queues and the network, is made small here: an instance is its applied
position, the position of its writer's fence, its lease and its row log; its rows are what that log
says. Sync mode: an acknowledged write is on both members of its replicaset.

Checked in every state: who may serve the bucket is one instance at most, and it has every
acknowledged write; every bucket is in one row; when all is at rest nobody else has rows of it. And
from every state there is a way to "at rest": no state is a dead end.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from cairn.model.log import ops
from cairn.model.log.ranges import Predicate
from cairn.model.log.records import RowChange, RowOp
from cairn.model.members.cluster import Cluster
from cairn.model.members.moves import END, TAKES, Move, MoveReport, Phase
from cairn.model.tables import rows
from cairn.model.tables import system_tables as system
from cairn.moves import delta as deltas
from cairn.moves import ranges, steps
from cairn.moves.decide import decide
from cairn.moves.outlook import Outlook
from cairn.moves.steps import Step
from cairn.node.rows.data_plane import fence_of
from cairn.raft.cas import Accepted, CasLog, LogRecord, Standing
from cairn.storage.data_db.fence import Fence
from tests.moves.maps import applied as picture_after
from tests.moves.maps import begun, cluster_of, owner_of, row, view

NAMES = ("s1", "s2", "t1", "t2")
BUCKET, TABLE = 1, 100
PLACES = {TABLE: [0, 1]}  # of the key in a row: bucket, key
KEYS = {table.id: table.key_positions for table in system.BY_ID.values()}
A, B = 1, 2  # keys
OTHER = (1, 0, 3, 2)  # whose replica is whose

Log = tuple[tuple[Any, ...], ...]


class Inst(NamedTuple):
    alive: bool
    applied: int  # entries its loop knows
    fence: int  # entries its writer knows
    lease: int  # of which epoch; 0: none
    log: Log  # records: (epoch, kind, …)


class Left(NamedTuple):
    """What may still happen that need not."""

    writes: int = 2
    crashes: int = 1
    masters: int = 1
    leaders: int = 1
    aborts: int = 1
    thaws: int = 1
    repeats: int = 1
    sides: str = "st"  # whose masters may change


class State(NamedTuple):
    log: tuple[int, ...]  # Raft: numbers of entries
    term: int
    insts: tuple[Inst, ...]
    sent: tuple[Any, ...]  # deltas on their way, and finals that wait for a replica
    proposal: Any  # (index, term, step's number)
    reports: tuple[Any, ...]  # what the leader has heard: (side, kind, frozen at, epochs)
    pending: tuple[Any, ...]  # writes without an answer: (instance, epoch, place, key, value)
    acked: tuple[int, int]  # by key; even values are deletes
    left: Left


class Violation(AssertionError):
    pass


# --- Raft: entries have numbers, pictures are made once -------------------------------------------

START = begun(cluster_of(row(1, 2, "s"), count=2), BUCKET, BUCKET)
_entries: list[tuple[tuple[Any, ...], tuple[Any, ...]]] = []  # (ops, touched)
_numbers: dict[Any, int] = {}


def entry(found: tuple[Any, ...]) -> int:
    if found not in _numbers:
        _numbers[found] = len(_entries)
        _entries.append((found, ops.touched(ops.Batch(found), KEYS)))
    return _numbers[found]


@lru_cache(None)
def picture(log: tuple[int, ...]) -> Cluster:
    if not log:
        return START
    return picture_after(picture(log[:-1]), Step(_entries[log[-1]][0], (), ""))


@lru_cache(None)
def fence(log: tuple[int, ...], name: str) -> Fence:
    return fence_of(name, picture(log))


@lru_cache(None)
def move_at(log: tuple[int, ...]) -> Move:
    return picture(log).moves[1]


@lru_cache(None)
def decided(log: tuple[int, ...], heard: tuple[Any, ...], is_late: bool) -> tuple[Any, ...]:
    """The step that the leader would propose, and the ranges it holds on to."""
    cluster = picture(log)
    told = []
    for side, kind, frozen_at, source_epoch, target_epoch in heard:
        stamp: Any = {side: (1, 1)} if kind == "final" else None
        told.append(
            MoveReport(
                *(1, f"{side}1"),
                is_near=kind == "near",
                is_empty=kind == "empty",
                frozen_at=frozen_at,
                source_epoch=source_epoch,
                target_epoch=target_epoch,
                final=stamp,
                first=stamp,
            )
        )
    late = {1: 9.0} if is_late else {}
    found = decide(
        view(cluster, *told, frozen_s=late, outlook=Outlook(cluster, frozenset()), now="")
    )
    return tuple((entry(step.ops), step.ranges) for step in found.steps[:1])


def accepted(log: tuple[int, ...], term: int, index: int, asked: int, step: Any) -> bool:
    cas = CasLog(0)
    for at, number in enumerate(log, 1):
        cas.append(LogRecord(at, term, b"", _entries[number][1]))
    number, held = step
    verdict = cas.check(
        Predicate(index, asked, held), b"", _entries[number][1], Standing(True, 1, term, True)
    )
    return isinstance(verdict, Accepted)


# --- row logs -------------------------------------------------------------------------------------


class Rows(NamedTuple):
    rows: tuple[tuple[int, int], ...]  # (key, value)
    progress: Any  # (attempt, at, after); at: (length, epoch)


@lru_cache(None)
def replayed(log: Log) -> Rows:
    found: dict[int, int] = {}
    progress: Any = None
    for _, kind, *rest in log:
        match kind:
            case "write":
                key, value = rest
                found[key] = value
                if value % 2 == 0:
                    del found[key]
            case "empty":
                found.clear()
                progress = (*rest, ()) if rest else None
            case "delta":
                attempt, at, after, changes, more = rest
                for key, value in changes:
                    found.pop(key, None)
                    if value is not None:
                        found[key] = value
                for key, value in more:
                    if key in found:
                        raise Violation(f"row {key} was there already")
                    found[key] = value
                progress = (attempt, at, after)
            case "drop":
                found.clear()
    return Rows(tuple(sorted(found.items())), progress)


def stamp(log: Log) -> tuple[int, int]:
    return len(log), log[-1][0] if log else 0


def delta_of(log: Log, at: tuple[int, int], after: Any) -> Any:
    """(at, after, changes, rows); None: the source has another history."""
    lsn, epoch = at
    if lsn > len(log) or (lsn and log[lsn - 1][0] != epoch):
        return None
    have = dict(replayed(log[:lsn]).rows)
    changes: list[tuple[int, int | None]] = []
    for _, kind, *rest in log[lsn:]:
        if kind != "write":
            continue
        key, value = rest
        old = (BUCKET, key, have[key]) if key in have else None
        have.pop(key, None)
        if value % 2:
            have[key] = value
        new = (BUCKET, key, value) if value % 2 else None
        kinds = {(False, True): RowOp.INSERT, (True, False): RowOp.DELETE}
        op = kinds.get((old is not None, new is not None), RowOp.UPDATE)
        whole = RowChange(TABLE, 1, op, old, new)
        cut = deltas.cut([whole], PLACES, BUCKET, BUCKET, after)
        changes += [(key, None if change.new is None else value) for change in cut]
    more = [(key, value) for key, value in replayed(log).rows if not is_known(key, after)][:1]
    place = (TABLE, BUCKET, more[0][0]) if more else END
    return stamp(log), place, tuple(changes), tuple(more)


def is_known(key: int, after: Any) -> bool:
    return after == END or deltas.is_copied(TABLE, (BUCKET, key), after)


def continues(known: Any, attempt: int, at: Any, after: Any) -> bool:
    """The product's judgement, on what is on disk."""
    found = None
    if known is not None:
        found = deltas.Progress(1, known[0], BUCKET, BUCKET, {"s": known[1]}, known[2])
    return deltas.fits(found, 1, attempt, {"s": at}, after)


# --- rules that a planted bug takes out (see `tests/moves/test_model.py`) ------------------------


class Rules(msgspec.Struct, frozen=True):
    lease_has_index: bool = True
    final_behind_fence: bool = True
    writer_looks_at_the_newest: bool = True
    replica_counts: bool = True
    begins_empty: bool = True
    drop_is_replicated: bool = True
    writer_checks_move: bool = True
    source_waits_for_majority: bool = True
    epoch_in_stamp: bool = True


class Model:
    def __init__(self, left: Left, rules: Rules | None = None, longest: int = 9) -> None:
        self.rules, self.longest = rules or Rules(), longest
        history = ((1, "write", A, 1), (1, "write", B, 3), (1, "write", B, 4))
        garbage: Log = ((1, "write", B, 3),)  # of an earlier owner: the row was deleted since
        insts = [Inst(True, 0, 0, 1, history)] * 2 + [Inst(True, 0, 0, 1, garbage)] * 2
        insts[1] = insts[1]._replace(lease=0)
        insts[3] = insts[3]._replace(lease=0)
        self.first = State((), 1, tuple(insts), (), None, (), (), (1, 4), left)

    # --- who may do what ------------------------------------------------------------------------

    def master(self, state: State, side: str) -> int:
        found = picture(state.log).replicasets[side]
        return NAMES.index(found.current_master_name)

    def is_writer(self, state: State, at: int) -> bool:
        me = state.insts[at]
        mine = fence(state.log[: me.fence], NAMES[at])
        return me.alive and mine.is_master and me.lease == mine.epoch

    def serves(self, state: State, at: int) -> bool:
        """As the writer or, for a read, as the loop sees it."""
        me = state.insts[at]
        seen = fence(state.log[: me.applied], NAMES[at])
        reads = me.alive and seen.is_master and me.lease == seen.epoch and seen.owns(BUCKET)
        return reads or self.may_write(state, at)

    def may_write(self, state: State, at: int) -> bool:
        """The writer looks at its own fence, and at the newest that the loop has."""
        me = state.insts[at]
        mine = fence(state.log[: me.fence], NAMES[at])
        newest = fence(state.log[: me.applied], NAMES[at])
        is_ours = newest.owns(BUCKET) or not self.rules.writer_looks_at_the_newest
        return self.is_writer(state, at) and mine.owns(BUCKET) and is_ours

    # --- what can happen next -------------------------------------------------------------------

    def next(self, state: State) -> Iterator[tuple[str, State]]:
        for at in range(4):
            yield from self._of_instance(state, at)
        yield from self._messages(state)
        yield from self._leader(state)

    def _of_instance(self, state: State, at: int) -> Iterator[tuple[str, State]]:
        me, name, left = state.insts[at], NAMES[at], state.left
        if not me.alive:
            for back in {0, me.applied}:
                yield (
                    f"{name} restarts at {back}",
                    put(state, at, alive=True, applied=back, fence=back),
                )
            return
        if me.applied < len(state.log):
            yield f"{name} applies", put(state, at, applied=len(state.log))
        if me.fence < me.applied:
            yield f"{name}'s writer follows", self._followed(state, at, me.applied)
        cluster = picture(state.log)
        found = cluster.replicasets[name[0]]
        if found.current_master_name == name:
            is_new = me.applied == len(state.log) or not self.rules.lease_has_index
            if me.lease != found.epoch and is_new:
                yield f"{name} gets a lease", put(state, at, lease=found.epoch)
            if me.lease and left.masters and name[0] in left.sides:
                yield f"{name}'s lease ends", put(state, at, lease=0)
        if left.crashes and (left.masters or me.lease):
            spent = state._replace(left=left._replace(crashes=left.crashes - 1))
            yield f"{name} dies", put(spent, at, alive=False, lease=0)
        yield from self._replicate(state, at)
        if self.is_writer(state, at):
            yield from self._as_master(state, at)
        yield from self._name(state, at)

    def _replicate(self, state: State, at: int) -> Iterator[tuple[str, State]]:
        """A replica takes the next record of its master, in the epoch of both."""
        source = OTHER[at]
        me, other = state.insts[at], state.insts[source]
        epoch = picture(state.log).replicasets[NAMES[at][0]].epoch
        mine = fence(state.log[: me.fence], NAMES[at])
        theirs = fence(state.log[: other.fence], NAMES[source])
        if not other.alive or self.master(state, NAMES[at][0]) != source:
            return
        if mine.epoch != epoch or theirs.epoch != epoch or len(me.log) >= len(other.log):
            return
        if other.log[: len(me.log)] != me.log:
            raise Violation("a replica's log is no beginning of its master's")
        record = other.log[len(me.log)]
        if record[1] == "drop" and not mine.has_given(1):
            return
        yield f"{NAMES[at]} takes a record", put(state, at, log=(*me.log, record))

    def _name(self, state: State, at: int) -> Iterator[tuple[str, State]]:
        """The governor names another master: no lease of the old one lives."""
        left, old = state.left, OTHER[at]
        side = NAMES[at][0]
        found = picture(state.log).replicasets[side]
        me = state.insts[at]
        if not left.masters or self.master(state, side) != old or state.insts[old].lease:
            return
        if fence(state.log[: me.fence], NAMES[at]).epoch != found.epoch:
            return
        new = found.named(NAMES[at], {side: len(me.log)})
        change = ops.Replace(system.PICO_REPLICASET.id, rows.replicaset_row(new))
        if len(state.log) < self.longest:
            yield (
                f"{NAMES[at]} is named",
                state._replace(
                    log=(*state.log, entry((change,))), left=left._replace(masters=left.masters - 1)
                ),
            )

    def _as_master(self, state: State, at: int) -> Iterator[tuple[str, State]]:
        me, name, left = state.insts[at], NAMES[at], state.left
        mine = fence(state.log[: me.fence], name)
        if left.writes and self.may_write(state, at):
            value = 5 + 2 - left.writes  # 5 is a row, 6 deletes it
            for key in (A,) if left.masters else (A, B):
                if any(each[3] == key for each in state.pending):
                    continue
                place = len(me.log)
                done = put(state, at, log=(*me.log, (mine.epoch, "write", key, value)))
                yield (
                    f"{name} writes {value} to {key}",
                    done._replace(
                        pending=(*state.pending, (at, mine.epoch, place, key, value)),
                        left=left._replace(writes=left.writes - 1),
                    ),
                )
        move = move_at(state.log[: me.applied])
        if name[0] == "t" and move.phase in TAKES:
            yield from self._pull(state, at, move)
        is_safe = state.insts[OTHER[at]].log == me.log or not self.rules.drop_is_replicated
        if name[0] == "s" and move.phase is Phase.COPIED and mine.has_given(1):
            if replayed(me.log).rows and not mine.touches(BUCKET, BUCKET):
                yield f"{name} drops", put(state, at, log=(*me.log, (mine.epoch, "drop")))
            elif is_safe:
                yield f"{name} is empty", heard(state, ("s", "empty", 0, 0, 0))
        if name[0] == "t" and move.phase is Phase.ABORTING and not mine.takes(1):
            if replayed(me.log).progress is not None:
                yield f"{name} cleans", put(state, at, log=(*me.log, (mine.epoch, "empty")))
            elif is_safe:
                yield f"{name} is empty", heard(state, ("t", "empty", 0, 0, 0))

    def _pull(self, state: State, at: int, move: Move) -> Iterator[tuple[str, State]]:
        """The question and its answer, which is then on its way."""
        me = state.insts[at]
        known = replayed(me.log).progress
        if known is not None and known[2] == END and move.phase is Phase.COPYING:
            yield f"{NAMES[at]} is near", heard(state, ("t", "near", 0, 0, 0))
        asked = picture(state.log[: me.applied]).replicasets["s"].current_master_name
        source = NAMES.index(asked)
        giver = state.insts[source]
        seen = fence(state.log[: giver.applied], asked)
        if not giver.alive or not seen.is_master or giver.lease != seen.epoch:
            return
        if move_at(state.log[: giver.applied]).phase not in TAKES:
            return
        if len(state.sent) > (state.left.repeats > 0):
            return
        if self.rules.source_waits_for_majority and state.insts[OTHER[source]].log != giver.log:
            return
        frozen_at = move.frozen_at if move.phase is Phase.FROZEN else 0
        behind = state.log[: giver.fence if self.rules.final_behind_fence else giver.applied]
        if frozen_at and (1, frozen_at) not in fence(behind, asked).frozen:
            return
        if known is None or (answer := self._delta(giver.log, known)) is None:
            attempt = 1 if known is None else known[0] + 1
            told: tuple[Any, ...] = ("begin", at, attempt, stamp(giver.log))
        else:
            is_final = bool(frozen_at) and answer[1] == END
            told = ("delta", at, known, answer, frozen_at if is_final else 0, seen.epoch)
        if told not in state.sent and (told[0] == "begin" or self._is_news(told)):
            sent = tuple(sorted((*state.sent, told), key=repr))
            yield f"{NAMES[at]} pulls {told[0]}", state._replace(sent=sent)

    def _delta(self, log: Log, known: Any) -> Any:
        at = known[1]
        if not self.rules.epoch_in_stamp and at[0] <= len(log):
            at = stamp(log[: at[0]])
        return delta_of(log, at, known[2])

    def _is_news(self, told: tuple[Any, ...]) -> bool:
        _, _, known, answer, frozen_at, _ = told
        return bool(frozen_at or answer[2] or answer[3] or answer[1] != known[2])

    def _messages(self, state: State) -> Iterator[tuple[str, State]]:
        for told in state.sent:
            rest = state._replace(sent=tuple(each for each in state.sent if each != told))
            at = told[1]
            if told[0] == "final":
                yield from self._report(state, rest, told)
                continue
            taken = self._taken(rest, told)
            yield f"{NAMES[at]} takes {told[0]}", taken
            if state.left.repeats and taken != rest:
                left = state.left._replace(repeats=state.left.repeats - 1)
                sent = tuple(sorted((*taken.sent, told), key=repr))
                yield (
                    f"{NAMES[at]} takes {told[0]}, sent twice",
                    taken._replace(sent=sent, left=left),
                )

    def _taken(self, rest: State, told: tuple[Any, ...]) -> State:
        """On the target's writer."""
        at = told[1]
        me = rest.insts[at]
        mine = fence(rest.log[: me.fence], NAMES[at])
        goes_on = mine.takes(1) or not self.rules.writer_checks_move
        if not self.is_writer(rest, at) or not goes_on:
            return rest
        if told[0] == "begin":
            kind = "empty" if self.rules.begins_empty else "unlike"
            record = (mine.epoch, kind, told[2], told[3])
            if kind == "unlike":
                record = (mine.epoch, "delta", told[2], told[3], (), (), ())
            return put(rest, at, log=(*me.log, record))
        _, _, known, answer, frozen_at, source_epoch = told
        on_disk = replayed(me.log).progress
        if not continues(on_disk, *known):
            return rest
        seen = fence(rest.log[: me.applied], NAMES[at]).epoch
        if self._is_news((*told[:4], 0, 0)):
            rest = put(rest, at, log=(*me.log, (mine.epoch, "delta", known[0], *answer)))
        if frozen_at:
            last = ("final", at, len(rest.insts[at].log), frozen_at, source_epoch, seen)
            rest = rest._replace(sent=tuple(sorted((*rest.sent, last), key=repr)))
        return rest

    def _report(self, state: State, rest: State, told: Any) -> Iterator[tuple[str, State]]:
        """Told once those who count have it, in the same epoch."""
        _, at, length, frozen_at, source_epoch, epoch = told
        me, replica = state.insts[at], state.insts[OTHER[at]]
        if not me.alive or fence(state.log[: me.applied], NAMES[at]).epoch != epoch:
            yield f"{NAMES[at]}'s last word is lost", rest
        elif replica.log[:length] == me.log[:length] or not self.rules.replica_counts:
            word = ("t", "final", frozen_at, source_epoch, epoch)
            yield f"{NAMES[at]} has everything", heard(rest, word)

    def _answered(self, state: State, waits: Any) -> State:
        """A write is acknowledged as soon as it may be: whatever is lost later is missed."""
        at, epoch, place, key, value = waits
        rest = state._replace(pending=tuple(each for each in state.pending if each != waits))
        me, replica = state.insts[at], state.insts[OTHER[at]]
        record = (epoch, "write", key, value)
        if me.log[place : place + 1] != (record,):
            return rest
        if me.alive and me.lease == epoch and replica.log[place : place + 1] == (record,):
            known = list(rest.acked)
            known[key - 1] = value
            return rest._replace(acked=tuple(known))
        return state

    def _leader(self, state: State) -> Iterator[tuple[str, State]]:
        left = state.left
        if state.proposal is not None:
            index, term, step = state.proposal
            rest = state._replace(proposal=None)
            if len(state.log) < self.longest and accepted(state.log, state.term, index, term, step):
                yield "an entry is made", rest._replace(log=(*state.log, step[0]))
            else:
                yield "a proposal is void", rest
        else:
            yield from self._proposals(state)
        if left.leaders:
            spent = left._replace(leaders=left.leaders - 1)
            yield "another leader", state._replace(term=state.term + 1, reports=(), left=spent)

    def _proposals(self, state: State) -> Iterator[tuple[str, State]]:
        left, here = state.left, (len(state.log), state.term)
        move = move_at(state.log)
        for step in decided(state.log, state.reports, False):
            yield "the leader decides", state._replace(proposal=(*here, step))
        if move.phase is Phase.FROZEN and left.thaws:
            for step in decided(state.log, (), True):
                spent = left._replace(thaws=left.thaws - 1)
                yield "the leader thaws", state._replace(proposal=(*here, step), left=spent)
        if left.aborts and move.phase in TAKES:
            made = steps.abort(picture(state.log), move, "", "")
            spent = left._replace(aborts=left.aborts - 1)
            step = (entry(made.ops), made.ranges)
            yield "the leader gives up", state._replace(proposal=(*here, step), left=spent)

    # --- what must hold -------------------------------------------------------------------------

    def _settled(self, state: State) -> State:
        """What happens at once, because its order with other things makes no difference.

        Instances that are no masters follow the log; the writer of the target as well. While no
        other master can be named, a replica has what its master has.
        """
        for at in range(4):
            me = state.insts[at]
            if not me.alive:
                continue
            is_master = self.master(state, NAMES[at][0]) == at or me.lease
            if not is_master and me.fence < len(state.log):
                state = self._followed(state, at, len(state.log))
            elif NAMES[at][0] == "t" and me.fence < me.applied:
                state = self._followed(state, at, me.applied)
        if state.left.masters == 0:
            for at in range(4):
                while found := list(self._replicate(state, at)):
                    [(_, state)] = found
        for waits in state.pending:
            state = self._answered(state, waits)
        return state

    def _followed(self, state: State, at: int, index: int) -> State:
        """The writer of an instance learns what it may do; in a new epoch it cuts its log."""
        me, name = state.insts[at], NAMES[at]
        for upto in range(me.fence + 1, index + 1):
            cluster = picture(state.log[:upto])
            found = cluster.replicasets[name[0]]
            me = me._replace(log=_kept(me.log, found, found.epoch))
        return put(state, at, applied=max(me.applied, index), fence=index, log=me.log)

    def check(self, state: State) -> None:
        serving = [at for at in range(4) if self.serves(state, at)]
        if len(serving) > 1:
            raise Violation(f"served by {[NAMES[at] for at in serving]}")
        for at in serving:
            have = dict(replayed(state.insts[at].log).rows)
            for key, acked in zip((A, B), state.acked, strict=True):
                newer = {each[4] for each in state.pending if each[3] == key} | {acked}
                newer |= {value for value in (5, 6) if value > acked}
                value = have.get(key)
                if value is None and not any(each % 2 == 0 for each in newer):
                    raise Violation(f"{NAMES[at]} has no row {key}; {acked} was acknowledged")
                if value is not None and value not in newer:
                    raise Violation(f"{NAMES[at]} has {value} in row {key}, acknowledged: {acked}")
        if self.is_calm(state):
            self._check_rest(state)

    def _check_rest(self, state: State) -> None:
        owner = owner_of(picture(state.log), BUCKET)
        for at, me in enumerate(state.insts):
            if not me.alive or NAMES[at][0] == owner or me.fence < len(state.log):
                continue
            # What the target had before is nobody's fault if the copy was never begun.
            is_moved = NAMES[at][0] == "s" or any(record[1] != "write" for record in me.log)
            is_whole = me.log == state.insts[self.master(state, NAMES[at][0])].log
            if is_moved and is_whole and replayed(me.log).rows:
                raise Violation(f"{NAMES[at]} has rows of a bucket of {owner}: {me.log}")

    def is_calm(self, state: State) -> bool:
        return not move_at(state.log).is_open

    # --- all of it ------------------------------------------------------------------------------

    def explore(self, most: int = 2_000_000) -> int:
        """The number of states. Raises `Violation` with the way to it."""
        came: dict[State, tuple[State, str] | None] = {self.first: None}
        back: dict[State, list[State]] = {}
        queue = [self.first]
        at = 0
        while at < len(queue):
            state = queue[at]
            at += 1
            try:
                self.check(state)
                found = list(self.next(state))
            except Violation as problem:
                raise Violation(f"{problem}\n{_way(came, state)}") from None
            for label, raw in found:
                after = self._settled(raw)
                if after not in came:
                    came[after] = (state, label)
                    queue.append(after)
                back.setdefault(after, []).append(state)
            if len(queue) > most:
                raise Violation(f"more than {most} states")
        self._check_ends(queue, back, came)
        return len(queue)

    def _check_ends(self, queue: list[State], back: Any, came: Any) -> None:
        """Backward from every state at rest: whoever is not reached has no way there.

        States at the bound of the log are not blamed.
        """
        ends = [state for state in queue if self.is_calm(state) or len(state.log) >= self.longest]
        reached = set(ends)
        while ends:
            for before in back.get(ends.pop(), ()):
                if before not in reached:
                    reached.add(before)
                    ends.append(before)
        for state in queue:
            if state not in reached:
                raise Violation(f"no way to rest\n{_way(came, state)}")
        for log in {state.log for state in queue}:
            ranges.check_cover(picture(log).buckets, 2)


def put(state: State, at: int, **fields: Any) -> State:
    insts = list(state.insts)
    insts[at] = insts[at]._replace(**fields)
    return state._replace(insts=tuple(insts))


def heard(state: State, word: tuple[Any, ...]) -> State:
    """The leader believes the last word of each side."""
    kept = [each for each in state.reports if each[0] != word[0]]
    return state._replace(reports=tuple(sorted([*kept, word])))


def _kept(log: Log, replicaset: Any, epoch: int) -> Log:
    """Entering an epoch: what goes past its cut belongs to no history."""
    cut = replicaset.cut.get(replicaset.name, len(log))
    return log[:cut] + tuple(record for record in log[cut:] if record[0] >= epoch)


def _way(came: Any, state: State) -> str:
    labels = []
    while came[state] is not None:
        state, label = came[state]
        labels.append(label)
    return "\n".join(f"  {label}" for label in reversed(labels))


NOTHING = Left(writes=1, crashes=0, masters=0, leaders=0, aborts=0, thaws=0, repeats=0)
SMALL = {
    "a master dies": NOTHING._replace(crashes=1),
    "another master of the source": NOTHING._replace(masters=1, sides="s"),
    "another master of the target": NOTHING._replace(masters=1, sides="t"),
    "given up": NOTHING._replace(aborts=1),
    "another leader": NOTHING._replace(leaders=1),
    "a freeze that takes too long": NOTHING._replace(thaws=1),
}
LARGE = {
    "a delta comes twice": NOTHING._replace(repeats=1),
    "another master of either side": NOTHING._replace(masters=1),
    "two masters of the source": NOTHING._replace(masters=2, sides="s"),
    "given up, by another leader": NOTHING._replace(aborts=1, leaders=1, repeats=1),
    "two writes": NOTHING._replace(writes=2, crashes=1, thaws=1),
}

if __name__ == "__main__":
    chosen = {**SMALL, **LARGE} if sys.argv[1:] == ["large"] else SMALL
    for name, bounds in chosen.items():
        begun_at = time.monotonic()
        count = Model(bounds).explore()
        print(f"{name}: {count} states, {time.monotonic() - begun_at:.1f} s", flush=True)
