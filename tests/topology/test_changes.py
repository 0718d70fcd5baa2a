"""Single entries and the events they make, compared as JSON objects with examples."""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path
from typing import Any

from cairn.model.members.events import Version, decode, encode
from cairn.model.members.topology import BucketState, Grade, State
from cairn.model.tables import rows
from cairn.model.tables import system_tables as system
from cairn.topology.changes import difference, events_of
from cairn.topology.snapshot import snapshot_events

sys.path.insert(0, str(Path(__file__).parent))
from histories import History

NOW = "2025-08-19T11:24:28+00:00"


def two_instances() -> History:
    """i1 is Online and master of r1, i2 the same of r2; r1 has all buckets."""
    history = History(random.Random(1))
    while len(history.replicasets()) < 2 or len(history.instances()) < 2:
        history = History(random.Random(history.chance.random()))
        history.join()
        history.commit()
    for number in (1, 2):
        set_state(history, f"i{number}", Grade.ONLINE, 1)
        row = history.tables[system.PICO_REPLICASET.id][f"r{number}"]
        history.put(system.PICO_REPLICASET, (*row[:2], f"i{number}", *row[3:]))
    history._put_range(1, 60, BucketState.ACTIVE, "r1")
    history.commit()
    return history


def set_state(history: History, name: str, grade: Grade, incarnation: int) -> None:
    row = history.tables[system.PICO_INSTANCE.id][name]
    text = rows.state_json(State(grade, incarnation))
    history.put(system.PICO_INSTANCE, (*row[:5], text, *row[6:]))


def told(history: History, version: Version = "0.1") -> list[dict[str, Any]]:
    """The events of the entry that is being written, without what is the same in all of them."""
    entry = history.commit()
    events = events_of(
        entry.changes,
        entry.before,
        entry.after,
        position=entry.position,
        timestamp=NOW,
        version=version,
    )
    found = [json.loads(encode(event)) for event in events]
    for each in found:
        assert each.pop("timestamp") == NOW
        assert each.pop("raft") == {"term": entry.position.term, "index": entry.position.index}
    return found


def test_fields_come_in_the_order_of_the_seeds_examples() -> None:
    history = two_instances()
    set_state(history, "i1", Grade.OFFLINE, 1)
    entry = history.commit()
    about: Any = {"position": entry.position, "timestamp": NOW, "version": "0.1"}
    (event,) = events_of(entry.changes, entry.before, entry.after, **about)
    raft = f'{{"term":{entry.position.term},"index":{entry.position.index}}}'
    assert encode(event) == (
        f'{{"op":"replace","map":"instance","timestamp":"{NOW}","raft":{raft},'
        '"instance_uuid":"instance-1","current_state":"Offline"}'
    )


def test_a_joining_instance_is_one_event_with_all_fields_after_its_replicaset() -> None:
    history = two_instances()
    while len(history.replicasets()) < 3:
        history._changes.clear()
        history.join()
    replicaset, instance = told(history)
    number = history._raft_id
    assert replicaset["map"] == "replicaset" and replicaset["op"] == "replace"
    assert instance == {
        "op": "replace",
        "map": "instance",
        "tier": "default",
        "replicaset_uuid": f"replicaset-{number}",
        "instance_uuid": f"instance-{number}",
        "current_state": "Offline",
        "address": f"127.0.0.1:{number}7",
    }


def test_grades_on_the_way_up_are_offline_in_0_1_and_true_in_0_2() -> None:
    history = two_instances()
    set_state(history, "i1", Grade.OFFLINE, 1)
    assert [each["current_state"] for each in told(history)] == ["Offline"]
    set_state(history, "i1", Grade.REPLICATED, 2)
    assert told(history) == []
    set_state(history, "i1", Grade.SHARDING_INITIALIZED, 3)
    assert told(history, "0.2") == [
        {
            "op": "replace",
            "map": "instance",
            "instance_uuid": "instance-1",
            "current_state": "ShardingInitialized",
            "incarnation": 3,
            "n": 1,
            "last": True,
        }
    ]
    set_state(history, "i1", Grade.ONLINE, 3)
    assert [each["current_state"] for each in told(history)] == ["Online"]


def test_an_expelled_instance_is_told_twice_and_takes_its_empty_replicaset_along() -> None:
    history = two_instances()
    set_state(history, "i2", Grade.EXPELLED, 1)
    assert [each["current_state"] for each in told(history)] == ["Expelled"]
    history.remove_expelled()
    assert told(history) == [
        {"op": "delete", "map": "instance", "instance_uuid": "instance-2"},
        {"op": "delete", "map": "replicaset", "replicaset_uuid": "replicaset-2"},
    ]


