"""The same complaint is told once in a while, with how often it was kept back."""

from __future__ import annotations

from cairn.net.saying import AGAIN_S, MOST, Saying


def test_the_same_is_told_once_in_a_while_with_what_was_kept_back() -> None:
    now = 0.0
    saying = Saying(lambda: now)
    assert [saying.untold("a") for _ in range(4)] == [0, None, None, None]
    assert saying.may_say("b")
    now += AGAIN_S
    assert saying.untold("a") == 3
    assert saying.untold("a") is None


def test_endless_complaints_are_not_remembered() -> None:
    saying = Saying(lambda: 0.0)
    for at in range(10 * MOST):
        saying.untold(str(at))
    assert len(saying._said) <= MOST + 1
