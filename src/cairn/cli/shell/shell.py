"""Our own shell: lines with history and completion, statements over several lines, tables.

Ctrl-C while a statement runs asks the server to end it; at the prompt it forgets the line.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from cairn.cli.shell import tables
from cairn.cli.talking import Talk, TalkProblem
from cairn.model.errors import CairnError
from cairn.model.quoting import literal
from cairn.pgwire.client.replies import ServerAnswer
from cairn.sql.parse.lexer import tokens

HISTORY = ".cairn_history"
HISTORY_LINES = 1_000
HELP = """\
\\d           tables, views and what they are
\\d NAME      columns and indexes of one
\\x           one column a line, on and off
\\timing      how long statements take, on and off
\\q           the end (or Ctrl-D)
A statement ends with ;
"""
_TABLES = """
SELECT table_name AS name, CASE table_type WHEN 'VIEW' THEN 'view' ELSE 'table' END AS kind
FROM information_schema.tables WHERE table_schema = 'public' ORDER BY table_name"""
_COLUMNS = """
SELECT column_name AS name, data_type AS type,
  CASE is_nullable WHEN 'NO' THEN 'not null' ELSE '' END AS nullable, column_default AS \"default\"
FROM information_schema.columns WHERE table_name = {} ORDER BY ordinal_position"""
_INDEXES = "SELECT indexname AS name, indexdef AS definition FROM pg_indexes WHERE tablename = {}"
_WORDS = (
    *("SELECT", "FROM", "WHERE", "INSERT INTO", "VALUES", "UPDATE", "SET", "DELETE FROM"),
    *("CREATE TABLE", "DISTRIBUTED BY", "DROP TABLE", "ALTER", "BEGIN", "COMMIT", "ROLLBACK"),
    *("EXPLAIN", "ORDER BY", "GROUP BY", "LIMIT", "JOIN", "CALL", "GRANT", "REVOKE"),
)


class Shell:
    def __init__(self, talk: Talk, *, as_json: bool = False) -> None:
        self._talk, self._as_json = talk, as_json
        self._is_wide = self._is_timed = False
        self._names: list[str] = []

    # --- scripts ----------------------------------------------------------------------------------

    def run_script(self, texts: Sequence[str]) -> int:
        """All statements; the first error ends it."""
        return 0 if all(map(self._execute, texts)) else 1

    # --- people -----------------------------------------------------------------------------------

    def run(self) -> int:
        with _editing(self):
            print("cairn sql: \\? for help, \\q to end", flush=True)
            kept = ""
            while True:
                try:
                    line = input("cairn-> " if kept else "cairn=> ")
                except EOFError:
                    print()
                    return 0
                except KeyboardInterrupt:
                    print()
                    kept = ""
                    continue
                if not kept and line.strip().startswith("\\"):
                    if not self._command(*line.strip().partition(" ")[::2]):
                        return 0
                    continue
                kept += line + "\n"
                if is_whole(kept):
                    self._execute(kept)
                    kept = ""

    def _command(self, word: str, rest: str) -> bool:
        """False: this is the end."""
        name = rest.strip().rstrip(";").strip('"')
        match word:
            case "\\q":
                return False
            case "\\x":
                self._is_wide = not self._is_wide
                print(f"one column a line: {'on' if self._is_wide else 'off'}")
            case "\\timing":
                self._is_timed = not self._is_timed
                print(f"timing: {'on' if self._is_timed else 'off'}")
            case "\\d" | "\\dt" if not name:
                self._execute(_TABLES)
            case "\\d":
                self._execute(_COLUMNS.format(literal(name)))
                self._execute(_INDEXES.format(literal(name)))
            case "\\?" | "\\h":
                print(HELP, end="")
            case _:
                print(f"there is no {word}: \\? shows what there is", file=sys.stderr)
        return True

    def _execute(self, text: str) -> bool:
        begun = time.monotonic()
        with _cancelled_by_ctrl_c(self._talk):
            answers = self._talk.run(text)
        sys.stdout.write(self._talk.take_copied().decode(errors="replace"))
        for notice in self._talk.take_notices():
            print(f"NOTICE:  {notice}", file=sys.stderr)
        for answer in answers:
            self._show(answer, text)
        if self._is_timed:
            print(f"Time: {1000 * (time.monotonic() - begun):.1f} ms")
        sys.stdout.flush()
        return all(answer.error is None for answer in answers)

    def _show(self, answer: ServerAnswer, text: str) -> None:
        for result in answer.results:
            names = [column[0] for column in result.columns]
            if self._as_json:
                if names:
                    print(tables.as_json(names, result.rows))
            elif names:
                show = tables.records if self._is_wide else tables.table
                print(show(names, result.rows))
            elif result.tag:
                print(result.tag)
        if answer.error is not None:
            print(in_words(answer.error, text), file=sys.stderr)

    # --- completion -------------------------------------------------------------------------------

    def complete(self, begun: str, state: int) -> str | None:
        if state == 0:
            if not self._names:
                with contextlib.suppress(TalkProblem, LookupError):
                    answers = self._talk.run(
                        "SELECT DISTINCT table_name FROM information_schema.tables "
                        "WHERE table_schema = 'public'; "
                        "SELECT DISTINCT column_name FROM information_schema.columns "
                        "WHERE table_schema = 'public'"
                    )
                    results = [each for answer in answers for each in answer.results]
                    self._names = [str(row[0]) for each in results for row in each.rows]
            upper = begun.upper()
            words = [word for word in _WORDS if word.startswith(upper)]
            self._matches = sorted({name for name in self._names if name.startswith(begun)}) + words
        return self._matches[state] if state < len(self._matches) else None


def is_whole(text: str) -> bool:
    """Whether the last statement has ended; a quote that is open goes on."""
    try:
        found = tokens(text)
    except CairnError as problem:
        opened = text[(problem.position or 1) - 1 :][:2].lower()
        is_open = opened.startswith(("'", '"', "$", "/*", "e'"))
        return not is_open and text.rstrip().endswith(";")  # the server says what is wrong
    return not found or found[-1].is_op(";")


def in_words(problem: CairnError, text: str) -> str:
    """The server's error with its code, and the place it points at."""
    lines = [f"ERROR:  {problem.sqlstate}: {problem.message}"]
    if problem.position is not None and 1 <= problem.position <= len(text):
        before = text[: problem.position - 1]
        number = before.count("\n")
        column = len(before) - (before.rfind("\n") + 1)
        head = f"LINE {number + 1}: "
        lines += [head + text.split("\n")[number], " " * (len(head) + column) + "^"]
    if problem.detail:
        lines.append(f"DETAIL:  {problem.detail}")
    if problem.hint:
        lines.append(f"HINT:  {problem.hint}")
    return "\n".join(lines)


@contextlib.contextmanager
def _cancelled_by_ctrl_c(talk: Talk) -> Iterator[None]:
    """An interrupt in the middle of a message would lose it: the handler only asks the server. Who
    interrupts again does not wait for what it says."""

    def ask(*_: object) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        talk.cancel()

    before = signal.signal(signal.SIGINT, ask)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextlib.contextmanager
def _editing(shell: Shell) -> Iterator[None]:
    """History and completion, where Python has readline. What was typed may have passwords in it:
    the file is ours alone."""
    try:
        import readline
    except ImportError:
        yield
        return
    path = Path(os.environ.get("CAIRN_HISTORY") or Path.home() / HISTORY)
    with contextlib.suppress(OSError):
        readline.read_history_file(path)
    readline.set_history_length(HISTORY_LINES)
    readline.set_completer_delims(" \t\n,();=<>")
    readline.set_completer(shell.complete)
    readline.parse_and_bind("tab: complete")
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            path.touch(mode=0o600)
            readline.write_history_file(path)
