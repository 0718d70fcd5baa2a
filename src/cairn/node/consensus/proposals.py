"""The only way into the Raft log: a compare-and-swap on the leader, and waiting for its verdict.

Every request has an id. After a lost answer the same request is sent again: the leader finds the
id in its log and says so, and nothing is ever applied twice.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict

import msgspec

from cairn.model.errors import (
    CairnError,
    CasConflict,
    CasRetry,
    CheckViolation,
    LimitExceeded,
    NotLeader,
    OutcomeUnknown,
    Unreachable,
)
from cairn.model.log import ops
from cairn.model.log.applied import Applied
from cairn.model.log.ranges import KeyRange, Predicate, whole_table
from cairn.model.rpc import CasAccepted, CasRequest
from cairn.model.settings import limits
from cairn.model.tables.table_checks import check_ops
from cairn.net.peers import Peers
from cairn.node.consensus.global_state import GlobalState
from cairn.node.consensus.quorum import Patience, Voters
from cairn.node.consensus.raft_runner import RaftRunner
from cairn.node.runtime import Runtime, timestamp
from cairn.raft import cas
from cairn.raft.types import EntryType, ProposalDropped
from cairn.topology.guard import check_change, is_of_topology

log = logging.getLogger("cairn.cas")

RPC_TIMEOUT_S = 3.0
LOOK_S = 1.0  # between two looks at whether anybody is left who could confirm
REMEMBERED = 4_096  # applied entries whose verdict is kept for those who ask a little late


def check_entry_size(size: int) -> None:
    """An entry that is too long to be sent to the others would stop the log for good."""
    if size > limits.ENTRY_BYTES:
        raise LimitExceeded(
            f"the change has {size >> 20} MiB, more than one entry of the Raft log may have",
            hint=f"at most {limits.ENTRY_BYTES >> 20} MiB: write fewer rows of a global table at "
            "a time; large values belong into a sharded table",
        )


class Verdict(msgspec.Struct, frozen=True):
    """What became of an entry; not what it did, which may be thousands of rows."""

    index: int
    term: int
    error: CairnError | None


class Proposer:
    """Proposes entries from any instance and tells what became of them."""

    def __init__(
        self,
        runner: RaftRunner,
        peers: Peers,
        state: GlobalState,
        runtime: Runtime,
        voters: Voters,
    ) -> None:
        self._runner, self._peers, self._state, self._runtime = runner, peers, state, runtime
        self._voters = voters
        self._log = cas.CasLog()
        self._term = 0  # of the tenure for which `_log` was built
        self._verdicts: OrderedDict[int, Verdict] = OrderedDict()
        self._waiters: dict[int, list[asyncio.Future[Verdict]]] = {}

    # --- on the leader ------------------------------------------------------------------------

    def check_and_append(self, request: CasRequest) -> CasAccepted:
        """One synchronous turn: nothing can come between the check and the append."""
        check_ops(ops.dml_of(request.op))
        runner = self._runner
        if runner.is_leader and self._term != runner.term:
            self._rebuild()
        self._log.compact(runner.view.first_index() - 1)  # what the log has forgotten
        touched = ops.touched(request.op, self._state.key_positions)
        standing = cas.Standing(
            is_leader=runner.is_leader,
            leader=runner.leader_id or None,
            term=runner.term,
            committed_in_term=runner.committed_in_term,
        )
        key = request.request_id.encode()
        match self._log.check(request.predicate, key, touched, standing):
            case cas.Accepted():
                self._check(request)
                envelope = ops.Envelope(
                    request.op, request.request_id, timestamp(self._runtime), request.user
                )
                data = ops.encode(envelope)
                check_entry_size(len(data))
                try:
                    index, term = runner.propose(data)
                except ProposalDropped as dropped:
                    raise CasRetry(f"the leader took no proposal: {dropped.reason}") from None
                self._log.append(cas.LogRecord(index, term, key, touched))
                return CasAccepted(index, term)
            case cas.AlreadyAppended(index=index, term=term):
                return CasAccepted(index, term, is_new=False)
            case cas.ConflictFound(index=index):
                raise CasConflict(f"found a conflicting entry at index {index}")
            case cas.CompactedAway(compacted_index=index):
                raise CasRetry(f"the log is compacted up to {index}")
            case cas.WrongTerm(requested=requested, current=current):
                raise CasRetry(f"proposed in term {requested}, the term is {current}")
            case cas.NotReady():
                raise CasRetry("the leader has not committed in its term yet")
            case cas.LeaderElsewhere(leader=leader):
                raise NotLeader(leader=leader)

    def _check(self, request: CasRequest) -> None:
        """Refuse a change that would end the cluster or lose rows. Every way comes through here."""
        changes = ops.dml_of(request.op)
        if not is_of_topology(changes):
            return
        cluster = self._state.cluster
        try:
            ranges = check_change(
                changes,
                cluster,
                self._state.catalog.sharded_tiers,
                force=request.force,
                is_unsafe=request.is_unsafe,
            )
        except CairnError:
            raise
        except Exception as bug:  # ours: it ends this change, not the leader
            log.exception("a change cannot be judged")
            raise CheckViolation(f"the change cannot be judged: {bug!r}") from bug
        # What was decided here holds at the applied position: entries on their way count as well.
        seen = Predicate(cluster.position.index, self._runner.term, ranges)
        conflict = self._log.first_conflict(seen, ())
        if conflict is not None:
            raise CasConflict(f"found a conflicting entry at index {conflict.index}")

    def _rebuild(self) -> None:
        """A new tenure: read the ranges of the whole kept log, uncommitted entries included."""
        runner = self._runner
        log_ = runner.core.log
        first, last = log_.first_index(), log_.last
        records = []
        for entry in log_.slice(first, last + 1) if last >= first else []:
            if entry.type == EntryType.CONF_CHANGE or not entry.data:
                continue
            try:
                about = ops.outline(entry.data)  # all of the log is looked at in one turn
                touched = self._touched(about, entry.data)
            except msgspec.MsgspecError:
                continue  # it has no effect on anybody
            key = about.request_id.encode()
            records.append(cas.LogRecord(entry.index, entry.term, key, touched))
        self._log.rebuild(first - 1, records)
        self._term = runner.term

    def _touched(self, about: ops.Outline, data: bytes) -> tuple[KeyRange, ...]:
        if about.tables is None:
            return ops.touched(ops.decode(data).op, self._state.key_positions)
        return tuple(map(whole_table, about.tables))

    # --- from anywhere ------------------------------------------------------------------------

    def predicate(self, ranges: tuple[KeyRange, ...]) -> Predicate:
        """What was read here and now, at this instance's applied position."""
        return Predicate(self._runner.applied_index, self._runner.term, ranges)

    async def cas(
        self,
        op: ops.Op,
        predicate: Predicate,
        *,
        timeout_s: float = RPC_TIMEOUT_S,
        user: int = 1,
        force: bool = False,
        is_unsafe: bool = False,
    ) -> Verdict:
        """Propose and wait until applied here.

        Raises CasRetry or NotLeader when it definitely did not happen, OutcomeUnknown when
        nobody can tell, and the entry's own error when applying refused it.
        """
        request = CasRequest(
            cluster_uuid=self._state.cluster.cluster_uuid,
            request_id=self._runtime.uuid(),
            predicate=predicate,
            op=op,
            user=user,
            force=force,
            is_unsafe=is_unsafe,
        )
        if not self._runner.is_leader:
            check_entry_size(len(ops.encode_op(op)))  # it may be too long for the way there
        deadline = asyncio.get_running_loop().time() + timeout_s
        accepted = await self._append(request, deadline)
        done = await self._verdict(accepted, deadline)
        if done.error is not None:
            raise done.error
        return done

    async def _append(self, request: CasRequest, deadline: float) -> CasAccepted:
        loop = asyncio.get_running_loop()
        may_be_there = False
        patience = Patience(self._voters)
        while True:
            try:
                if self._runner.is_leader:
                    return self.check_and_append(request)
                leader = self._runner.leader_id
                if not leader:
                    raise NotLeader
                left = max(deadline - loop.time(), 0.001)
                return await self._peers.call(
                    leader, "cas", request, CasAccepted, min(left, RPC_TIMEOUT_S)
                )
            except Unreachable:
                may_be_there = True  # sent, perhaps; ask again with the same id
            except (CasRetry, NotLeader):
                if not may_be_there:
                    raise
            if loop.time() >= deadline or patience.is_over():
                raise self._unknown(
                    "the leader did not answer; the change may or may not have been made"
                )
            await asyncio.sleep(0.05)

    async def _verdict(self, accepted: CasAccepted, deadline: float) -> Verdict:
        """Wait until the entry at that index is applied here, and see whether it is ours."""
        loop = asyncio.get_running_loop()
        done = self._verdicts.get(accepted.index)
        if done is None:
            if accepted.index <= self._runner.applied_index:
                raise OutcomeUnknown("the entry was applied, its verdict is no longer kept")
            future: asyncio.Future[Verdict] = loop.create_future()
            self._waiters.setdefault(accepted.index, []).append(future)
            done = await self._confirmed(future, deadline)
        if done.term != accepted.term:
            raise CasRetry("another leader's entry took the place: the change was not made")
        return done

    async def _confirmed(self, future: asyncio.Future[Verdict], deadline: float) -> Verdict:
        loop = asyncio.get_running_loop()
        patience = Patience(self._voters)
        try:
            while (left_s := deadline - loop.time()) > 0 and not patience.is_over():
                await asyncio.wait((future,), timeout=min(left_s, LOOK_S))
                if future.done():
                    return future.result()
        finally:
            future.cancel()  # nobody waits for it any more
        raise self._unknown(
            "the change was proposed and not confirmed in time; it may still happen"
        )

    def _unknown(self, text: str) -> OutcomeUnknown:
        lost = self._voters.no_quorum()
        if lost is None:
            return OutcomeUnknown(text)
        return OutcomeUnknown(text, detail=lost.message, hint=lost.hint)

    def applied(self, done: list[Applied]) -> None:
        for each in done:
            told = Verdict(each.index, each.term, each.error)
            self._verdicts[each.index] = told
            for future in self._waiters.pop(each.index, []):
                if not future.done():
                    future.set_result(told)
        while len(self._verdicts) > REMEMBERED:
            self._verdicts.popitem(last=False)

    def installed(self, upto: int) -> None:
        """A snapshot jumped over entries: nobody here can tell their verdicts any more."""
        for index in [index for index in self._waiters if index <= upto]:
            for future in self._waiters.pop(index):
                if not future.done():
                    future.set_exception(
                        OutcomeUnknown("a snapshot passed the entry; look whether it is there")
                    )
