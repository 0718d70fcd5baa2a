"""ALTER TABLE and constraints: rows of before and after read as in PostgreSQL, errors alike."""

# ruff: noqa: E501 (a statement to a line)

from __future__ import annotations

import os
import random
from typing import Any

import pytest

from .postgres import postgres  # noqa: F401 (a fixture)
from .typed import Pair

pytestmark = pytest.mark.clients

ADDED = r"""
DROP TABLE IF EXISTS a
CREATE TABLE a (id BIGINT PRIMARY KEY, s TEXT NOT NULL)
INSERT INTO a VALUES (1, 'one'), (2, 'two'), (3, 'three')
ALTER TABLE a ADD COLUMN n INT DEFAULT 5
INSERT INTO a (id, s) VALUES (4, 'four')
INSERT INTO a VALUES (5, 'five', NULL)
SELECT * FROM a ORDER BY id
ALTER TABLE a ADD COLUMN t TEXT NOT NULL DEFAULT 'it''s (c) "q"'
ALTER TABLE a ADD COLUMN u UUID DEFAULT '12345678-1234-5678-1234-567812345678', ADD COLUMN d NUMERIC DEFAULT 1.50, ADD COLUMN f DOUBLE PRECISION DEFAULT -2
ALTER TABLE a ADD b BOOLEAN NOT NULL DEFAULT true, ADD ts TIMESTAMP DEFAULT '2024-02-29 10:00', ADD i INTERVAL DEFAULT '1 day', ADD arr INT[] DEFAULT '{1,2}', ADD da DATE DEFAULT '2024-02-29', ADD e TEXT DEFAULT '', ADD sz NUMERIC(6,2) DEFAULT 1.005, ADD neg INT DEFAULT -7, ADD v VARCHAR(3) DEFAULT 'abc'
ALTER TABLE a ADD j JSONB DEFAULT '[7]', ADD nn INT DEFAULT NULL
INSERT INTO a (id, s) VALUES (6, 'six')
SELECT * FROM a ORDER BY id
SELECT count(*), count(n), sum(n)::bigint, sum(d), min(ts), max(t) FROM a
SELECT id FROM a WHERE n = 5 ORDER BY id
SELECT n, count(*) FROM a GROUP BY n ORDER BY n
UPDATE a SET n = n + 1 WHERE id = 1 RETURNING n, t, u, b
UPDATE a SET t = 'new' WHERE id = 2
INSERT INTO a (id, s, t) VALUES (7, 'x', NULL)
UPDATE a SET t = NULL WHERE id = 1
SELECT id, n, t, d, f, b, arr[2] FROM a ORDER BY id
ALTER TABLE a ADD COLUMN z INT NOT NULL
ALTER TABLE a ADD COLUMN n INT
ALTER TABLE a ADD COLUMN IF NOT EXISTS n INT DEFAULT 9
ALTER TABLE a ADD COLUMN bad INT DEFAULT 'x'
ALTER TABLE a ADD COLUMN bad INT DEFAULT (SELECT 1)
ALTER TABLE a ADD COLUMN bad VARCHAR(2) DEFAULT 'abc'
ALTER TABLE a ADD COLUMN expr INT DEFAULT 2 + 3 * 4
ALTER TABLE a ADD COLUMN up TEXT DEFAULT upper('abc') || '!'
SELECT id, expr, up FROM a ORDER BY id
ALTER TABLE a ALTER COLUMN n SET DEFAULT 77, ALTER t DROP DEFAULT
INSERT INTO a (id, s) VALUES (8, 'x')
INSERT INTO a (id, s, t) VALUES (8, 'x', 'y')
SELECT id, n, t FROM a ORDER BY id
ALTER TABLE a ALTER COLUMN nothing SET DEFAULT 1
ALTER TABLE nothing ADD COLUMN x INT
ALTER TABLE IF EXISTS nothing ADD COLUMN x INT
DROP TABLE a
"""

