"""The Raft core: method calls in, `Ready` out. It touches nothing; its driver does (brief 1 and 4).

Read downwards: time, messages, proposals, configuration, transfer, then Ready and its two
acknowledgements. Elections, replication and reads are the layers below, a file each.
"""

from __future__ import annotations

from cairn.raft import confchange
from cairn.raft.election import Elections
from cairn.raft.state import HandedOut
from cairn.raft.types import (
    NO_NODE,
    ConfChangeV2,
    Config,
    ConfState,
    EntryType,
    Message,
    MsgKind,
    NotLeader,
    ProposalDropped,
    RaftCorruption,
    Ready,
    Role,
    SoftState,
    Status,
    Storage,
)

_TERMLESS = frozenset({MsgKind.READ_INDEX, MsgKind.READ_INDEX_RESP, MsgKind.TRANSFER_LEADER})
_VOTE_REQUESTS = frozenset({MsgKind.VOTE, MsgKind.PRE_VOTE})
_OF_LEADERS = frozenset({MsgKind.APP, MsgKind.HEARTBEAT, MsgKind.SNAP, MsgKind.TIMEOUT_NOW})
_RESPONSES = frozenset(
    {MsgKind.APP_RESP, MsgKind.HEARTBEAT_RESP, MsgKind.VOTE_RESP, MsgKind.PRE_VOTE_RESP}
)


