"""The audit log: who came, who was refused, and who changed rights, tables, settings or topology.

JSON lines in the instance's directory. They are written by a thread of their own from a line of
limited length: neither a slow disk nor a full one holds up or ends anything else. What could not be
written is counted, and the count is written as soon as something can be.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple, TypeVar

import msgspec

from cairn.model import system_tables as system
from cairn.model.errors import AccessDenied, CairnError
from cairn.sql import plans
from cairn.sql.statements.passwords import without_secrets
from cairn.storage.state_machine import Applied

T = TypeVar("T")

NAME = "audit.log"
WAITING = 10_000  # lines that wait for the disk
SHOWN_TEXT = 1_000  # characters of a statement
QUIET_S = 10.0  # refusals of one address, or of one user, are told once in this time, with a count
MOST = 1_000  # of these that are remembered

log = logging.getLogger("cairn.audit")
_encode = msgspec.json.Encoder().encode

_TOPOLOGY = {
    table.id: table
    for table in (
        *(system.PICO_INSTANCE, system.PICO_REPLICASET, system.PICO_TIER),
        system.PICO_PEER_ADDRESS,
    )
}


class Who(NamedTuple):
    user: str
    address: str
    pid: int = 0


class AuditLog:
    """`limits` gives the size of a file in bytes (0: nothing is written) and how many are kept."""

    def __init__(self, directory: Path, limits: Callable[[], tuple[int, int]]) -> None:
        self._path, self._limits = directory / NAME, limits
        self._lines: deque[bytes] = deque()
        self._wake = threading.Condition()
        self._lost = 0
        self._is_torn = False  # half a line may be in the file
        self._is_ending = False
        self._repeats: dict[tuple[str, str], list[float]] = {}  # since when, how many untold
        self._said = 0.0
        self._thread = threading.Thread(target=self._run, name="audit", daemon=True)
        self._thread.start()

    @property
    def lost(self) -> int:
        """Lines that could not be written, and are not told of yet."""
        return self._lost

    # --- what is told -----------------------------------------------------------------------------

    def write(self, event: str, who: Who | None = None, **facts: Any) -> None:
        if not self._limits()[0]:
            return
        line: dict[str, Any] = {"time": datetime.now(UTC).isoformat(), "event": event}
        if who is not None:
            line |= {"user": who.user, "address": who.address, "pid": who.pid}
        data = _encode(line | facts) + b"\n"
        with self._wake:
            if len(self._lines) >= WAITING:
                self._lost += 1
                return
            self._lines.append(data)
            self._wake.notify()

    def refused(self, event: str, who: Who, key: str, **facts: Any) -> None:
        """Somebody who tries again and again must not push everything else out of the files."""
        now = monotonic()
        since = self._repeats.get((event, key))
        if since is not None and now - since[0] < QUIET_S:
            since[1] += 1
            return
        more = {} if since is None or not since[1] else {"untold": int(since[1])}
        if len(self._repeats) >= MOST:
            self._repeats.clear()
        self._repeats[(event, key)] = [now, 0]
        self.write(event, who, **facts, **more)

    async def noted(
        self, who: Who, plan: plans.Plan, text: bytes, work: Coroutine[Any, Any, T]
    ) -> T:
        """Run it, and note how it ended if it is one of those that are noted."""
        kind = kind_of(plan)
        if kind is None:
            return await work
        shown = statement(text)
        try:
            result = await work
        except AccessDenied:
            raise  # the session tells of every refusal
        except BaseException as problem:
            state = problem.sqlstate if isinstance(problem, CairnError) else "57014"
            self.write(kind, who, statement=shown, outcome=state)
            raise
        self.write(kind, who, statement=shown, outcome="done")
        return result

    def applied(self, done: list[Applied]) -> None:
        """Changes of the topology, whoever made them: every instance notes them as they come."""
        for each in done:
            for change in each.changes:
                table = _TOPOLOGY.get(change.table)
                if table is None:
                    continue
                names = [column.name for column in table.columns]
                old = dict(zip(names, change.old or (), strict=False))
                new = dict(zip(names, change.new or (), strict=False))
                self.write(
                    "topology",
                    table=table.name,
                    key=[(new or old)[name] for name in table.primary_key],
                    old={name: old[name] for name in old if old[name] != new.get(name)},
                    new={name: new[name] for name in new if new[name] != old.get(name)},
                    raft=[each.term, each.index],
                )

    # --- the file ---------------------------------------------------------------------------------

    def close(self) -> None:
        with self._wake:
            self._is_ending = True
            self._wake.notify()
        self._thread.join(2.0)

    def _run(self) -> None:
        while True:
            with self._wake:
                while not self._lines and not self._is_ending:
                    self._wake.wait()
                lines = deque(self._lines)
                self._lines.clear()
                if not lines:
                    return
            try:
                self._tell_lost()
                while lines:
                    self._append(lines[0])
                    lines.popleft()
            except OSError as problem:
                with self._wake:
                    self._lost += len(lines)
                self._say(problem)

    def _tell_lost(self) -> None:
        lost = self._lost
        if lost:
            line = {"time": datetime.now(UTC).isoformat(), "event": "lost", "lines": lost}
            self._append(_encode(line) + b"\n")
            with self._wake:
                self._lost -= lost

    def _append(self, data: bytes) -> None:
        size, count = self._limits()
        if self._is_torn:
            data = b"\n" + data
        try:
            has = self._path.stat().st_size
        except FileNotFoundError:
            has = 0
        if has and has + len(data) > size:
            self._rotate(count)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        file = os.open(self._path, flags, 0o600)
        try:
            self._is_torn = True
            while data:
                data = data[os.write(file, data) :]
            self._is_torn = False
        finally:
            os.close(file)

    def _rotate(self, count: int) -> None:
        """`audit.log.1` is the youngest of the old ones."""
        kept = max(count - 1, 0)
        for number in range(kept, 0, -1):
            younger = self._numbered(number - 1)
            if younger.exists():
                younger.replace(self._numbered(number))
        if not kept:
            self._path.unlink(missing_ok=True)
        number = kept + 1
        while self._numbered(number).exists():  # the setting was lowered
            self._numbered(number).unlink()
            number += 1

    def _numbered(self, number: int) -> Path:
        return self._path.with_name(f"{NAME}.{number}") if number else self._path

    def _say(self, problem: OSError) -> None:
        now = monotonic()
        if now - self._said > 60 or not self._said:
            self._said = now
            log.error("%s cannot be written, lines are lost: %s", self._path.name, problem)


def statement(text: bytes) -> str:
    """As it may be shown to others than its author."""
    return without_secrets(text.decode(errors="replace"))[:SHOWN_TEXT]


def kind_of(plan: plans.Plan) -> str | None:
    """Which statements are noted, and as what; rows of people's own tables are not."""
    match plan:
        case plans.DdlPlan():
            return "ddl"
        case plans.AclPlan():
            return "rights"
        case plans.AlterSystemPlan():
            return "settings"
        case plans.GlobalWrite(table=table) if table.is_system:
            return "system"
        case plans.CallPlan(procedure=name) if name in _CALLS:
            return "topology"
        case plans.CatalogRead(sql=sql) if "pg_terminate_backend" in sql or "pg_cancel" in sql:
            return "sessions"
    return None


_CALLS = frozenset({"cairn_expel", "cairn_rebalance", "cairn_tier", "cairn_compact"})
