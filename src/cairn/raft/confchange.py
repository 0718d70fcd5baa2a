"""How one configuration becomes the next: pure, with every refusal.

Simple changes move at most one voter, so old and new majorities overlap. Anything larger goes
through a joint configuration that needs both majorities. See "Changes of members" in
docs/explanation-raft.md.
"""

from __future__ import annotations

from collections.abc import Sequence

from cairn.model.errors import CairnError
from cairn.raft.types import NO_NODE, ConfChangeSingle, ConfChangeV2, ConfState


class ConfChangeRefused(CairnError):
    """The change cannot follow the configuration; `reason` says why."""

    sqlstate = "55000"

    def __init__(self, reason: str) -> None:
        super().__init__(f"configuration change refused: {reason}")
        self.reason = reason


class _Draft:
    """A configuration being edited."""

    def __init__(self, conf: ConfState) -> None:
        self.voters = set(conf.voters)
        self.outgoing = set(conf.voters_outgoing)
        self.learners = set(conf.learners)
        self.learners_next = set(conf.learners_next)
        self.auto_leave = conf.auto_leave

    def edit(self, changes: Sequence[ConfChangeSingle]) -> None:
        for change in changes:
            if change.id == NO_NODE:
                continue  # a change that its proposer has voided
            if change.kind == "add_voter":
                self._make_voter(change.id)
            elif change.kind == "add_learner":
                self._make_learner(change.id)
            else:
                self._remove(change.id)
        if not self.voters:
            raise ConfChangeRefused("it would remove all voters")

    def _make_voter(self, node: int) -> None:
        self.learners.discard(node)
        self.learners_next.discard(node)
        self.voters.add(node)

    def _make_learner(self, node: int) -> None:
        if node in self.learners or node in self.learners_next:
            return
        self._remove(node)
        # Its vote still counts in the outgoing half: it may only learn after the joint state.
        (self.learners_next if node in self.outgoing else self.learners).add(node)

    def _remove(self, node: int) -> None:
        self.voters.discard(node)
        self.learners.discard(node)
        self.learners_next.discard(node)

    def finish(self) -> ConfState:
        assert not self.learners & (self.voters | self.outgoing), "voter and learner at once"
        assert self.learners_next <= self.outgoing - self.voters
        assert self.outgoing or not self.auto_leave
        return ConfState(
            tuple(sorted(self.voters)),
            tuple(sorted(self.learners)),
            tuple(sorted(self.outgoing)),
            tuple(sorted(self.learners_next)),
            self.auto_leave,
        )


def is_joint(conf: ConfState) -> bool:
    return bool(conf.voters_outgoing)


def members(conf: ConfState) -> set[int]:
    """Everyone the leader replicates to, itself included."""
    return {*conf.voters, *conf.voters_outgoing, *conf.learners, *conf.learners_next}


def wants_leave(change: ConfChangeV2) -> bool:
    return not change.changes and change.transition == "auto"


def wants_joint(change: ConfChangeV2) -> bool:
    return change.transition != "auto" or len(change.changes) > 1


def simple(conf: ConfState, changes: Sequence[ConfChangeSingle]) -> ConfState:
    """One step that keeps majorities overlapping: at most one voter comes or goes."""
    if is_joint(conf):
        raise ConfChangeRefused("a simple change cannot be made in a joint configuration")
    draft = _Draft(conf)
    draft.edit(changes)
    if len(draft.voters ^ set(conf.voters)) > 1:
        raise ConfChangeRefused("more than one voter changed without a joint configuration")
    return draft.finish()


def enter_joint(
    conf: ConfState, changes: Sequence[ConfChangeSingle], *, auto_leave: bool
) -> ConfState:
    """From now on both the old and the new majority must agree."""
    if is_joint(conf):
        raise ConfChangeRefused("configuration is joint already")
    if not conf.voters:
        raise ConfChangeRefused("a configuration without voters cannot become joint")
    draft = _Draft(conf)
    draft.outgoing = set(conf.voters)
    draft.auto_leave = auto_leave
    draft.edit(changes)
    return draft.finish()


def leave_joint(conf: ConfState) -> ConfState:
    """Only the new half remains; demoted voters become learners now."""
    if not is_joint(conf):
        raise ConfChangeRefused("configuration is not joint")
    draft = _Draft(conf)
    draft.learners |= draft.learners_next
    draft.learners_next, draft.outgoing, draft.auto_leave = set(), set(), False
    return draft.finish()


def change_conf(conf: ConfState, change: ConfChangeV2) -> ConfState:
    """The configuration after `change`. Raises ConfChangeRefused."""
    if wants_leave(change):
        return leave_joint(conf)
    if wants_joint(change):
        return enter_joint(conf, change.changes, auto_leave=change.transition != "explicit")
    return simple(conf, change.changes)
