"""Who leads: campaigns, votes, leases and the check that a leader still has a quorum (brief 5)."""

from __future__ import annotations

from cairn.raft.quorum import VoteResult
from cairn.raft.replication import Replication
from cairn.raft.types import EntryType, Message, MsgKind, Role


class Elections(Replication):
    # --- campaigning

    def campaign(self) -> None:
        """Try to become leader, by way of a pre-vote when that is configured."""
        if self.may_campaign():
            self.begin_campaign(pre_vote=self.config.pre_vote, force=False)

    def may_campaign(self) -> bool:
        if self.role is Role.LEADER:
            return False
        if not self.promotable():
            self.drop("campaign without a vote")
            return False
        if self.conf_change_blocks_campaign():
            self.drop("campaign with an unapplied conf change")
            return False
        return True

    def promotable(self) -> bool:
        return self.is_voter(self.id) and self.log.snapshot is None

    def conf_change_blocks_campaign(self) -> bool:
        """Configurations take effect when applied: whoever knows of a committed change and has not
        applied it would count the wrong quorum (P4)."""
        return self.log.has_unapplied_conf_change()

    def begin_campaign(self, *, pre_vote: bool, force: bool) -> None:
        if pre_vote:
            self.become_pre_candidate()
            kind, term = MsgKind.PRE_VOTE, self.term + 1
        else:
            self.become_candidate()
            kind, term = MsgKind.VOTE, self.term
        self.election_elapsed = 0
        self.redraw_timeout()
        self.campaign_number += 1
        self.self_vote_pending = True  # counted once durable, like everyone's (brief 4)
        last, last_term = self.log.last, self.log.last_term()
        for node in sorted((self.voters | self.outgoing) - {self.id}):
            self.send(self._with_commit(Message(kind, self.id, node, term, last, last_term), force))

    def _with_commit(self, message: Message, force: bool = False) -> Message:
        """Votes tell what is committed: a member that lacks only this word could otherwise wait
        for ever for the vote of a leader that has stepped down (E#12359, brief 8)."""
        message.force = force
        message.commit = self.log.committed
        message.commit_term = self.log.term(self.log.committed)
        return message

    def commit_by_vote(self, message: Message) -> None:
        """What a peer knows to be committed is so here too, if we have the very entry."""
        if self.role is Role.LEADER or message.commit <= self.log.committed:
            return
        if message.commit_term and self.log.has(message.commit, message.commit_term):
            self.log.commit_to(message.commit)
            campaigns = self.role is not Role.FOLLOWER
            if campaigns and self.conf_change_blocks_campaign():
                self.become_follower(self.term, 0)  # apply it first, then count anew (P4)

    def count_own_vote(self, campaign: int) -> None:
        """Our term, vote and log are durable: our own vote counts now."""
        if campaign == self.campaign_number and self.role in (Role.PRE_CANDIDATE, Role.CANDIDATE):
            self.count_vote(self.id, True)

    def count_vote(self, node: int, granted: bool) -> None:
        self.record_vote(node, granted)
        result = self.tally(self.votes)
        if result is VoteResult.WON:
            if self.role is Role.PRE_CANDIDATE:
                self.begin_campaign(pre_vote=False, force=False)
            else:
                self.become_leader()
        elif result is VoteResult.LOST:
            self.become_follower(self.term, 0)

    def record_vote(self, node: int, granted: bool) -> None:
        """One vote per voter: the first answer stands, however often it is repeated (P13)."""
        self.votes.setdefault(node, granted)

    def become_leader(self) -> None:
        assert self.role is Role.CANDIDATE
        self.reset(self.term)
        self.role, self.leader = Role.LEADER, self.id
        self.progress = {node: self._new_progress(old) for node, old in self.progress.items()}
        self.progress[self.id].recent_active = True
        self.progress[self.id].match = self.log.stable
        # Any conf change in the inherited tail may be unapplied: be careful up to its end.
        self.pending_conf_index = self.log.last
        self.recount_uncommitted()
        self.append_own([b""], EntryType.NORMAL)
        self.trace(f"{self.id} leads term {self.term}")

    # --- voting

    def handle_vote_request(self, message: Message) -> None:
        """Learners vote too: whoever asks may know a newer configuration (E#10998)."""
        kind = MsgKind.VOTE_RESP if message.kind is MsgKind.VOTE else MsgKind.PRE_VOTE_RESP
        if self.may_vote_for(message) and self.log_is_no_obstacle(message):
            self.send(Message(kind, self.id, message.from_, message.term))
            if message.kind is MsgKind.VOTE:
                self.grant_vote(message.from_)
        else:
            refusal = Message(kind, self.id, message.from_, self.term, reject=True)
            self.send(self._with_commit(refusal))
            self.commit_by_vote(message)

    def may_vote_for(self, message: Message) -> bool:
        """One vote per term; a pre-vote for a later term costs nothing (paper 5.2)."""
        if message.kind is MsgKind.PRE_VOTE and message.term > self.term:
            return True
        return self.vote == message.from_ or (self.vote == 0 and self.leader == 0)

    def log_is_no_obstacle(self, message: Message) -> bool:
        """Votes and pre-votes go only to logs as new as ours (paper 5.4.1, P7)."""
        return self.log.is_up_to_date(message.index, message.log_term)

    def grant_vote(self, node: int) -> None:
        assert self.vote in (0, node), "a vote changes only with the term"
        self.vote = node
        self.election_elapsed = 0

    def handle_vote_resp(self, message: Message) -> None:
        expected = Role.CANDIDATE if message.kind is MsgKind.VOTE_RESP else Role.PRE_CANDIDATE
        if self.role is not expected:
            self.drop("vote without a campaign")
        elif not self.is_voter(message.from_):
            self.drop("vote of a non-voter")
        elif not self.answers_this_campaign(message):
            self.drop("vote of another campaign")
        else:
            self.count_vote(message.from_, not message.reject)
            self.commit_by_vote(message)

    def answers_this_campaign(self, message: Message) -> bool:
        """A granted pre-vote names the term it was asked for, which is the one after ours."""
        pre_granted = message.kind is MsgKind.PRE_VOTE_RESP and not message.reject
        return message.term == self.term + (1 if pre_granted else 0)

    # --- leases and quorum

    def in_lease(self) -> bool:
        """We heard from a leader lately: whoever campaigns now disturbs (paper 6)."""
        return (
            self.config.check_quorum
            and self.leader != 0
            and self.election_elapsed < self.config.election_tick
        )

    def check_quorum(self) -> None:
        """A leader that a quorum has not answered for an election timeout steps down."""
        active = {
            node: node == self.id or progress.recent_active
            for node, progress in self.progress.items()
        }
        if self.tally(active) is not VoteResult.WON:
            self.become_follower(self.term, 0)
            return
        for node, progress in self.progress.items():
            progress.recent_active = node == self.id

    def handle_timeout_now(self, message: Message) -> None:
        """The leader asks us to take over at once: no pre-vote, leases do not hold (brief 9)."""
        if message.from_ != self.leader:
            self.drop("hand-over by someone who does not lead")
        elif self.may_campaign():
            self.begin_campaign(pre_vote=False, force=True)
