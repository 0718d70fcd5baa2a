"""Masters are spread as evenly as their replicas allow, with no switch that is not needed."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence

import pytest

from cairn.cli.steering.spreading import Mastered, Switch, masters_of, plan


def placed(*replicasets: str) -> tuple[list[Mastered], dict[str, str]]:
    """`"a b c"` is a replicaset with its master at a, and members that are fit at b and c."""
    made, places = [], {}
    for number, text in enumerate(replicasets, 1):
        names = [f"{place}{number}" for place in text.split()]
        places |= {name: name[0] for name in names}
        made.append(Mastered(f"r{number}", names[0], names[1:]))
    return made, places


def counts(made: Sequence[Mastered], places: dict[str, str], switches: list[Switch]) -> list[int]:
    masters = {each.name: each.master for each in made}
    masters |= {each.replicaset: each.to for each in switches}
    return sorted(masters_of(masters, places).values())


@pytest.mark.parametrize(
    ("replicasets", "switches"),
    [
        (("a b", "b a"), []),
        (("a b", "a b"), [Switch("r1", "a1", "b1")]),
        (("a b c", "a b c", "a b c"), [Switch("r1", "a1", "b1"), Switch("r2", "a2", "c2")]),
        (("a", "a"), []),  # nobody else could
        (("a b", "a b", "b a"), []),  # two and one: no other way is better
        # No replica of a's is at c: it goes by b.
        (("a b", "a b", "b c"), [Switch("r1", "a1", "b1"), Switch("r3", "b3", "c3")]),
    ],
)
def test_the_shortest_ways_are_taken(replicasets: Sequence[str], switches: list[Switch]) -> None:
    assert plan(*placed(*replicasets)) == switches


def test_nothing_is_as_even_as_what_was_planned() -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    for _ in range(300):
        texts = [
            " ".join(chance.sample("abcd", chance.randint(1, 3)))
            for _ in range(chance.randint(1, 5))
        ]
        made, places = placed(*texts)
        every = itertools.product(*((each.master, *each.fit) for each in made))
        best = min(
            sum(count**2 for count in masters_of(dict(enumerate(each)), places).values())  # type: ignore[arg-type]
            for each in every
        )
        found = counts(made, places, plan(made, places))
        assert sum(count**2 for count in found) == best, (seed, texts)
