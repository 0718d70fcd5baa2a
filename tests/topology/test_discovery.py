"""At most one instance founds the cluster, whatever the network does."""

from __future__ import annotations

import random
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cairn.model.rpc import DiscoverRequest, DiscoverResponse
from cairn.topology.discovery import Discovery, DiscoveryState


class Flight(NamedTuple):
    """A message on its way: a request, or an answer to the asker."""

    to: str
    asker: str
    body: DiscoverRequest | DiscoverResponse


class World:
    """Instances by address, messages in flight, and durable states for restarts."""

    def __init__(self, peers: dict[str, tuple[str, ...]], non_voters: frozenset[str]) -> None:
        self.peers, self.non_voters = peers, non_voters
        self.disk = {a: DiscoveryState(f"guid-{a}", ()) for a in peers}
        self.up: dict[str, Discovery] = {}
        self.flights: list[Flight] = []

    def start(self, address: str) -> None:
        self.up[address] = Discovery(
            self.disk[address],
            own_address=address,
            can_vote=address not in self.non_voters,
            peers=self.peers[address],
        )
        self.disk[address] = self.up[address].state

    def ask(self, address: str) -> None:
        core = self.up[address]
        for other in core.to_ask():
            self.flights.append(Flight(other, address, core.request(other)))

    def deliver(self, flight: Flight) -> None:
        if isinstance(flight.body, DiscoverRequest):
            receiver = self.up.get(flight.to)
            if receiver is None:
                return
            answer = receiver.handle_request(flight.body)
            self.disk[flight.to] = receiver.state  # durable before it is sent
            self.flights.append(Flight(flight.to, flight.asker, answer))
        else:
            asker = self.up.get(flight.asker)
            if asker is not None:
                asker.handle_response(flight.to, flight.body)
                self.disk[flight.asker] = asker.state

    def founders(self) -> list[str]:
        return [a for a, state in self.disk.items() if state.founder]

    def settle(self, rounds: int = 50) -> None:
        for _ in range(rounds):
            for address in self.up:
                self.ask(address)
            flights, self.flights = self.flights, []
            for flight in flights:
                self.deliver(flight)
            answers, self.flights = self.flights, []
            for flight in answers:
                self.deliver(flight)


def world(non_voters: frozenset[str] = frozenset(), **peers: str) -> World:
    return World({a: tuple(listed.split(",")) for a, listed in peers.items()}, non_voters)


def test_one_instance_alone_founds_a_cluster_at_once() -> None:
    cluster = world(i1="i1")
    cluster.start("i1")
    assert cluster.up["i1"].is_founder


def test_three_instances_with_the_same_list_agree_on_the_smallest_guid() -> None:
    cluster = world(i1="i1,i2,i3", i2="i1,i2,i3", i3="i1,i2,i3")
    for address in ("i3", "i2", "i1"):
        cluster.start(address)
    cluster.settle()
    assert cluster.founders() == ["i1"]
    assert [core.leader for core in cluster.up.values()] == ["i1"] * 3


def test_an_instance_that_was_not_heard_holds_up_the_founding_and_is_named() -> None:
    cluster = world(i1="i1,i2", i2="i1,i2")
    cluster.start("i1")
    cluster.settle()
    assert cluster.founders() == []
    assert cluster.up["i1"].silent() == ["i2"]


def test_a_late_comer_is_told_who_founded() -> None:
    cluster = world(i1="i1", i2="i1", i9="i2")
    cluster.start("i1")
    cluster.start("i2")
    cluster.start("i9")
    cluster.settle()
    assert cluster.founders() == ["i1"]
    assert cluster.up["i9"].leader == "i1"


def test_one_that_may_not_vote_never_founds() -> None:
    cluster = world(frozenset({"i1"}), i1="i1,i2", i2="i1,i2")
    cluster.start("i1")
    cluster.start("i2")
    cluster.settle()
    assert cluster.founders() == ["i2"]


def test_only_non_voters_wait_and_say_so() -> None:
    cluster = world(frozenset({"i1"}), i1="i1")
    cluster.start("i1")
    cluster.settle()
    assert cluster.founders() == []