NULLS = r"""
DROP TABLE IF EXISTS a
CREATE TABLE a (id BIGINT PRIMARY KEY, s TEXT NOT NULL, n INT)
INSERT INTO a VALUES (1, 'one', 1), (2, 'two', NULL), (3, 'three', 3)
ALTER TABLE a ALTER COLUMN n SET NOT NULL
UPDATE a SET n = 2 WHERE id = 2
ALTER TABLE a ALTER COLUMN n SET NOT NULL
ALTER TABLE a ALTER COLUMN n SET NOT NULL
INSERT INTO a VALUES (4, 'four', NULL)
INSERT INTO a (id, s) VALUES (4, 'four')
INSERT INTO a VALUES (4, 'four', 4), (5, 'five', NULL)
UPDATE a SET n = NULL WHERE id = 1
UPDATE a SET n = NULL
UPDATE a SET n = nullif(n, 3)
INSERT INTO a SELECT id + 10, s, nullif(n, 3) FROM a
INSERT INTO a VALUES (1, 'x', NULL) ON CONFLICT (id) DO UPDATE SET n = NULL
INSERT INTO a VALUES (1, 'x', 1) ON CONFLICT (id) DO UPDATE SET n = NULL
SELECT * FROM a ORDER BY id
ALTER TABLE a ALTER s DROP NOT NULL
INSERT INTO a VALUES (6, NULL, 6)
ALTER TABLE a ALTER s SET NOT NULL
ALTER TABLE a ALTER n DROP NOT NULL, ALTER s SET DEFAULT 'd'
INSERT INTO a VALUES (7)
SELECT * FROM a ORDER BY id
ALTER TABLE a ALTER id DROP NOT NULL
ALTER TABLE a ALTER nothing SET NOT NULL
DELETE FROM a WHERE s IS NULL OR n IS NULL
ALTER TABLE a ALTER s SET NOT NULL, ALTER n SET NOT NULL
INSERT INTO a VALUES (8, NULL, 8)
INSERT INTO a VALUES (8, 'x', NULL)
SELECT * FROM a WHERE n IS NULL OR s IS NULL
SELECT * FROM a ORDER BY id
DROP TABLE a
"""

DROPPED = r"""
DROP TABLE IF EXISTS a
CREATE TABLE a (id BIGINT PRIMARY KEY, s TEXT NOT NULL, n INT, d NUMERIC DEFAULT 2.50)
INSERT INTO a VALUES (1, 'one', 1), (3, 'three', 3)
INSERT INTO a VALUES (2, 'two', NULL, 9)
ALTER TABLE a DROP COLUMN s
SELECT * FROM a ORDER BY id
SELECT s FROM a
SELECT a.s FROM a
INSERT INTO a VALUES (4, 4, 4.0)
INSERT INTO a VALUES (5, 5)
INSERT INTO a VALUES (6, 6, 6, 'too much')
INSERT INTO a (id, s) VALUES (7, 'x')
INSERT INTO a (id, n) VALUES (7, 7) RETURNING *
UPDATE a SET s = 'x'
UPDATE a SET n = n + 1 WHERE id = 1 RETURNING *
INSERT INTO a SELECT id + 10, n, d FROM a WHERE id < 3
SELECT * FROM a ORDER BY id
SELECT count(*) FROM a WHERE s IS NULL
ALTER TABLE a DROP COLUMN s
ALTER TABLE a DROP COLUMN IF EXISTS s
ALTER TABLE a ADD COLUMN s INT DEFAULT 8
SELECT * FROM a ORDER BY id
INSERT INTO a VALUES (20, 20, 20, 20)
UPDATE a SET s = s * 2 WHERE id IN (1, 20)
ALTER TABLE a DROP COLUMN d, DROP n, ADD d TEXT DEFAULT 'again', ALTER s SET NOT NULL
SELECT * FROM a ORDER BY id
SELECT row_to_json(a) FROM a ORDER BY id
SELECT x.* FROM a x JOIN a y USING (id, s, d) ORDER BY id
SELECT * FROM a NATURAL JOIN a b ORDER BY id
SELECT * FROM a AS q (k, l) ORDER BY k
SELECT k, l, d FROM a AS q (k, l) ORDER BY k
INSERT INTO a VALUES (21, 1, 'x') ON CONFLICT (id) DO UPDATE SET d = EXCLUDED.d
INSERT INTO a VALUES (21, 2, 'y') ON CONFLICT (id) DO UPDATE SET d = EXCLUDED.d RETURNING *
INSERT INTO a VALUES (22, NULL, 'y')
DELETE FROM a WHERE id > 15 RETURNING *
SELECT * FROM a EXCEPT SELECT * FROM a WHERE id = 1 ORDER BY 1
SELECT a.* FROM a ORDER BY id LIMIT 1
WITH w AS (SELECT * FROM a) SELECT * FROM w ORDER BY id
ALTER TABLE a DROP COLUMN "........dropped.1........"
SELECT "........dropped.1........" FROM a
DROP TABLE a
CREATE TABLE a (id BIGINT PRIMARY KEY, x INT, y INT)
INSERT INTO a VALUES (1, 2, 3)
CREATE INDEX a_x ON a (x)
ALTER TABLE a DROP COLUMN x CASCADE
SELECT * FROM a
ALTER TABLE a ADD COLUMN x INT DEFAULT 4
CREATE INDEX a_x ON a (x, y)
SELECT * FROM a WHERE x = 4
DROP TABLE a
"""

