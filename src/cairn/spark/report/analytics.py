"""What the topology events and the tables say, computed in Spark. Ordered by Raft position."""

from __future__ import annotations

from typing import Any

import msgspec

from cairn.model.errors import CairnError
from cairn.spark import cluster
from cairn.spark.helpers import read_table
from cairn.spark.options import Options
from cairn.spark.report.histories import changed_keys, lasting, with_unrecorded
from cairn.spark.report.skew import measure
from cairn.spark.tables import describe

_EVENTS = "SELECT term, index, n, timestamp, body FROM _cairn_event"
_BODY = (
    "map string, op string, instance_uuid string, replicaset_uuid string, name string, "
    "current_state string, current_master_uuid string, tier string, state string, "
    "current_replicaset_uuid string, bucket_id struct<start:int,end:int>"
)


class Findings(msgspec.Struct):
    """Small tables, ready to be drawn; the data frames are kept for Parquet."""

    cluster: str
    intervals: list[dict[str, Any]]
    masters: list[dict[str, Any]]
    failovers: list[dict[str, Any]]
    moves: list[dict[str, Any]]
    ownership: list[dict[str, Any]]
    leaders: list[dict[str, Any]]  # of Raft, by term: who, since when, events of the term
    skew: dict[str, list[tuple[int, int, int]]]  # table → (bucket, rows, bytes)
    table_tiers: dict[str, str]
    hot_keys: dict[str, list[tuple[str, int]]]  # table → (distribution key, rows), most first
    names: dict[str, str]  # uuid → name of instances and replicasets
    bucket_counts: dict[str, int]
    frames: dict[str, Any]
    cluster_name: str = ""
    links: list[dict[str, Any]] = []  # of replicas: who follows whom, how far behind it is
    lasting: list[dict[str, Any]] = []  # operations and moves of buckets, the slowest first
    changed_keys: dict[str, tuple[int, list[tuple[str, int]]]] = {}  # changes seen, most changed


def analyse(spark: Any, dsn: str) -> Findings:
    events = _events(spark, dsn).cache()
    intervals, masters = _intervals(events), _masters(events)
    failovers = _failovers(masters, intervals)
    moves = _moves(events)
    topology = cluster.pool(dsn).topology
    skew, hot_keys, frames = measure(spark, dsn)
    leaders = _leaders(spark, dsn, events)
    led = _rows(leaders.orderBy("term"))
    told = _rows(intervals.orderBy("instance_uuid", "term", "index"))
    frames |= {
        "intervals": intervals, "masters": masters, "failovers": failovers, "moves": moves,
        "leaders": leaders,
    }  # fmt: skip
    return Findings(
        cluster=topology.cluster_uuid or "",
        cluster_name=_cluster_name(dsn),
        intervals=with_unrecorded(told, led),
        masters=_rows(masters.orderBy("replicaset_uuid", "term", "index")),
        failovers=_rows(failovers.orderBy("term", "index")),
        moves=_rows(moves.orderBy("term", "index")),
        ownership=_ownership(topology),
        leaders=led,
        skew=skew,
        table_tiers={name: describe(dsn, name).tier or "" for name in skew},
        hot_keys=hot_keys,
        names=_names(events, topology),
        bucket_counts={tier: topology.bucket_count(tier) for tier in topology.view.tiers},
        frames=frames,
        links=_rows(read_table(spark, dsn, "_cairn_link").orderBy("instance", "upstream")),
        lasting=lasting(dsn),
        changed_keys=_changed(dsn, list(skew)),
    )


def _cluster_name(dsn: str) -> str:
    sql = "SELECT value FROM _pico_property WHERE key = 'cluster_name'"
    found = cluster.pool(dsn).fetchrow(sql)
    return str(found[0]) if found else ""


def _changed(dsn: str, tables: list[str]) -> dict[str, tuple[int, list[tuple[str, int]]]]:
    """Of the tables whose changes this user may see."""
    found = {}
    for name in tables:
        try:
            found[name] = changed_keys(Options(dsn=dsn, table=name), describe(dsn, name))
        except CairnError as problem:
            if problem.sqlstate not in ("42501", "PC005"):
                raise
    return found


def _rows(frame: Any) -> list[dict[str, Any]]:
    return [row.asDict(recursive=True) for row in frame.collect()]


def _events(spark: Any, dsn: str) -> Any:
    from pyspark.sql import functions as f

    raw = spark.read.format("cairn").option("dsn", dsn).option("query", _EVENTS).load()
    parsed = raw.withColumn("event", f.from_json("body", _BODY))
    return parsed.select("term", "index", "n", f.to_timestamp("timestamp").alias("ts"), "event.*")


