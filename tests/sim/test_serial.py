"""The judge of blocks is judged itself, by histories that are known to be good or bad."""

from __future__ import annotations

import pytest

from cairn.sim.serial import Append, Read, Txn, why_not_serial

A, B = 1, 2


def txn(name: str, *ops: Read | Append, at: float = 0.0, to: float = 9.0, **more: str) -> Txn:
    return Txn(name, ops, at, to, **more)  # type: ignore[arg-type]


def read(key: int, *tags: str) -> Read:
    return Read(key, tags)


def test_blocks_one_after_the_other_are_serial() -> None:
    history = [
        txn("x", read(A), Append(A, "x"), read(A, "x"), at=0, to=1),
        txn("y", read(A, "x"), Append(A, "y"), Append(B, "y2"), at=2, to=3),
        txn("z", read(A, "x", "y"), read(B, "y2"), at=4, to=5),
    ]
    assert why_not_serial(history, {A: ("x", "y"), B: ("y2",)}) is None


def test_blocks_at_the_same_time_may_be_in_any_order() -> None:
    history = [txn("x", read(A, "y"), Append(A, "x")), txn("y", read(A), Append(A, "y"))]
    assert why_not_serial(history, {A: ("y", "x")}) is None


def test_what_nobody_saw_of_an_unknown_block_does_not_matter() -> None:
    lost = txn("u", Append(A, "u"), outcome="unknown")
    done = txn("w", Append(A, "w"), outcome="unknown")
    history = [lost, done, txn("x", read(A, "w"))]
    assert why_not_serial(history, {A: ("w",)}) is None


@pytest.mark.parametrize(
    ("history", "final", "why"),
    [
        pytest.param(
            [txn("x", read(A), Append(A, "x")), txn("y", read(A), Append(A, "y"))],
            {A: ("y",)},
            "x was committed",
            id="lost update",
        ),
        pytest.param(
            [txn("x", read(A), Append(A, "x")), txn("y", read(A), Append(A, "y"))],
            {A: ("x", "y")},
            "circle",
            id="update of what was not seen",
        ),
        pytest.param(
            [
                txn("x", read(A), read(B), Append(A, "x")),
                txn("y", read(A), read(B), Append(B, "y")),
            ],
            {A: ("x",), B: ("y",)},
            "circle",
            id="write skew",
        ),
        pytest.param(
            [txn("x", Append(A, "x"), Append(B, "x2")), txn("y", read(A, "x"), read(B))],
            {A: ("x",), B: ("x2",)},
            "circle",
            id="read skew",
        ),
        pytest.param(
            [txn("x", Append(A, "x"), outcome="undone"), txn("y", read(A, "x"))],
            {A: ()},
            "no beginning",
            id="read of what was undone",
        ),
        pytest.param(
            [txn("x", Append(A, "x"), outcome="undone")],
            {A: ("x",)},
            "undone",
            id="undone and there",
        ),
        pytest.param(
            [txn("x", Append(A, "x"), Append(A, "x2")), txn("y", read(A, "x"))],
            {A: ("x", "x2")},
            "half of x",
            id="half of a block",
        ),
        pytest.param(
            [txn("x", Append(A, "x"), Append(B, "x2"), outcome="unknown")],
            {A: ("x",), B: ()},
            "in part",
            id="half of a block is there",
        ),
        pytest.param(
            [txn("x", Append(A, "x"), read(A))],
            {A: ("x",)},
            "its own",
            id="own write not seen",
        ),
        pytest.param(
            [txn("x", Append(A, "x"), at=0, to=1), txn("y", read(A), at=2, to=3)],
            {A: ("x",)},
            "circle",
            id="old rows after the end of a write",
        ),
        pytest.param(
            [txn("x", Append(A, "x"), Append(B, "x2")), txn("y", Append(A, "y"), Append(B, "y2"))],
            {A: ("x", "y"), B: ("y2", "x2")},
            "circle",
            id="writes in two orders",
        ),
        pytest.param([], {A: ("x",)}, "nobody", id="invented"),
        pytest.param([txn("x", Append(A, "x"))], {A: ("x", "x")}, "twice", id="done twice"),
    ],
)
def test_what_no_order_explains_is_found(
    history: list[Txn], final: dict[int, tuple[str, ...]], why: str
) -> None:
    found = why_not_serial(history, final)
    assert found is not None and why in found
