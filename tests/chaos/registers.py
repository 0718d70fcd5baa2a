"""A few rows that clients of a real cluster change over and over, through real sessions.

The judge is that of the simulator: a row's text says which statements made it, so one that is lost,
done twice, half done or out of order shows. Rows of one group lie in one bucket. Groups live for a
round; afterwards nobody writes them, and what they hold may not change any more.
"""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, TypeVar

import psycopg

from cairn.client import CairnError, OutcomeUnknown, SomeUnknown
from cairn.client.settings import parse_dsn
from cairn.client.sync_pool import SyncPool
from cairn.model.errors import NotSent
from cairn.sim.cluster.loads.register_history import ROWS, Content, History, Operation
from cairn.sim.linear import FOREVER
from tests.cluster.harness import PASSWORD, Cluster, eventually

CREATE = (
    "CREATE TABLE reg (grp INT, place INT, text TEXT, PRIMARY KEY (grp, place)) "
    "DISTRIBUTED BY (grp)"
)
_UPSERT = " ON CONFLICT (grp, place) DO UPDATE SET text = excluded.text"
_PATIENCE_MS = 6_000
Outcome = Literal["done", "unknown", "refused"]
Rows = list[tuple[int, int, str]]
T = TypeVar("T")


class HalfDone(AssertionError):
    """A statement about one bucket said that it was done in part."""


def outcome_of(problem: psycopg.Error | CairnError) -> Outcome:
    """What a client may conclude. Whoever is told an error by the server knows: it was not done.

    Unless the error says otherwise, or the connection broke before an answer came.
    """
    if isinstance(problem, OutcomeUnknown | SomeUnknown):
        return "unknown"
    if isinstance(problem, NotSent):
        return "refused"
    code = problem.sqlstate or ""
    if code == "PC006":
        raise HalfDone(str(problem))
    if not code or code in ("40003", "57P01", "57P02", "58000") or code.startswith("08"):
        return "unknown"
    return "refused"


def way_to_talk(chance: random.Random) -> tuple[str, dict[str, Any]]:
    """Values beside the statement, or inside its text as psycopg2 and pgbench send them: these go
    different ways through a session."""
    if chance.random() < 0.5:
        return "simple", {"cursor_factory": psycopg.ClientCursor}
    return "extended", {"prepare_threshold": chance.choice([0, 5, None])}


class Gate:
    """Where clients may write now. A master that nobody writes to tells nothing but what it has:
    it is the reader who sees whether it still may."""

    def __init__(self) -> None:
        self._turn = threading.Condition()
        self._writing = 0
        self._is_shut = False
        self._left = ""  # the instance through which nobody writes

    @contextlib.contextmanager
    def writing(self, through: str) -> Iterator[bool]:
        """Whether it may be done; `through` is empty when a driver chooses."""
        with self._turn:
            is_left = bool(self._left) and through in ("", self._left)
            may = not self._is_shut and not is_left
            self._writing += may
        try:
            yield may
        finally:
            with self._turn:
                self._writing -= may
                self._turn.notify_all()

    def leave_to_readers(self, name: str, cut: Callable[[], object]) -> None:
        """Cut it off while no write is under way; nobody writes through it from then on."""
        with self._turn:
            self._is_shut, self._left = True, name
            ended = self._turn.wait_for(lambda: not self._writing, 30.0)
            assert ended, "writes that are under way end"
        cut()
        with self._turn:
            self._is_shut = False

    def open(self) -> None:
        with self._turn:
            self._left = ""

    @contextlib.contextmanager
    def silent(self) -> Iterator[None]:
        """Nobody writes, and nothing is under way."""
        with self._turn:
            self._is_shut = True
            ended = self._turn.wait_for(lambda: not self._writing, 60.0)
            assert ended, "writes that are under way end"
        try:
            yield
        finally:
            with self._turn:
                self._is_shut = False


class Group:
    def __init__(self, number: int) -> None:
        self.number = number
        self.history = History()
        self._lock = threading.Lock()

    def add(self, operation: Operation) -> None:
        with self._lock:
            self.history.add(operation)


