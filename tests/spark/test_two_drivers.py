"""One staged write, two drivers: one was taken for dead and started again, and both go on."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pytest

from cairn.client.sync_pool import SyncPool
from cairn.model.errors import CairnError
from cairn.spark import cluster, tables
from cairn.spark.writes import staging
from cairn.spark.writes.splitting import Splitter, to_stream

ROWS = 600


def staged(dsn: str, name: str, write_id: str, part: int, word: str) -> list[Any]:
    """The chunks of one attempt of a task: rows 200 * part … of the table, all with one word."""
    info = tables.describe(dsn, name)
    assert info.tier is not None
    owners = cluster.owners(dsn, info.tier)
    slots = staging.slots(owners, info)
    task = staging.Task(dsn, write_id, part)
    keys = range(200 * part, 200 * part + 200)
    batch = pa.record_batch({"id": pa.array(keys, pa.int64()), "s": pa.array([word] * 200)})
    return [
        task.keep(slots[at], to_stream(piece, "zstd"), piece.num_rows)
        for at, piece in Splitter(info, owners).chunks(batch, staging.CHUNK_ROWS)
    ]


def manifest(name: str, chunks: list[Any], *, overwrite: bool = True) -> staging.Manifest:
    return staging.Manifest(name, ("id", "s"), "error", overwrite, tuple(chunks))


def words(pool: SyncPool, name: str) -> list[Any]:
    return pool.fetch(f"SELECT s, count(*) FROM {name} GROUP BY s ORDER BY s")


def state(pool: SyncPool, write_id: str) -> Any:
    return pool.fetchrow(f"SELECT state FROM {staging.COMMIT} WHERE write_id = $1", write_id)


@pytest.fixture
def name(dsn: str, table: Callable[[str], str], pool: SyncPool) -> str:
    staging.create(dsn)
    found = table("id INTEGER NOT NULL, s TEXT, PRIMARY KEY (id)")
    pool.execute(f"INSERT INTO {found} VALUES (1000000, 'before')")
    return found


@pytest.mark.parametrize("is_late", [False, True])
def test_an_overwrite_that_two_drivers_carry_out_has_all_its_rows(
    dsn: str, pool: SyncPool, name: str, monkeypatch: pytest.MonkeyPatch, is_late: bool
) -> None:
    """Both know that the table is to be emptied. The second does it when the first has put rows
    there, or when it has ended.
    """
    write_id = f"two-{name}"
    chunks = [c for part in range(3) for c in staged(dsn, name, write_id, part, "new")]
    finish, promote = staging._finish, staging._promote
    second_may = threading.Event()
    arrived = threading.Barrier(2)

    def held(*arguments: Any) -> None:
        arrived.wait(30)
        if arguments[-1]:  # the one that was not first to decide
            assert second_may.wait(30)
        finish(*arguments)
        second_may.set()

    def noticed(*arguments: Any) -> None:
        promote(*arguments)
        if not is_late:
            second_may.set()

    monkeypatch.setattr(staging, "_finish", held)
    monkeypatch.setattr(staging, "_promote", noticed)
    with ThreadPoolExecutor(2) as drivers:
        both = [
            drivers.submit(staging.commit, dsn, write_id, manifest(name, chunks)) for _ in range(2)
        ]
        for driver in both:
            driver.result(60)
    assert words(pool, name) == [("new", ROWS)]
    assert state(pool, write_id) == ("done",)


def test_only_the_attempt_that_the_manifest_names_is_promoted(
    dsn: str, pool: SyncPool, name: str
) -> None:
    """Another attempt of the same task has kept other rows under the same numbers."""
    write_id = f"attempts-{name}"
    staged(dsn, name, write_id, 0, "first")
    chunks = staged(dsn, name, write_id, 0, "second")
    staged(dsn, name, write_id, 0, "third")
    staging.commit(dsn, write_id, manifest(name, chunks))
    assert words(pool, name) == [("second", 200)]


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_write_one_of_whose_chunks_is_lost_is_refused_whole(
    dsn: str, pool: SyncPool, name: str, overwrite: bool
) -> None:
    """As after a failover that took acknowledged chunks along: the table is as it was."""
    chunks = staged(dsn, name, f"{name}-lost", 0, "new")
    kept = manifest(name, chunks, overwrite=overwrite)
    lost = chunks[-1]
    pool.execute(f"DELETE FROM {staging.STAGE} WHERE attempt = {lost.attempt} AND seq = {lost.seq}")
    with pytest.raises(CairnError, match="chunk"):
        staging.commit(dsn, f"{name}-lost", kept)
    assert words(pool, name) == [("before", 1)]
    assert state(pool, f"{name}-lost") is None
    pool.execute(f"DELETE FROM {staging.STAGE} WHERE write_id = $1", f"{name}-lost")


def test_chunks_of_a_write_that_was_decided_are_never_swept(
    dsn: str, pool: SyncPool, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its driver died after the decision; days later, or by a clock that is days ahead, others
    write. Whoever goes on with it finds all its rows.
    """

    class Died(Exception):
        pass

    def die(*_: Any) -> None:
        raise Died

    write_id = f"decided-{name}"
    chunks = [c for part in range(3) for c in staged(dsn, name, write_id, part, "new")]
    with monkeypatch.context() as dying:
        dying.setattr(staging, "_finish", die)
        with pytest.raises(Died):
            staging.commit(dsn, write_id, manifest(name, chunks))
    abandoned = f"abandoned-{name}"
    staged(dsn, name, abandoned, 0, "nobody")
    with monkeypatch.context() as later:
        now = staging._now() + 3 * staging.ORPHANS_S
        later.setattr(staging, "_now", lambda: now)
        assert not staging.prepare(dsn, f"other-{name}")
    left = pool.fetch(
        f"SELECT DISTINCT write_id FROM {staging.STAGE} WHERE write_id LIKE '%{name}'"
    )
    assert left == [(write_id,)]
    assert staging.prepare(dsn, write_id)
    assert words(pool, name) == [("new", ROWS)]
