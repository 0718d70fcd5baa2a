"""What the commands on Spark have in common: a quiet start, progress, one summary or one sentence.

The JVM and its Python workers get a file for what they have to say: it is named when something
went wrong that the one sentence does not explain, and removed otherwise.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from cairn.cli.talking import DEFAULT_DSN, Talk, TalkProblem, Target, password_of
from cairn.model.errors import CairnError, Unreachable
from cairn.model.quoting import identifier
from cairn.model.settings.dsn import split_dsn

FAILED, UNREACHABLE, WRONG_USAGE, PUT_ASIDE, INTERRUPTED = 1, 3, 2, 5, 130
#: For work that is over before code that was compiled twice would have paid: half of the CPU of a
#: small load went into the second compiler. It only comes before what a user sets himself.
SHORT = "-XX:TieredStopAtLevel=1 -XX:-UsePerfData"
TOLD_EVERY_S = 5.0  # to a file: a line for each step would fill it
_STARTED = "starting Spark"
_MARKS = ("CairnSparkError: ", "ServerError: ", "Error: ")
_CAUSE = re.compile(r"(?:Caused by)?: [\w.$]+: (.+)")
_console = Console(stderr=True)


class Bar:
    """The line that moves while people wait."""

    def __init__(self, title: str, terminal: IO[str]) -> None:
        self._progress = Progress(
            SpinnerColumn(), TextColumn("{task.description}"), BarColumn(),
            TextColumn("{task.fields[state]}"), TimeElapsedColumn(),
            console=Console(file=terminal), transient=True, disable=not terminal.isatty(),
        )  # fmt: skip
        self._title, self._terminal = title, terminal
        self._told, self._told_at = "", -TOLD_EVERY_S
        self._task = self._progress.add_task(_STARTED, total=None, state="")
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Bar:
        self._progress.start()
        return self

    def watch(self, spark: Any) -> None:
        """Show the finished tasks of the stages that run."""
        tracker = spark.sparkContext.statusTracker()

        def look() -> None:
            while not self._over.wait(0.3):
                done = total = 0
                for stage in tracker.getActiveStageIds():
                    info = tracker.getStageInfo(stage)
                    if info is not None:
                        done, total = done + info.numCompletedTasks, total + info.numTasks
                self._progress.update(self._task, completed=done, total=total or None)
                if total:
                    self._progress.update(self._task, state=f"{done}/{total} tasks")

        self._progress.update(self._task, description=self._title)
        self._thread = threading.Thread(target=look, name="progress", daemon=True)
        self._thread.start()

    def tell(self, state: str) -> None:
        """A moving line for a terminal; else now and then a line of its own."""
        self._progress.update(self._task, state=state)
        now = time.monotonic()
        if self._terminal.isatty() or state == self._told or now - self._told_at < TOLD_EVERY_S:
            return
        self._told, self._told_at = state, now
        print(f"cairn: {self._title}: {state}", file=self._terminal, flush=True)

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join()
        self._progress.stop()


Work = Callable[[Any, str, Bar], dict[str, Any]]


def run(
    title: str,
    dsn: str | None,
    password_file: str | None,
    master: str,
    work: Work,
    table: str | None = None,
    as_json: bool = False,
    missing_hint: str = "",
    code_of: Callable[[dict[str, Any]], int] = lambda facts: 0,
    is_short: bool = False,
    jars: str = "",
) -> int:
    """Start Spark, show progress, print what `work` found or one sentence of why not.

    What can be found out beforehand (`table` is the one that has to exist) costs no start of Spark.
    `is_short`: the start of Spark is most of the work. `jars`: programs for Java, with `,` between.
    """
    try:
        where = with_password(dsn, password_file)
        _knock(where, table)
    except TalkProblem as problem:
        say(f"{problem}{missing_hint}" if problem.sqlstate == "42P01" else str(problem))
        return problem.exit_code
    try:
        import pyspark  # noqa: F401

        from cairn.spark import session  # noqa: F401
    except ImportError as problem:
        say(
            f"{problem.name} is missing: pip install '.[spark]' in a clone, or the wheel of "
            "cairn-db with [spark] in an environment of its own"
        )
        return WRONG_USAGE
    begun = time.monotonic()
    with _log_file() as log, os.fdopen(os.dup(2), "w") as terminal:
        try:
            with Bar(title, terminal) as bar:
                spark = _started(master, title, log.path, SHORT if is_short else "", jars)
                ready = time.monotonic()
                bar.watch(spark)
                with plain_interrupts():
                    facts = work(spark, where, bar)
        except KeyboardInterrupt as problem:
            say(str(problem) or "stopped by Ctrl-C")
            return INTERRUPTED
        except Exception as problem:
            told, is_ours = sentence(problem)
            say(told if is_ours else f"{told}{log.keep()}")
            return UNREACHABLE if _is_unreachable(problem, told) else FAILED
    code = code_of(facts)
    _summarise(title, facts, time.monotonic() - ready, ready - begun, as_json)
    return code


def wrong_word(option: str, word: str, known: Sequence[str]) -> bool:
    """Say it, if `word` is none of those that an option takes."""
    if word not in known:
        say(f"{option} {word}: one of {', '.join(known)}")
    return word not in known


def say(words: str) -> None:
    _console.print(f"cairn: {words}", markup=False, highlight=False, soft_wrap=True)


# --- Spark's own words ----------------------------------------------------------------------------


class Log:
    """Where the JVM and the workers write."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.is_kept = False

    def keep(self) -> str:
        """How to find it; nothing to find if Spark was there before this run."""
        if not os.path.getsize(self.path):
            return ""
        self.is_kept = True
        return f"\nSpark's own words are in {self.path}"