def test_an_instance_reachable_under_two_addresses_is_counted_once() -> None:
    core = Discovery(
        DiscoveryState("a", ()), own_address="i1", can_vote=True, peers=("i1", "localhost")
    )
    assert core.to_ask() == ["localhost"]
    request = core.request("localhost")
    core.handle_response("localhost", core.handle_request(request))
    assert core.is_founder


def test_a_founder_stays_one_after_a_crash() -> None:
    cluster = world(i1="i1", i2="i1,i2")
    cluster.start("i1")
    cluster.start("i1")
    cluster.start("i2")
    cluster.settle()
    assert cluster.founders() == ["i1"]


def explore(cluster: World, order: list[str]) -> int:
    """Every interleaving of deliveries and losses, depth first; returns how many ended."""
    import copy

    ended = 0
    stack = [(cluster, order, 0)]
    seen: set[object] = set()
    while stack:
        here, to_start, asked = stack.pop()
        mark = (
            tuple(
                sorted(
                    (a, repr(c.state), repr(sorted(c._answers.items()))) for a, c in here.up.items()
                )
            ),
            tuple(sorted(map(repr, here.flights))),
            tuple(to_start),
            asked,
        )
        if mark in seen:
            continue
        seen.add(mark)
        assert len(here.founders()) <= 1, here.disk
        moves = 0
        if to_start:
            after = copy.deepcopy(here)
            after.start(to_start[0])
            after.ask(to_start[0])
            stack.append((after, to_start[1:], asked))
            moves += 1
        for at in range(len(here.flights)):
            after = copy.deepcopy(here)
            flight = after.flights.pop(at)
            after.deliver(flight)
            stack.append((after, to_start, asked))
            moves += 1
        if not moves and asked < 2:
            after = copy.deepcopy(here)
            for address in after.up:
                after.ask(address)
            stack.append((after, to_start, asked + 1))
            moves += 1
        ended += not moves
        assert len(seen) < 200_000
    return ended


@pytest.mark.parametrize(
    "peers",
    [
        {"i1": "i1,i2", "i2": "i1,i2"},
        {"i1": "i1", "i2": "i1"},
        {"i1": "i2", "i2": "i1"},
        {"i2": "i2,z", "i1": "i1,z", "z": "z"},
    ],
    ids=["pair", "star", "crossed", "common neighbour"],
)
def test_every_interleaving_of_a_small_cluster_has_at_most_one_founder(
    peers: dict[str, str],
) -> None:
    assert explore(world(**peers), sorted(peers, reverse=True)) > 0


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    size=st.integers(2, 6),
    hub=st.integers(0, 5),
    non_voters=st.sets(st.integers(0, 5), max_size=2),
)
def test_random_orders_losses_and_crashes_never_give_two_founders(
    seed: int, size: int, hub: int, non_voters: set[int]
) -> None:
    chance = random.Random(seed)
    names = [f"i{n}" for n in range(size)]
    common = names[hub % size]
    peers = {
        name: ",".join({common, *chance.sample(names, chance.randint(0, size))}) for name in names
    }
    cluster = world(frozenset(f"i{n}" for n in non_voters), **peers)
    for _ in range(300):
        move = chance.random()
        if move < 0.1:
            cluster.start(chance.choice(names))  # a start, or a crash and a restart
        elif move < 0.4 and cluster.up:
            cluster.ask(chance.choice(sorted(cluster.up)))
        elif cluster.flights:
            flight = cluster.flights.pop(chance.randrange(len(cluster.flights)))
            if chance.random() < 0.8:
                cluster.deliver(flight)
            if chance.random() < 0.1:
                cluster.flights.append(flight)  # a late copy
        assert len(cluster.founders()) <= 1
    for name in names:
        if name not in cluster.up:
            cluster.start(name)
    cluster.settle()
    voters = [name for name in names if name not in cluster.non_voters]
    assert len(cluster.founders()) <= 1
    if common in voters:
        assert len(cluster.founders()) == 1
