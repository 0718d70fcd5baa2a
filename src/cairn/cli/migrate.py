"""`cairn migrate`: numbered SQL files into the governor's queue, and what became of them."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from cairn.cli.talking import Talk, TalkProblem, Target
from cairn.sql.lexer import split

_INSERT = (
    "INSERT INTO _pico_governor_queue "
    "(id, batch_id, op, op_format, status, kind, description) VALUES "
)
_ROW = "(${0}, ${1}, ${2}, 'sql', 'pending', 'custom', ${3})"


class Operation:
    """One statement of a file."""

    def __init__(self, batch: str, text: str, description: str) -> None:
        self.batch, self.text, self.description = batch, text, description


def read_files(files: list[str], batch: str | None) -> dict[str, list[Operation]]:
    """Statements by batch, in the order of the files' names."""
    found: dict[str, list[Operation]] = {}
    for name in sorted(files, key=lambda path: Path(path).name):
        try:
            text = Path(name).read_text()
        except OSError as problem:
            raise TalkProblem(f"{name}: {problem.strerror}", 2) from None
        key = batch or Path(name).name
        statements = [piece.strip() for piece in split(text) if piece.strip()]
        if not statements:
            raise TalkProblem(f"{name} holds no statement", 2)
        found.setdefault(key, []).extend(
            Operation(key, statement, f"{Path(name).name}, statement {at}")
            for at, statement in enumerate(statements, 1)
        )
    return found


def run_migrate(
    words: list[str],
    dsn: str | None,
    password_file: str | None,
    *,
    batch: str | None,
    wait: bool,
    as_json: bool,
    timeout_s: float,
) -> int:
    talk = Talk(Target(dsn, password_file))
    try:
        match words:
            case ["status"]:
                return show(talk, as_json=as_json)
            case ["retry", number]:
                return settle(talk, number, "pending")
            case ["skip", number]:
                return settle(talk, number, "done")
            case ["retry" | "skip", *_]:
                raise TalkProblem("write `cairn migrate retry ID` or `cairn migrate skip ID`", 2)
        batches = read_files(words, batch)
        for name, operations in batches.items():
            enqueue(talk, name, operations)
        if not wait:
            return 0
        return follow(talk, sorted(batches), timeout_s)
    finally:
        talk.close()


def enqueue(talk: Talk, batch: str, operations: list[Operation]) -> None:
    """All of a batch or nothing of it; a batch that is there already is left as it is."""
    for _ in range(20):
        known = talk.rows(
            "SELECT op FROM _pico_governor_queue WHERE batch_id = $1 ORDER BY id", (batch,)
        )
        if known:
            if [row[0] for row in known] != [each.text for each in operations]:
                raise TalkProblem(
                    f"batch {batch} is queued already with other statements: "
                    "never change a migration, add another file"
                )
            print(f"{batch}: queued before")
            return
        [[last]] = talk.rows("SELECT max(id) FROM _pico_governor_queue")
        first = max(int(last or 0), 999) + 1
        values: list[Any] = []
        rows = []
        for at, each in enumerate(operations):
            start = len(values) + 1
            values += [first + at, each.batch, each.text, each.description]
            rows.append(_ROW.format(*range(start, start + 4)))
        try:
            talk.rows(_INSERT + ", ".join(rows), tuple(values))
        except TalkProblem as problem:
            if "uplicate" in str(problem):
                continue  # somebody else took these ids
            raise
        print(f"{batch}: {len(operations)} operations queued as {first}…{first + len(rows) - 1}")
        return
    raise TalkProblem("others keep filling the queue; try again")


def follow(talk: Talk, batches: list[str], timeout_s: float) -> int:
    """Until all are done or one has failed, with a bar on a terminal."""
    from rich.console import Console
    from rich.progress import Progress

    deadline = time.monotonic() + timeout_s
    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("migrating", total=None)
        while True:
            rows = [row for row in _rows(talk) if row["batch_id"] in batches]
            done = sum(row["status"] == "done" for row in rows)
            progress.update(task, total=len(rows), completed=done)
            failed = [row for row in _rows(talk) if row["status"] == "failed"]
            if failed:
                row = failed[0]
                raise TalkProblem(
                    f"operation {row['id']} ({row['description']}) failed: "
                    f"{row['status_description']}\n"
                    f"repair it, then: cairn migrate retry {row['id']}   "
                    f"(or: cairn migrate skip {row['id']})"
                )
            if done == len(rows):
                break
            if time.monotonic() > deadline:
                raise TalkProblem(f"{len(rows) - done} operations are still pending", 4)
            time.sleep(0.05)
    print(f"{done} operations done")
    return 0


def _rows(talk: Talk) -> list[dict[str, Any]]:
    names = ("id", "batch_id", "status", "kind", "description", "status_description", "op")
    found = talk.rows(f"SELECT {', '.join(names)} FROM _pico_governor_queue ORDER BY id")
    return [dict(zip(names, row, strict=True)) for row in found]


def show(talk: Talk, *, as_json: bool) -> int:
    rows = _rows(talk)
    if as_json:
        print(json.dumps(rows, indent=2, ensure_ascii=False))
    else:
        from rich.console import Console
        from rich.table import Table

        table = Table("id", "batch", "kind", "status", "operation", box=None)
        colours = {"done": "green", "failed": "red"}
        for row in rows:
            text = row["status_description"] or row["op"]
            table.add_row(
                str(row["id"]),
                row["batch_id"],
                row["kind"],
                f"[{colours.get(row['status'], 'default')}]{row['status']}[/]",
                text if len(text) < 80 else text[:77] + "…",
            )
        Console().print(table)
    return 1 if any(row["status"] == "failed" for row in rows) else 0


def settle(talk: Talk, number: str, status: str) -> int:
    """A failed operation is tried again, or taken as done."""
    if not number.isdigit():
        raise TalkProblem(f"{number} is no operation id; see `cairn migrate status`", 2)
    found = talk.rows("SELECT status FROM _pico_governor_queue WHERE id = $1", (int(number),))
    if not found:
        raise TalkProblem(f"there is no operation {number}; see `cairn migrate status`")
    if found[0][0] != "failed":
        raise TalkProblem(f"operation {number} is {found[0][0]}, not failed")
    talk.rows(
        "UPDATE _pico_governor_queue SET status = $1, status_description = NULL WHERE id = $2",
        (status, int(number)),
    )
    print(f"operation {number} is {status}")
    return 0