def test_only_the_pgproto_address_is_told() -> None:
    history = two_instances()
    history.put(system.PICO_PEER_ADDRESS, (1, "10.0.0.1:9", "iproto"))
    assert told(history) == []
    history.put(system.PICO_PEER_ADDRESS, (1, "10.0.0.1:9", "pgproto"))
    assert told(history) == [
        {
            "op": "replace",
            "map": "instance",
            "instance_uuid": "instance-1",
            "address": "10.0.0.1:9",
        }
    ]


def test_losing_the_master_is_not_told_and_a_new_one_is() -> None:
    history = two_instances()
    row = history.tables[system.PICO_REPLICASET.id]["r1"]
    history.put(system.PICO_REPLICASET, (*row[:2], "", *row[3:]))
    assert told(history) == []
    history.put(system.PICO_REPLICASET, row)
    assert told(history) == [
        {
            "op": "replace",
            "map": "replicaset",
            "replicaset_uuid": "replicaset-1",
            "current_master_uuid": "instance-1",
        }
    ]


def test_a_move_is_one_event_in_0_1_and_its_whole_story_in_0_2() -> None:
    history = two_instances()
    history._put_range(1, 20, BucketState.COPYING, "r1", "r2")
    history._put_range(21, 60, BucketState.ACTIVE, "r1")
    entry = history.entries[-1]
    assert told(history) == []
    stories = {"0.1": [], "0.2": []}  # type: ignore[var-annotated]
    for state, owner, target in (
        (BucketState.COPIED, "r1", "r2"),
        (BucketState.ACTIVE, "r2", None),
    ):
        history._put_range(1, 20, state, owner, target)
        entry = history.commit()
        for version, story in stories.items():
            about: Any = {"position": entry.position, "timestamp": NOW, "version": version}
            events = events_of(entry.changes, entry.before, entry.after, **about)
            story += [(each.state, each.current_replicaset_uuid) for each in events]  # type: ignore
    assert stories["0.1"] == [("copied", "replicaset-2")]
    assert stories["0.2"] == [("copied", "replicaset-2"), ("active", "replicaset-2")]


def test_the_first_distribution_is_told_as_active() -> None:
    history = two_instances()
    history._put_range(1, 30, BucketState.ACTIVE, "r1")
    history._put_range(31, 60, BucketState.ACTIVE, "r2")
    assert told(history) == [
        {
            "op": "replace",
            "map": "bucket",
            "tier": "default",
            "state": "active",
            "bucket_id": {"start": 31, "end": 60},
            "current_replicaset_uuid": "replicaset-2",
        }
    ]


def test_cutting_and_merging_ranges_is_not_told() -> None:
    history = two_instances()
    history._put_range(1, 30, BucketState.ACTIVE, "r1")
    history._put_range(31, 60, BucketState.ACTIVE, "r1")
    assert told(history, "0.2") == []


def test_the_0_1_snapshot_covers_every_bucket_as_active() -> None:
    history = two_instances()
    history._put_range(1, 20, BucketState.COPIED, "r1", "r2")
    history._put_range(21, 40, BucketState.COPYING, "r1", "r2")
    history._put_range(41, 60, BucketState.ACTIVE, "r1")
    entry = history.commit()
    events = snapshot_events(entry.after, position=entry.position, timestamp=NOW, version="0.1")
    found = [json.loads(encode(event)) for event in events]
    assert [each["map"] for each in found] == ["replicaset"] * 2 + ["instance"] * 2 + ["bucket"] * 2
    assert all(decode(encode(event)) == event for event in events)
    ranges = [(each["bucket_id"], each["current_replicaset_uuid"]) for each in found[4:]]
    assert ranges == [
        ({"start": 1, "end": 20}, "replicaset-2"),
        ({"start": 21, "end": 60}, "replicaset-1"),
    ]
    assert {each["state"] for each in found[4:]} == {"active"}


def test_an_installed_snapshot_tells_who_is_gone() -> None:
    history = two_instances()
    before = history.cluster()
    set_state(history, "i2", Grade.EXPELLED, 1)
    history.remove_expelled()
    after = history.commit().after
    events = difference(before, after, position=after.position, timestamp=NOW, version="0.2")
    assert [(each.op, each.map, each.n, each.last) for each in events] == [  # type: ignore
        ("delete", "instance", 1, False),
        ("delete", "replicaset", 2, True),
    ]


def test_what_is_no_event_of_ours_is_skipped() -> None:
    assert decode('{"map":"moon","op":"replace"}') is None
    assert decode('{"map":"instance","op":"explode","instance_uuid":"i"}') is None
    assert decode('{"type":"PreparedStatementMetadata","query":"SELECT 1"}') is None
    assert decode("checkpoint done") is None
    assert decode('{"map":"bucket","op":"replace"}') is None
    later = '{"map":"heartbeat","raft":{"term":1,"index":2},"mood":"fine"}'
    assert decode(later) is not None
