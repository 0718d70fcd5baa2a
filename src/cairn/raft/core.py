"""The Raft core: method calls in, `Ready` out. It touches nothing; its driver does.

`RaftCore` holds what a member is (term, vote, role, leader) and decides when that changes. The rest
are objects that it owns and that know nothing of it:

    log          what is durable, handed to the disk, newer        log.RaftLog
    members      the configuration in force and its quorums        quorum.Members
    elections    votes asked for, given and counted                elections.Elections
    follower     what a leader sends, taken in and answered        follower.Follower
    tenure       everything that only a leader has                 tenure.Tenure
    forwarded    reads that our leader was asked for               reads.ForwardedReads
    outbox       what the next Ready hands out                     outbox.Outbox

Read downwards: time, messages, elections, roles, then what the driver asks and Ready. The reasons,
each with its story and its test, are in docs/explanation-raft.md.
"""

from __future__ import annotations

from collections import Counter

from cairn.raft import confchange, kinds
from cairn.raft.elections import Elections
from cairn.raft.follower import Follower
from cairn.raft.log import RaftLog
from cairn.raft.outbox import HandedOut, Outbox
from cairn.raft.quorum import Members, VoteResult
from cairn.raft.reads import ForwardedReads, PendingRead, asked_by, read_answer
from cairn.raft.tenure import Tenure
from cairn.raft.types import (
    NO_NODE,
    ConfChangeV2,
    Config,
    ConfState,
    HardState,
    Message,
    MsgKind,
    NotLeader,
    RaftCorruption,
    Ready,
    Role,
    Status,
    Storage,
)


