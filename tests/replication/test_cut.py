"""Whether what masters kept is one moment of the cluster: each way to spoil it, by value."""

from __future__ import annotations

import msgspec

from cairn.model.backups import Held
from cairn.model.members.cluster import Cluster
from cairn.model.members.topology import BucketRange, BucketState, Replicaset, ReplicasetState
from cairn.model.tables.catalog import Catalog
from cairn.model.tables.schema import Column, Sharded, Table
from cairn.model.types.values import ColumnType
from cairn.replication.cut import owners, spoilt

TABLE = Table(1024, "t", (Column("k", ColumnType.INTEGER),), ("k",), Sharded(("k",), "default"), 7)
CATALOG = Catalog(tables={"t": TABLE})


def replicaset(number: int, epoch: int) -> Replicaset:
    name, ready = f"i{number}", ReplicasetState.READY
    uuid = f"u{number}"
    return Replicaset(f"r{number}", uuid, name, name, "default", 1.0, "auto", ready, epoch)


R1, R2, EMPTY = replicaset(1, epoch=3), replicaset(2, epoch=5), replicaset(3, epoch=1)
HELD = {
    "r1": Held("r1", "i1", 3, ((1, 10),), {1024: 7}, {}, True),
    "r2": Held("r2", "i2", 5, ((11, 20),), {1024: 7}, {}, True),
}


def owned(start: int, end: int, by: str) -> BucketRange:
    return BucketRange("default", start, end, BucketState.ACTIVE, by)


def cluster(*buckets: BucketRange, r2: Replicaset = R2) -> Cluster:
    given = buckets or (owned(1, 10, "r1"), owned(11, 20, "r2"))
    return Cluster(replicasets={"r1": R1, "r2": r2, "r3": EMPTY}, buckets=given)


def told(of: Cluster, held: dict[str, Held] = HELD, *, is_changing: bool = False) -> str | None:
    return spoilt(of, CATALOG, held, is_changing=is_changing)


def test_who_owns_no_bucket_has_nothing_to_give() -> None:
    assert owners(cluster()) == ["r1", "r2"]
    assert told(cluster()) is None


def test_a_bucket_that_was_handed_over_meanwhile_makes_the_moment_void() -> None:
    moved = cluster(owned(1, 9, "r1"), owned(10, 20, "r2"))
    assert told(moved) == "buckets of r1 moved"
    to_r3 = cluster(owned(1, 10, "r1"), owned(11, 20, "r3"))
    assert told(to_r3) == "r3 has buckets since a moment ago"


def test_a_master_that_changed_makes_the_moment_void() -> None:
    again = msgspec.structs.replace(R2, epoch=6)  # the same one, named anew
    assert told(cluster(r2=again)) == "r2 got another master"


def test_a_schema_on_its_way_makes_the_moment_void() -> None:
    assert told(cluster(), is_changing=True) == "a schema change is under way"
    behind = {**HELD, "r1": msgspec.structs.replace(HELD["r1"], versions={1024: 6})}
    assert told(cluster(), behind) == "table t is being changed at r1"
