"""Random but valid histories of the system tables, entry by entry, for the tests of events."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

from cairn.model.members.cluster import Cluster
from cairn.model.members.topology import (
    BucketRange,
    BucketState,
    ConnectionType,
    Grade,
    Instance,
    Position,
    Replicaset,
    ReplicasetState,
    State,
    Tier,
)
from cairn.model.tables import rows
from cairn.model.tables import system_tables as system

BUCKETS = 60
KEYS: dict[int, Callable[[Any], Any]] = {
    system.PICO_BUCKET.id: lambda row: (row[0], row[1]),
    system.PICO_PEER_ADDRESS.id: lambda row: (row[0], row[2]),
}


class Change(NamedTuple):
    """As storage reports it."""

    table: int
    old: tuple[Any, ...] | None
    new: tuple[Any, ...] | None


class Entry(NamedTuple):
    position: Position
    changes: list[Change]
    before: Cluster
    after: Cluster


class History:
    """The tables as rows, and the list of entries that made them."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.tables: dict[int, dict[Any, tuple[Any, ...]]] = {
            table.id: {} for table in system.GLOBAL_TABLES
        }
        self.position = Position(1, 0)
        self.entries: list[Entry] = []
        self._changes: list[Change] = []
        self._raft_id = 0
        self.put(system.PICO_TIER, rows.tier_row(Tier("default", 2, bucket_count=BUCKETS)))
        self.put(system.PICO_PROPERTY, ("cluster_uuid", json.dumps("the-cluster")))
        self.join()
        self.commit()

    # --- writing ------------------------------------------------------------------------------

    def put(self, table: Any, row: tuple[Any, ...]) -> None:
        key = KEYS.get(table.id, lambda row: row[0])(row)
        old = self.tables[table.id].get(key)
        self.tables[table.id][key] = row
        self._changes.append(Change(table.id, old, row))

    def drop(self, table: Any, key: Any) -> None:
        old = self.tables[table.id].pop(key, None)
        if old is not None:
            self._changes.append(Change(table.id, old, None))

    def commit(self) -> Entry:
        """Close the entry. Terms rise now and then, and indexes have holes."""
        term = self.position.term + (self.chance.random() < 0.1)
        before = self.entries[-1].after if self.entries else Cluster()
        self.position = Position(term, self.position.index + self.chance.choice((1, 1, 1, 2, 5)))
        entry = Entry(self.position, self._changes, before, self.cluster())
        self.entries.append(entry)
        self._changes = []
        return entry

    def cluster(self) -> Cluster:
        """The catalogue, read from the rows as a server does."""

        def content(table: Any) -> dict[Any, tuple[Any, ...]]:
            return self.tables[table.id]

        buckets = [rows.bucket_of_row(row) for row in content(system.PICO_BUCKET).values()]
        properties = content(system.PICO_PROPERTY).values()
        return Cluster(
            position=self.position,
            instances={
                key: rows.instance_of(row) for key, row in content(system.PICO_INSTANCE).items()
            },
            replicasets={
                key: rows.replicaset_of(row) for key, row in content(system.PICO_REPLICASET).items()
            },
            tiers={key: rows.tier_of(row) for key, row in content(system.PICO_TIER).items()},
            addresses={key: row[1] for key, row in content(system.PICO_PEER_ADDRESS).items()},
            buckets=tuple(sorted(buckets, key=lambda each: (each.tier, each.start))),
            properties={key: json.loads(value) for key, value in properties},
        )

    # --- things that happen -------------------------------------------------------------------

    def step(self) -> Entry:
        """One entry with one to three things in it."""
        for _ in range(self.chance.choice((1, 1, 2, 3))):
            self.chance.choice(ACTIONS)(self)
        return self.commit()

    def instances(self) -> list[Instance]:
        return [rows.instance_of(row) for row in self.tables[system.PICO_INSTANCE.id].values()]

    def replicasets(self) -> list[Replicaset]:
        return [rows.replicaset_of(row) for row in self.tables[system.PICO_REPLICASET.id].values()]

    def buckets(self) -> list[BucketRange]:
        found = [rows.bucket_of_row(row) for row in self.tables[system.PICO_BUCKET.id].values()]
        return sorted(found, key=lambda each: each.start)

    def _edit(self, row: tuple[Any, ...], table: Any, **columns: Any) -> None:
        names = [column.name for column in table.columns]
        new = list(row)
        for name, value in columns.items():
            new[names.index(name)] = value
        self.put(table, tuple(new))

    def join(self) -> None:
        self._raft_id += 1
        number = self._raft_id
        known = self.replicasets()
        name = f"i{number}"
        if not known or self.chance.random() < 0.5:
            replicaset = Replicaset(
                name=f"r{number}",
                uuid=f"replicaset-{number}",
                current_master_name=self.chance.choice((name, "")),
                target_master_name=name,
                tier="default",
                weight=1.0,
                weight_origin="auto",
                state=ReplicasetState.READY,
            )
            self.put(system.PICO_REPLICASET, rows.replicaset_row(replicaset))
        else:
            replicaset = self.chance.choice(known)
        instance = Instance(
            name=name,
            uuid=f"instance-{number}",
            raft_id=number,
            replicaset_name=replicaset.name,
            replicaset_uuid=replicaset.uuid,
            current_state=State(Grade.OFFLINE, 0),
            target_state=State(Grade.ONLINE, 1),
            failure_domain={},
            tier="default",
            version="0.1.0",
        )
        self.put(system.PICO_INSTANCE, rows.instance_row(instance))
        for kind in ConnectionType:
            address = f"127.0.0.1:{number}{len(kind)}"
            self.put(system.PICO_PEER_ADDRESS, (number, address, kind.value))

    def change_state(self) -> None:
        instance = self.chance.choice(self.instances())
        if instance.current_state.grade is Grade.EXPELLED:
            return
        grade = self.chance.choice([grade for grade in Grade if grade is not Grade.EXPELLED])
        state = State(grade, instance.current_state.incarnation + self.chance.choice((0, 1)))
        row = self.tables[system.PICO_INSTANCE.id][instance.name]
        self._edit(row, system.PICO_INSTANCE, current_state=rows.state_json(state))

    def change_target(self) -> None:
        """Nothing that is told."""
        row = self.chance.choice(list(self.tables[system.PICO_INSTANCE.id].values()))
        state = State(self.chance.choice((Grade.ONLINE, Grade.OFFLINE)), self.chance.randint(0, 9))
        self._edit(row, system.PICO_INSTANCE, target_state=rows.state_json(state))

    def change_master(self) -> None:
        replicaset = self.chance.choice(self.replicasets())
        members = [each for each in self.instances() if each.replicaset_name == replicaset.name]
        master = self.chance.choice([*(each.name for each in members), ""])
        row = self.tables[system.PICO_REPLICASET.id][replicaset.name]
        self._edit(row, system.PICO_REPLICASET, current_master_name=master)

    def change_address(self) -> None:
        instance = self.chance.choice(self.instances())
        kind = self.chance.choice(list(ConnectionType))
        address = f"10.0.0.{self.chance.randint(1, 9)}:{instance.raft_id}"
        self.put(system.PICO_PEER_ADDRESS, (instance.raft_id, address, kind.value))

    def expel(self) -> None:
        instance = self.chance.choice(self.instances())
        row = self.tables[system.PICO_INSTANCE.id][instance.name]
        state = State(Grade.EXPELLED, instance.current_state.incarnation)
        self._edit(row, system.PICO_INSTANCE, current_state=rows.state_json(state))

    def remove_expelled(self) -> None:
        known = self.instances()
        expelled = [each for each in known if each.current_state.grade is Grade.EXPELLED]
        for instance in expelled if len(known) > len(expelled) else ():
            self.drop(system.PICO_INSTANCE, instance.name)
            for kind in ConnectionType:
                self.drop(system.PICO_PEER_ADDRESS, (instance.raft_id, kind.value))
            left = [each.replicaset_name for each in self.instances()]
            used = {each.current_replicaset for each in self.buckets()}
            used |= {each.target_replicaset for each in self.buckets() if each.target_replicaset}
            if instance.replicaset_name not in {*left, *used}:
                self.drop(system.PICO_REPLICASET, instance.replicaset_name)

    def add_tier(self) -> None:
        name = f"tier{self.chance.randint(1, 3)}"
        count = self.chance.choice((0, 100))
        self.put(system.PICO_TIER, rows.tier_row(Tier(name, 1, bucket_count=count)))

    def distribute(self) -> None:
        for each in self.buckets():
            self.drop(system.PICO_BUCKET, (each.tier, each.start))
        known = self.replicasets()
        owners = self.chance.sample(known, self.chance.randint(1, min(3, len(known))))
        share = BUCKETS // len(owners)
        for at, owner in enumerate(owners):
            end = BUCKETS if at == len(owners) - 1 else (at + 1) * share
            self._put_range(at * share + 1, end, BucketState.ACTIVE, owner.name)

    def _put_range(
        self, start: int, end: int, state: BucketState, current: str, target: str | None = None
    ) -> None:
        row = rows.bucket_row(BucketRange("default", start, end, state, current, target))
        self.put(system.PICO_BUCKET, row)

    def _some_range(self, *states: BucketState) -> BucketRange | None:
        found = [each for each in self.buckets() if each.state in states]
        return self.chance.choice(found) if found else None

    def begin_move(self) -> None:
        """Cut a part out of an active range and start to copy it."""
        found = self._some_range(BucketState.ACTIVE)
        if found is None:
            return
        others = [each.name for each in self.replicasets() if each.name != found.owner]
        if not others:
            return
        start = self.chance.randint(found.start, found.end)
        end = self.chance.randint(start, found.end)
        if start > found.start:
            self._put_range(found.start, start - 1, BucketState.ACTIVE, found.owner)
        self._put_range(start, end, BucketState.COPYING, found.owner, self.chance.choice(others))
        if end < found.end:
            self._put_range(end + 1, found.end, BucketState.ACTIVE, found.owner)

    def go_on_moving(self) -> None:
        found = self._some_range(*(state for state in BucketState if state != BucketState.ACTIVE))
        if found is None:
            return
        current, target = found.current_replicaset, found.target_replicaset
        match found.state:
            case BucketState.COPYING:
                state = self.chance.choice((BucketState.COPIED, BucketState.ABORTING_COPY))
                self._put_range(found.start, found.end, state, current, target)
            case BucketState.COPIED:
                assert target is not None
                self._put_range(found.start, found.end, BucketState.ACTIVE, target)
            case _:
                self._put_range(found.start, found.end, BucketState.ACTIVE, current)

    def merge(self) -> None:
        ranges = self.buckets()
        for left, right in pairwise(ranges):
            same = left.owner == right.owner
            if same and left.state is right.state is BucketState.ACTIVE:
                self.drop(system.PICO_BUCKET, (right.tier, right.start))
                self._put_range(left.start, right.end, BucketState.ACTIVE, left.owner)
                return


ACTIONS: list[Callable[[History], None]] = [
    History.join,
    History.change_state,
    History.change_state,
    History.change_target,
    History.change_master,
    History.change_address,
    History.expel,
    History.remove_expelled,
    History.add_tier,
    History.distribute,
    History.begin_move,
    History.begin_move,
    History.go_on_moving,
    History.go_on_moving,
    History.go_on_moving,
    History.merge,
]