CHECKED = r"""
DROP TABLE IF EXISTS a
CREATE TABLE a (id BIGINT PRIMARY KEY, x INT, y INT CHECK (y < 100))
INSERT INTO a VALUES (1, 2, 3), (2, NULL, 99)
ALTER TABLE a ADD CONSTRAINT positive CHECK (x > 0)
INSERT INTO a VALUES (3, 0, 0)
INSERT INTO a VALUES (3, 1, 100)
INSERT INTO a VALUES (3, 1, 1)
ALTER TABLE a ADD CONSTRAINT small CHECK (y < 50)
ALTER TABLE a ADD CONSTRAINT positive CHECK (y > 0)
ALTER TABLE a ADD CHECK (x < y)
ALTER TABLE a ADD COLUMN z INT DEFAULT 7 CHECK (z > 5), ADD w INT CHECK (w IS NOT NULL OR x = 1)
ALTER TABLE a ADD COLUMN z INT DEFAULT 7 CHECK (z > 5)
ALTER TABLE a ADD COLUMN q INT DEFAULT 3 CHECK (q > 5)
INSERT INTO a VALUES (4, 1, 2, 5)
INSERT INTO a VALUES (4, 1, 2, 6)
UPDATE a SET x = 50 WHERE id = 1
UPDATE a SET x = 0
SELECT * FROM a ORDER BY id
ALTER TABLE a DROP CONSTRAINT positive
ALTER TABLE a DROP CONSTRAINT positive
ALTER TABLE a DROP CONSTRAINT IF EXISTS positive
UPDATE a SET x = -5 WHERE id = 1
ALTER TABLE a ADD CONSTRAINT positive CHECK (x > 0)
SELECT * FROM a ORDER BY id
DROP TABLE a
"""

UNIQUE = r"""
DROP TABLE IF EXISTS a
CREATE TABLE a (id BIGINT PRIMARY KEY, x INT, y INT, UNIQUE (x, id), CONSTRAINT named UNIQUE (id, y))
INSERT INTO a VALUES (1, 2, 3), (2, 2, 3)
INSERT INTO a VALUES (1, 2, 3)
INSERT INTO a VALUES (1, 5, 5) ON CONFLICT (x, id) DO NOTHING
INSERT INTO a VALUES (1, 2, 9) ON CONFLICT (id, x) DO UPDATE SET y = EXCLUDED.y
INSERT INTO a VALUES (1, 8, 9) ON CONFLICT ON CONSTRAINT named DO NOTHING
SELECT * FROM a ORDER BY id
CREATE TABLE b (id BIGINT PRIMARY KEY, x INT, UNIQUE (nothing))
CREATE TABLE b (id BIGINT PRIMARY KEY, x INT, UNIQUE (id, id))
CREATE TABLE b (id BIGINT PRIMARY KEY, x INT, CONSTRAINT named UNIQUE (id, x))
CREATE TABLE b (id BIGINT PRIMARY KEY UNIQUE, x INT CONSTRAINT xn NOT NULL, UNIQUE (id))
INSERT INTO b VALUES (1, NULL)
INSERT INTO b VALUES (1, 1)
INSERT INTO b VALUES (1, 2)
ALTER TABLE b ADD UNIQUE (x, id)
ALTER TABLE b DROP CONSTRAINT b_x_id_key
ALTER TABLE b DROP CONSTRAINT b_x_id_key
DROP TABLE a
DROP TABLE b
"""

