"""`cairn load`, `dump`, `follow` and `report`: the pipeline on Spark as commands.

Each function takes plain values and returns an exit code; PySpark is imported inside, so that the
other commands stay quick.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from cairn.cli.talking import DEFAULT_DSN, Talk, TalkProblem, Target, password_of
from cairn.model.dsn import split_dsn
from cairn.model.errors import CairnError, Unreachable

MASTER = "local[*,4]"
FAILED, UNREACHABLE, WRONG_USAGE = 1, 3, 2
_console = Console(stderr=True)


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
    master: str = MASTER,
) -> int:
    """Parquet, CSV or JSON lines into a table."""

    def work(spark: Any, where: str) -> dict[str, Any]:
        from cairn.spark.loading import load as load_files

        done = load_files(
            spark, where, files, table, create=create, key=key, schema=schema, mode=mode,
            on_conflict=on_conflict, commit=commit, write_id=write_id, bad_file=bad_file,
        )  # fmt: skip
        facts: dict[str, Any] = {"table": done.table, "rows written": done.rows}
        if done.bad:
            facts["rows put aside"] = f"{done.bad} in {done.bad_file}"
        return facts

    missing = [file for file in files if _is_missing(file)]
    if missing:
        _console.print(f"cairn: {missing[0]}: no such file", markup=False, soft_wrap=True)
        return WRONG_USAGE
    return _run(f"loading {table}", dsn, password_file, master, work, None if create else table)


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
    master: str = MASTER,
) -> int:
    """A table to Parquet files in a directory."""

    def work(spark: Any, where: str) -> dict[str, Any]:
        from cairn.spark import read_table

        frame = read_table(spark, where, table, columns=columns, splits=splits)
        writer = frame.write.mode("overwrite" if overwrite else "error")
        if partition_by:
            writer = writer.partitionBy(*partition_by)
        writer.parquet(to)
        rows = spark.read.parquet(to).count()
        size = sum(each.stat().st_size for each in Path(to).rglob("*.parquet"))
        return {"table": table, "rows": rows, "files": to, "MB": round(size / 1e6, 1)}

    if Path(to).exists() and not overwrite:
        told = f"cairn: {to} is there already: --overwrite replaces it"
        _console.print(told, markup=False, soft_wrap=True)
        return WRONG_USAGE
    return _run(f"dumping {table}", dsn, password_file, master, work, table)


def follow(
    table: str,
    to: str,
    *,
    dsn: str | None = None,
    password_file: str | None = None,
    starting: str = "earliest",
    every_s: float = 5.0,
    once: bool = False,
    master: str = MASTER,
) -> int:
    """A table's changes to Parquet files, from where the last run ended; until Ctrl-C."""

    def work(spark: Any, where: str) -> dict[str, Any]:
        stream = spark.readStream.format("cairn").option("dsn", where)
        stream = stream.option("stream", f"table:{table}").option("startingOffset", starting)
        writer = stream.load().writeStream.format("parquet").option("path", to)
        writer = writer.option("checkpointLocation", str(Path(to) / "_checkpoint"))
        if once:
            query = writer.trigger(availableNow=True).start()
        else:
            query = writer.trigger(processingTime=f"{every_s} seconds").start()
        try:
            query.awaitTermination()
        except KeyboardInterrupt:
            query.stop()
        rows = sum(int(each["numInputRows"]) for each in query.recentProgress)
        return {"table": table, "changes": rows, "files": to}

    return _run(f"following {table}", dsn, password_file, master, work)


def report(
    out: str = "report.html",
    *,
    dsn: str | None = None,
    password_file: str | None = None,
    tables_to: str | None = None,
    master: str = MASTER,
) -> int:
    """What happened to the cluster and how its rows lie, as one HTML page."""

    def work(spark: Any, where: str) -> dict[str, Any]:
        from cairn.spark.analytics import analyse
        from cairn.spark.report_page import page

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

    return _run("report", dsn, password_file, master, work)


# --- common ---------------------------------------------------------------------------------------


