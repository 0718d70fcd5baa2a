"""Exactly once: chunks kept aside in the cluster, then promoted by a manifest.

Two ordinary tables hold it all, so that it is replicated, survives failovers and moves with its
buckets: `cairn_spark_stage` has the chunks (Arrow as base64), `cairn_spark_commit` one row per
write id. Whoever inserts that row first wins; its manifest names the chunks that count. Each
chunk is inserted under an operation id of its own, which the server carries out once.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Sequence

import msgspec

from cairn.model.buckets import bucket_of
from cairn.model.errors import CairnError
from cairn.model.values import ColumnType
from cairn.spark import cluster
from cairn.spark.cluster import Owner
from cairn.spark.filters import quote
from cairn.spark.options import Options
from cairn.spark.tables import TableInfo

STAGE, COMMIT = "cairn_spark_stage", "cairn_spark_commit"
ORPHANS_S = 24 * 3600  # chunks of writes that never ended are swept after this
_UNIQUE = "23505"
_CREATE = (
    f"CREATE TABLE IF NOT EXISTS {STAGE} (slot INTEGER NOT NULL, write_id TEXT NOT NULL, "
    "part INTEGER NOT NULL, attempt INTEGER NOT NULL, seq INTEGER NOT NULL, body TEXT NOT NULL, "
    "created INTEGER NOT NULL, PRIMARY KEY (slot, write_id, part, attempt, seq)) "
    "DISTRIBUTED BY (slot)",
    f"CREATE TABLE IF NOT EXISTS {COMMIT} (write_id TEXT NOT NULL, state TEXT NOT NULL, "
    "manifest TEXT NOT NULL, created INTEGER NOT NULL, PRIMARY KEY (write_id))",
)


class Chunk(msgspec.Struct, frozen=True, array_like=True):
    """Where some rows were kept aside."""

    slot: int
    part: int
    attempt: int
    seq: int
    rows: int


class Manifest(msgspec.Struct, frozen=True):
    """What a commit means, so that anybody can finish it."""

    table: str
    columns: tuple[str, ...]
    on_conflict: str
    overwrite: bool
    chunks: tuple[Chunk, ...]


def slots(owners: Sequence[Owner], table: TableInfo) -> list[int]:
    """For each owner a number whose bucket it owns: chunks lie where their rows will."""
    found: list[int | None] = [None] * len(owners)
    number = 0
    while None in found and number < 100_000:
        number += 1
        bucket = bucket_of([ColumnType.INTEGER], [number], table.bucket_count, table.hash_version)
        for at, owner in enumerate(owners):
            if found[at] is None and any(low <= bucket <= high for low, high in owner.ranges):
                found[at] = number
    return [number or 0 for number in found]


def prepare(dsn: str, write_id: str) -> bool:
    """Make the tables, sweep orphans, finish an interrupted commit. True: already written."""
    pool = cluster.pool(dsn)
    for text in _CREATE:
        pool.execute(text)
    pool.execute(f"DELETE FROM {STAGE} WHERE created < {int(time.time()) - ORPHANS_S}")
    row = pool.fetchrow(f"SELECT state, manifest FROM {COMMIT} WHERE write_id = $1", write_id)
    if row is None:
        return False
    if row[0] != "done":
        _finish(dsn, write_id, row[0], msgspec.json.decode(row[1], type=Manifest))
    return True


class Task:
    """The chunks of one attempt of one task."""

    def __init__(self, dsn: str, write_id: str, part: int, attempt: int) -> None:
        self._dsn, self._write_id, self._part, self._attempt = dsn, write_id, part, attempt
        self._next = 0

    def keep(self, slot: int, data: bytes, rows: int) -> Chunk:
        chunk = Chunk(slot, self._part, self._attempt, self._next, rows)
        self._next += 1
        cluster.pool(self._dsn).run(
            f"INSERT INTO {STAGE} VALUES ($1, $2, $3, $4, $5, $6, $7)",
            (
                slot,
                self._write_id,
                chunk.part,
                chunk.attempt,
                chunk.seq,
                base64.b64encode(data).decode(),
                int(time.time()),
            ),
        )
        return chunk


def commit(dsn: str, write_id: str, manifest: Manifest) -> None:
    """Decide, then carry out. Repeating it changes nothing."""
    pool = cluster.pool(dsn)
    state = "truncating" if manifest.overwrite else "promoting"
    text = msgspec.json.encode(manifest).decode()
    try:
        pool.run(
            f"INSERT INTO {COMMIT} VALUES ($1, $2, $3, $4)",
            (write_id, state, text, int(time.time())),
        )
    except CairnError as problem:
        if problem.sqlstate != _UNIQUE:
            raise
        row = pool.fetchrow(f"SELECT state, manifest FROM {COMMIT} WHERE write_id = $1", write_id)
        assert row is not None
        state, manifest = row[0], msgspec.json.decode(row[1], type=Manifest)
    if state != "done":
        _finish(dsn, write_id, state, manifest)


def _finish(dsn: str, write_id: str, state: str, manifest: Manifest) -> None:
    pool = cluster.pool(dsn)
    update = f"UPDATE {COMMIT} SET state = $1 WHERE write_id = $2"
    if state == "truncating":
        pool.execute(f"TRUNCATE TABLE {quote(manifest.table)}")
        pool.run(update, ("promoting", write_id))
    names = msgspec.json.encode(manifest.columns).decode()
    for chunk in manifest.chunks:
        key = f"{chunk.slot}, {_text(write_id)}, {chunk.part}, {chunk.attempt}, {chunk.seq}"
        cluster.call(
            dsn,
            f"CALL cairn_promote({_text(manifest.table)}, {_text(names)}, "
            f"{_text(manifest.on_conflict)}, {_text(STAGE)}, {key})",
            _address_of(dsn, chunk.slot),
        )
    pool.run(update, ("done", write_id))
    pool.run(f"DELETE FROM {STAGE} WHERE write_id = $1", (write_id,))


def _address_of(dsn: str, slot: int) -> str | None:
    """The master that has a slot's chunks; anybody can promote, it only spares a hop."""
    pool = cluster.pool(dsn)
    row = pool.fetchrow("SELECT distribution FROM _pico_table WHERE name = $1", STAGE)
    tier = "default" if row is None else row[0]["ShardedImplicitly"][2]
    table = pool.topology
    bucket = bucket_of(
        [ColumnType.INTEGER], [slot], table.bucket_count(tier), table.hash_version(tier) or 2
    )
    return table.master_address(tier, bucket)


def abandon(dsn: str, write_id: str) -> None:
    """After a failed job. What was committed meanwhile stays as it is."""
    pool = cluster.pool(dsn)
    if pool.fetchrow(f"SELECT state FROM {COMMIT} WHERE write_id = $1", write_id) is None:
        pool.run(f"DELETE FROM {STAGE} WHERE write_id = $1", (write_id,))


def ingest(
    options: Options, table: str, names: Sequence[str], data: bytes, address: str | None
) -> int:
    """Insert a chunk at once, ignoring or replacing rows that are there."""
    body = base64.b64encode(data).decode()
    columns = msgspec.json.encode(list(names)).decode()
    count: int = cluster.call(
        options.dsn,
        f"CALL cairn_ingest({_text(table)}, {_text(columns)}, "
        f"{_text(options.on_conflict)}, '{body}')",
        address,
        options.timeout_s,
    )["rows"]
    return count


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