def _intervals(events: Any) -> Any:
    """Each instance's states, each from its event to the next one."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    order = Window.partitionBy("instance_uuid").orderBy("term", "index", "n")
    states = events.where("map = 'instance' AND (current_state IS NOT NULL OR op = 'delete')")
    told = states.withColumn(
        "current_state", f.expr("CASE WHEN op = 'delete' THEN 'Gone' ELSE current_state END")
    )
    changed = told.withColumn("before", f.lag("current_state").over(order)).where(
        "before IS NULL OR before <> current_state"
    )
    ends = changed.withColumn("until", f.lead("ts").over(order)).withColumn(
        "until_index", f.lead("index").over(order)
    )
    return ends.select(
        "instance_uuid", "term", "index", "ts", "until", "until_index",
        f.col("current_state").alias("state"),
    )  # fmt: skip


def _masters(events: Any) -> Any:
    """Each replicaset's masters, one row for each change."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    order = Window.partitionBy("replicaset_uuid").orderBy("term", "index", "n")
    named = events.where("map = 'replicaset' AND current_master_uuid IS NOT NULL")
    return (
        named.withColumn("before", f.lag("current_master_uuid").over(order))
        .where("before IS NULL OR before <> current_master_uuid")
        .select(
            "replicaset_uuid", "term", "index", "ts",
            f.col("current_master_uuid").alias("master"), "before",
        )
    )  # fmt: skip


def _failovers(masters: Any, intervals: Any) -> Any:
    """A change of master, and how long the old one was away: from when it was told gone, or was
    replaced, until it was told Online again. NULL: it still is.

    The governor names the new master before it tells the old one Offline.
    """
    from pyspark.sql import functions as f

    changes = masters.where("before IS NOT NULL").alias("m")
    state = intervals.alias("i")
    same = f.col("i.instance_uuid") == f.col("m.before")
    later = f.struct("i.term", "i.index") > f.struct("m.term", "m.index")
    is_online = f.col("i.state") == "Online"
    keys = [f.col(f"m.{name}") for name in ("replicaset_uuid", "term", "index", "ts", "master",
                                             "before")]  # fmt: skip
    return (
        changes.join(state, same, "left")
        .groupBy(*keys)
        .agg(
            f.max(f.when(~later & ~is_online & f.col("i.until_index").isNull(), f.col("i.ts")))
            .alias("gone_at"),
            f.min(f.when(later & is_online, f.col("i.ts"))).alias("back_at"),
        )
        .selectExpr(
            "*",
            "CAST(back_at AS double) - CAST(coalesce(gone_at, ts) AS double) AS seconds",
        )
    )  # fmt: skip


def _moves(events: Any) -> Any:
    """Buckets that got another owner, by the event that told it, with the owner before."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    order = Window.partitionBy("tier", "bucket").orderBy("term", "index", "n")
    told = events.where("map = 'bucket' AND current_replicaset_uuid IS NOT NULL")
    single = told.withColumn(
        "bucket", f.explode(f.expr("sequence(bucket_id.start, bucket_id.end)"))
    )
    changed = single.withColumn("before", f.lag("current_replicaset_uuid").over(order)).where(
        "before <> current_replicaset_uuid"
    )
    return changed.groupBy(
        "term", "index", "ts", "tier", f.col("before").alias("from_replicaset"),
        f.col("current_replicaset_uuid").alias("to_replicaset"),
    ).agg(
        f.min("bucket").alias("start"), f.max("bucket").alias("end"), f.count("*").alias("buckets"),
    )  # fmt: skip


def _leaders(spark: Any, dsn: str, events: Any) -> Any:
    """Raft's leaders by term. A term has one, so what the instances saw only adds up."""
    from pyspark.sql import functions as f

    known = cluster.ask_everybody(dsn, "SELECT term, raft_id, instance, since FROM _cairn_leader")
    raw = spark.createDataFrame(known, "term bigint, raft_id bigint, instance string, since string")
    seen = raw.groupBy("term", "raft_id").agg(
        f.max("instance").alias("known_name"), f.min(f.to_timestamp("since")).alias("since")
    )
    name = f.coalesce("known_name", f.concat(f.lit("instance "), "raft_id")).alias("leader")
    told = events.groupBy("term").agg(f.count("*").alias("events"))
    joined = seen.join(told, "term", "left")
    return joined.select("term", name, "since", f.coalesce("events", f.lit(0)).alias("events"))


def _ownership(topology: Any) -> list[dict[str, Any]]:
    return [
        {"tier": tier, "start": start, "end": end, "replicaset": served.owner}
        for tier, ranges in topology.view.buckets.items()
        for start, end, served in ranges.ranges()
    ]


def _names(events: Any, topology: Any) -> dict[str, str]:
    """Also of those that are gone: events keep their names."""
    found: dict[str, str] = {}
    for kind in ("instance", "replicaset"):
        rows = events.where(f"map = '{kind}' AND name IS NOT NULL")
        for row in rows.select(f"{kind}_uuid", "name").distinct().collect():
            found[row[0]] = row[1]
    for known in (topology.view.instances, topology.view.replicasets):
        found |= {uuid: each.name for uuid, each in known.items() if each.name}
    return found
