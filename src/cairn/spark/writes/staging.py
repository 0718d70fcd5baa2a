"""Exactly once: chunks kept aside in the cluster, then promoted by a manifest.

Two ordinary tables hold it all, so that it is replicated, survives failovers and moves with its
buckets: `cairn_spark_stage` has the chunks (compressed Arrow), `cairn_spark_commit` one row per
write id. When all tasks are done every owner checks that its chunks would go in, so that a
write that meets a conflict is refused whole. Whoever then inserts the row of the write id first
wins; its manifest names the chunks that count. A chunk whose answer was lost is promoted again, and
rows that are there exactly as given are accepted.

Invariant: however many drivers carry out a manifest, and however late, each step happens once. The
order is: decided, emptied (an overwrite; once since the decision, by the table's own version),
promoted (each chunk once, by its operation id), settled (the replicas have it, and no failover came
in between; else promoted again), done, and only then the stage is cleared. States only go forward.
"""

from __future__ import annotations

import base64
import secrets
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import msgspec

from cairn.model.errors import AccessDenied, CairnError, UndefinedTable, Unreachable
from cairn.model.quoting import literal
from cairn.model.rpc import Chunk
from cairn.model.sharding.buckets import bucket_of
from cairn.model.types.values import ColumnType
from cairn.spark import cluster
from cairn.spark.cluster import Owner
from cairn.spark.options import Options
from cairn.spark.tables import TableInfo

STAGE, COMMIT = "cairn_spark_stage", "cairn_spark_commit"
CHUNK_ROWS = 60_000  # kept in one row of the stage, compressed, and promoted at once
ROUNDS = 5  # promotions of one write, when masters change all the time
AT_ONCE = 2  # chunks that an owner promotes: it reads one while it writes the other
CHECK_S, CHECKED_ROWS_S = 60.0, 50_000  # patience with an owner: seconds, and rows a second
ORPHANS_S = 24 * 3600  # chunks of writes that never ended are swept after this
#: Of the chunks that one statement deletes: its replicas are told each of them whole.
CLEARED_BYTES = 8 * 1024 * 1024
_UNIQUE = "23505"
_CREATE = {
    STAGE: f"CREATE TABLE IF NOT EXISTS {STAGE} (slot INTEGER NOT NULL, write_id TEXT NOT NULL, "
    "part INTEGER NOT NULL, attempt INTEGER NOT NULL, seq INTEGER NOT NULL, created INTEGER "
    "NOT NULL, body BYTEA NOT NULL, PRIMARY KEY (slot, write_id, part, attempt, seq)) "
    "DISTRIBUTED BY (slot)",
    COMMIT: f"CREATE TABLE IF NOT EXISTS {COMMIT} (write_id TEXT NOT NULL, state TEXT NOT NULL, "
    "manifest TEXT NOT NULL, created INTEGER NOT NULL, PRIMARY KEY (write_id))",
}


_DECIDED = f"SELECT state, manifest FROM {COMMIT} WHERE write_id = $1"
_OPEN = f"SELECT write_id FROM {COMMIT} WHERE state IN ('truncating', 'promoting')"
_KEEP = (
    f"INSERT INTO {STAGE} (slot, write_id, part, attempt, seq, created, body) "
    "VALUES ($1, $2, $3, $4, $5, $6, $7)"
)
_LYING = f"SELECT slot, write_id, part, attempt, seq, octet_length(body) FROM {STAGE} WHERE "
_CLEAR = (
    f"DELETE FROM {STAGE} WHERE slot = $1 AND write_id = $2 "
    "AND (part, attempt, seq) >= ($3, $4, $5) AND (part, attempt, seq) <= ($6, $7, $8)"
)


class Manifest(msgspec.Struct, frozen=True):
    """What a commit means, so that anybody can finish it."""

    table: str
    columns: tuple[str, ...]
    on_conflict: str
    overwrite: bool
    chunks: tuple[Chunk, ...]
    table_id: int = 0  # of an overwrite: which table is emptied,
    truncated_at: int = 0  # unless it was emptied after this version


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


def create(dsn: str) -> None:
    create_tables(dsn, _CREATE)


def create_tables(dsn: str, wanted: Mapping[str, str]) -> None:
    """Those that are missing: whoever writes where they exist needs no right to create tables."""
    names = ", ".join(map(literal, wanted))
    sql = f"SELECT name FROM _pico_table WHERE name IN ({names}) AND operable"
    known = {name for (name,) in cluster.pool(dsn).fetch(sql)}
    for name, text in wanted.items():
        if name in known:
            continue
        try:
            cluster.pool(dsn).execute(text)
        except CairnError as problem:
            if problem.sqlstate == AccessDenied.sqlstate:
                problem.hint = (
                    f"somebody who may create tables has to make {name} once, by a write of their "
                    "own, and to grant you SELECT, INSERT, UPDATE and DELETE on it"
                )
            raise


