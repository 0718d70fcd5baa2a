"""How long ago an instance answered leaders of earlier terms: never told longer than it was."""

from __future__ import annotations

import pytest

from cairn.model.errors import NotLeader
from cairn.node.consensus.last_words import LastWords


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_new_life_may_have_answered_until_it_began() -> None:
    clock = Clock()
    words = LastWords(clock)
    clock.now = 100.3
    assert words.ago_s(7) == pytest.approx(0.3)


def test_answers_to_the_leader_that_asks_do_not_count() -> None:
    clock = Clock()
    words = LastWords(clock)
    clock.now = 103.0
    words.answered(6)
    clock.now = 104.0
    assert words.ago_s(7) == pytest.approx(1.0)
    words.answered(7)
    words.answered(7)
    clock.now = 104.5
    assert words.ago_s(7) == pytest.approx(1.5)
    assert words.ago_s(8) == pytest.approx(0.5)


def test_a_leader_of_the_past_is_told_nothing() -> None:
    words = LastWords(Clock())
    words.answered(8)
    with pytest.raises(NotLeader):
        words.ago_s(7)
