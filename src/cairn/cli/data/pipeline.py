"""`cairn load`, `dump`, `follow` and `report`: the pipeline on Spark as commands.

Each function takes plain values and returns an exit code; PySpark is imported inside, so that the
other commands stay quick.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cairn.cli.data.spark_runs import PUT_ASIDE, WRONG_USAGE, Bar, run, say, wrong_word
from cairn.cli.talking import TalkProblem, password_of

MASTER = "local[*,4]"
SMALL_BYTES = 16 << 20
MAX_REJECTS = 10_000  # with more rows put aside, nothing is loaded
KINDS = ("parquet", "csv", "jsonl")


def load(
    files: Sequence[str],
    table: str,
    *,
    dsn: str | None = None,
    password_file: str | None = None,
    create: bool = False,
    key: Sequence[str] = (),
    schema: str | None = None,
    mode: str = "append",
    on_conflict: str = "error",
    commit: str = "staged",
    write_id: str | None = None,
    bad_file: str | None = None,
    max_rejects: int = MAX_REJECTS,
    multiline: bool = False,
    source: str = "",
    source_password_file: str | None = None,
    jars: str = "",
    master: str = MASTER,
    as_json: bool = False,
) -> int:
    """Parquet, CSV or JSON lines into a table, or what another database has."""
    try:
        database = _database(files, source, source_password_file, jars)
    except TalkProblem as problem:
        say(str(problem))
        return problem.exit_code

    def work(spark: Any, where: str, bar: Bar) -> dict[str, Any]:
        from cairn.spark.files.loading import load as load_files

        done = load_files(
            spark, where, files, table, create=create, key=key, schema=schema, mode=mode,
            on_conflict=on_conflict, commit=commit, write_id=write_id, bad_file=bad_file,
            max_rejects=max_rejects, multiline=multiline, database=database,
        )  # fmt: skip
        facts = {"table": done.table, "rows_read": done.rows, "rows_added": done.added}
        if done.bad:
            facts |= {"rows_put_aside": done.bad, "put_aside_in": done.bad_file}
        if (first := done.first_bad) is not None:
            facts["first_of_them"] = f"{first.place}: {first.reason}"
        return facts

    missing = [file for file in files if _is_missing(file)]
    if missing:
        say(f"{missing[0]}: no such file")
        return WRONG_USAGE
    if (
        wrong_word("--mode", mode, ("append", "overwrite"))
        or wrong_word("--on-conflict", on_conflict, ("error", "ignore", "replace"))
        or wrong_word("--commit", commit, ("staged", "direct"))
    ):
        return WRONG_USAGE
    known, hint = None if create else table, " (--create makes it)"
    return run(
        f"loading {table}", dsn, password_file, master, work, known, as_json, hint,
        lambda facts: PUT_ASIDE if "rows_put_aside" in facts else 0, is_small(files), jars,
    )  # fmt: skip


def _database(
    files: Sequence[str], source: str, password_file: str | None, jars: str
) -> dict[str, str]:
    """Spark's options for a JDBC URL; empty for files."""
    if not any(each.startswith("jdbc:") for each in files):
        if source or password_file or jars:
            raise TalkProblem("--from, --from-password-file and --jars go with a URL of JDBC", 2)
        return {}
    if not source:
        raise TalkProblem("say what to take: --from TABLE, or --from '(SELECT …) AS rows'", 2)
    if not jars:
        raise TalkProblem("--jars FILE: the JDBC driver of that database", 2)
    lacking = [each for each in jars.split(",") if "://" not in each and not Path(each).is_file()]
    if lacking:
        raise TalkProblem(f"{lacking[0]}: no such file", 2)
    options = {"dbtable": source, "fetchsize": "10000"}
    if password_file:
        options["password"] = password_of("", password_file, "--from-password-file")
    return options


def is_small(files: Sequence[str]) -> bool:
    """Local files, few bytes; what cannot be known here counts as large."""
    paths = [Path(each) for each in files]
    return all(each.is_file() for each in paths) and (
        sum(each.stat().st_size for each in paths) <= SMALL_BYTES
    )


def _is_missing(file: str) -> bool:
    """As far as it can be known here: patterns and other file systems are Spark's."""
    return "://" not in file and not set("*?[{") & set(file) and not Path(file).exists()


