"""What a web application asks: its tables, rows from a seed, and statements with parameters."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Any

TABLES = {
    "users": "id BIGINT PRIMARY KEY, email TEXT NOT NULL, name TEXT NOT NULL, karma INT NOT NULL,"
    " created TIMESTAMP NOT NULL, profile JSONB NOT NULL, tags TEXT[] NOT NULL",
    "posts": "id BIGINT PRIMARY KEY, user_id BIGINT NOT NULL, title TEXT NOT NULL,"
    " body TEXT NOT NULL, created TIMESTAMP NOT NULL, score INT NOT NULL, status TEXT NOT NULL",
    "comments": "id BIGINT PRIMARY KEY, post_id BIGINT NOT NULL, user_id BIGINT NOT NULL,"
    " body TEXT NOT NULL, created TIMESTAMP NOT NULL",
    "categories": "id BIGINT PRIMARY KEY, parent_id BIGINT, name TEXT NOT NULL",
    "counters": "name TEXT PRIMARY KEY, value BIGINT NOT NULL",
}
INDEXES = (
    "CREATE INDEX users_email ON users (email)",
    "CREATE INDEX posts_user ON posts (user_id, created)",
    "CREATE INDEX posts_created ON posts (created)",
    "CREATE INDEX comments_post ON comments (post_id)",
    "CREATE INDEX categories_parent ON categories (parent_id)",
)
WORDS = (
    *("alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta"),
    *("iota", "kappa", "lambda", "mu", "nu", "xi", "omicron"),
)
CITIES = ("Kraków", "Lima", "Oslo", "Pune", "Quito")
FIRST = datetime(2024, 1, 1)


class Rows:
    def __init__(self, users: int, seed: int = 3) -> None:
        self._dice = random.Random(seed)
        self.users, self.posts, self.comments = users, users * 4, users * 12
        self.categories = max(users // 10, 30)

    def copied(self, table: str) -> Iterator[str]:
        """Lines for COPY."""
        make: dict[str, Callable[[], Iterator[tuple[Any, ...]]]] = {
            "users": self._users,
            "posts": self._posts,
            "comments": self._comments,
            "categories": self._categories,
            "counters": lambda: ((word, 0) for word in WORDS),
        }
        for row in make[table]():
            yield "\t".join("\\N" if each is None else str(each) for each in row) + "\n"

    def _when(self) -> datetime:
        return FIRST + timedelta(seconds=self._dice.randrange(86_400 * 300))

    def _words(self, most: int) -> str:
        return " ".join(self._dice.choices(WORDS, k=self._dice.randint(1, most)))

    def _users(self) -> Iterator[tuple[Any, ...]]:
        for at in range(1, self.users + 1):
            profile = {
                "city": self._dice.choice(CITIES),
                "age": self._dice.randint(18, 80),
                "settings": {"theme": self._dice.choice(("dark", "light"))},
            }
            tags = "{" + ",".join(sorted(set(self._dice.choices(WORDS, k=3)))) + "}"
            name = f"{self._dice.choice(WORDS).title()} {at}"
            shown = json.dumps(profile, ensure_ascii=False)
            karma = self._dice.randrange(1_000)
            yield (at, f"user{at}@example.org", name, karma, self._when(), shown, tags)

    def _posts(self) -> Iterator[tuple[Any, ...]]:
        for at in range(1, self.posts + 1):
            writer, status = self._dice.randint(1, self.users), self._dice.choice("dpppp")
            score = self._dice.randrange(500)
            yield (at, writer, self._words(6), self._words(30), self._when(), score, status)

    def _comments(self) -> Iterator[tuple[Any, ...]]:
        for at in range(1, self.comments + 1):
            post, writer = self._dice.randint(1, self.posts), self._dice.randint(1, self.users)
            yield (at, post, writer, self._words(20), self._when())

    def _categories(self) -> Iterator[tuple[Any, ...]]:
        for at in range(1, self.categories + 1):
            yield (at, None if at <= 3 else self._dice.randint(1, at - 1), f"category {at}")


Params = Callable[[random.Random, Rows], list[Any]]


def _nothing(dice: random.Random, rows: Rows) -> list[Any]:
    return []


def _user(dice: random.Random, rows: Rows) -> list[Any]:
    return [dice.randint(1, rows.users)]


def _post(dice: random.Random, rows: Rows) -> list[Any]:
    return [dice.randint(1, rows.posts)]


def _word(dice: random.Random, rows: Rows) -> list[Any]:
    return [dice.choice(WORDS)]


#: Name, text with $1, …, and what is given for these.
READS: dict[str, tuple[str, Params]] = {
    "one by its key": ("SELECT id, email, name, karma FROM users WHERE id = $1", _user),
    "one by another index": (
        "SELECT id, name FROM users WHERE email = $1",
        lambda dice, rows: [f"user{dice.randint(1, rows.users)}@example.org"],
    ),
    "page by key": (
        "SELECT id, title FROM posts WHERE id > $1 ORDER BY id LIMIT 20",
        _post,
    ),
    "page by OFFSET": (
        "SELECT id, title, created FROM posts ORDER BY created DESC, id LIMIT 20 OFFSET $1",
        lambda dice, rows: [dice.randrange(200)],
    ),
    "100 keys": (
        "SELECT id, name FROM users WHERE id = ANY ($1) ORDER BY id",
        lambda dice, rows: [dice.sample(range(1, rows.users + 1), min(100, rows.users))],
    ),
    "posts of a user": (
        "SELECT id, title, score FROM posts WHERE user_id = $1 ORDER BY created DESC, id LIMIT 10",
        _user,
    ),
    "JSON member": (
        "SELECT count(*) FROM users WHERE profile ->> 'city' = $1",
        lambda dice, rows: [dice.choice(CITIES)],
    ),
    "JSON contains": (
        'SELECT count(*) FROM users WHERE profile @> \'{"settings": {"theme": "dark"}}\'',
        _nothing,
    ),
    "JSON number": ("SELECT count(*) FROM users WHERE (profile ->> 'age')::int > 60", _nothing),
    "array contains": ("SELECT count(*) FROM users WHERE $1 = ANY (tags)", _word),
    "array contains all": (
        "SELECT count(*) FROM users WHERE tags @> ARRAY['alpha', 'beta']",
        _nothing,
    ),
    "first of an array": ("SELECT tags[1], count(*) FROM users GROUP BY 1 ORDER BY 1", _nothing),
    "ILIKE": (
        "SELECT id FROM posts WHERE title ILIKE '%' || $1 || '%' ORDER BY id LIMIT 20",
        _word,
    ),
    "ILIKE, counted": ("SELECT count(*) FROM posts WHERE body ILIKE '%kappa mu%'", _nothing),
    "join of three, LIMIT": (
        "SELECT c.id, c.body, u.name, p.title FROM comments c JOIN users u ON u.id = c.user_id"
        " JOIN posts p ON p.id = c.post_id WHERE p.user_id = $1"
        " ORDER BY c.created DESC, c.id LIMIT 10",
        _user,
    ),
    "post with its comments": (
        "SELECT c.id, u.name, c.body FROM comments c JOIN users u ON u.id = c.user_id"
        " WHERE c.post_id = $1 ORDER BY c.id",
        _post,
    ),
    "counts of children": (
        "SELECT p.id, p.title, (SELECT count(*) FROM comments c WHERE c.post_id = p.id) AS n"
        " FROM posts p WHERE p.user_id = $1 ORDER BY p.id",
        _user,
    ),
    "LEFT JOIN, grouped": (
        "SELECT p.id, count(c.id) FROM posts p LEFT JOIN comments c ON c.post_id = p.id"
        " WHERE p.user_id = $1 GROUP BY p.id ORDER BY p.id",
        _user,
    ),
    "EXISTS": (
        "SELECT count(*) FROM users u WHERE NOT EXISTS"
        " (SELECT 1 FROM posts p WHERE p.user_id = u.id AND p.status = 'd')",
        _nothing,
    ),
    "tree below": (
        "WITH RECURSIVE below AS (SELECT id, name, 0 AS depth FROM categories WHERE id = $1"
        " UNION ALL SELECT c.id, c.name, b.depth + 1 FROM categories c JOIN below b"
        " ON c.parent_id = b.id) SELECT id, name, depth FROM below ORDER BY depth, id",
        lambda dice, rows: [dice.randint(1, 10)],
    ),
    "top 3 of each": (
        "SELECT user_id, id, score FROM (SELECT user_id, id, score, row_number() OVER"
        " (PARTITION BY user_id ORDER BY score DESC, id) AS n FROM posts) t"
        " WHERE n <= 3 AND user_id < 100 ORDER BY user_id, n",
        _nothing,
    ),
    "by month": (
        "SELECT date_trunc('month', created) AS m, count(*), avg(score) FROM posts"
        " GROUP BY 1 ORDER BY 1",
        _nothing,
    ),
    "by day, shown": (
        "SELECT to_char(created, 'YYYY-MM-DD') AS d, count(*) FROM posts"
        " GROUP BY 1 ORDER BY 1 LIMIT 7",
        _nothing,
    ),
    "domain of an address": (
        "SELECT split_part(email, '@', 2), count(*) FROM users GROUP BY 1",
        _nothing,
    ),
    "latest of each": (
        "SELECT DISTINCT ON (user_id) user_id, id, created FROM posts WHERE user_id <= 50"
        " ORDER BY user_id, created DESC, id",
        _nothing,
    ),
    "regular expression": ("SELECT count(*) FROM posts WHERE title ~ '^alpha.*mu$'", _nothing),
}


def _upsert(dice: random.Random, rows: Rows) -> list[Any]:
    return [dice.choice(WORDS), dice.randint(1, 5)]


WRITES: dict[str, tuple[str, Params]] = {
    "counter": ("UPDATE counters SET value = value + 1 WHERE name = $1", _word),
    "counter, RETURNING": (
        "UPDATE counters SET value = value + 1 WHERE name = $1 RETURNING value",
        _word,
    ),
    "upsert": (
        "INSERT INTO counters VALUES ($1, $2) ON CONFLICT (name) DO UPDATE"
        " SET value = counters.value + excluded.value RETURNING value",
        _upsert,
    ),
    "update by an index": ("UPDATE posts SET score = score + 1 WHERE user_id = $1", _user),
    "update by another table": (
        "UPDATE users SET karma = karma + 1 WHERE id IN (SELECT user_id FROM posts WHERE id = $1)",
        _post,
    ),
    "delete, RETURNING": ("DELETE FROM comments WHERE id = $1 RETURNING post_id", _post),
    "JSON set": (
        "UPDATE users SET profile = jsonb_set(profile, '{age}', to_jsonb($2::int)) WHERE id = $1",
        lambda dice, rows: [dice.randint(1, rows.users), dice.randint(18, 80)],
    ),
}
