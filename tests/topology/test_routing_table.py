"""The routing table's own rules: intervals, batches, the swap, and who is never called again."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cairn.model.members.events import (
    AnyEvent,
    EventBuckets,
    EventInstance,
    EventReplicaset,
    Hello,
    Range,
    SnapshotEnd,
    TierFacts,
)
from cairn.model.members.topology import Position
from cairn.topology.routing_table import OtherCluster, RoutingTable
from cairn.topology.view import Intervals, Served


def buckets(start: int, end: int, owner: str, index: int = 2, **more: Any) -> EventBuckets:
    return EventBuckets(
        "replace",
        "bucket",
        "",
        Position(1, index),
        "default",
        "active",
        Range(start, end),
        owner,
        **more,
    )


def instance(uuid: str, index: int = 1, op: str = "replace", **fields: Any) -> EventInstance:
    return EventInstance(op, "instance", "", Position(1, index), instance_uuid=uuid, **fields)


def replicaset(uuid: str, index: int = 1, op: str = "replace", **fields: Any) -> EventReplicaset:
    return EventReplicaset(op, "replicaset", "", Position(1, index), uuid, **fields)


SNAPSHOT: list[AnyEvent] = [
    replicaset("r1", current_master_uuid="i1"),
    replicaset("r2", current_master_uuid="i2"),
    instance("i1", replicaset_uuid="r1", current_state="Online", address="h:1"),
    instance("i2", replicaset_uuid="r2", current_state="Online", address="h:2"),
    buckets(1, 3000, "r1", index=1),
]


def fed(events: list[AnyEvent] = SNAPSHOT, **settings: Any) -> RoutingTable:
    table = RoutingTable(**settings)
    connect(table, events)
    return table


def connect(table: RoutingTable, events: list[AnyEvent]) -> bool:
    table.connecting()
    for event in events:
        table.receive(event, 0.0)
    return table.ready(0.0)


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 10), st.sampled_from("abc-"))))
def test_intervals_hold_what_was_written_last(writes: list[tuple[int, int, str]]) -> None:
    intervals, model = Intervals(), dict[int, Served]()
    for start, length, owner in writes:
        value = None if owner == "-" else Served("active", owner)
        intervals.set(start, start + length, value)
        for bucket in range(start, start + length + 1):
            model.pop(bucket, None)
            if value is not None:
                model[bucket] = value
    assert {b: v for b in range(60) if (v := intervals.get(b)) is not None} == model
    flat = [b for start, end, _ in intervals.ranges() for b in range(start, end + 1)]
    assert flat == sorted(model)


def test_an_event_for_part_of_a_range_cuts_it() -> None:
    table = fed(batch_records=1)
    table.receive(buckets(100, 200, "r2"), 0.0)
    assert [table.owner("default", b) for b in (99, 100, 200, 201)] == ["r1", "r2", "r2", "r1"]
    assert table.master_address("default", 150) == "h:2"
    assert table.bucket_count("default") == 3000


def test_bucket_events_wait_for_the_batch_and_others_do_not() -> None:
    table = fed(batch_records=3, batch_age_s=15.0)
    table.receive(buckets(1, 10, "r2"), 5.0)
    table.receive(replicaset("r1", index=3, current_master_uuid="i2"), 6.0)
    assert table.owner("default", 1) == "r1"
    assert table.view.replicasets["r1"].master_uuid == "i2"
    assert table.batch.deadline == 20.0
    table.tick(19.9)
    assert table.owner("default", 1) == "r1"
    table.tick(20.0)
    assert table.owner("default", 1) == "r2"
    for at in (1, 2, 3):
        table.receive(buckets(at * 100, at * 100, "r2", index=3), 30.0)
    assert table.owner("default", 300) == "r2" and table.batch.deadline is None


def test_the_end_of_a_replicaset_flushes_the_batch_first() -> None:
    table = fed()
    table.receive(buckets(1, 3000, "r2"), 0.0)
    table.receive(replicaset("r1", index=3, op="delete"), 0.0)
    assert table.owner("default", 7) == "r2"


def test_older_events_are_dropped_and_equal_positions_are_not() -> None:
    table = fed()
    table.receive(instance("i1", index=5, current_state="Offline"), 0.0)
    table.receive(instance("i1", index=4, current_state="Online"), 0.0)
    table.receive(instance("i2", index=5, current_state="Offline"), 0.0)
    assert not table.online() and table.dropped == 1


def test_queries_go_on_with_the_old_view_until_the_new_one_is_whole() -> None:
    table = fed()
    table.connecting()
    table.receive(SNAPSHOT[0], 0.0)
    assert table.owner("default", 1) == "r1"
    table.lost()
    assert table.owner("default", 1) == "r1"
    connect(table, [replicaset("r9"), buckets(1, 3000, "r9", index=1)])
    assert table.owner("default", 1) == "r9" and set(table.view.replicasets) == {"r9"}


def test_a_provider_that_is_behind_is_trusted_but_the_expelled_are_not_called() -> None:
    table = fed()
    table.receive(instance("i2", index=9, current_state="Expelled"), 0.0)
    table.receive(instance("i2", index=10, op="delete"), 0.0)
    connect(table, SNAPSHOT)
    assert table.position == Position(1, 1)
    assert [each.uuid for each in table.online()] == ["i1"]
    assert table.master("r2") is None
    assert not table.may_contact("h:2") and table.may_contact("h:1")
    newcomer = instance("i3", index=11, current_state="Online", address="h:2")
    table.receive(newcomer, 0.0)
    assert table.may_contact("h:2")


def test_a_confirmed_resume_keeps_everything() -> None:
    hello = Hello("hello", "c", "0.2", (TierFacts("default", 3000, 2),))
    end = SnapshotEnd("snapshot_end", Position(1, 1), True)
    table = fed([hello, *SNAPSHOT, end])
    table.receive(buckets(1, 10, "r2", index=2, n=1, last=True), 0.0)
    assert table.resume_after == Position(1, 2)
    more = instance("i1", index=3, current_state="Offline", n=1, last=True)
    assert not connect(table, [hello, more, SnapshotEnd("snapshot_end", Position(1, 4), False)])
    assert table.owner("default", 1) == "r2" and table.owner("default", 11) == "r1"
    assert table.resume_after == Position(1, 4) and table.snapshots == 1


def test_half_an_entry_has_no_effect_and_does_not_move_the_resume_position() -> None:
    table = fed([*SNAPSHOT, SnapshotEnd("snapshot_end", Position(1, 1), True)])
    table.receive(instance("i1", index=2, current_state="Offline", n=1), 0.0)
    assert table.view.instances["i1"].is_online
    assert table.resume_after == Position(1, 1)
    table.lost()
    table.receive(instance("i2", index=2, current_state="Offline", n=2, last=True), 0.0)
    assert table.view.instances["i1"].is_online


def test_another_cluster_is_refused_and_changes_nothing() -> None:
    table = fed([Hello("hello", "ours", "0.2"), *SNAPSHOT])
    table.connecting()
    with pytest.raises(OtherCluster):
        table.receive(Hello("hello", "theirs", "0.2"), 0.0)
    table.lost()
    assert table.owner("default", 1) == "r1"


def test_listeners_hear_what_took_effect_and_may_fail() -> None:
    table = fed()
    heard: list[AnyEvent] = []

    def broken(event: AnyEvent) -> None:
        raise ValueError(event)

    table.listeners += [broken, heard.append]
    offline = instance("i1", index=2, current_state="Offline")
    table.receive(offline, 0.0)
    table.receive(buckets(1, 2, "r2"), 0.0)
    assert heard == [offline]
    table.flush()
    assert len(heard) == 2


def test_events_that_come_with_ready_for_query_are_live_ones() -> None:
    table = RoutingTable()
    end = SnapshotEnd("snapshot_end", Position(1, 1), True)
    half = instance("i1", index=2, current_state="Offline", n=1)
    assert connect(table, [*SNAPSHOT, end, half])
    assert table.view.instances["i1"].is_online and table.resume_after == Position(1, 1)
    table.receive(instance("i2", index=2, current_state="Offline", n=2, last=True), 0.0)
    assert not table.online() and table.resume_after == Position(1, 2)