@contextlib.contextmanager
def _log_file() -> Iterator[Log]:
    number, path = tempfile.mkstemp(prefix="cairn-spark-", suffix=".log")
    os.close(number)
    log = Log(path)
    try:
        yield log
    finally:
        if not log.is_kept:
            Path(path).unlink(missing_ok=True)


def _started(master: str, title: str, log: str, java_options: str, jars: str) -> Any:
    from cairn.spark import class_archive, session

    logging.getLogger("py4j").setLevel(logging.ERROR)
    with _errors_to(log):
        try:
            options = f"{java_options} {class_archive.java_options()}".strip()
            settings = {"spark.ui.showConsoleProgress": "false", class_archive.OPTIONS: options}
            if jars:  # Java looks for drivers of databases among what it was started with alone
                settings |= {"spark.jars": jars, "spark.driver.extraClassPath": _path_of(jars)}
            return session(master, f"cairn {title}", settings)
        except CairnError:
            raise
        except Exception as problem:
            raise RuntimeError(f"Spark did not start: {_why(problem, log)}") from problem


def _path_of(jars: str) -> str:
    return ":".join(os.path.abspath(each) for each in jars.split(",") if "://" not in each)


def _why(problem: Exception, log: str) -> str:
    """A JVM that ends at once has said why only in its log."""
    if "JAVA_GATEWAY_EXITED" not in str(problem):
        return sentence(problem)[0]
    lines = Path(log).read_text(errors="replace").splitlines()
    wrong = [line for line in lines if re.search(r"error|exception|cannot|could not", line, re.I)]
    return (wrong or lines or ["Java ended at once"])[0].strip()


@contextlib.contextmanager
def _errors_to(path: str) -> Iterator[None]:
    """Programs that are started meanwhile have this file for their errors."""
    sys.stderr.flush()
    kept = os.dup(2)
    with open(path, "ab") as log:
        os.dup2(log.fileno(), 2)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(kept, 2)
        os.close(kept)


@contextlib.contextmanager
def plain_interrupts() -> Iterator[None]:
    """Ctrl-C is an exception here, and SIGTERM the same one: what is begun ends in order.

    PySpark's own handler calls the JVM in the midst of a call. What fails after it, fails because
    of it: the connection to the JVM, for one, has an answer on its way that nobody took.
    """
    logging.getLogger().addHandler(logging.NullHandler())  # py4j logs the exception to the root
    came: list[int] = []

    def interrupt(number: int, _frame: object) -> None:
        came.append(number)
        raise KeyboardInterrupt

    try:
        signals = (signal.SIGINT, signal.SIGTERM)
        before = [signal.signal(each, interrupt) for each in signals]
    except ValueError:  # not the main thread: nobody interrupts it
        yield
        return
    try:
        yield
    except Exception as problem:
        if came:
            raise KeyboardInterrupt from problem
        raise
    finally:
        for number, handler in zip(signals, before, strict=True):
            signal.signal(number, handler)


# --- what went wrong ------------------------------------------------------------------------------


def sentence(problem: Exception) -> tuple[str, bool]:
    """The line that says what went wrong, out of a page of Spark's; whether it is ours."""
    if isinstance(problem, CairnError):
        return problem.sentence, True
    lines = [line.strip() for line in str(problem).splitlines() if line.strip()]
    for mark in _MARKS:
        for line in reversed(lines):
            if mark in line and "Py4JJava" not in line and "SparkException" not in line:
                return line.partition(mark)[2], mark == _MARKS[0]
    causes = [found[1] for line in lines if (found := _CAUSE.match(line))]
    if causes:  # the first line says only that a call failed; the last cause is the reason
        return causes[-1], False
    return (lines[0] if lines else type(problem).__name__), False


def _is_unreachable(problem: Exception, told: str) -> bool:
    return isinstance(problem, Unreachable) or told.startswith(f"[{Unreachable.sqlstate}]")


def _knock(where: str, table: str | None) -> None:
    """Who cannot be reached, or does not let us in, is told before Spark is started for it."""
    try:
        talk = Talk(Target(where, None))
        try:
            if table is not None:
                talk.rows(f"SELECT 1 FROM {identifier(table)} WHERE 1 = 0")
        finally:
            talk.close()
    except TalkProblem as problem:
        told = problem.exit_code in (WRONG_USAGE, UNREACHABLE) or problem.sqlstate == "42P01"
        if told or problem.sqlstate.startswith("28"):
            raise  # the driver has more patience with anything else


def with_password(dsn: str | None, password_file: str | None) -> str:
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


# --- the summary ----------------------------------------------------------------------------------


def _summarise(
    title: str, facts: dict[str, Any], seconds: float, start_s: float, as_json: bool
) -> None:
    from cairn.spark import class_archive

    rows = facts.get("rows_read", facts.get("rows"))
    if isinstance(rows, int) and seconds > 0:
        facts["rows_per_s"] = round(rows / seconds)
    times = {"seconds": round(seconds, 1), "spark_start_seconds": round(start_s, 1)}
    if as_json:
        print(json.dumps(facts | times, ensure_ascii=False))
        return
    if not facts.get("rows_per_s", 1):
        del facts["rows_per_s"]  # too few rows to say anything of speed
    hint = "" if class_archive.java_options() else f"\n({class_archive.HINT})"
    facts["seconds"] = f"{seconds:.1f}, and {start_s:.1f} to start Spark{hint}"
    table = Table(title=title, show_header=False, title_justify="left")
    for name, value in facts.items():
        shown = f"{value:,}" if isinstance(value, int) else str(value)
        table.add_row(name.replace("_per_s", "/s").replace("_", " "), shown)
    Console().print(table)