class Registers:
    """Threads that read and write the groups of this round."""

    def __init__(
        self,
        cluster: Cluster,
        seed: int,
        revive: Callable[[], None],
        gate: Gate,
        *,
        clients: int = 6,
        groups: int = 3,
    ) -> None:
        self._cluster, self._revive, self._count = cluster, revive, groups
        self.gate = gate
        self.groups: list[Group] = []
        self.sealed: dict[int, Content] = {}  # groups of earlier rounds: what they hold
        self.outcomes: Counter[str] = Counter()
        self.ways: Counter[str] = Counter()  # statements by how they were sent
        self.problems: Counter[str] = Counter()  # what clients were told, by SQLSTATE
        self.stop = threading.Event()
        self.failed: BaseException | None = None
        self._next = 0
        self.begin_round()
        self.clients = [Client(self, cluster, number, seed) for number in range(1, clients + 1)]

    def begin_round(self) -> None:
        self.groups = [Group(self._next + at) for at in range(self._count)]
        self._next += self._count

    def start(self) -> None:
        for client in self.clients:
            client.start()

    def close(self) -> None:
        self.stop.set()
        for client in self.clients:
            if client.is_alive():
                client.join(60)

    # --- judging ----------------------------------------------------------------------------------

    def end_round(self, names: Sequence[str], *, is_strict: bool) -> None:
        """After calm: the round's groups are read everywhere, judged, and left alone from now on.

        Clients have gone on to the groups of the next round; what they still have under way ends
        first.
        """
        ended, fence = self.groups, time.monotonic()
        self.begin_round()
        for client in self.clients:
            client.wait_idle_since(fence)
        for group in ended:
            found = {
                self._answer(name, lambda n=name, g=group: self._read(n, g))  # type: ignore[misc]
                for name in names
            }
            if is_strict and len(found) > 1:
                raise AssertionError(f"group {group.number} is read in {len(found)} ways: {found}")
            # Where rows may be lost, nothing is invented, done twice or out of order nevertheless.
            why = group.history.why_wrong() if is_strict else group.history.why_invented()
            if why:
                raise AssertionError(f"group {group.number}: {why}")
            if is_strict:
                self.sealed[group.number] = next(iter(found))
        if self.failed is not None:
            raise self.failed

    def check_sealed(self, name: str) -> None:
        """What nobody writes any more is as it was."""
        text = "SELECT grp, place, text FROM reg OPTION (sql_motion_row_max = 0)"
        rows = self._answer(name, lambda: (self._cluster[name].sql(text),))[0]
        have = dict.fromkeys(self.sealed, (None,) * ROWS) | contents(rows)
        changed = [number for number, content in self.sealed.items() if have[number] != content]
        told = [f"{at}: {self.sealed[at]} became {have[at]}" for at in changed[:3]]
        assert not changed, f"{len(changed)} groups changed afterwards: {told}"

    def _answer(self, name: str, work: Callable[[], T]) -> T:
        def ask() -> T:
            self._revive()
            return work()

        return eventually(ask, f"an answer of {name}")

    def _read(self, name: str, group: Group) -> Content:
        begun = time.monotonic()
        rows = self._cluster[name].sql(
            "SELECT grp, place, text FROM reg WHERE grp = %s", (group.number,)
        )
        found = contents(rows).get(group.number, (None,) * ROWS)
        group.add(Operation("read", begun, time.monotonic(), found=found))
        return found


def contents(rows: Rows) -> dict[int, Content]:
    by_group: dict[int, dict[int, str]] = {}
    for number, place, text in rows:
        by_group.setdefault(number, {})[place] = text
    return {
        number: tuple(found.get(place) for place in range(ROWS))
        for number, found in by_group.items()
    }


