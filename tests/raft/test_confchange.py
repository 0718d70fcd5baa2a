"""Configuration changes: a table of known answers, every refusal, and overlap by brute force."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cairn.raft.confchange import ConfChangeRefused, change_conf, members
from cairn.raft.types import BadMessage, ConfChangeSingle, ConfChangeV2, ConfState
from cairn.raft.wire import bad_conf
from cairn.sim.oracles import quorums_overlap

KINDS = {"v": "add_voter", "l": "add_learner", "r": "remove"}


def change(text: str, transition: str = "auto") -> ConfChangeV2:
    """`v1 l2 r3` -> add voter 1, add learner 2, remove 3."""
    singles = tuple(ConfChangeSingle(KINDS[word[0]], int(word[1:])) for word in text.split())  # type: ignore[arg-type]
    return ConfChangeV2(transition, singles)  # type: ignore[arg-type]


C123 = ConfState((1, 2, 3))


@pytest.mark.parametrize(
    ("before", "step", "after"),
    [
        (ConfState(), change("v1"), ConfState((1,))),
        (ConfState((1,)), change("v2"), ConfState((1, 2))),
        (ConfState((1,)), change("l2"), ConfState((1,), (2,))),
        (ConfState((1,), (2,)), change("v2"), ConfState((1, 2))),
        (ConfState((1,), (2,)), change("r2"), ConfState((1,))),
        (ConfState((1,), (2,)), change("l2"), ConfState((1,), (2,))),
        (ConfState((1, 2)), change("l2"), ConfState((1,), (2,))),
        (ConfState((1, 2)), change("r2"), ConfState((1,))),
        (ConfState((1, 2)), change("r9"), ConfState((1, 2))),
        (ConfState((1, 2)), change("v0"), ConfState((1, 2))),
        (ConfState((1,)), change("v1"), ConfState((1,))),
        (C123, change("v4 r3"), ConfState((1, 2, 4), (), (1, 2, 3), (), True)),
        (C123, change("v4", "implicit"), ConfState((1, 2, 3, 4), (), (1, 2, 3), (), True)),
        (C123, change("v4", "explicit"), ConfState((1, 2, 3, 4), (), (1, 2, 3), (), False)),
        (C123, change("", "explicit"), ConfState((1, 2, 3), (), (1, 2, 3), (), False)),
        (C123, change("l3", "explicit"), ConfState((1, 2), (), (1, 2, 3), (3,), False)),
        (C123, change("l3 l4"), ConfState((1, 2), (4,), (1, 2, 3), (3,), True)),
        (C123, change("l3 r3"), ConfState((1, 2), (), (1, 2, 3), (), True)),
        (C123, change("l3 v3"), ConfState((1, 2, 3), (), (1, 2, 3), (), True)),
        (C123, change("r1 r2"), ConfState((3,), (), (1, 2, 3), (), True)),
        (C123, change("v4 v5 v6 r1 r2 r3"), ConfState((4, 5, 6), (), (1, 2, 3), (), True)),
        (
            ConfState((1, 2), (4,), (1, 2, 3), (3,), True),
            change(""),
            ConfState((1, 2), (3, 4)),
        ),
        (ConfState((4, 5), (), (1, 2, 3)), change(""), ConfState((4, 5))),
    ],
)
def test_known_answers(before: ConfState, step: ConfChangeV2, after: ConfState) -> None:
    assert change_conf(before, step) == after


@pytest.mark.parametrize(
    ("before", "step", "reason"),
    [
        (ConfState((1,)), change("r1"), "all voters"),
        (ConfState((1,)), change("l1"), "all voters"),
        (ConfState(), change("l1"), "all voters"),
        (ConfState((1, 2)), change(""), "not joint"),
        (ConfState(), change("v1 v2"), "without voters"),
        (C123, change("r1 r2 r3"), "all voters"),
        (ConfState((1, 2), (), (1,)), change("v3"), "joint configuration"),
        (ConfState((1, 2), (), (1,)), change("v3 v4"), "joint already"),
        (ConfState((1, 2), (), (1,)), change("", "explicit"), "joint already"),
    ],
)
def test_refusals(before: ConfState, step: ConfChangeV2, reason: str) -> None:
    with pytest.raises(ConfChangeRefused, match=reason):
        change_conf(before, step)


steps = st.builds(
    ConfChangeV2,
    st.sampled_from(["auto", "implicit", "explicit"]),
    st.lists(
        st.builds(
            ConfChangeSingle,
            st.sampled_from(["add_voter", "add_learner", "remove"]),
            st.integers(0, 6),
        ),
        max_size=4,
    ).map(tuple),
)


@given(steps=st.lists(steps, max_size=12))
def test_quorums_of_consecutive_configurations_always_meet(steps: list[ConfChangeV2]) -> None:
    conf = ConfState((1, 2, 3))
    for step in steps:
        try:
            after = change_conf(conf, step)
        except ConfChangeRefused:
            continue
        assert bad_conf(after) is None
        assert quorums_overlap(conf, after)
        assert members(after)
        conf = after


def test_a_change_survives_its_encoding() -> None:
    step = ConfChangeV2("explicit", (ConfChangeSingle("remove", 7),), b"why")
    assert ConfChangeV2.decode(step.encode()) == step
    assert ConfChangeV2.decode(b"") == ConfChangeV2()
    with pytest.raises(BadMessage):
        ConfChangeV2.decode(b"\xc1")