def dump(
    table: str,
    to: str,
    *,
    dsn: str | None = None,
    password_file: str | None = None,
    partition_by: Sequence[str] = (),
    columns: Sequence[str] = (),
    splits: int = 0,
    overwrite: bool = False,
    kind: str = "parquet",
    master: str = MASTER,
    as_json: bool = False,
) -> int:
    """A table to files in a directory: Parquet, CSV or JSON lines."""

    def work(spark: Any, where: str, bar: Bar) -> dict[str, Any]:
        from cairn.spark import read_table
        from cairn.spark.files.dumping import dump as dump_files

        frame = read_table(spark, where, table, columns=columns, splits=splits)
        rows = dump_files(spark, frame, to, kind, partition_by, overwrite=overwrite)
        facts = {"table": table, "rows": rows, "to": to}
        parts = [each.stat().st_size for each in Path(to).rglob("part-*")]
        return facts if "://" in to else {**facts, "files": len(parts), "bytes": sum(parts)}

    if wrong_word("--format", kind, KINDS):
        return WRONG_USAGE
    if Path(to).exists() and not overwrite:
        say(f"{to} is there already: --overwrite replaces it")
        return WRONG_USAGE
    return run(f"dumping {table}", dsn, password_file, master, work, table, as_json)


def follow(
    table: str,
    to: str | None = None,
    *,
    into: str | None = None,
    kind: str = "parquet",
    dsn: str | None = None,
    password_file: str | None = None,
    starting: str = "earliest",
    every_s: float = 5.0,
    once: bool = False,
    master: str = MASTER,
    as_json: bool = False,
) -> int:
    """A table's changes `to` Parquet files, or its rows `into` a copy that is kept current.

    From where the last run ended; until it is stopped.
    """

    def work(spark: Any, where: str, bar: Bar) -> dict[str, Any]:
        from cairn.spark.files.following import follow as start
        from cairn.spark.files.lake import keep_copy

        if to is not None:
            query = start(spark, where, table, to, starting=starting, every_s=every_s, once=once)
        else:
            assert into is not None
            query = keep_copy(spark, where, table, into, kind, every_s=every_s, once=once)
        changes = _until_the_end(query, bar)
        return {"table": table, "changes": changes, "to": to or into}

    if (to is None) == (into is None):
        say("--to DIR (the changes) or --into DIR (a copy of the rows): one of them")
        return WRONG_USAGE
    if wrong_word("--format", kind, ("parquet", "delta")):
        return WRONG_USAGE
    if every_s < 0:
        say("--every: a number of seconds, not less than 0")
        return WRONG_USAGE
    if wrong_word("--starting", starting, ("earliest", "latest", "snapshot")):
        return WRONG_USAGE
    return run(f"following {table}", dsn, password_file, master, work, table, as_json)


def _until_the_end(query: Any, bar: Bar) -> int:
    """Wait for it, or for Ctrl-C or SIGTERM; the changes that came.

    Spark remembers only its last batches.
    """
    counts: dict[int, int] = {}

    def count() -> int:
        counts.update((each["batchId"], int(each["numInputRows"])) for each in query.recentProgress)
        return sum(counts.values())

    try:
        while not query.awaitTermination(1):
            bar.tell(f"{count():,} changes")
    except KeyboardInterrupt:
        query.stop()
    return count()


def report(
    out: str = "report.html",
    *,
    dsn: str | None = None,
    password_file: str | None = None,
    tables_to: str | None = None,
    master: str = MASTER,
    as_json: bool = False,
) -> int:
    """What happened to the cluster and how its rows lie, as one HTML page."""

    def work(spark: Any, where: str, bar: Bar) -> dict[str, Any]:
        from cairn.spark.report.analytics import analyse
        from cairn.spark.report.page import page

        found = analyse(spark, where)
        Path(out).write_text(page(found), encoding="utf-8")
        if tables_to:
            for name, frame in found.frames.items():
                frame.coalesce(1).write.mode("overwrite").parquet(str(Path(tables_to) / name))
        return {
            "page": out,
            "instances": len({row["instance_uuid"] for row in found.intervals}),
            "failovers": len(found.failovers),
            "tables": len(found.skew),
        }

    if not Path(out).absolute().parent.is_dir():
        say(f"{Path(out).parent}: no such directory")
        return WRONG_USAGE
    return run("report", dsn, password_file, master, work, None, as_json, is_short=True)