class RaftCore:
    """One member. Not re-entrant: one owner calls it, and carries out every Ready in order."""

    def __init__(self, config: Config, storage: Storage, *, applied: int = 0) -> None:
        """`applied` is what the state machine itself has stored; the hard state may know less."""
        hard, conf = storage.initial_state()
        self.config, self.id = config, config.id
        self.term, self.vote = hard.term, hard.vote
        self.role, self.leader = Role.FOLLOWER, NO_NODE
        self.dropped: Counter[str] = Counter()  # messages that did not fit, by reason
        self.log = RaftLog(storage, commit=hard.commit, applied=applied)
        self.members = Members(conf)
        self.outbox = Outbox(hard)
        self.elections = Elections(self.id, self.log, self.members)
        self.follower = Follower(self.id, self.log, self.members, self.dropped)
        self.forwarded = ForwardedReads(self.id, self.outbox, config.rng.getrandbits(48))
        self.tenure: Tenure | None = None  # exactly while role is LEADER
        self.election_elapsed = 0
        self.redraw_timeout()

    @property
    def conf(self) -> ConfState:
        return self.members.conf

    def hard_state(self) -> HardState:
        return HardState(self.term, self.vote, self.log.committed)

    def drop(self, reason: str) -> None:
        self.dropped[reason] += 1

    # --- time

    def tick(self) -> None:
        self.election_elapsed += 1
        if self.tenure is not None:
            self._tick_leader(self.tenure)
        elif self.election_elapsed >= self.election_timeout and self.elections.promotable():
            self.campaign()  # who may not goes on counting: it has heard of no leader lately

    def _tick_leader(self, tenure: Tenure) -> None:
        if self.election_elapsed >= self.config.election_tick:
            self.election_elapsed = 0
            if self.config.check_quorum and not tenure.replication.heard_a_quorum():
                self.become_follower(self.term, NO_NODE)
                return
            tenure.abort_transfer()
        tenure.tick()

    def in_lease(self) -> bool:
        """We heard from a leader lately: whoever campaigns now disturbs."""
        return (
            self.config.check_quorum
            and self.leader != NO_NODE
            and self.election_elapsed < self.config.election_tick
        )

    def redraw_timeout(self) -> None:
        ticks = self.config.election_tick
        self.election_timeout = self.config.rng.randint(ticks, 2 * ticks - 1)

    # --- messages

    def send(self, message: Message) -> None:
        self.outbox.put(message, self.tenure is not None, self.term)

    def step(self, message: Message) -> None:
        """Take in a peer's message. What does not fit is dropped and counted; only what proves that
        there are two histories is raised (RaftCorruption)."""
        if message.to != self.id or message.from_ == self.id:
            self.drop("misdelivered")
        elif message.kind in kinds.TERMLESS:
            self._step_termless(message)
        elif message.kind in kinds.ANSWERS and message.from_ not in self.members.all:
            self.drop("unknown peer")
        elif self.fits_term(message):
            self._handle(message)

    def fits_term(self, message: Message) -> bool:
        """Settle terms first. False if the message has been dealt with."""
        if message.term == self.term:
            return True
        if message.term < self.term:
            self._answer_stale(message)
            return False
        if message.kind in kinds.VOTE_REQUESTS and not message.force and self.in_lease():
            self.drop("campaign while a leader is alive")
            return False
        if message.kind is MsgKind.PRE_VOTE:
            return True  # asks about a term to come; changes nothing
        if message.kind is MsgKind.PRE_VOTE_RESP and not message.reject:
            return True  # echoes the term we asked about
        patience = (self.election_elapsed, self.election_timeout)
        follows = self.role is Role.FOLLOWER
        sender_leads = message.kind in kinds.OF_LEADERS
        self.become_follower(message.term, message.from_ if sender_leads else NO_NODE)
        if message.kind is MsgKind.VOTE and follows:
            # Only a vote that is granted makes us wait anew: a candidate that cannot win must not
            # keep those who can from trying.
            self.election_elapsed, self.election_timeout = patience
        return True

    def _answer_stale(self, message: Message) -> None:
        """Someone lives in an older term: tell it ours where silence could deadlock."""
        self.drop("older term")
        tells = self.config.check_quorum or self.config.pre_vote
        to = message.from_
        if message.kind in (MsgKind.APP, MsgKind.HEARTBEAT) and tells:
            self.send(Message(MsgKind.APP_RESP, self.id, to, self.term))
        elif message.kind is MsgKind.PRE_VOTE:
            self.send(Message(MsgKind.PRE_VOTE_RESP, self.id, to, self.term, reject=True))

    def _step_termless(self, message: Message) -> None:
        if message.kind is MsgKind.READ_INDEX_RESP:
            if not self.forwarded.answered(message):
                self.drop("unknown read")
        elif message.from_ not in self.members.all:
            self.drop("unknown peer")
        elif message.kind is MsgKind.READ_INDEX:
            if self.tenure is not None:
                self.tenure.admit_read(asked_by(message))
            else:
                self.send(read_answer(self.id, asked_by(message), reject=True))
        elif self.tenure is not None:
            self.transfer_leader(message.index)
        else:
            self.drop("not leader")

    def _handle(self, message: Message) -> None:
        kind = message.kind
        if kind in kinds.OF_LEADERS:
            if self.accepts_leader(message):
                self._hear_leader(message)
        elif kind in kinds.LOG_ANSWERS:
            if self.tenure is not None:
                self.tenure.hear(message)
            else:
                self.drop("answer to someone who does not lead")
        elif kind in kinds.VOTE_REQUESTS:
            self.handle_vote_request(message)
        else:
            self.handle_vote_resp(message)

    def accepts_leader(self, message: Message) -> bool:
        """A leader of our term speaks: follow it, and be patient even if its words are refused."""
        if self.tenure is not None:
            raise RaftCorruption(
                f"instance {message.from_} leads in term {self.term}, and so do we: this instance "
                "was started with old files, of a time when others had no vote; expel it and "
                "start it with an empty directory"
            )
        if self.leader not in (NO_NODE, message.from_):
            self.drop("second leader in a term")
            return False
        if self.role is not Role.FOLLOWER:
            self.become_follower(self.term, message.from_)
        self.leader = message.from_
        self.election_elapsed = 0  # also for appends that will be refused
        return True

    def _hear_leader(self, message: Message) -> None:
        if message.kind is not MsgKind.TIMEOUT_NOW:
            if (answer := self.follower.hear(message)) is not None:
                self.send(answer)
        elif self.may_campaign():  # we are asked to take over: leases do not hold now
            self.begin_campaign(pre_vote=False, force=True)

    # --- elections

    def campaign(self) -> None:
        """Try to become leader, by way of a pre-vote when that is configured."""
        if self.may_campaign():
            self.begin_campaign(pre_vote=self.config.pre_vote, force=False)

    def may_campaign(self) -> bool:
        if self.tenure is not None:
            return False
        if (obstacle := self.elections.obstacle()) is not None:
            self.drop(obstacle)
            return False
        return True

    def begin_campaign(self, *, pre_vote: bool, force: bool) -> None:
        if pre_vote:
            self.become_pre_candidate()
            kind, term = MsgKind.PRE_VOTE, self.term + 1
        else:
            self.become_candidate()
            kind, term = MsgKind.VOTE, self.term
        self.election_elapsed = 0
        self.redraw_timeout()
        self.elections.begin()
        for request in self.elections.requests(kind, term, force=force):
            self.send(request)

    def count_vote(self, node: int, granted: bool) -> None:
        result = self.elections.count(node, granted)
        if result is VoteResult.LOST:
            self.become_follower(self.term, NO_NODE)
        elif result is VoteResult.WON and self.role is Role.PRE_CANDIDATE:
            self.begin_campaign(pre_vote=False, force=False)
        elif result is VoteResult.WON:
            self.become_leader()

    def handle_vote_request(self, message: Message) -> None:
        answer = self.elections.answer(message, term=self.term, vote=self.vote, leader=self.leader)
        self.send(answer)
        if answer.reject:
            self.learn_commit(message)
        elif message.kind is MsgKind.VOTE:
            self.grant_vote(message.from_)

    def grant_vote(self, node: int) -> None:
        assert self.vote in (NO_NODE, node), "a vote changes only with the term"
        self.vote = node
        self.election_elapsed = 0

    def handle_vote_resp(self, message: Message) -> None:
        mistake = self.elections.mistake(message, self.role, self.term)
        if mistake is not None:
            self.drop(mistake)
            return
        self.count_vote(message.from_, not message.reject)
        self.learn_commit(message)

    def learn_commit(self, message: Message) -> None:
        """A vote told us of a commit. A change of members in it is applied before we count on."""
        if self.tenure is not None or not self.elections.learn_commit(message):
            return
        if self.role is not Role.FOLLOWER and self.elections.conf_change_blocks_campaign():
            self.become_follower(self.term, NO_NODE)

    # --- roles

    def reset(self, term: int) -> None:
        """Begin anew as `term` demands: nothing of the former role may be carried over."""
        assert term >= self.term, "terms never go back"
        if term != self.term:
            self.term, self.vote = term, NO_NODE
        self.leader = NO_NODE
        self.elections.forget()
        self.election_elapsed = 0
        self.redraw_timeout()
        if self.tenure is not None:
            self.tenure.reads.fail_all()
            self.tenure = None
        self.forwarded.fail_all()

    def become_follower(self, term: int, leader: int) -> None:
        handed_over = self.tenure is not None and self.tenure.timeout_now_sent
        self.reset(term)
        self.role, self.leader = Role.FOLLOWER, leader
        if handed_over:  # let the successor settle, or two voters hand over to each other for ever
            self.election_timeout += self.config.rng.randint(1, self.config.election_tick)

    def become_pre_candidate(self) -> None:
        """Neither term nor vote change; the old leader is forgotten, so others may be heard."""
        assert self.role is not Role.LEADER
        self.role, self.leader = Role.PRE_CANDIDATE, NO_NODE
        self.forwarded.fail_all()

    def become_candidate(self) -> None:
        assert self.role is not Role.LEADER
        self.reset(self.term + 1)
        self.role, self.vote = Role.CANDIDATE, self.id

    def become_leader(self) -> None:
        assert self.role is Role.CANDIDATE
        self.reset(self.term)
        self.role, self.leader = Role.LEADER, self.id
        self.tenure = Tenure(
            self.config, self.term, self.log, self.members, self.outbox, self.dropped
        )

    # --- what the driver asks

    def _leading(self) -> Tenure:
        if self.tenure is None:
            raise NotLeader(leader=self.leader or None)
        return self.tenure

    def propose(self, payloads: list[bytes]) -> tuple[int, int]:
        """Append `payloads`; where the first went. Raises NotLeader or ProposalDropped."""
        return self._leading().propose(payloads), self.term

    def propose_conf_change(self, change: ConfChangeV2) -> tuple[int, int]:
        """Append a change of membership; refused while another is not applied."""
        return self._leading().propose_conf_change(change), self.term

    def apply_conf_change(self, change: ConfChangeV2) -> ConfState:
        """A committed change is being applied: it is in force from here on."""
        try:
            conf = confchange.change_conf(self.conf, change)
        except confchange.ConfChangeRefused as refusal:
            raise RaftCorruption(f"a committed change does not fit: {refusal.reason}") from None
        if self.tenure is not None:
            goes_on = self.tenure.change_conf(conf)
        else:
            self.members.change(conf)
            goes_on = self.role is Role.FOLLOWER or self.elections.promotable()
        if not goes_on:
            self.become_follower(self.term, NO_NODE)
        return conf

    def transfer_leader(self, to: int) -> None:
        """Hand leadership to the voter `to`; given up after one election timeout."""
        if self.tenure is not None:
            if self.tenure.transfer_to(to):
                self.election_elapsed = 0
        elif self.leader == NO_NODE:
            self.drop("transfer without a leader")
        else:
            self.send(Message(MsgKind.TRANSFER_LEADER, self.id, self.leader, index=to))

    def read_index(self, token: bytes) -> None:
        """Ask for a position to read at. The answer is a ReadState, or `token` in failed_reads."""
        if self.tenure is not None:
            self.tenure.admit_read(PendingRead(token, self.id))
        elif self.leader == NO_NODE:
            self.outbox.failed_reads.append(token)
        else:
            self.send(self.forwarded.forward(token, self.leader))

    def unanswered(self) -> frozenset[int]:
        """Who has not answered since a change of voters was asked for, and had the time to."""
        return frozenset() if self.tenure is None else self.tenure.unanswered()

    def report_unreachable(self, node: int) -> None:
        """Messages to `node` may be lost: go back to asking before sending more."""
        if self.tenure is not None:
            self.tenure.replication.report_unreachable(node)

    def report_snapshot(self, node: int, ok: bool) -> None:
        """The transfer of a snapshot to `node` ended; must be told in every case."""
        if self.tenure is not None:
            self.tenure.replication.report_snapshot(node, ok)

    # --- Ready

    def has_ready(self) -> bool:
        return (
            self.outbox.has_news(self.term, self.vote, self.log.committed, self.leader, self.role)
            or self.log.has_work(self.config.max_apply_bytes)
            or (self.tenure is not None and self.tenure.has_news())
            or self.elections.own_vote_pending
        )

    def ready(self) -> Ready:
        """Everything to be done now. Each Ready is carried out once, in the order of numbers."""
        if self.tenure is not None:
            self.tenure.before_ready()
        return self.outbox.take(
            self.log,
            self.hard_state(),
            leader=self.leader,
            role=self.role,
            campaign=self.elections.take_own_vote(),
            max_apply_bytes=self.config.max_apply_bytes,
        )

    def persisted(self, number: int) -> None:
        """Ready `number` and all before it are durable. Their own acks and votes count now."""
        for done in self.outbox.persisted(number):
            if done.snapshot_index:
                self.log.snapshot_stabilised(done.snapshot_index)
            if done.last_index and self.attests_tail(done):
                self.log.stabilised(done.last_index, done.last_term)
            campaigns = self.role in (Role.PRE_CANDIDATE, Role.CANDIDATE)
            if done.campaign and done.campaign == self.elections.campaign and campaigns:
                self.count_vote(self.id, True)
        if self.tenure is not None:
            self.tenure.acknowledge_own()

    def attests_tail(self, done: HandedOut) -> bool:
        """Only a write of the current term speaks for the tail: an entry may be cut and come back
        while a write is under way. The next Ready attests it again."""
        return done.term == self.term

    def applied(self, index: int) -> None:
        """The state machine has applied everything up to `index`, changes of membership too."""
        self.log.applied_to(index)
        if self.tenure is not None:
            self.tenure.leave_joint_if_due()

    def status(self) -> Status:
        status = Status(
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
        )
        return self.tenure.tell(status) if self.tenure is not None else status
