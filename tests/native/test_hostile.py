"""Hostile input for the compiled part, for a moment; `make sanitize` does it under sanitizers."""

from __future__ import annotations

import random

import pytest

from cairn.native.library import library

pytestmark = pytest.mark.skipif(library() is None, reason="there was no compiler")


LONG = ("functions", "decimals", "twins", "messages")  # each goes through many calls


@pytest.mark.parametrize(
    "name", ["lines", "columns", "packed", "pages", "reals", *LONG, "groups", "no_memory"]
)
def test_nothing_that_c_is_given_ends_the_process_or_is_misread(name: str) -> None:
    from tests.native.hostile import STEPS

    for number in range(10 if name in LONG else 150):
        STEPS[name](random.Random(f"1.{name}.{number}"))


def test_each_step_of_the_attack_is_among_them() -> None:
    from tests.native.hostile import STEPS

    assert list(STEPS) == [
        "lines",
        "columns",
        "packed",
        "pages",
        "reals",
        *LONG,
        "groups",
        "no_memory",
    ]
