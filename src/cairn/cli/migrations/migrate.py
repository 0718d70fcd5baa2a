"""`cairn migrate`: numbered SQL files into the governor's queue, and what became of them."""

from __future__ import annotations

import json
import time
from typing import Any

from cairn.cli.migrations.files import Operation, is_same, read_files
from cairn.cli.talking import Talk, TalkProblem, Target
from cairn.cli.terminal import Fitted, console

FIRST_ID = 1000  # below are the system's own

_INSERT = (
    "INSERT INTO _pico_governor_queue "
    "(id, batch_id, op, op_format, status, kind, description) VALUES "
)
_ROW = "(${0}, ${1}, ${2}, 'sql', 'pending', 'custom', ${3})"


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
    target = Target(dsn, password_file)
    command = words[0] if words[0] in ("status", "retry", "skip") else None
    batches = {} if command else read_files(words, batch)
    talk = Talk(target)
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
            case ["status", *_]:
                raise TalkProblem("write `cairn migrate status`", 2)
        enqueue(talk, batches)
    finally:
        talk.close()
    return follow(target, sorted(batches), timeout_s) if wait else 0


def enqueue(talk: Talk, batches: dict[str, list[Operation]]) -> None:
    """All new files or none of them, in one entry; what is there already is left as it is."""
    for _ in range(20):
        wanted = [each for name in batches for each in _missing(talk, name, batches[name])]
        if not wanted:
            _tell(batches, {})
            return
        [[last]] = talk.rows("SELECT max(id) FROM _pico_governor_queue")
        first = max(int(last or 0), FIRST_ID - 1) + 1
        try:
            _insert(talk, wanted, first)
        except TalkProblem as problem:
            if problem.sqlstate == "23505":
                continue  # somebody else took these ids
            raise
        _tell(batches, {at: each.batch for at, each in enumerate(wanted, first)})
        return
    raise TalkProblem("others keep filling the queue; try again")


def _missing(talk: Talk, batch: str, operations: list[Operation]) -> list[Operation]:
    """Operations of a batch that was never queued; one that differs from the queued is an error."""
    known = talk.rows(
        "SELECT op FROM _pico_governor_queue WHERE batch_id = $1 ORDER BY id", (batch,)
    )
    if not known:
        return operations
    same = len(known) == len(operations) and all(
        is_same(row[0], each.text) for row, each in zip(known, operations, strict=True)
    )
    if not same:
        raise TalkProblem(
            f"batch {batch} is queued already with other statements: "
            "never change a migration, add another file"
        )
    return []


def _insert(talk: Talk, wanted: list[Operation], first: int) -> None:
    values: list[Any] = []
    rows = []
    for at, each in enumerate(wanted, first):
        start = len(values) + 1
        values += [at, each.batch, each.text, each.description]
        rows.append(_ROW.format(*range(start, start + 4)))
    talk.rows(_INSERT + ", ".join(rows), tuple(values), timeout_s=60.0)


def _tell(batches: dict[str, list[Operation]], queued: dict[int, str]) -> None:
    for name in batches:
        ids = [at for at, batch in queued.items() if batch == name]
        if ids:
            many = f"{ids[0]}" if len(ids) == 1 else f"{ids[0]}…{ids[-1]}"
            print(f"{name}: {_operations(len(ids))} queued as {many}")
        else:
            print(f"{name}: queued before")


def follow(target: Target, batches: list[str], timeout_s: float) -> int:
    """Until all are done or one has failed, with a bar on a terminal, whoever dies meanwhile."""
    from rich.console import Console
    from rich.progress import Progress

    deadline = time.monotonic() + timeout_s
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("migrating", total=None)
        while True:
            everything = _look(target, deadline)
            rows = [row for row in everything if row["batch_id"] in batches]
            done = sum(row["status"] == "done" for row in rows)
            progress.update(task, total=len(rows), completed=done)
            failed = [row for row in everything if row["status"] == "failed"]
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
                raise TalkProblem(f"{_operations(len(rows) - done)} still pending", 4)
            time.sleep(0.1)
    print(f"{_operations(done)} done")
    return 0


def _operations(count: int) -> str:
    return "1 operation" if count == 1 else f"{count} operations"


def _look(target: Target, deadline: float) -> list[dict[str, Any]]:
    """The queue as any instance tells it; the one we asked before may be gone."""
    while True:
        try:
            talk = Talk(target)
            try:
                return _rows(talk)
            finally:
                talk.close()
        except TalkProblem as problem:
            if problem.exit_code not in (3, 4) or time.monotonic() > deadline:
                raise
        time.sleep(0.2)


def _rows(talk: Talk) -> list[dict[str, Any]]:
    names = ("id", "batch_id", "status", "kind", "description", "status_description", "op")
    found = talk.rows(f"SELECT {', '.join(names)} FROM _pico_governor_queue ORDER BY id")
    return [dict(zip(names, row, strict=True)) for row in found]


def show(talk: Talk, *, as_json: bool) -> int:
    rows = _rows(talk)
    if as_json:
        print(json.dumps(rows, indent=2, ensure_ascii=False))
    else:
        from rich.markup import escape
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
                escape(text if len(text) < 80 else text[:77] + "…"),
            )
        console().print(Fitted(table, "kind", "batch", long="operation"))
    return 1 if any(row["status"] == "failed" for row in rows) else 0


def settle(talk: Talk, number: str, status: str) -> int:
    """A failed operation is tried again, or taken as done."""
    if not number.isdecimal():
        raise TalkProblem(f"{number} is no operation id; see `cairn migrate status`", 2)
    query = "SELECT status, status_description FROM _pico_governor_queue WHERE id = $1"
    found = talk.rows(query, (int(number),))
    if not found:
        raise TalkProblem(f"there is no operation {number}; see `cairn migrate status`")
    if found[0][0] != "failed":
        raise TalkProblem(f"operation {number} is {found[0][0]}, not failed")
    why = None if status == "pending" else f"skipped: {found[0][1]}"
    talk.rows(
        "UPDATE _pico_governor_queue SET status = $1, status_description = $2 WHERE id = $3",
        (status, why, int(number)),
    )
    print(f"operation {number} is {status}")
    return 0