def _run(
    title: str,
    dsn: str | None,
    password_file: str | None,
    master: str,
    work: Callable[[Any, str], dict[str, Any]],
    table: str | None = None,
) -> int:
    """Start Spark, show progress, print a summary or one sentence of why not.

    What can be found out beforehand (`table` is the one that has to exist) costs no start of Spark.
    """
    begun = time.monotonic()
    try:
        where = _with_password(dsn, password_file)
        _knock(where, table)
    except TalkProblem as problem:
        _console.print(f"cairn: {problem}", markup=False, soft_wrap=True)
        return problem.exit_code
    try:
        from cairn.spark import session
    except ImportError as problem:
        _console.print(f"cairn: {problem.name} is missing: pip install '.[spark]'", markup=False)
        return WRONG_USAGE
    try:
        logging.getLogger("py4j").setLevel(logging.ERROR)
        spark = session(master, name=f"cairn {title}")
        spark.sparkContext.setLogLevel("OFF")
        with progress(spark, title):
            facts = work(spark, where)
    except CairnError as problem:
        hint = f" ({problem.hint})" if problem.hint else ""
        _console.print(f"cairn: {problem.message}{hint}", markup=False)
        return UNREACHABLE if isinstance(problem, Unreachable) else FAILED
    except Exception as problem:
        told = sentence(problem)
        _console.print(f"cairn: {told}", markup=False)
        return UNREACHABLE if told.startswith(f"[{Unreachable.sqlstate}]") else FAILED
    seconds = time.monotonic() - begun
    rows = facts.get("rows written", facts.get("rows"))
    if isinstance(rows, int) and seconds > 0:
        facts["rows/s"] = round(rows / seconds)
    _print(title, {**facts, "seconds": round(seconds, 1)})
    return 0


def _knock(where: str, table: str | None) -> None:
    """Who cannot be reached, or does not let us in, is told before Spark is started for it."""
    try:
        talk = Talk(Target(where, None))
        try:
            if table is not None:
                quoted = table.replace('"', '""')
                talk.rows(f'SELECT 1 FROM "{quoted}" WHERE 1 = 0')
        finally:
            talk.close()
    except TalkProblem as problem:
        told = problem.exit_code in (WRONG_USAGE, UNREACHABLE) or problem.sqlstate == "42P01"
        if told or problem.sqlstate.startswith("28"):
            raise  # the driver has more patience with anything else


def sentence(problem: Exception) -> str:
    """The line that says what went wrong, out of a page of Spark's."""
    lines = [line.strip() for line in str(problem).splitlines() if line.strip()]
    for line in reversed(lines):
        for mark in ("CairnSparkError: ", "ServerError: ", "Error: "):
            if mark in line and "Py4JJava" not in line and "SparkException" not in line:
                return line.partition(mark)[2]
    return lines[0] if lines else type(problem).__name__


def _with_password(dsn: str | None, password_file: str | None) -> str:
    from urllib.parse import quote

    text = dsn or os.environ.get("CAIRN_DSN") or DEFAULT_DSN
    parts = split_dsn(text)
    if parts is None:
        return text
    password = password_of(parts.password, password_file)
    if not password:
        return text
    account = f"{quote(parts.user or 'admin', safe='')}:{quote(password, safe='')}"
    scheme, _, rest = text.partition("://")
    hosts = re.split(r"[/?#]", rest, maxsplit=1)[0]
    return f"{scheme}://{account}@{hosts.rpartition('@')[2]}{rest[len(hosts) :]}"


@contextlib.contextmanager
def progress(spark: Any, title: str) -> Iterator[None]:
    """Finished tasks of the stages that run, for people who wait."""
    bars = Progress(
        SpinnerColumn(), TextColumn("{task.description}"), BarColumn(),
        TextColumn("{task.completed}/{task.total} tasks"), TimeElapsedColumn(),
        console=_console, transient=True,
    )  # fmt: skip
    over = threading.Event()
    tracker = spark.sparkContext.statusTracker()

    def watch() -> None:
        bar = bars.add_task(title, total=None)
        while not over.wait(0.3):
            done = total = 0
            for stage in tracker.getActiveStageIds():
                info = tracker.getStageInfo(stage)
                if info is not None:
                    done, total = done + info.numCompletedTasks, total + info.numTasks
            bars.update(bar, completed=done, total=total or None)

    thread = threading.Thread(target=watch, name="progress", daemon=True)
    with bars:
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()


def _print(title: str, facts: dict[str, Any]) -> None:
    table = Table(title=title, show_header=False, title_justify="left")
    for name, value in facts.items():
        table.add_row(name, f"{value:,}" if isinstance(value, int) else str(value))
    Console().print(table)