def prepare(dsn: str, write_id: str) -> bool:
    """Make the tables, sweep orphans, finish an interrupted commit. True: already written."""
    pool = cluster.pool(dsn)
    create(dsn)
    old = _now() - ORPHANS_S
    # What was decided has to be carried out, however late: its chunks are the only copy.
    open_ids = [each for (each,) in pool.fetch(_OPEN)]
    kept = f" AND write_id NOT IN ({', '.join(map(literal, open_ids))})" if open_ids else ""
    _clear(dsn, f"created < {old}{kept}")
    pool.execute(f"DELETE FROM {COMMIT} WHERE state = 'begun' AND created < {old}")
    row = pool.fetchrow(_DECIDED, write_id)
    if row is None:
        return False
    if row[0] != "done":
        _finish(dsn, write_id, row[0], msgspec.json.decode(row[1], type=Manifest), True)
    return True


class Task:
    """The chunks of one attempt of one task.

    Its number is drawn: Spark's own begin anew with each driver, and one that was killed may have
    left chunks of the same write, or of the same batch of a stream, under them.
    """

    def __init__(self, dsn: str, write_id: str, part: int) -> None:
        self._dsn, self._write_id, self._part = dsn, write_id, part
        self._attempt, self._next = secrets.randbits(62), 0
        self._is_text = _holds_text(dsn)

    def keep(self, slot: int, data: bytes, rows: int) -> Chunk:
        chunk = Chunk(slot, self._part, self._attempt, self._next, rows)
        self._next += 1
        body = base64.b64encode(data).decode() if self._is_text else data
        row = (slot, self._write_id, chunk.part, chunk.attempt, chunk.seq, _now(), body)

        def insert(is_again: bool) -> None:
            try:
                cluster.pool(self._dsn).run(_KEEP, row)
            except CairnError as problem:
                if problem.sqlstate != _UNIQUE or not is_again:
                    raise  # else it was there: only its answer was lost

        cluster.persistently(self._dsn, insert)
        return chunk


def _holds_text(dsn: str) -> bool:
    """A stage that an older version made has its chunks as base64."""
    row = cluster.pool(dsn).fetchrow("SELECT format FROM _pico_table WHERE name = $1", STAGE)
    fields = [] if row is None else row[0]
    return any(each["name"] == "body" and each["field_type"] == "string" for each in fields)


def commit(dsn: str, write_id: str, manifest: Manifest) -> None:
    """Check, decide, then carry out. Repeating it changes nothing."""
    pool = cluster.pool(dsn)
    _settled(dsn)  # what is checked and decided can be carried out by the next master too
    try:
        _check(dsn, write_id, manifest)
    except CairnError:
        if pool.fetchrow(_DECIDED, write_id) is None:
            raise  # else what was met may be this very write, committed by another driver
    state = "truncating" if manifest.overwrite else "promoting"
    if manifest.overwrite:
        manifest = _as_of_now(dsn, manifest)
    text = msgspec.json.encode(manifest).decode()
    is_resumed = False
    row = (write_id, state, text, _now())
    decide = f"INSERT INTO {COMMIT} VALUES ($1, $2, $3, $4)"
    try:
        cluster.persistently(dsn, lambda _: pool.run(decide, row))
    except CairnError as problem:
        if problem.sqlstate != _UNIQUE:
            raise
        known = pool.fetchrow(_DECIDED, write_id)  # another driver's, or this one's own
        assert known is not None
        state, manifest = known[0], msgspec.json.decode(known[1], type=Manifest)
        is_resumed = True
    if state != "done":
        _finish(dsn, write_id, state, manifest, is_resumed)


def _as_of_now(dsn: str, manifest: Manifest) -> Manifest:
    """With the table as it is before the decision: emptying it once more changes that."""
    query = "SELECT id, opts FROM _pico_table WHERE name = $1"
    row = cluster.pool(dsn).fetchrow(query, manifest.table)
    if row is None:
        raise UndefinedTable(f'table with name "{manifest.table}" not found')
    versions = [each["truncated_at"][0] for each in row[1] or () if "truncated_at" in each]
    return msgspec.structs.replace(
        manifest, table_id=row[0], truncated_at=versions[0] if versions else 0
    )


