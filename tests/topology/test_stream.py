"""A routing table fed with a snapshot and events equals the catalogue, whatever happens."""

from __future__ import annotations

import random
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cairn.model.members.cluster import Cluster
from cairn.model.members.events import AnyEvent, Version, decode, encode
from cairn.model.members.topology import BucketState, ConnectionType, Grade
from cairn.topology.changes import advanced, difference, events_of
from cairn.topology.routing_table import RoutingTable
from cairn.topology.snapshot import heartbeat, hello, snapshot_end, snapshot_events

sys.path.insert(0, str(Path(__file__).parent))
from histories import BUCKETS, History

NOW = "2026-01-02T03:04:05+00:00"


class Provider:
    """An instance that has applied `at` entries of the history and streams them to one client."""

    def __init__(self, history: History, version: Version, at: int) -> None:
        self.history, self.version, self.at = history, version, at
        self.compacted = 0

    @property
    def cluster(self) -> Cluster:
        return self.history.entries[self.at].after

    def apply_next(self) -> list[AnyEvent]:
        self.at += 1
        entry = self.history.entries[self.at]
        about: Any = {"position": entry.position, "timestamp": NOW, "version": self.version}
        return list(events_of(entry.changes, entry.before, entry.after, **about))

    def install(self, at: int) -> list[AnyEvent]:
        """A Raft snapshot takes it from here to entry `at`."""
        before, self.at = self.cluster, at
        position = self.cluster.position
        return list(
            difference(before, self.cluster, position=position, timestamp=NOW, version=self.version)
        )

    def open(self, table: RoutingTable) -> list[AnyEvent] | None:
        """What a new service connection hears before ReadyForQuery; None: behind, ask another."""
        after = table.resume_after if self.version == "0.2" else None
        position = self.cluster.position
        if after is not None and after > position:
            return None
        known = [entry.position for entry in self.history.entries]
        if after is None or after not in known or known.index(after) < self.compacted:
            return snapshot_events(
                self.cluster, position=position, timestamp=NOW, version=self.version
            )
        first, last = known.index(after), self.at
        self.at = first
        events: list[AnyEvent] = [hello(self.cluster)]
        while self.at < last:
            events += self.apply_next()
        return [*events, snapshot_end(position, reset=False)]


class Client:
    """A routing table that hears everything as text, as over the wire."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.table = RoutingTable(batch_records=chance.choice((1, 3, 2000)))

    def connect(self, provider: Provider) -> bool:
        events = provider.open(self.table)
        if events is None:
            return False
        self.table.connecting()
        self.hear(events)
        self.table.ready(0.0)
        return True

    def hear(self, events: list[AnyEvent]) -> None:
        for event in events:
            text = encode(event)
            heard = decode(text)
            assert heard == event
            self.table.receive(heard, 0.0)
            if self.chance.random() < 0.1:
                self.table.receive(heard, 0.0)  # twice does no harm


def check(table: RoutingTable, cluster: Cluster, version: Version) -> None:
    table.flush()
    view = table.view
    assert view.position <= cluster.position
    assert set(view.replicasets) == {each.uuid for each in cluster.replicasets.values()}
    for row in cluster.replicasets.values():
        known = view.replicasets[row.uuid]
        master = cluster.instances.get(row.current_master_name)
        assert master is None or known.master_uuid == master.uuid
        assert version == "0.1" or (known.tier, known.name) == (row.tier, row.name)
    assert set(view.instances) == {each.uuid for each in cluster.instances.values()}
    for instance in cluster.instances.values():
        check_instance(table, instance.name, cluster, version)
    check_buckets(table, cluster, version)


def check_instance(table: RoutingTable, name: str, cluster: Cluster, version: Version) -> None:
    row = cluster.instances[name]
    known = table.view.instances[row.uuid]
    assert known.address == cluster.address(row.raft_id, ConnectionType.PGPROTO)
    assert (known.tier, known.replicaset_uuid) == (row.tier, row.replicaset_uuid)
    state = row.current_state
    if version == "0.2":
        assert (known.state, known.incarnation) == (state.grade, state.incarnation)
    else:
        told = (Grade.ONLINE, Grade.EXPELLED)
        assert known.state == (state.grade if state.grade in told else Grade.OFFLINE)


def check_buckets(table: RoutingTable, cluster: Cluster, version: Version) -> None:
    uuids = {each.name: each.uuid for each in cluster.replicasets.values()}
    known = table.view.buckets.get("default")
    if version == "0.2":
        assert table.bucket_count("default") == BUCKETS
    for row in cluster.buckets:
        for bucket in (row.start, row.end, (row.start + row.end) // 2):
            served = known and known.get(bucket)
            assert served is not None
            assert served.owner == uuids[row.owner]
            if version == "0.2":
                copying = row.state is BucketState.COPYING and row.target_replicaset
                assert served.state == row.state
                assert served.next_owner == (uuids[copying] if copying else None)


@pytest.mark.parametrize("version", ["0.1", "0.2"])
@given(seed=st.integers(0, 2**32))
@settings(max_examples=150, deadline=None)
def test_the_table_equals_the_catalogue_at_every_position(version: Version, seed: int) -> None:
    chance = random.Random(seed)
    history = History(chance)
    for _ in range(chance.randint(1, 40)):
        history.step()
    last = len(history.entries) - 1
    client = Client(chance)
    provider = Provider(history, version, chance.randint(0, last))
    assert client.connect(provider)
    check(client.table, provider.cluster, version)
    for _ in range(60):
        happening = chance.random()
        if happening < 0.75 and provider.at < last:
            client.hear(provider.apply_next())
        elif happening < 0.80 and provider.at < last:
            client.hear(provider.install(chance.randint(provider.at + 1, last)))
        elif happening < 0.85 and version == "0.2":
            client.table.receive(heartbeat(provider.cluster.position), 0.0)
        else:
            provider = reconnected(history, version, client, provider, chance)
        check(client.table, provider.cluster, version)


def reconnected(
    history: History, version: Version, client: Client, provider: Provider, chance: random.Random
) -> Provider:
    """The connection breaks, perhaps within an entry; the next provider may be anywhere."""
    last = len(history.entries) - 1
    if provider.at < last and chance.random() < 0.5:
        events = provider.apply_next()
        client.hear(events[: chance.randint(0, len(events))])
    client.table.lost()
    while True:
        chosen = Provider(history, version, chance.randint(0, last))
        chosen.compacted = chance.randint(0, last)
        if client.connect(chosen):
            return chosen


@given(seed=st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
def test_the_picture_after_an_entry_is_what_the_rows_say(seed: int) -> None:
    chance = random.Random(seed)
    history = History(chance)
    for _ in range(chance.randint(1, 30)):
        entry = history.step()
        assert advanced(entry.before, entry.changes, entry.position) == entry.after
