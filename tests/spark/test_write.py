"""Batch writes: every row once, whatever is repeated; nothing half-written after a failure."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import functions as f

from cairn.client.sync_pool import SyncPool
from cairn.spark import bucket_id, repartition_by_owner
from cairn.spark.writes import staging
from cairn.spark.writes.staging import COMMIT, STAGE

COLUMNS = "id INTEGER PRIMARY KEY, s TEXT, d DOUBLE"


def _frame(spark: Any, count: int, word: str = "s") -> Any:
    return spark.range(0, count, 1, 3).select(
        "id", f.concat(f.lit(word), "id").alias("s"), (f.col("id") / 2).alias("d")
    )


def _content(pool: SyncPool, name: str) -> list[tuple[Any, ...]]:
    rows = []
    for chunk in pool.copy_out(f"COPY {name} TO STDOUT"):
        for line in chunk.decode().splitlines():
            key, word, number = line.split("\t")
            rows.append((int(key), word, float(number) if number != "\\N" else None))
    return sorted(rows)


def _wanted(count: int, word: str = "s") -> list[tuple[Any, ...]]:
    return [(i, f"{word}{i}", i / 2) for i in range(count)]


@pytest.mark.parametrize("commit", ["direct", "staged"])
def test_rows_are_appended(
    spark: Any, pool: SyncPool, table: Callable[[str], str], writing: Callable[..., None],
    commit: str,
) -> None:  # fmt: skip
    name = table(COLUMNS)
    writing(_frame(spark, 5000), name, commit=commit)
    assert _content(pool, name) == _wanted(5000)


def test_chunks_that_a_killed_driver_has_left_are_in_nobodys_way(
    spark: Any, pool: SyncPool, table: Callable[[str], str], writing: Callable[..., None]
) -> None:
    """Spark counts the attempts of its tasks from 0 again when a job is started again."""
    name = table(COLUMNS)
    writing(_frame(spark, 0), name)  # the stage is there
    write_id = f"left-{name}"
    lines = [
        f"{slot}\t{write_id}\t{part}\t{attempt}\t0\t4000000000\tnot even Arrow\n".encode()
        for slot in range(1, 11) for part in range(3) for attempt in range(1000)
    ]  # fmt: skip
    pool.copy_in(f"COPY {STAGE} FROM STDIN", lines)
    writing(_frame(spark, 300), name, writeId=write_id)
    assert _content(pool, name) == _wanted(300)
    assert pool.fetch(f"SELECT count(*) FROM {STAGE} WHERE write_id = '{write_id}'") == [(0,)]


def test_a_stage_with_more_than_one_record_can_tell_is_cleared(dsn: str, pool: SyncPool) -> None:
    """Replicas are told each chunk that is deleted, and a record of the row log has its limit."""
    staging.create(dsn)
    chunk = bytes(9_000_000)
    for write_id, created in (("left over", 1), ("given up", 4_000_000_000)):
        for seq in range(6):
            row = (1, write_id, 0, 7, seq, created, chunk)
            pool.run(f"INSERT INTO {STAGE} VALUES ($1, $2, $3, $4, $5, $6, $7)", row)
    staging.prepare(dsn, "the next")
    left = f"SELECT DISTINCT write_id FROM {STAGE}"
    assert pool.fetch(left) == [("given up",)]
    staging.abandon(dsn, "given up")
    assert pool.fetch(left) == []


def test_chunks_in_a_stage_that_an_older_version_made_are_text(
    spark: Any, dsn: str, pool: SyncPool, table: Callable[[str], str], writing: Callable[..., None]
) -> None:
    pool.execute(f"DROP TABLE IF EXISTS {STAGE}")
    pool.execute(
        f"CREATE TABLE {STAGE} (slot INTEGER NOT NULL, write_id TEXT NOT NULL, part INTEGER NOT "
        "NULL, attempt INTEGER NOT NULL, seq INTEGER NOT NULL, body TEXT NOT NULL, created INTEGER "
        "NOT NULL, PRIMARY KEY (slot, write_id, part, attempt, seq)) DISTRIBUTED BY (slot)"
    )
    name = table(COLUMNS)
    try:
        writing(_frame(spark, 300), name)
        assert _content(pool, name) == _wanted(300)
    finally:
        pool.execute(f"DROP TABLE {STAGE}")


@pytest.mark.parametrize("commit", ["direct", "staged"])
def test_overwrite_leaves_only_the_new_rows(
    spark: Any, pool: SyncPool, table: Callable[[str], str], writing: Callable[..., None],
    commit: str,
) -> None:  # fmt: skip
    name = table(COLUMNS)
    writing(_frame(spark, 50), name, commit="direct")
    writing(_frame(spark, 10, "new"), name, "overwrite", commit=commit)
    assert _content(pool, name) == _wanted(10, "new")


@pytest.mark.parametrize("commit", ["direct", "staged"])
@pytest.mark.parametrize(("conflict", "word"), [("ignore", "s"), ("replace", "new")])
def test_conflicts_are_ignored_or_replaced(
    spark: Any, pool: SyncPool, table: Callable[[str], str], writing: Callable[..., None],
    commit: str, conflict: str, word: str,
) -> None:  # fmt: skip
    name = table(COLUMNS)
    writing(_frame(spark, 20), name, commit="direct")
    writing(_frame(spark, 30, "new"), name, commit=commit, onConflict=conflict)
    assert _content(pool, name) == _wanted(20, word) + _wanted(30, "new")[20:]


def test_a_conflict_is_an_error_unless_said_otherwise(
    spark: Any, table: Callable[[str], str], writing: Callable[..., None]
) -> None:
    name = table(COLUMNS)
    writing(_frame(spark, 20), name, commit="direct")
    with pytest.raises(Exception, match="Duplicate key"):
        writing(_frame(spark, 20), name, commit="direct")


WRONG: dict[str, tuple[str, str, str]] = {  # mode, what becomes of the rows, what is said
    "a key twice in the write": (
        "append",
        "if(id = 2999, 7, id) AS id, s, d",
        r"Key \(id\)=\(7\) is in the rows to be written more than once; nothing was written",
    ),
    "a key of the table": (
        "append",
        "if(id = 2999, 100000, id) AS id, s, d",
        r"Key \(id\)=\(100000\) is in the table; nothing was written",
    ),
    "a key twice in what replaces all": (
        "overwrite",
        "if(id = 2999, 7, id) AS id, s, d",
        "is in the rows to be written more than once",
    ),
    "a value that no column can hold": (
        "overwrite",
        "id, if(id = 2999, concat(s, chr(0)), s) AS s, d",
        "a string cannot contain a zero byte",
    ),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_staged_write_with_one_wrong_row_leaves_the_table_as_it_was(
    spark: Any, pool: SyncPool, table: Callable[[str], str], writing: Callable[..., None],
    wrong: str,
) -> None:  # fmt: skip
    """The wrong row is the last of many: all others would have gone in before it."""
    name = table(COLUMNS)
    pool.execute(f"INSERT INTO {name} VALUES (100000, 'one', 1.0)")
    mode, columns, said = WRONG[wrong]
    with pytest.raises(Exception, match=said):
        writing(spark.sql(f"SELECT {columns} FROM {{f}}", f=_frame(spark, 3000)), name, mode)
    assert _content(pool, name) == [(100000, "one", 1.0)]
    assert pool.fetch(f"SELECT count(*) FROM {STAGE}") == [(0,)]


def test_a_staged_write_is_held_against_unique_indexes_too(
    spark: Any, pool: SyncPool, table: Callable[[str], str], writing: Callable[..., None]
) -> None:
    """Rows 1 and 2 have no second value, which equals nothing; the table has what row 3 brings."""
    name = table("id INTEGER, n INTEGER, s TEXT, PRIMARY KEY (id, n)) DISTRIBUTED BY (id")
    pool.execute(f"CREATE UNIQUE INDEX {name}_s ON {name} (id, s)")
    pool.execute(f"INSERT INTO {name} VALUES (3, 9, 'x')")
    frame = spark.sql(
        "SELECT * FROM VALUES (1L, 1L, NULL), (1L, 2L, NULL), (3L, 1L, 'x') AS v(id, n, s)"
    )
    with pytest.raises(Exception, match=rf'"{name}_s".*Key \(id, s\)=\(3, x\) is in the table'):
        writing(frame, name)
    assert pool.fetch(f"SELECT id, n, s FROM {name}") == [(3, 9, "x")]
    writing(frame.where("id < 3"), name)
    assert pool.fetch(f"SELECT count(*) FROM {name}") == [(3,)]


def test_a_direct_task_that_is_repeated_accepts_what_its_first_run_wrote(
    spark: Any, pool: SyncPool, table: Callable[[str], str], writing: Callable[..., None]
) -> None:
    """It fails after 30,000 of its rows were sent, some of which are written by then."""
    name = table(COLUMNS)

    def fail_at_first(rows: Any) -> Any:
        from pyspark import TaskContext

        yield from rows
        if TaskContext.get().attemptNumber() == 0 and TaskContext.get().partitionId() == 1:
            raise RuntimeError("the executor is gone")

    frame = _frame(spark, 90_000)
    again = spark.createDataFrame(frame.rdd.mapPartitions(fail_at_first), frame.schema)
    writing(again, name, commit="direct")
    assert _content(pool, name) == _wanted(90_000)


def test_strings_that_are_not_utf_8_are_refused_by_column(
    spark: Any, pool: SyncPool, table: Callable[[str], str], writing: Callable[..., None]
) -> None:
    name = table(COLUMNS)
    frame = spark.sql("SELECT 1L AS id, CAST(X'FF41' AS string) AS s, 1.0D AS d")
    with pytest.raises(Exception, match='column "s" has a string that is not UTF-8'):
        writing(frame, name)
    assert _content(pool, name) == []


def test_a_write_id_that_was_committed_is_not_written_again(
    spark: Any, pool: SyncPool, table: Callable[[str], str], writing: Callable[..., None]
) -> None:
    name = table(COLUMNS)
    for _ in range(2):
        writing(_frame(spark, 300), name, writeId=f"load-{name}")
    assert _content(pool, name) == _wanted(300)
    assert pool.fetch(f"SELECT count(*) FROM {STAGE}") == [(0,)]


def test_a_task_that_fails_and_is_repeated_writes_its_rows_once(
    spark: Any, pool: SyncPool, table: Callable[[str], str], writing: Callable[..., None]
) -> None:
    name = table(COLUMNS)

    def fail_at_first(rows: Any) -> Any:
        from pyspark import TaskContext

        yield from rows
        if TaskContext.get().attemptNumber() == 0 and TaskContext.get().partitionId() == 1:
            raise RuntimeError("the executor is gone")

    frame = _frame(spark, 30_000)
    writing(spark.createDataFrame(frame.rdd.mapPartitions(fail_at_first), frame.schema), name)
    assert _content(pool, name) == _wanted(30_000)
    assert pool.fetch(f"SELECT count(*) FROM {STAGE}") == [(0,)]


def test_a_job_that_fails_leaves_nothing_behind(
    spark: Any, pool: SyncPool, table: Callable[[str], str], writing: Callable[..., None]
) -> None:
    name = table(COLUMNS)

    def fail(rows: Any) -> Any:
        from pyspark import TaskContext

        yield from rows
        if TaskContext.get().partitionId() == 2:
            raise RuntimeError("always")

    frame = _frame(spark, 3000)
    with pytest.raises(Exception, match="always"):
        writing(spark.createDataFrame(frame.rdd.mapPartitions(fail), frame.schema), name)
    assert _content(pool, name) == []
    assert pool.fetch(f"SELECT count(*) FROM {STAGE}") == [(0,)]


def test_a_commit_that_was_interrupted_is_finished_by_the_next_run(
    spark: Any, dsn: str, pool: SyncPool, table: Callable[[str], str],
    writing: Callable[..., None],
) -> None:  # fmt: skip
    name = table(COLUMNS)
    write_id = f"half-{name}"
    writing(_frame(spark, 300), name, writeId=write_id)
    pool.execute(f"UPDATE {COMMIT} SET state = 'promoting', manifest = $1 WHERE write_id = $2",
                 f'{{"table":"{name}","columns":["id","s","d"],"on_conflict":"error",'
                 '"overwrite":false,"chunks":[]}', write_id)  # fmt: skip
    writing(_frame(spark, 300), name, writeId=write_id)
    assert _content(pool, name) == _wanted(300)
    row = pool.fetchrow(f"SELECT state FROM {COMMIT} WHERE write_id = $1", write_id)
    assert row == ("done",)


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ("id, s, 'x' AS nix", 'no column "nix"'),
        ("id, CAST(1 AS double) AS s", 'column "s": the data frame has double, the table has'),
        ("s, d", 'no column "id", which'),
    ],
)
def test_a_frame_that_does_not_fit_is_refused_by_name(
    spark: Any, table: Callable[[str], str], writing: Callable[..., None], columns: str, said: str
) -> None:
    with pytest.raises(Exception, match=said):
        writing(_frame(spark, 3).selectExpr(*columns.split(", ")), table(COLUMNS))


def test_null_in_a_key_is_refused_and_nothing_is_written(
    spark: Any, pool: SyncPool, table: Callable[[str], str], writing: Callable[..., None]
) -> None:
    name = table(COLUMNS)
    frame = _frame(spark, 10).selectExpr("CASE WHEN id = 5 THEN NULL ELSE id END AS id", "s", "d")
    with pytest.raises(Exception, match='null value in column "id"'):
        writing(frame, name)
    assert _content(pool, name) == []


def test_all_types_survive_the_way_there_and_back(
    spark: Any, table: Callable[[str], str], writing: Callable[..., None],
    reading: Callable[..., Any],
) -> None:  # fmt: skip
    name = table("k TEXT PRIMARY KEY, b BOOLEAN, n DECIMAL, g UUID, w DATETIME, u UNSIGNED")
    frame = spark.sql(
        "SELECT 'ä' AS k, true AS b, CAST('123456789012.000000000000000001' AS decimal(38,18)) "
        "AS n, '00000000-0000-0000-0000-000000000007' AS g, "
        "TIMESTAMP'2024-02-29 12:30:15.123456' AS w, 9223372036854775807 AS u"
    )
    writing(frame, name)
    assert reading(name).load().collect() == frame.collect()
    assert frame.collect()[0].n == Decimal("123456789012.000000000000000001")


def test_rows_can_be_brought_together_by_owner(
    spark: Any, dsn: str, table: Callable[[str], str]
) -> None:
    name = table(COLUMNS)
    frame = _frame(spark, 1000)
    parts = repartition_by_owner(frame, dsn, name).rdd.glom().map(len).collect()
    assert len(parts) == 2 and sum(parts) == 1000 and all(parts)
    top = frame.select(bucket_id(dsn, name)("id").alias("b")).agg({"b": "max"}).collect()
    assert 2900 < top[0][0] <= 3000