class RaftCore(Elections):
    """One member. Not re-entrant: one owner calls it, and carries out every Ready in order."""

    def __init__(self, config: Config, storage: Storage, *, applied: int = 0) -> None:
        """`applied` is what the state machine itself has stored (brief 7, E#20426)."""
        super().__init__(config, storage, applied=applied)

    # --- time

    def tick(self) -> None:
        self.election_elapsed += 1
        if self.role is Role.LEADER:
            self._tick_leader()
        elif self.election_elapsed >= self.election_timeout and self.promotable():
            self.election_elapsed = 0
            self.campaign()

    def _tick_leader(self) -> None:
        if self.election_elapsed >= self.config.election_tick:
            self.election_elapsed = 0
            if self.config.check_quorum:
                self.check_quorum()
                if self.role is not Role.LEADER:
                    return
            self.abort_transfer()
        self.heartbeat_elapsed += 1
        if self.heartbeat_elapsed >= self.config.heartbeat_tick:
            self.heartbeat_elapsed = 0
            self.broadcast_heartbeat()
            self.leave_joint_if_due()

    # --- messages

    def step(self, message: Message) -> None:
        """Take in a peer's message. What does not fit is dropped and counted, never raised."""
        if message.to != self.id or message.from_ == self.id:
            self.drop("misdelivered")
        elif message.kind in _TERMLESS:
            self._step_termless(message)
        elif message.kind in _RESPONSES and message.from_ not in self.progress:
            self.drop("unknown peer")
        elif self.fits_term(message):
            self._dispatch(message)

    def fits_term(self, message: Message) -> bool:
        """Settle terms first (paper 5.1). False if the message has been dealt with."""
        if message.term == self.term:
            return True
        if message.term < self.term:
            self._answer_stale(message)
            return False
        if message.kind in _VOTE_REQUESTS and not message.force and self.in_lease():
            self.drop("campaign while a leader is alive")
            return False
        if message.kind is MsgKind.PRE_VOTE:
            return True  # asks about a term to come; changes nothing
        if message.kind is MsgKind.PRE_VOTE_RESP and not message.reject:
            return True  # echoes the term we asked about
        patience = (self.election_elapsed, self.election_timeout)
        follows = self.role is Role.FOLLOWER
        self.become_follower(message.term, message.from_ if message.kind in _OF_LEADERS else 0)
        if message.kind is MsgKind.VOTE and follows:
            # Only a vote that is granted makes us wait anew (paper 5.2): a candidate that cannot
            # win must not keep those who can from trying.
            self.election_elapsed, self.election_timeout = patience
        return True

    def _answer_stale(self, message: Message) -> None:
        """Someone lives in an older term: tell it ours where silence could deadlock (P5)."""
        self.drop("older term")
        tells = self.config.check_quorum or self.config.pre_vote
        if message.kind in (MsgKind.APP, MsgKind.HEARTBEAT) and tells:
            self.answer_append(message.from_, 0)
        elif message.kind is MsgKind.PRE_VOTE:
            self.send(
                Message(MsgKind.PRE_VOTE_RESP, self.id, message.from_, self.term, reject=True)
            )

    def _step_termless(self, message: Message) -> None:
        if message.kind is MsgKind.READ_INDEX:
            self.handle_read_index(message)
        elif message.kind is MsgKind.READ_INDEX_RESP:
            self.handle_read_index_resp(message)
        elif message.from_ not in self.progress:
            self.drop("unknown peer")
        elif self.role is Role.LEADER:
            self.transfer_leader(message.index)
        else:
            self.drop("not leader")

    def _dispatch(self, message: Message) -> None:
        kind = message.kind
        if kind in _OF_LEADERS:
            if self.accepts_leader(message):
                self._dispatch_of_leader(message)
        elif kind in _VOTE_REQUESTS:
            self.handle_vote_request(message)
        elif kind is MsgKind.VOTE_RESP or kind is MsgKind.PRE_VOTE_RESP:
            self.handle_vote_resp(message)
        elif self.role is not Role.LEADER:
            self.drop("answer to someone who does not lead")
        elif kind is MsgKind.APP_RESP:
            self.handle_append_resp(message)
        else:
            self.handle_heartbeat_resp(message)

    def _dispatch_of_leader(self, message: Message) -> None:
        kind = message.kind
        if kind is MsgKind.APP:
            self.handle_append(message)
        elif kind is MsgKind.HEARTBEAT:
            self.handle_heartbeat(message)
        elif kind is MsgKind.SNAP:
            self.handle_snapshot(message)
        else:
            self.handle_timeout_now(message)

    def accepts_leader(self, message: Message) -> bool:
        """A leader of our term speaks: follow it, and be patient even if its words are refused."""
        if self.role is Role.LEADER or self.leader not in (NO_NODE, message.from_):
            self.drop("second leader in a term")
            return False
        if self.role is not Role.FOLLOWER:
            self.become_follower(self.term, message.from_)
        self.leader = message.from_
        self.election_elapsed = 0  # also for appends that will be refused (P6)
        return True

    # --- proposals

    def propose(self, payloads: list[bytes]) -> tuple[int, int]:
        """Append `payloads`; where the first went. Raises NotLeader or ProposalDropped."""
        self._check_may_propose()
        size = sum([len(data) for data in payloads])
        if self.exceeds_uncommitted(size):
            raise ProposalDropped("backpressure", f"{self.uncommitted_bytes} bytes uncommitted")
        return self.append_own(payloads, EntryType.NORMAL), self.term

    def _check_may_propose(self) -> None:
        if self.role is not Role.LEADER:
            raise NotLeader(leader=self.leader or None)
        if self.id not in self.progress:
            raise ProposalDropped("removed")
        if self.transferee != NO_NODE:
            raise ProposalDropped("transfer", f"leadership is going to {self.transferee}")

    def exceeds_uncommitted(self, size: int) -> bool:
        """A lost quorum must not fill memory (P14); one large proposal is still admitted."""
        held = self.uncommitted_bytes
        return size > 0 and held > 0 and held + size > self.config.max_uncommitted_bytes

    def propose_conf_change(self, change: ConfChangeV2) -> tuple[int, int]:
        """Append a change of membership; refused while another is not applied (brief 8)."""
        self._check_may_propose()
        if self.conf_change_pending():
            raise ProposalDropped("conf change pending", f"entry {self.pending_conf_index}")
        if confchange.is_joint(self.conf) and not confchange.wants_leave(change):
            raise ProposalDropped("joint", "only leaving the joint configuration is possible")
        try:
            confchange.change_conf(self.conf, change)
        except confchange.ConfChangeRefused as refusal:
            raise ProposalDropped("conf change refused", refusal.reason) from None
        index = self.append_own([change.encode()], EntryType.CONF_CHANGE)
        self.pending_conf_index = index
        return index, self.term

    def conf_change_pending(self) -> bool:
        return self.pending_conf_index > self.log.applied

    # --- configuration

    def apply_conf_change(self, change: ConfChangeV2) -> ConfState:
        """A committed change is being applied: it is in force from here on (brief 8)."""
        try:
            conf = confchange.change_conf(self.conf, change)
        except confchange.ConfChangeRefused as refusal:
            raise RaftCorruption(f"a committed change does not fit: {refusal.reason}") from None
        self.set_conf(conf)
        if self.role is Role.LEADER:
            self._lead_new_conf()
        elif not self.promotable() and self.role is not Role.FOLLOWER:
            self.become_follower(self.term, 0)
        return conf

    def _lead_new_conf(self) -> None:
        if not self.is_voter(self.transferee):
            self.abort_transfer()
        self.advance_commit()  # a smaller quorum may agree already
        if self.must_step_down():
            self.broadcast_append()  # parting word: what is committed
            self.become_follower(self.term, 0)
        else:
            self.broadcast_pending = True
            self.answer_confirmed_reads()

    def must_step_down(self) -> bool:
        """Removed or demoted leaders go (P15)."""
        return not self.is_voter(self.id)

    def leave_joint_if_due(self) -> None:
        """The entering change is applied: propose to leave. A new leader does it as well."""
        if self.role is not Role.LEADER or not self.conf.auto_leave or self.conf_change_pending():
            return
        if self.transferee == NO_NODE:  # else tried again with the next heartbeat
            self.propose_conf_change(ConfChangeV2())

    # --- leadership transfer (brief 9)

    def transfer_leader(self, to: int) -> None:
        """Hand leadership to the voter `to`; given up after one election timeout."""
        if self.role is not Role.LEADER:
            self._forward_transfer(to)
        elif to == self.id or not self.may_receive_leadership(to):
            self.drop("transfer to a non-voter")
        elif to != self.transferee:
            self.abort_transfer()
            self.transferee = to
            self.election_elapsed = 0
            self.hand_over_if_caught_up(to)
            if not self.timeout_now_sent:
                self.broadcast_pending = True

    def may_receive_leadership(self, node: int) -> bool:
        return node in self.voters

    def _forward_transfer(self, to: int) -> None:
        if self.leader == NO_NODE:
            self.drop("transfer without a leader")
            return
        self.send(Message(MsgKind.TRANSFER_LEADER, self.id, self.leader, index=to))

    # --- Ready (brief 4)

    def has_ready(self) -> bool:
        log = self.log
        return bool(
            self.out
            or self.out_after_persist
            or log.in_progress <= log.last
            or log.has_applicable(self.config.max_apply_bytes)
            or self.broadcast_pending
            or self.reads_to_confirm
            or self.read_states
            or self.failed_reads
            or self.self_vote_pending
            or self.hard_state() != self.last_hard
            or (log.snapshot is not None and not log.snapshot_in_progress)
            or self.leader != self.last_soft.leader
            or self.role is not self.last_soft.role
        )

    def ready(self) -> Ready:
        """Everything to be done now. Each Ready is carried out once, in the order of numbers."""
        if self.broadcast_pending:
            self.broadcast_append()
        self.begin_read_round()
        self.ready_number += 1
        ready = Ready(
            self.ready_number,
            self._soft_news(),
            None,
            self.log.unwritten_snapshot(),
            self.log.unwritten(),
            messages=self.out,
            messages_after_persist=self.out_after_persist,
            committed=self.log.take_applicable(self.config.max_apply_bytes),
            read_states=self.read_states,
            failed_reads=self.failed_reads,
        )
        self.out, self.out_after_persist = [], []
        self.read_states, self.failed_reads = [], []
        hard, last = self.hard_state(), self.last_hard
        if hard != last:
            ready.hard_state = self.last_hard = hard
        voted = hard.term != last.term or hard.vote != last.vote
        ready.must_sync = bool(ready.entries or voted or ready.snapshot)
        self._remember(ready)
        return ready

    def _soft_news(self) -> SoftState | None:
        last = self.last_soft
        if self.leader == last.leader and self.role is last.role:
            return None
        self.last_soft = SoftState(self.leader, self.role)
        return self.last_soft

    def _remember(self, ready: Ready) -> None:
        log = self.log
        tail = bool(log.unstable)
        self.handed_out.append(
            HandedOut(
                ready.number,
                self.term,
                log.last if tail else 0,
                log.last_term() if tail else 0,
                ready.snapshot.meta.index if ready.snapshot else 0,
                self.campaign_number if self.self_vote_pending else 0,
            )
        )
        self.self_vote_pending = False
        log.hand_out()

    def persisted(self, number: int) -> None:
        """Ready `number` and all before it are durable. Their own acks and votes count now."""
        assert number <= self.ready_number, "a Ready that was never handed out"
        while self.handed_out and self.handed_out[0].number <= number:
            done = self.handed_out.popleft()
            self.durable_term = done.term
            if done.snapshot_index:
                self.log.snapshot_stabilised(done.snapshot_index)
            if done.last_index and self.attests_tail(done):
                self.log.stabilised(done.last_index, done.last_term)
            if done.campaign:
                self.count_own_vote(done.campaign)
        if self.role is Role.LEADER:
            self.acknowledge_own()

    def attests_tail(self, done: HandedOut) -> bool:
        """An entry may be cut and come back while a write is under way (ABA, brief 4): only a write
        of the current term speaks for the tail. The next Ready attests it again."""
        return done.term == self.term

    def applied(self, index: int) -> None:
        """The state machine has applied everything up to `index`, changes of membership too."""
        self.log.applied_to(index)
        self.leave_joint_if_due()

    def advance(self, ready: Ready) -> None:
        """Both acknowledgements at once, for tests."""
        self.persisted(ready.number)
        if ready.committed:
            self.applied(ready.committed[-1].index)

    # --- looking in

    def status(self) -> Status:
        leads = self.role is Role.LEADER
        return Status(
            id=self.id,
            role=self.role,
            term=self.term,
            vote=self.vote,
            leader=self.leader,
            first_index=self.log.first_index(),
            last_index=self.log.last,
            commit=self.log.committed,
            applied=self.log.applied,
            conf=self.conf,
            pending_conf_index=self.pending_conf_index,
            transferee=self.transferee,
            uncommitted_bytes=self.uncommitted_bytes,
            progress={n: p.status() for n, p in self.progress.items()} if leads else {},
        )