class Client(threading.Thread):
    """One person at a keyboard: one statement or block after the other, at any instance."""

    def __init__(self, load: Registers, cluster: Cluster, number: int, seed: int) -> None:
        super().__init__(daemon=True, name=f"client {number}")
        self._load, self._cluster, self._number = load, cluster, number
        self._chance = random.Random(seed * 1000 + number)
        self._done = 0  # statements; the number of a tag
        # Who only reads is not held up by writes: it sees what a master tells that is none now.
        self._reads = 0.95 if number % 3 == 1 else 0.3
        self._idle_at = time.monotonic()
        self._turn = threading.Condition()

    def wait_idle_since(self, moment: float) -> None:
        """Until what was begun before that moment has ended."""
        with self._turn:
            while self._idle_at < moment and self.is_alive():
                self._turn.wait(0.1)

    def run(self) -> None:
        try:
            while not self._load.stop.is_set():
                try:
                    if self._number % 3 == 0:
                        self._with_smart_driver()
                    else:
                        self._with_psycopg()
                except (psycopg.Error, CairnError, OSError):
                    self._idle()
                    time.sleep(0.05)
        except BaseException as problem:  # told by whoever judges
            self._load.failed = problem
            self._load.stop.set()

    def _idle(self) -> None:
        with self._turn:
            self._idle_at = time.monotonic()
            self._turn.notify_all()

    def _statements(self) -> Iterator[Group]:
        """A session's worth of turns, with short pauses, each about one group."""
        for _ in range(self._chance.randint(5, 60)):
            self._idle()
            if self._load.stop.is_set():
                return
            time.sleep(self._chance.uniform(0.0, 0.1))
            yield self._chance.choice(self._load.groups)

    # --- with psycopg ---------------------------------------------------------------------------

    def _with_psycopg(self) -> None:
        node = self._cluster[self._chance.choice(sorted(self._cluster.nodes))]
        way, options = way_to_talk(self._chance)
        with node.connect(**options) as connection:
            if self._chance.random() < 0.5:  # without a limit a session asks by callback
                way += " with a limit"
                connection.execute(f"SET statement_timeout = {_PATIENCE_MS}")
            for group in self._statements():
                self._load.ways[way] += 1
                with self._load.gate.writing(node.name) as may_write:
                    if not may_write or self._chance.random() < self._reads:
                        self._read(lambda g=group: self._rows_by_psycopg(connection, g), group)  # type: ignore[misc]
                    else:
                        self._write(lambda *what: self._run_by_psycopg(connection, *what), group)
                if connection.closed:
                    return

    def _rows_by_psycopg(self, connection: psycopg.Connection[Any], group: Group) -> Rows:
        match self._chance.randrange(4):
            case 0:
                text = "SELECT grp, place, text FROM reg WHERE grp >= %s ORDER BY 2"
                return connection.execute(text, (group.number,)).fetchall()
            case 1:
                with connection.cursor().copy(
                    f"COPY (SELECT grp, place, text FROM reg WHERE grp = {group.number}) TO STDOUT"
                ) as copy:
                    copy.set_types(["int8", "int8", "text"])
                    return list(copy.rows())  # type: ignore[arg-type]
            case _:
                text = "SELECT grp, place, text FROM reg WHERE grp = %s"
                return connection.execute(text, (group.number,)).fetchall()

    def _run_by_psycopg(
        self,
        connection: psycopg.Connection[Any],
        kind: str,
        group: int,
        places: tuple[int, ...],
        tag: str,
    ) -> None:
        run = connection.execute
        way = self._chance.random()
        if kind == "put":
            rows = ", ".join(f"({group}, {place}, '{tag}')" for place in places)
            if len(places) == 1:
                upsert = " ON CONFLICT DO REPLACE" if way < 0.3 else _UPSERT
                run(f"INSERT INTO reg VALUES (%s, %s, %s){upsert}", (group, places[0], tag))
            elif way < 0.3:
                empty = f"DELETE FROM reg WHERE grp = {group}"
                run(f"DO $$ BEGIN {empty}; INSERT INTO reg VALUES {rows}; END $$")
            elif way < 0.5:
                with connection.transaction():
                    run("DELETE FROM reg WHERE grp = %s", (group,))
                    for place in places:
                        run("INSERT INTO reg VALUES (%s, %s, %s)", (group, place, tag))
            else:
                run(f"INSERT INTO reg VALUES {rows}{_UPSERT}")
        elif kind == "append":
            where = "WHERE grp = %s AND place BETWEEN %s AND %s"
            key = (group, places[0], places[-1])
            if way < 0.3:  # as applications do it: look, think, write
                with connection.transaction():
                    for place, text in run(f"SELECT place, text FROM reg {where}", key).fetchall():
                        run(
                            "UPDATE reg SET text = %s WHERE grp = %s AND place = %s",
                            (f"{text}+{tag}", group, place),
                        )
            else:
                run(f"UPDATE reg SET text = text || %s {where}", (f"+{tag}", *key))
        else:
            run(
                "DELETE FROM reg WHERE grp = %s AND place BETWEEN %s AND %s",
                (group, places[0], places[-1]),
            )

    # --- with the smart driver --------------------------------------------------------------------

    def _with_smart_driver(self) -> None:
        hosts = ",".join(f"127.0.0.1:{node.pg_port}" for node in self._cluster.nodes.values())
        settings = parse_dsn(f"postgresql://admin:{PASSWORD}@{hosts}/cairn")
        with contextlib.closing(SyncPool(settings).open()) as pool:
            for group in self._statements():
                with self._load.gate.writing("") as may_write:
                    if not may_write or self._chance.random() < self._reads:
                        text = "SELECT grp, place, text FROM reg WHERE grp = $1"
                        self._read(lambda t=text, g=group: pool.fetch(t, g.number), group)  # type: ignore[misc]
                    else:
                        self._write(lambda *what: self._run_by_driver(pool, *what), group)

    def _run_by_driver(
        self, pool: SyncPool, kind: str, group: int, places: tuple[int, ...], tag: str
    ) -> None:
        if kind == "put":
            values = ", ".join(f"($1, ${at + 3}, $2)" for at in range(len(places)))
            pool.execute(f"INSERT INTO reg VALUES {values}{_UPSERT}", group, tag, *places)
            return
        where = "WHERE grp = $1 AND place BETWEEN $2 AND $3"
        key = (group, places[0], places[-1])
        if kind == "append":
            pool.execute(f"UPDATE reg SET text = text || $4 {where}", *key, f"+{tag}")
        else:
            pool.execute(f"DELETE FROM reg {where}", *key)

    # --- what was told ----------------------------------------------------------------------------

    def _read(self, rows: Callable[[], Rows], group: Group) -> None:
        begun = time.monotonic()
        try:
            found = contents(rows()).get(group.number, (None,) * ROWS)
        except (psycopg.Error, CairnError) as problem:
            self._told("read failed", problem)
            return
        group.add(Operation("read", begun, time.monotonic(), found=found))
        self._load.outcomes["read"] += 1

    def _write(self, run: Callable[..., None], group: Group) -> None:
        chance = self._chance
        self._done += 1
        tag = f"{self._number}.{self._done}"
        places = tuple(range(ROWS)) if chance.random() < 0.4 else (chance.randrange(ROWS),)
        kind: Literal["put", "append", "delete"]
        kind = chance.choices(("put", "append", "delete"), (8, 10, 2))[0]
        begun = time.monotonic()
        outcome: Outcome = "done"
        failure: psycopg.Error | CairnError | None = None
        try:
            run(kind, group.number, places, tag)
        except (psycopg.Error, CairnError) as problem:
            failure, outcome = problem, outcome_of(problem)
        end = time.monotonic() if outcome == "done" else float(FOREVER)
        self._load.outcomes[outcome] += 1
        if outcome != "refused":
            said = "" if kind == "delete" else tag
            group.add(Operation(kind, begun, end, places, said))
        if failure is not None:
            self._told(outcome, failure)

    def _told(self, what: str, problem: psycopg.Error | CairnError) -> None:
        self._load.problems[f"{what} {problem.sqlstate or type(problem).__name__}"] += 1
        if outcome_of(problem) == "unknown":
            raise problem  # the connection may be no good any more
