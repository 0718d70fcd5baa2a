"""The linearizability checker: known histories, and brute force on small ones."""

from __future__ import annotations

from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cairn.sim.linear import FOREVER, Operation, Undecided, is_linearizable, step


def read(start: int, end: int, value: int) -> Operation:
    return Operation("read", start, end, result=value)


def write(start: int, end: int, value: int) -> Operation:
    return Operation("write", start, end, value)


def cas(start: int, end: int, expected: int, value: int, ok: int) -> Operation:
    return Operation("cas", start, end, value, expected, ok)


@pytest.mark.parametrize(
    ("history", "fine"),
    [
        ([], True),
        ([write(0, 1, 5), read(2, 3, 5)], True),
        ([write(0, 1, 5), read(2, 3, 0)], False),  # stale
        ([write(0, 9, 5), read(2, 3, 5), read(4, 5, 0)], False),  # goes back
        ([write(0, 9, 5), read(2, 3, 0), read(4, 5, 5)], True),
        ([write(0, FOREVER, 5), read(2, 3, 0)], True),
        ([write(0, FOREVER, 5), read(20, 30, 5)], True),
        ([read(2, 3, 7)], False),  # from nowhere
        ([read(2, FOREVER, 7)], True),
        ([cas(0, 1, 0, 5, 1), read(2, 3, 5)], True),
        ([cas(0, 1, 0, 5, 1), cas(2, 3, 0, 6, 1)], False),  # a lost update
        ([cas(0, 1, 0, 5, 0)], False),
        ([cas(0, 1, 9, 5, 0), read(2, 3, 0)], True),
        ([write(0, 5, 1), write(0, 5, 2), read(6, 7, 1), read(8, 9, 1)], True),
        ([write(0, 5, 1), write(0, 5, 2), read(6, 7, 1), read(8, 9, 2)], False),
    ],
)
def test_known_histories(history: list[Operation], fine: bool) -> None:
    assert is_linearizable(history) is fine


def test_a_search_that_grows_too_large_says_so() -> None:
    history = [write(0, 100, n) for n in range(1, 12)] + [read(200, 300, 99)]
    with pytest.raises(Undecided):
        is_linearizable(history, max_steps=1000)


times = st.tuples(st.integers(0, 6), st.integers(0, 6)).map(sorted)
operations = st.builds(
    lambda kind, span, value, expected, unknown: Operation(
        kind,
        span[0],
        FOREVER if unknown else span[1] + 1,
        value,
        expected,
        expected if kind == "read" else value % 2,
    ),
    st.sampled_from(["read", "write", "cas"]),
    times,
    st.integers(0, 3),
    st.integers(0, 3),
    st.booleans(),
)


def by_brute_force(history: list[Operation]) -> bool:
    known = [op for op in history if op.end < FOREVER]
    unknown = [op for op in history if op.end >= FOREVER and op.kind != "read"]
    for bits in range(1 << len(unknown)):
        chosen = known + [op for place, op in enumerate(unknown) if bits >> place & 1]
        for order in permutations(chosen):
            late = any(a.start > b.end for i, a in enumerate(order) for b in order[i + 1 :])
            value: int | None = 0
            for operation in order:
                value = step(value, operation) if value is not None else None
            if not late and value is not None:
                return True
    return False


@settings(max_examples=150, deadline=None)
@given(st.lists(operations, max_size=5))
def test_agrees_with_brute_force(history: list[Operation]) -> None:
    assert is_linearizable(history) == by_brute_force(history)