TYPED = r"""
DROP TABLE IF EXISTS a
CREATE TABLE a (id INT PRIMARY KEY, s VARCHAR(3), n NUMERIC(4, 2) DEFAULT 1.50, t TIMESTAMP(0), v VARCHAR(3)[])
INSERT INTO a VALUES (1, 'abc', 12.34, '2024-01-01 10:00:00.7', '{x,yz}')
INSERT INTO a (id, s) VALUES (2, 'abcd')
ALTER TABLE a ALTER COLUMN s TYPE VARCHAR(4)
INSERT INTO a (id, s) VALUES (2, 'abcd')
INSERT INTO a (id, s) VALUES (3, 'abcde')
ALTER TABLE a ALTER s SET DATA TYPE TEXT USING s::TEXT, ALTER n TYPE NUMERIC(8, 4)
INSERT INTO a (id, s, n) VALUES (3, 'abcde', 1234.56789)
INSERT INTO a (id, n) VALUES (4, 12345)
SELECT id, s, n, n * 2, n + 1.5 FROM a ORDER BY id
SELECT n, count(*) FROM a GROUP BY n ORDER BY n
ALTER TABLE a ALTER t TYPE TIMESTAMP, ALTER v TYPE VARCHAR(9)[]
UPDATE a SET t = '2024-01-01 10:00:00.7', v = '{abcdefghi}' WHERE id = 3
SELECT id, t, v FROM a ORDER BY id
ALTER TABLE a ALTER nope TYPE TEXT
ALTER TABLE a ALTER n TYPE NUMERIC(8, 4)
ALTER TABLE a ALTER id TYPE BIGINT
SELECT * FROM a ORDER BY id
"""

MIXED = r"""
DROP TABLE IF EXISTS a
CREATE TABLE a (id BIGINT PRIMARY KEY, x INT, y INT)
INSERT INTO a VALUES (1, 2, 3), (2, NULL, 4)
ALTER TABLE a ADD COLUMN z INT DEFAULT 1, DROP COLUMN y, ALTER COLUMN x SET NOT NULL
SELECT * FROM a ORDER BY id
ALTER TABLE a ADD COLUMN z INT DEFAULT 1, DROP COLUMN nothing
ALTER TABLE a ADD COLUMN z INT DEFAULT 1, ADD COLUMN z INT
SELECT * FROM a ORDER BY id
ALTER TABLE a ADD COLUMN z INT DEFAULT 1, DROP COLUMN y, ALTER COLUMN x SET DEFAULT 6
INSERT INTO a (id) VALUES (3)
SELECT * FROM a ORDER BY id
ALTER TABLE a ADD COLUMN y TEXT DEFAULT 'y', ALTER COLUMN z DROP DEFAULT, DROP x
INSERT INTO a (id) VALUES (4)
SELECT * FROM a ORDER BY id
DROP TABLE a
"""


@pytest.fixture
def pair(postgres: Any) -> Pair:  # noqa: F811 (the fixture)
    postgres.prepare_threshold = None  # a plan that is kept would not survive the changes
    return Pair(postgres)


@pytest.mark.parametrize("script", [ADDED, NULLS, DROPPED, CHECKED, UNIQUE, TYPED, MIXED])
def test_altered_tables_read_and_refuse_as_in_postgresql(pair: Pair, script: str) -> None:
    pair.both(script)
    pair.check()


