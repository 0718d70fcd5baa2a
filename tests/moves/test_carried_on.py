"""What instances make of the map of buckets follows its changes, and is the same as made anew.

`python -m tests.moves.test_carried_on` measures one bucket event with many ranges.
"""

from __future__ import annotations

import random
import time

import msgspec
import pytest

from cairn.model.members.cluster import BucketKey, Cluster
from cairn.model.members.topology import BucketRange, BucketState, Position
from cairn.model.sharding.spans import merged, spliced, subtract
from cairn.moves import ranges
from cairn.node.rows.data_plane import fence_after, fence_of
from cairn.node.rows.routes import Routes
from tests.moves.maps import cluster_of, row

STATES = (BucketState.ACTIVE, BucketState.COPYING, BucketState.COPIED, BucketState.ABORTING_COPY)


def changed(cluster: Cluster, chance: random.Random, count: int) -> tuple[Cluster, set[BucketKey]]:
    """Some pieces get another owner or state; now and then neighbours become one."""
    before = list(cluster.buckets)
    after = before
    for _ in range(chance.randint(1, 3)):
        start = chance.randint(1, count)
        end = min(count, start + chance.randint(0, 6))
        state = chance.choice(STATES)
        piece = row(
            *(start, end, chance.choice("stu")),
            state=state,
            target_replicaset=None if state is BucketState.ACTIVE else chance.choice("stu"),
            frozen_at=chance.choice((None, None, 5)),
        )
        after = ranges.replaced(after, piece)
    if chance.random() < 0.5:
        after = ranges.merged(after)
    old = {(each.tier, each.start): each for each in before}
    new = {(each.tier, each.start): each for each in after}
    touched = {key for key in old.keys() | new.keys() if old.get(key) != new.get(key)}
    index = cluster.position.index + 1
    return (
        msgspec.structs.replace(cluster, buckets=tuple(after), position=Position(2, index)),
        touched,
    )


def parts(routes: Routes) -> tuple[object, ...]:
    return routes._starts, routes._owners, routes._ranges


@pytest.mark.parametrize("seed", range(20))
def test_routes_and_fences_that_are_carried_on_are_those_made_anew(seed: int) -> None:
    chance = random.Random(seed)
    cluster = cluster_of(count=60, sets="stu")
    routes, fence = Routes(cluster), fence_of("s1", cluster)
    for _ in range(100):
        new, touched = changed(cluster, chance, 60)
        kept = parts(Routes(cluster))
        fence = fence_after("s1", cluster, fence, new, touched)
        following = routes.after(new, touched)
        assert parts(routes) == kept, f"what a statement holds has changed, seed {seed}"
        assert parts(following) == parts(Routes(new)), f"seed {seed}"
        assert fence == fence_of("s1", new), f"seed {seed}"
        cluster, routes = new, following


def test_all_ranges_of_a_tier_may_come_and_go() -> None:
    full = cluster_of(count=60)
    none = msgspec.structs.replace(full, buckets=())
    key = {("default", 1)}
    assert parts(Routes(none).after(full, key)) == parts(Routes(full))
    assert parts(Routes(full).after(none, key)) == parts(Routes(none))


def test_a_replicaset_that_comes_back_is_not_given_what_it_had_before() -> None:
    full = cluster_of(count=60)
    gone = msgspec.structs.replace(full, replicasets={})
    fence = fence_after("s1", full, fence_of("s1", full), gone, ())
    assert fence == fence_of("s1", gone)
    assert fence_after("s1", gone, fence, full, ()) == fence_of("s1", full)


@pytest.mark.parametrize("seed", range(20))
def test_spans_are_put_in_and_taken_out_near_where_they_are(seed: int) -> None:
    chance = random.Random(seed)
    found = merged((start, start + chance.randint(0, 3)) for start in chance.sample(range(90), 12))
    for _ in range(200):
        spans = [(start, start + chance.randint(0, 8)) for start in chance.sample(range(95), 3)]
        at = chance.randint(0, 3)
        out, into = spans[:at], spans[at:]
        wanted = merged((*subtract(found, out), *into))
        found = spliced(found, out, into)
        assert found == wanted, f"seed {seed}"


def event_ms(count: int, times: int = 20) -> float:
    """One bucket event in a tier of that many ranges, everybody's in turn."""
    rows = tuple(row(at + 1, at + 1, "st"[at % 2]) for at in range(count))
    cluster = cluster_of(*rows, count=count)
    routes, fence = Routes(cluster), fence_of("s1", cluster)
    spent = 0.0
    for at in range(times):
        buckets = list(cluster.buckets)
        place = count // 2 + at
        old: BucketRange = buckets[place]
        buckets[place] = msgspec.structs.replace(old, current_replicaset="s")
        new = msgspec.structs.replace(cluster, buckets=tuple(buckets))
        begun = time.perf_counter()
        routes = routes.after(new, {(old.tier, old.start)})
        fence = fence_after("s1", cluster, fence, new, {(old.tier, old.start)})
        spent += time.perf_counter() - begun
        cluster = new
    return 1000 * spent / times


if __name__ == "__main__":
    for ranges_count in (300, 3_000, 30_000):
        print(f"{ranges_count} ranges: {event_ms(ranges_count):.3f} ms for one bucket event")
