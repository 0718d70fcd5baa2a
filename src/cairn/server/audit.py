"""The audit log: who came, who was refused, and who changed rights, tables, settings or topology.

JSON lines in the instance's directory.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple, TypeVar

from cairn.model.errors import AccessDenied, CairnError
from cairn.model.log.applied import Applied
from cairn.model.tables import system_tables as system
from cairn.server.line_log import LineLog
from cairn.sql import plans
from cairn.sql.statements.passwords import without_secrets

T = TypeVar("T")

NAME = "audit.log"
SHOWN_TEXT = 1_000  # characters of a statement
QUIET_S = 10.0  # refusals of one address, or of one user, are told once in this time, with a count
MOST = 1_000  # of these that are remembered
#: What one user who is no administrator may write in a while; the rest of it is counted. Some need
#: no right at all: DROP TABLE IF EXISTS of nothing, logins. They must not push out what others did.
BUDGET_BYTES, BUDGET_S = 256 * 1024, 60.0
LINE_BYTES = 150  # of a line without its statement

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

    def __init__(
        self,
        directory: Path,
        limits: Callable[[], tuple[int, int]],
        is_trusted: Callable[[str], bool] = lambda user: False,
    ) -> None:
        self._lines = LineLog(directory / NAME, limits)
        self._is_trusted = is_trusted
        self._spent: dict[str, list[float]] = {}  # by user: since when, bytes, how many untold
        self._repeats: dict[tuple[str, str], list[float]] = {}  # since when, how many untold

    @property
    def lost(self) -> int:
        """Lines that could not be written, and are not told of yet."""
        return self._lines.lost

    # --- what is told -----------------------------------------------------------------------------

    def write(self, event: str, who: Who | None = None, **facts: Any) -> None:
        line: dict[str, Any] = {"event": event}
        if who is not None:
            line |= {"user": who.user, "address": who.address, "pid": who.pid}
            if not self._has_left(who.user, LINE_BYTES + len(str(facts.get("statement", "")))):
                return
            if untold := int(self._spent[who.user][2]):
                self._spent[who.user][2] = 0
                facts = facts | {"untold": untold + facts.get("untold", 0)}
        self._lines.write(line | facts)

    def _has_left(self, user: str, size: int) -> bool:
        now = monotonic()
        spent = self._spent.get(user)
        if spent is None:
            if len(self._spent) >= MOST:
                self._spent.clear()
            spent = self._spent[user] = [now, 0.0, 0.0]
        if now - spent[0] > BUDGET_S:
            spent[:2] = now, 0.0
        spent[1] += size
        if spent[1] <= BUDGET_BYTES or self._is_trusted(user):
            return True
        spent[2] += 1
        return False

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

    def close(self) -> None:
        self._lines.close()


def statement(text: bytes) -> str:
    """As it may be shown to others than its author."""
    return without_secrets(text.decode(errors="replace"))[:SHOWN_TEXT]


def kind_of(plan: plans.Plan) -> str | None:
    """Which statements are noted, and as what; rows of people's own tables are not."""
    match plans.carried_out(plan):
        case plans.DdlPlan(temp=temp) if temp is not None:
            return None  # a session's own
        case plans.DdlPlan() | plans.RoutinePlan():
            return "ddl"
        case plans.AclPlan():
            return "rights"
        case plans.AlterSystemPlan():
            return "settings"
        case plans.GlobalWrite(table=table) if table.is_system:
            return "system"
        case plans.CallPlan(procedure=name) if name in _CALLS:
            return "topology"
        case plans.CallPlan(procedure="cairn_backup" | "cairn_restore"):
            return "backup"
        case plans.CatalogRead(sql=sql) if "pg_terminate_backend" in sql or "pg_cancel" in sql:
            return "sessions"
        case plans.CallPlan(procedure="cairn_cancel" | "cairn_terminate"):
            return "sessions"
    return None


_CALLS = frozenset({"cairn_expel", "cairn_rebalance", "cairn_tier", "cairn_compact"})
