"""Generated statements over tables that are tied by foreign keys: the same verdicts and rows as in
PostgreSQL, after every statement. `CAIRN_KEYS_GENERATED` and `CAIRN_KEYS_SEED` ask for more."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tests.cluster.harness import PASSWORD, Cluster
from tests.sql.postgres import postgres  # noqa: F401 (a fixture)

Connection = psycopg.Connection[tuple[Any, ...]]
GENERATED = int(os.environ.get("CAIRN_KEYS_GENERATED", "120"))
SEED = int(os.environ.get("CAIRN_KEYS_SEED", "17"))
TABLES = ("gk_leaf", "gk_child", "gk_tree", "gk_parent", "gk_order", "gk_kind")
ACTIONS = ("", "ON DELETE CASCADE", "ON DELETE SET NULL", "ON DELETE RESTRICT")
UPDATES = ("", "ON UPDATE CASCADE", "ON UPDATE SET NULL", "ON UPDATE RESTRICT")
_FIRM = ("", "ON DELETE RESTRICT")
IDS = 9


class Generator:
    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.is_mixed = False

    def tables(self) -> list[str]:
        pick = self.chance.choice
        by_p, by_u = pick(ACTIONS), pick(ACTIONS)
        # With one that ends children and one that keeps parents, the order of rows decides.
        self.is_mixed = (by_p in _FIRM) is not (by_u in _FIRM)
        deferred = pick(("", " DEFERRABLE INITIALLY DEFERRED"))
        return [
            "CREATE TABLE gk_parent (id INT PRIMARY KEY, u INT UNIQUE, m gk_mood DEFAULT 'ok')",
            f"CREATE TABLE gk_child (id INT PRIMARY KEY, p INT REFERENCES gk_parent "
            f"{by_p} {pick(UPDATES)}, u INT REFERENCES gk_parent (u) {by_u} "
            f"{pick(UPDATES)}{deferred})",
            f"CREATE TABLE gk_leaf (id INT PRIMARY KEY, c INT REFERENCES gk_child {pick(ACTIONS)} "
            f"{pick(UPDATES)}, m gk_mood)",
            f"CREATE TABLE gk_tree (id INT PRIMARY KEY, up INT REFERENCES gk_tree {pick(ACTIONS)})",
            "CREATE TABLE gk_kind (id INT PRIMARY KEY, u INT UNIQUE, k INT REFERENCES gk_kind) "
            "/* DISTRIBUTED GLOBALLY */",
            f"CREATE TABLE gk_order (id INT PRIMARY KEY, k INT REFERENCES gk_kind {pick(_FIRM)}, "
            "u INT REFERENCES gk_kind (u)) /* DISTRIBUTED BY (id) */",
        ]

    def of_all(self) -> str:
        """Rows of every replicaset that name global ones: one at a time is all or nothing."""
        a, b = self.id(), self.id()
        return self.chance.choice(
            (
                f"INSERT INTO gk_kind VALUES ({a}, {self.maybe()}, {self.maybe()})",
                f"INSERT INTO gk_kind VALUES ({a}, {a}, {b}), ({b}, {b + 20}, {a})",
                f"INSERT INTO gk_order VALUES ({a}, {self.maybe()}, {self.maybe()})",
                f"INSERT INTO gk_order VALUES ({a + 10}, {b}, {b})",
                f"UPDATE gk_order SET k = {self.maybe()} WHERE id = {a}",
                f"UPDATE gk_order SET id = {a + 100} WHERE id = {a}",
                f"UPDATE gk_kind SET u = {self.maybe()} WHERE id = {a}",
                f"UPDATE gk_kind SET k = {self.maybe()} WHERE id = {a}",
                f"DELETE FROM gk_kind WHERE id = {a}",
                f"DELETE FROM gk_kind WHERE id BETWEEN {a} AND {b}",
                f"DELETE FROM gk_order WHERE k = {a} OR u = {b}",
                f"INSERT INTO gk_kind VALUES ({a}, {b}) ON CONFLICT (id) DO UPDATE SET u = {b}",
            )
        )

    def several_parents(self, condition: str) -> str:
        return f"DELETE FROM gk_parent WHERE {f'id = {self.id()}' if self.is_mixed else condition}"

    def id(self) -> int:
        return self.chance.randrange(IDS)

    def maybe(self) -> str:
        return "NULL" if self.chance.random() < 0.2 else str(self.id())

    def label(self) -> str:
        return self.chance.choice(("'sad'", "'ok'", "'happy'", "'ok'", "NULL", "'none'"))

    def one(self) -> str:
        a, b = self.id(), self.id()
        column = self.chance.choice(("p", "u"))
        return self.chance.choice(
            (
                f"INSERT INTO gk_parent VALUES ({a}, {self.maybe()}, {self.label()})",
                f"INSERT INTO gk_parent (id, u) VALUES ({a}, {a}), ({b}, {b + 20})",
                f"INSERT INTO gk_child VALUES ({a}, {self.maybe()}, {self.maybe()})",
                f"INSERT INTO gk_child VALUES ({a}, {self.maybe()}, NULL), ({b}, NULL, {b})",
                f"INSERT INTO gk_child SELECT id, id, u FROM gk_parent WHERE id > {a}",
                f"INSERT INTO gk_leaf VALUES ({a}, {self.maybe()}, {self.label()})",
                f"INSERT INTO gk_leaf SELECT id + 50, id, 'sad' FROM gk_child WHERE id < {a}",
                f"INSERT INTO gk_tree VALUES ({a}, {self.maybe()}), ({b}, {a})",
                f"UPDATE gk_child SET {column} = {self.maybe()} WHERE id <= {a}",
                f"UPDATE gk_leaf SET c = {self.maybe()}, m = {self.label()} WHERE id = {a}",
                f"UPDATE gk_tree SET up = {self.maybe()} WHERE id = {a}",
                f"UPDATE gk_parent SET id = {a + 100} WHERE id = {a}",
                f"UPDATE gk_parent SET id = id - 100 WHERE id = {a + 100}",
                f"UPDATE gk_parent SET u = {self.maybe()} WHERE id = {a}",
                f"UPDATE gk_child SET id = {a + 200} WHERE id = {a}",
                f"UPDATE gk_parent SET m = {self.label()} WHERE m > {self.label()}",
                f"DELETE FROM gk_parent WHERE id = {a}",
                self.several_parents(f"id BETWEEN {a} AND {b}"),
                self.several_parents(f"m < {self.label()}"),
                f"DELETE FROM gk_child WHERE {column} = {a}",
                f"DELETE FROM gk_child USING gk_parent q WHERE q.id = gk_child.p AND q.u = {a}",
                f"DELETE FROM gk_tree WHERE id = {a} OR up = {b}",
                f"MERGE INTO gk_child t USING gk_parent s ON t.id = s.id "
                f"WHEN MATCHED AND s.id = {a} THEN DELETE WHEN MATCHED THEN UPDATE SET p = s.id "
                f"WHEN NOT MATCHED AND s.id < {b} THEN INSERT VALUES (s.id, {self.maybe()}, s.u)",
                f"INSERT INTO gk_parent VALUES ({a}, {b}) ON CONFLICT (id) DO UPDATE SET u = {b}",
                f"WITH gone AS (DELETE FROM gk_leaf WHERE id = {a} RETURNING c) "
                f"INSERT INTO gk_tree SELECT {b}, NULL FROM gone",
                "TRUNCATE gk_leaf",
            )
        )

    def several(self) -> list[str]:
        """One statement, or a block."""
        if self.chance.random() < 0.25:
            return [self.of_all()]
        if self.chance.random() < 0.75:
            return [self.one()]
        inside = [self.one() for _ in range(self.chance.randrange(2, 5))]
        inside = [text for text in inside if not text.startswith("TRUNCATE")]
        return ["BEGIN", *inside, self.chance.choice(("COMMIT", "COMMIT", "ROLLBACK"))]


def _clear(connection: Connection) -> None:
    for name in TABLES:
        connection.execute(f"DROP TABLE IF EXISTS {name} CASCADE")
    connection.execute("DROP TYPE IF EXISTS gk_mood")


@pytest.fixture
def sql(cluster: Cluster) -> Iterator[Connection]:
    dsn = f"postgresql://admin:{PASSWORD}@127.0.0.1:{cluster['i2'].pg_port}/cairn"
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("ALTER SYSTEM SET table_distribution = 'together'")
        try:
            yield connection
        finally:
            connection.execute("ROLLBACK")
            connection.execute("ALTER SYSTEM RESET table_distribution")
            _clear(connection)


def _asked(connection: Connection, text: str) -> tuple[str, Any]:
    if connection.info.server_version == 150000:  # ours: PostgreSQL's has a number behind it
        text = text.replace("/*", "").replace("*/", "")
    try:
        cursor = connection.execute(text.encode(), prepare=False)
    except psycopg.Error as error:
        return str(error.sqlstate), None
    return "", cursor.rowcount


def _rows(connection: Connection) -> list[Any]:
    found = []
    for name in TABLES:
        text = f"SELECT * FROM {name} ORDER BY {name}.id"
        found.append((name, connection.execute(text.encode(), prepare=False).fetchall()))
    return found


def test_generated_statements_end_alike(sql: Connection, postgres: Any) -> None:  # noqa: F811
    chance = random.Random(SEED)
    print(f"seed {SEED}")
    generator = Generator(chance)
    both = (postgres, sql)
    for at in range(GENERATED):
        if at % 40 == 0:
            for connection in both:
                _clear(connection)
            made = ["CREATE TYPE gk_mood AS ENUM ('sad', 'ok', 'happy')", *generator.tables()]
            for text in made:
                theirs, ours = (_asked(connection, text)[0] for connection in both)
                assert theirs == ours, text
            done: list[str] = []
        texts = generator.several()
        for text in texts:
            theirs, ours = (_asked(connection, text) for connection in both)
            if text.startswith(("BEGIN", "COMMIT", "ROLLBACK", "TRUNCATE")):
                theirs, ours = ((state, None) for state, _ in (theirs, ours))
            done.append(f"{text};  -- {theirs[0] or theirs[1]}")
            assert ours == theirs, "\n".join([*made, *done])
        found = [_rows(connection) for connection in both]
        assert found[1] == found[0], "\n".join([*made, *done])
