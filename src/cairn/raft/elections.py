"""Votes: asked for, given and counted. Term, vote and role stay with the core, which acts on this.

See "Elections" in docs/explanation-raft.md.
"""

from __future__ import annotations

from collections.abc import Iterator

from cairn.raft.log import RaftLog
from cairn.raft.quorum import Members, VoteResult
from cairn.raft.types import NO_NODE, Message, MsgKind, Role


class Elections:
    def __init__(self, own_id: int, log: RaftLog, members: Members) -> None:
        self.id, self.log, self.members = own_id, log, members
        self.votes: dict[int, bool] = {}
        self.campaign = 0  # number of the last campaign of this life
        self.own_vote_pending = False  # our own vote goes to the disk with the next Ready

    # --- campaigning

    def obstacle(self) -> str | None:
        """Why we may not campaign now, or None."""
        if not self.promotable():
            return "campaign without a vote"
        if self.conf_change_blocks_campaign():
            return "campaign with an unapplied conf change"
        if self.log.is_short():
            return "campaign without entries that were acknowledged"
        return None

    def promotable(self) -> bool:
        return self.members.is_voter(self.id) and self.log.snapshot is None

    def conf_change_blocks_campaign(self) -> bool:
        """Configurations take effect when applied: whoever knows of a committed change and has not
        applied it would count the wrong quorum."""
        return self.log.has_unapplied_conf_change()

    def begin(self) -> None:
        """A campaign begins. Our own vote counts when it is durable, like everyone's."""
        self.votes = {}
        self.campaign += 1
        self.own_vote_pending = True

    def take_own_vote(self) -> int:
        """The campaign whose own vote goes to the disk now, or 0."""
        campaign = self.campaign if self.own_vote_pending else 0
        self.own_vote_pending = False
        return campaign

    def forget(self) -> None:
        self.votes = {}
        self.own_vote_pending = False

    def requests(self, kind: MsgKind, term: int, *, force: bool) -> Iterator[Message]:
        last, last_term = self.log.last, self.log.last_term()
        for node in sorted((self.members.voters | self.members.outgoing) - {self.id}):
            request = Message(kind, self.id, node, term, last, last_term, force=force)
            yield self._with_commit(request)

    def count(self, node: int, granted: bool) -> VoteResult:
        self.record_vote(node, granted)
        return self.members.tally(self.votes)

    def record_vote(self, node: int, granted: bool) -> None:
        """One vote per voter: the first answer stands, however often it is repeated."""
        self.votes.setdefault(node, granted)

    def mistake(self, message: Message, role: Role, term: int) -> str | None:
        """Why the vote in `message` does not count, or None."""
        expected = Role.CANDIDATE if message.kind is MsgKind.VOTE_RESP else Role.PRE_CANDIDATE
        if role is not expected:
            return "vote without a campaign"
        if not self.members.is_voter(message.from_):
            return "vote of a non-voter"
        if not self.answers_this_campaign(message, term):
            return "vote of another campaign"
        return None

    def answers_this_campaign(self, message: Message, term: int) -> bool:
        """A granted pre-vote names the term it was asked for, which is the one after ours."""
        pre_granted = message.kind is MsgKind.PRE_VOTE_RESP and not message.reject
        return message.term == term + (1 if pre_granted else 0)

    # --- voting

    def answer(self, message: Message, *, term: int, vote: int, leader: int) -> Message:
        """Learners vote too: whoever asks may know a newer configuration, in which we have a vote.
        A refusal tells our term; a granted vote names the term that was asked for."""
        kind = MsgKind.VOTE_RESP if message.kind is MsgKind.VOTE else MsgKind.PRE_VOTE_RESP
        if self.may_vote_for(message, term, vote, leader) and self.log_is_no_obstacle(message):
            return Message(kind, self.id, message.from_, message.term)
        return self._with_commit(Message(kind, self.id, message.from_, term, reject=True))

    def may_vote_for(self, message: Message, term: int, vote: int, leader: int) -> bool:
        """One vote per term; a pre-vote for a later term costs nothing."""
        if message.kind is MsgKind.PRE_VOTE and message.term > term:
            return True
        return vote == message.from_ or (vote == NO_NODE and leader == NO_NODE)

    def log_is_no_obstacle(self, message: Message) -> bool:
        """Votes and pre-votes go only to logs as new as ours, or committed entries are lost."""
        return self.log.is_up_to_date(message.index, message.log_term)

    # --- what votes tell by the way

    def _with_commit(self, message: Message) -> Message:
        """See "Votes tell what is committed" in docs/explanation-raft.md."""
        message.commit = self.log.committed
        message.commit_term = self.log.term(self.log.committed)
        return message

    def learn_commit(self, message: Message) -> bool:
        """What a peer knows to be committed is so here too, if we have the very entry."""
        if message.commit <= self.log.committed or not message.commit_term:
            return False
        if not self.log.has(message.commit, message.commit_term):
            return False
        self.log.commit_to(message.commit)
        return True
