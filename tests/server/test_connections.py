"""Strangers who only hold the door give way to whoever knows a password."""

from __future__ import annotations

import socket
from contextlib import ExitStack

import pytest

from cairn.model.errors import CairnError, TooManyConnections
from cairn.net.places import MOST_CLIENTS
from cairn.server import connections
from cairn.server.connections import Connections
from tests.cluster.harness import Cluster, eventually
from tests.server.test_rules import setting

LATER = connections.YOUNG_S + 1


class Door:
    """Connections as the listener counts them, each by its number."""

    def __init__(self, most: int = MOST_CLIENTS, **limits: int) -> None:
        self.connections = Connections(lambda name: limits.get(name, 0), most)
        self.ended: list[object] = []
        self._from: dict[object, str] = {}

    def opens(self, who: object, address: str, now: float) -> None:
        def end(problem: CairnError) -> None:
            assert problem.sqlstate == TooManyConnections.sqlstate
            self.ended.append(who)

        self._from[who] = address
        self.connections.opened(address, who, end, now)

    def logs_in(self, who: object, *, is_limited: bool = True) -> None:
        self.connections.logged_in(self._from[who], who, "ann", is_limited=is_limited)

    def closes(self, who: object, user: str | None = None) -> None:
        self.connections.closed(self._from[who], who, user)


def test_the_oldest_of_an_address_with_too_many_gives_way() -> None:
    door = Door(pg_logins_per_address_max=2)
    for who in (1, 2):
        door.opens(who, "a", 0.0)
    door.opens(3, "b", 0.0)
    door.opens(4, "a", LATER)
    assert door.ended == [1]


def test_files_are_left_for_peers_and_rows_where_a_process_may_open_few() -> None:
    """With a hard limit of 2,000 files, 2,000 strangers took them all, and nobody else came in."""
    door = Door(6)
    for who in range(7):
        door.opens(who, "a", 0.0)
    assert door.ended == [0]


def test_places_are_kept_for_the_admin() -> None:
    """Users could take them all: then nobody was let in to look at them."""
    door = Door(8)
    for who in range(5):
        door.opens(who, "a", 0.0)
        door.logs_in(who)
    door.opens("ann", "a", 0.0)
    with pytest.raises(TooManyConnections, match="kept for the admin"):
        door.logs_in("ann")
    door.opens("admin", "b", 0.0)
    door.logs_in("admin", is_limited=False)
    door.closes("ann", "ann")
    for who in (0, 1):
        door.closes(who, "ann")
    door.opens("ann", "a", 0.0)
    door.logs_in("ann")


def test_addresses_of_a_network_of_ipv6_are_one() -> None:
    door = Door(pg_connections_per_address_max=2)
    for who in (1, 2):
        door.opens(who, f"2001:db8::{who}", 0.0)
    door.opens("other", "2001:db8:0:1::1", 0.0)
    with pytest.raises(TooManyConnections):
        door.opens(3, "2001:db8::3", 0.0)


def test_of_all_addresses_the_one_with_most_gives_way() -> None:
    door = Door(pg_logins_max=4)
    door.opens("mine", "b", 0.0)
    for who in range(10):
        door.opens(who, "a", LATER * (who + 1))
    assert door.ended == [0, 1, 2, 3, 4, 5, 6]
    door.opens("other", "c", LATER * 20)
    assert "mine" not in door.ended and "other" not in door.ended


def test_many_who_come_together_are_let_in_together() -> None:
    door = Door(pg_logins_max=10, pg_logins_per_address_max=5)
    for who in range(1_000):
        door.opens(who, "a", 0.5)
    assert door.ended == []
    for who in range(1_000):
        door.logs_in(who)
    door.opens("next", "a", LATER)
    assert door.ended == []  # nobody waits any more


def test_who_has_logged_in_or_gone_does_not_count() -> None:
    door = Door(pg_logins_per_address_max=2)
    for who in range(4):
        door.opens(who, "a", LATER * who)
        door.logs_in(who) if who % 2 else door.closes(who)
    assert door.ended == []


def test_a_full_instance_makes_room_for_the_next() -> None:
    door = Door(3)
    door.opens("ann", "b", 0.0)
    door.logs_in("ann")
    for who in range(5):
        door.opens(who, "a", 0.0)
        for gone in door.ended[-1:]:
            door.closes(gone)
    assert door.ended == [0, 1, 2]
    for who in (3, 4):
        door.logs_in(who, is_limited=False)
    with pytest.raises(TooManyConnections):
        door.opens("late", "b", 0.0)


def test_the_setting_ends_connections_that_say_nothing(cluster: Cluster) -> None:
    node = cluster["i1"]
    with setting(node, "pg_logins_per_address_max", "3"), ExitStack() as stack:
        held: list[socket.socket] = []

        def is_one_ended() -> bool:
            held.append(
                stack.enter_context(socket.create_connection(("127.0.0.1", node.pg_port), 10))
            )
            assert node.sql("SELECT 1") == [(1,)]  # who has the password is always let in
            held[0].settimeout(0.1)
            try:
                return b"gave way" in held[0].recv(1000)
            except TimeoutError:
                return False

        eventually(is_one_ended, "the first gives way")
