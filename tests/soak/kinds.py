"""Kinds of work, one operation at a step. Tables keep their size: what grows is not rows."""

from __future__ import annotations

import contextlib
import itertools
import json
from collections.abc import Callable, Iterator
from typing import Any

import psycopg

from cairn.client.settings import parse_dsn
from cairn.client.sync_pool import SyncPool
from tests.cluster.harness import PASSWORD, Node
from tests.web.browsing import Browser

ROWS = 2_000
TABLES = (
    "CREATE TABLE soak_rows (id INT PRIMARY KEY, t TEXT, n DECIMAL) DISTRIBUTED BY (id)",
    "CREATE TABLE soak_names (id INT PRIMARY KEY, t TEXT) DISTRIBUTED GLOBALLY",
    f"INSERT INTO soak_rows SELECT g, 't' || g, g FROM generate_series(1, {ROWS}) g",
    "INSERT INTO soak_names SELECT g, 'n' FROM generate_series(1, 100) g",
)
Step = Callable[[], Any]


def dsn(node: Node) -> str:
    return f"postgresql://admin:{PASSWORD}@127.0.0.1:{node.pg_port}/cairn"


class Load:
    """All kinds at one instance, each with a session of its own; `close` ends them."""

    def __init__(self, node: Node, number: int = 0, tables: int = 50) -> None:
        self._node, self._number, self._tables = node, number, tables
        self._open = contextlib.ExitStack()
        self.done: dict[str, int] = {}
        self._steps: dict[str, Step] = {}

    def close(self) -> None:
        self._open.close()

    def step(self, kind: str) -> None:
        step = self._steps.get(kind)
        if step is None:
            step = self._steps[kind] = getattr(self, f"_{kind}")()
        step()
        self.done[kind] = self.done.get(kind, 0) + 1

    def _session(self, **options: Any) -> psycopg.Connection[Any]:
        return self._open.enter_context(self._node.connect(**options))

    # --- kinds: each gives its step ---------------------------------------------------------------

    def _connects(self) -> Step:
        def step() -> None:
            with self._node.connect() as connection:
                connection.execute("SELECT 1")

        return step

    def _points(self) -> Step:
        session, ids = self._session(prepare_threshold=0), _ids()

        def step() -> None:
            at = next(ids)
            session.execute("SELECT t FROM soak_rows WHERE id = %s", (at,)).fetchall()
            session.execute("UPDATE soak_rows SET t = %s WHERE id = %s", (f"u{at}", at))

        return step

    def _texts(self) -> Step:
        """A text that nobody has seen: a plan, a statement of SQLite, a line of statistics."""
        session, numbers = self._session(), itertools.count()

        def step() -> None:
            n = next(numbers)
            session.execute(
                f"SELECT id AS a{n}, t || '{n}' AS b{n} FROM soak_rows "
                f"WHERE id = {n % ROWS} AND n > {n}.5"
            ).fetchall()

        return step

    def _writes(self) -> Step:
        """Texts of writes that nobody has seen."""
        session, numbers = self._session(), itertools.count()

        def step() -> None:
            n = next(numbers)
            session.execute(
                f"UPDATE soak_rows SET t = t || '{n}' WHERE id = {n % ROWS} AND n < -{n} "
                f"RETURNING id AS a{n}"
            ).fetchall()

        return step

    def _scans(self) -> Step:
        session, numbers = self._session(), itertools.count()

        def step() -> None:
            n = next(numbers)
            session.execute(
                f"SELECT a.t, count(*) AS c{n % 2000} FROM soak_rows a "
                "JOIN soak_rows b ON a.id = b.id WHERE a.id < 50 GROUP BY 1 ORDER BY 1"
            ).fetchall()

        return step

    def _copies(self) -> Step:
        session = self._session()
        first = ROWS + 1 + 1_000 * self._number
        lines = "".join(f"{at}\tc{at}\t{at}.5\n" for at in range(first, first + 200))
        gone = f"DELETE FROM soak_rows WHERE id BETWEEN {first} AND {first + 199}"

        def step() -> None:
            cursor = session.cursor()
            cursor.execute(gone)  # what the last one left, if its end was not known
            with cursor.copy("COPY soak_rows FROM STDIN") as copy:
                copy.write(lines)
            with cursor.copy("COPY soak_rows TO STDOUT") as out:
                for _ in out:
                    pass
            cursor.execute(gone)

        return step

    def _blocks(self) -> Step:
        session, ids = self._session(), _ids()
        session.autocommit = True

        def step() -> None:
            at = next(ids)
            with (
                contextlib.suppress(psycopg.errors.SerializationFailure),  # others came between
                session.transaction(),
            ):
                session.execute("SELECT n FROM soak_rows WHERE id = %s", (at,)).fetchall()
                session.execute("UPDATE soak_rows SET n = n + 1 WHERE id = %s", (at,))

        return step

    def _global(self) -> Step:
        session, ids = self._session(), itertools.count()

        def step() -> None:
            n = next(ids)
            session.execute("UPDATE soak_names SET t = %s WHERE id = %s", (f"v{n}", 1 + n % 100))

        return step

    def _ddl(self) -> Step:
        session, numbers = self._session(), itertools.count()

        def step() -> None:
            n, k = divmod(next(numbers), 3)
            name = f"soak_{self._number}_{n % self._tables}"
            if k == 0:
                session.execute(f"DROP TABLE IF EXISTS {name}")
                session.execute(
                    f"CREATE TABLE {name} (id INT PRIMARY KEY, a TEXT, b INT) DISTRIBUTED BY (id)"
                )
            elif k == 1:
                session.execute(f"CREATE INDEX i{name} ON {name} (b)")
            else:
                session.execute(f"ALTER TABLE {name} ADD COLUMN c INT")

        return step

    def _streams(self) -> Step:
        session, ids = self._session(), _ids()
        at: list[Any] = ["latest"]

        def step() -> None:
            session.execute("UPDATE soak_rows SET n = n + 1 WHERE id = %s", (next(ids),))
            text = f"CALL cairn_rows('soak_rows', '{json.dumps(at[0])}', 100)"
            try:
                [(told,)] = session.execute(text).fetchall()
            except psycopg.Error as problem:
                if "master" not in str(problem):  # a replica says who is, or it has no lease now
                    raise
            else:
                at[0] = told["after"]

        return step

    def _drivers(self) -> Step:
        staying = self._open.enter_context(_pool(self._node))
        numbers, ids = itertools.count(), _ids()

        def step() -> None:
            staying.fetch("SELECT t FROM soak_rows WHERE id = $1", next(ids))
            if next(numbers) % 10 == 0:
                with _pool(self._node) as passing:
                    passing.fetch("SELECT 1")

        return step

    def _console(self) -> Step:
        browser, numbers = Browser(self._node.http_port), itertools.count()
        assert browser.log_in()[0] == 200

        def step() -> None:
            n = next(numbers)
            path = (
                "/api/v1/overview",
                "/api/v1/samples",
                "/api/v1/events",
                "/metrics",
                "/api/v1/status",
            )
            browser.get(path[n % len(path)])
            browser.post("/api/v1/query", {"sql": f"SELECT count(*) AS c{n} FROM soak_rows"})

        return step

    def _catalogs(self) -> Step:
        """What tools ask, and what operators look at."""
        session, numbers = self._session(), itertools.count()

        def step() -> None:
            n = next(numbers)
            session.execute(
                f"SELECT relname AS r{n} FROM pg_class WHERE relname LIKE 'soak_{n % 7}%'"
            ).fetchall()
            session.execute("SELECT count(*) FROM _cairn_statements").fetchall()

        return step

    def _mistakes(self) -> Step:
        """Statements that are refused, and sessions that go in the middle."""
        session, numbers = self._session(), itertools.count()

        def step() -> None:
            n = next(numbers)
            for text in (f"SELECT no_{n} FROM soak_rows", f"SELECT 1 FROM no_{n}", f"SELEC {n}"):
                with contextlib.suppress(psycopg.Error):
                    session.execute(text)
            with contextlib.suppress(psycopg.Error):
                session.execute("INSERT INTO soak_rows VALUES (1, 'twice', 1)")
            gone = self._node.connect()
            gone.autocommit = False
            gone.execute("UPDATE soak_rows SET n = 0 WHERE id = 1")
            gone.close()

        return step


KINDS = tuple(
    name[1:] for name in vars(Load) if name[0] == "_" and name[1] != "_" and name != "_session"
)


@contextlib.contextmanager
def _pool(node: Node) -> Iterator[SyncPool]:
    pool = SyncPool(parse_dsn(dsn(node))).open()
    try:
        yield pool
    finally:
        pool.close()


def _ids() -> Iterator[int]:
    return itertools.cycle(range(1, ROWS + 1))