_TYPES = {
    "INT": ("1", "-5", "0"),
    "TEXT": ("''", "'a''b'", "'x'"),
    "NUMERIC": ("1.50", "-0.25"),
    "BOOLEAN": ("true", "false"),
    "DOUBLE PRECISION": ("1.5", "-2"),
    "DATE": ("'2024-02-29'",),
    "INT[]": ("'{1,2}'", "'{}'"),
}


class Story:
    """Random changes of one table and its rows; what it looks like is only known in part."""

    def __init__(self, seed: int) -> None:
        self.drawn = random.Random(seed)
        self.columns: dict[str, str] = {}
        self.made = 0

    def value(self, name: str) -> str:
        return self.drawn.choice(("NULL", *_TYPES[self.columns[name]] * 2))

    def action(self) -> str:
        drawn, names = self.drawn, list(self.columns)
        kind = drawn.choice(("add", "add", "drop", "null", "not null", "default", "no default"))
        if kind == "add" or not names:
            self.made += 1
            name, type_ = f"c{self.made}", drawn.choice(list(_TYPES))
            self.columns[name] = type_
            default = f" DEFAULT {drawn.choice(_TYPES[type_])}" if drawn.random() < 0.7 else ""
            return f"ADD COLUMN {name} {type_}{default}{' NOT NULL' * (drawn.random() < 0.3)}"
        name = drawn.choice(names)
        if kind == "drop":
            del self.columns[name]
            return f"DROP COLUMN {name}"
        return f"ALTER COLUMN {name} " + {
            "null": "DROP NOT NULL",
            "not null": "SET NOT NULL",
            "default": f"SET DEFAULT {self.value(name)}",
            "no default": "DROP DEFAULT",
        }.get(kind, "")

    def step(self) -> list[str]:
        drawn, names = self.drawn, list(self.columns)
        kind = drawn.choice(("alter", "insert", "insert", "update", "delete", "fill"))
        key = drawn.randrange(12)
        if kind == "alter" or not names:
            known = dict(self.columns)
            text = ", ".join(self.action() for _ in range(drawn.choice((1, 1, 2, 3))))
            self.after_failure = known
            return [f"ALTER TABLE story {text}"]
        some = drawn.sample(names, drawn.randint(1, len(names)))
        if kind == "insert":
            listed = ", ".join(("id", *some))
            values = ", ".join((str(key), *map(self.value, some)))
            return [f"INSERT INTO story ({listed}) VALUES ({values}) ON CONFLICT (id) DO NOTHING"]
        if kind == "update":
            sets = ", ".join(f"{name} = {self.value(name)}" for name in some)
            return [f"UPDATE story SET {sets} WHERE id % 3 = {key % 3}"]
        if kind == "fill":
            name = drawn.choice(names)
            return [
                f"UPDATE story SET {name} = {_TYPES[self.columns[name]][0]} WHERE {name} IS NULL"
            ]
        return [f"DELETE FROM story WHERE id = {key}"]


def test_generated_changes_of_a_table_leave_the_same_rows(pair: Pair) -> None:
    first = int(os.environ.get("CAIRN_SQL_SEED", "1"))
    for seed in range(first, first + int(os.environ.get("CAIRN_ALTER_STORIES", "4"))):
        story = Story(seed)
        pair.both("DROP TABLE IF EXISTS story\nCREATE TABLE story (id BIGINT PRIMARY KEY)")
        for _ in range(40):
            for text in story.step():
                if text.startswith("ALTER"):
                    theirs, ours = pair.theirs(text)[0], pair.ours(text)[0]
                    if theirs:
                        story.columns = story.after_failure
                    if bool(theirs) != bool(ours):  # of two faults each may tell the other one
                        pair.differences.append(f"{text}\n  ours {ours}, theirs {theirs}")
                else:
                    pair.one(text)
                pair.one("SELECT * FROM story ORDER BY id")
        assert not pair.differences, f"seed {seed}:\n" + "\n".join(pair.differences[:3])