def _by_slot(manifest: Manifest) -> dict[int, list[Chunk]]:
    found: dict[int, list[Chunk]] = {}
    for chunk in manifest.chunks:
        found.setdefault(chunk.slot, []).append(chunk)
    return found


def _check(dsn: str, write_id: str, manifest: Manifest) -> None:
    """Whether every row would go in, asked of all owners before anything becomes visible."""
    against = "nothing"
    if manifest.on_conflict == "error":
        against = "itself" if manifest.overwrite else "table"
    by_slot = _by_slot(manifest)  # all tasks split by the same owners: equal keys have one slot

    def ask(slot: int) -> None:
        chunks = by_slot[slot]
        words = (
            manifest.table, msgspec.json.encode(manifest.columns).decode(), against, STAGE,
            write_id, msgspec.json.encode(chunks).decode(),
        )  # fmt: skip
        text = f"CALL cairn_check({', '.join(map(literal, words))})"
        seconds = CHECK_S + sum(chunk.rows for chunk in chunks) / CHECKED_ROWS_S
        cluster.persistently(
            dsn, lambda _: cluster.call(dsn, text, _address_of(dsn, slot), seconds)
        )

    with ThreadPoolExecutor(max(len(by_slot), 1), "check") as threads:
        list(threads.map(ask, by_slot))


def _finish(dsn: str, write_id: str, state: str, manifest: Manifest, is_resumed: bool) -> None:
    pool = cluster.pool(dsn)
    forward = f"UPDATE {COMMIT} SET state = $1 WHERE write_id = $2 AND state = $3"
    if state == "truncating":
        _truncate(dsn, manifest)
        pool.run(forward, ("promoting", write_id, "truncating"))
    before = _settled(dsn)
    for _ in range(ROUNDS):
        _promote_all(dsn, write_id, manifest, is_resumed)
        after = _settled(dsn)
        if after == before:
            break
        before, is_resumed = after, True  # acknowledged rows may be lost: what is there stays
    else:
        raise Unreachable(
            f"masters changed {ROUNDS} times while {write_id} was promoted",
            hint="write it again under the same id: it goes on where it is",
        )
    pool.run(forward, ("done", write_id, "promoting"))
    _clear(dsn, f"write_id = {literal(write_id)}")


def _clear(dsn: str, condition: str) -> None:
    """Delete chunks, a few at a time: all that a write has may be more than a statement can."""
    pool = cluster.pool(dsn)
    lying = cluster.persistently(dsn, lambda _: pool.fetch(_LYING + condition))
    spans: list[tuple[object, ...]] = []  # the key of the first, then where the last one lies
    size = 0
    for *place, length in sorted(map(tuple, lying)):
        slot, write_id, *within = place
        is_near = spans and spans[-1][:2] == (slot, write_id) and size + length <= CLEARED_BYTES
        if is_near:
            spans[-1] = (*spans[-1][:5], *within)
        else:
            spans.append((*place, *within))
        size = length + (size if is_near else 0)

    def delete(span: tuple[object, ...]) -> None:
        cluster.persistently(dsn, lambda _: pool.run(_CLEAR, span))

    with ThreadPoolExecutor(AT_ONCE, "clear") as threads:
        list(threads.map(delete, spans))


def _settled(dsn: str) -> dict[str, int]:
    """Each replicaset's epoch, once its replicas have what its master has acknowledged."""
    table = cluster.pool(dsn).topology
    found: dict[str, int] = {}
    for uuid in sorted(table.view.replicasets):
        if table.master(uuid) is None:
            continue

        def ask(_: bool, uuid: str = uuid) -> int:
            master = table.master(uuid)
            if master is None or not master.address:
                raise Unreachable(f"replicaset {uuid} has no master")
            return int(cluster.call(dsn, "CALL cairn_settle()", master.address)["epoch"])

        found[uuid] = cluster.persistently(dsn, ask)
    return found


def _promote_all(dsn: str, write_id: str, manifest: Manifest, is_resumed: bool) -> None:
    by_slot = _by_slot(manifest)
    has_failed = threading.Event()

    def promote_all(chunks: Iterator[Chunk]) -> None:
        for chunk in chunks:
            if has_failed.is_set():
                return
            try:
                _promote(dsn, write_id, manifest, chunk, is_resumed)
            except BaseException:
                has_failed.set()
                if _is_done(dsn, write_id):
                    return  # another driver has ended it and cleared the stage
                raise

    with ThreadPoolExecutor(max(len(by_slot) * AT_ONCE, 1), "promote") as threads:
        shared = [iter(chunks) for chunks in by_slot.values()]  # `next` of a list's is atomic
        list(threads.map(promote_all, shared * AT_ONCE))


def _is_done(dsn: str, write_id: str) -> bool:
    row = cluster.pool(dsn).fetchrow(_DECIDED, write_id)
    return row is not None and row[0] == "done"


def _truncate(dsn: str, manifest: Manifest) -> None:
    """Once since the decision: a second one would take rows that count as promoted."""
    words = f"{literal(manifest.table)}, {manifest.table_id}, {manifest.truncated_at}"
    cluster.persistently(dsn, lambda _: cluster.call(dsn, f"CALL cairn_truncate({words})"))


def _promote(dsn: str, write_id: str, manifest: Manifest, chunk: Chunk, is_resumed: bool) -> None:
    """Insert a chunk once: when it may have been done before, equal rows are no conflict."""
    names = msgspec.json.encode(manifest.columns).decode()
    key = f"{chunk.slot}, {literal(write_id)}, {chunk.part}, {chunk.attempt}, {chunk.seq}"

    def call(is_again: bool) -> None:
        conflict = manifest.on_conflict
        if conflict == "error" and (is_again or is_resumed):
            conflict = "same"
        words = ", ".join(map(literal, (manifest.table, names, conflict, STAGE)))
        cluster.call(dsn, f"CALL cairn_promote({words}, {key})", _address_of(dsn, chunk.slot))

    cluster.persistently(dsn, call)


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


def is_decided(dsn: str, write_id: str) -> bool:
    """Whether a write was committed, or is about to be by its manifest."""
    return cluster.pool(dsn).fetchrow(_DECIDED, write_id) is not None


def forget(dsn: str, write_id: str) -> None:
    """A write that nobody will repeat any more."""
    cluster.pool(dsn).run(f"DELETE FROM {COMMIT} WHERE write_id = $1", (write_id,))


def abandon(dsn: str, write_id: str) -> bool:
    """After a failed job. False: it was decided to commit it, which stays as it is."""
    if is_decided(dsn, write_id):
        return False
    _clear(dsn, f"write_id = {literal(write_id)}")
    return True


# --- direct writes --------------------------------------------------------------------------------


def prepare_direct(dsn: str) -> None:
    create_tables(dsn, {COMMIT: _CREATE[COMMIT]})


def has_begun(dsn: str, write_id: str, part: int) -> bool:
    """Whether a task was begun before; it is noted now."""
    row = (f"{write_id}/{part}", "begun", write_id, _now())

    def insert(_: bool) -> bool:
        try:
            cluster.pool(dsn).run(f"INSERT INTO {COMMIT} VALUES ($1, $2, $3, $4)", row)
        except CairnError as problem:
            if problem.sqlstate != _UNIQUE:
                raise
            return True  # if only our own answer was lost, taking it for a repetition does no harm
        return False

    return cluster.persistently(dsn, insert)


def forget_direct(dsn: str, write_id: str) -> None:
    """All its tasks are done."""
    sql = f"DELETE FROM {COMMIT} WHERE state = 'begun' AND manifest = $1"
    cluster.pool(dsn).run(sql, (write_id,))


def note_conflict(dsn: str, write_id: str, sentence: str) -> None:
    """A direct write met a row that was there before it: its repetitions shall fail, too."""
    row = (write_id, "conflict", sentence, _now())
    try:
        cluster.pool(dsn).run(f"INSERT INTO {COMMIT} VALUES ($1, $2, $3, $4)", row)
    except CairnError as problem:
        if problem.sqlstate != _UNIQUE:
            raise


def noted_conflict(dsn: str, write_id: str) -> str | None:
    sql = f"SELECT manifest FROM {COMMIT} WHERE write_id = $1 AND state = 'conflict'"
    row = cluster.pool(dsn).fetchrow(sql, write_id)
    return None if row is None else str(row[0])


def ingest(
    options: Options, table: str, names: Sequence[str], data: bytes, conflict: str, address: str
) -> int:
    """Insert a chunk at once; `conflict` says what becomes of rows that are there."""
    body = base64.b64encode(data).decode()
    columns = msgspec.json.encode(list(names)).decode()
    count: int = cluster.call(
        options.dsn,
        f"CALL cairn_ingest({literal(table)}, {literal(columns)}, {literal(conflict)}, '{body}')",
        address,
        options.timeout_s,
    )["rows"]
    return count


def _now() -> int:
    return int(time.time())
