"""jsonpath: generated paths over generated documents tell what PostgreSQL tells."""

from __future__ import annotations

import json
import os
import random
from typing import Any

import pytest

from cairn.model.errors import CairnError
from cairn.sql.functions.jsonpath import json_paths as ours

from .harness import Cluster
from .postgres import postgres as postgres

pytestmark = pytest.mark.clients
psycopg = pytest.importorskip("psycopg")
PATHS = int(os.environ.get("CAIRN_JSON_PATHS", "3000"))
SEED = int(os.environ.get("CAIRN_SQL_SEED", "1"))


class Made:
    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)

    def pick(self, *those: Any) -> Any:
        return self.chance.choice(those)

    def document(self, depth: int = 0) -> Any:
        kind = self.chance.random()
        if depth > 2 or kind < 0.35:
            return self.pick(
                1, 2, -3, 2.5, 0, "a", "abc", "", "12", "1.5", "b c", True, False, None
            )
        if kind < 0.65:
            return [self.document(depth + 1) for _ in range(self.chance.randint(0, 4))]
        names = self.chance.sample(["a", "b", "c", "k"], self.chance.randint(0, 3))
        return {name: self.document(depth + 1) for name in names}

    def steps(self, depth: int) -> str:
        return "".join(self.step(depth) for _ in range(self.chance.randint(0, 3)))

    def step(self, depth: int) -> str:
        found = self.pick(
            *(".a", ".b", '."c"', ".a", ".k", ".*", "[*]", "[0]", "[last]", "[1 to 2]"),
            *("[0, last]", "[last - 1]", ".**", ".**{1}", ".**{1 to 2}", ".**{last}", ".size()"),
            *(".type()", ".abs()", ".floor()", ".ceiling()", ".double()", "[$i]", '["a"]', "[1.7]"),
            "filter", "filter", "filter",
        )  # fmt: skip
        if found == "filter":
            return f" ? ({self.predicate(depth + 1)})" if depth < 2 else ".a"
        return str(found)

    def value(self, depth: int) -> str:
        kind = self.chance.random()
        start = "@" if depth else "$"
        if kind < 0.55 or depth > 2:
            return f"{start if self.chance.random() < 0.9 else '$'}{self.steps(depth)}"
        if kind < 0.8:
            return str(self.pick("1", "2.5", '"a"', "true", "null", "$i", "0", '"abc"', "$s", "-1"))
        if kind < 0.9:
            return f"{self.value(depth + 1)} {self.pick(*'+-*/%')} {self.value(depth + 1)}"
        return self.pick("-", "+", "") + f"({self.value(depth + 1)})"

    def predicate(self, depth: int) -> str:
        kind = self.chance.random()
        one = self.value(depth)
        if kind < 0.55 or depth > 3:
            return f"{one} {self.pick('==', '!=', '<', '<=', '>', '>=', '<>')} {self.value(depth)}"
        if kind < 0.65:
            return f"exists({one})"
        if kind < 0.72:
            return f"{one} starts with {self.pick(chr(34) + 'a' + chr(34), '$s')}"
        if kind < 0.8:
            flag = self.pick("", ' flag "i"', ' flag "q"')
            return f'{one} like_regex "{self.pick("^a", "B", "[0-9]+", ".c")}"{flag}'
        if kind < 0.86:
            return f"!({self.predicate(depth + 1)})"
        if kind < 0.9:
            return f"({self.predicate(depth + 1)}) is unknown"
        sign = self.pick("&&", "||")
        return f"({self.predicate(depth + 1)}) {sign} {self.predicate(depth + 1)}"

    def path(self) -> str:
        mode = self.pick("", "", "lax ", "strict ")
        if self.chance.random() < 0.2:
            return f"{mode}{self.predicate(0)}"
        if self.chance.random() < 0.05:
            return mode + self.pick(
                "$.", "$[", "@", "$ ? (@.a)", "$.a = 1", "$ && $", "last", "$.a.b.", ""
            )
        return f"{mode}{self.value(0)}"


FUNCTIONS = {
    "jsonb_path_query_array": lambda *args: json.loads(ours.j_path_array(*args)),
    "jsonb_path_query_first": lambda *args: (
        None if (found := ours.j_path_first(*args)) is None else json.loads(found)
    ),
    "jsonb_path_exists": lambda *args: _truth(ours.b_path_exists(*args)),
    "jsonb_path_match": lambda *args: _truth(ours.b_path_match(*args)),
}


def _truth(value: int | None) -> bool | None:
    return None if value is None else bool(value)


def test_generated_paths_find_what_postgres_finds(postgres: Any) -> None:
    made, different, errors = Made(SEED), [], 0
    variables = '{"i": 1, "s": "a"}'
    for _ in range(PATHS):
        document, path = json.dumps(made.document()), made.path()
        name, silent = made.pick(*FUNCTIONS), made.pick(0, 0, 1)
        try:
            mine: Any = FUNCTIONS[name](document, path, variables, silent)
        except CairnError as problem:
            mine = problem.sqlstate
            errors += 1
        text = f"SELECT {name}(%s::jsonb, %s::jsonpath, %s::jsonb, %s)"
        try:
            given = (document, path, variables, bool(silent))
            [theirs] = postgres.execute(text, given).fetchone()
        except psycopg.Error as problem:
            theirs = problem.sqlstate
        if json.dumps(_plain(mine)) != json.dumps(_plain(theirs)):
            different.append(f"{name}({document}, {path}, {silent}): {mine} / {theirs}")
    assert not different, f"{len(different)} of {PATHS}:\n" + "\n".join(different[:25])
    assert 0 < errors < PATHS * 0.6


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, dict):
        return {name: _plain(value[name]) for name in sorted(value)}
    if value is None or isinstance(value, bool | str):
        return value
    return f"{float(value):.12g}"


@pytest.mark.parametrize(
    "text",
    [
        """SELECT '{"a": [1, 2, 3]}'::jsonb @? '$.a[*] ? (@ > 2)'""",
        """SELECT '{"a": 1}'::jsonb @@ '$.a == 1', '{"a": 1}'::jsonb @@ '$.a'""",
        """SELECT x FROM jsonb_path_query('{"a": [1, 2]}', '$.a[*] ? (@ >= $m)', '{"m": 2}') x""",
        """SELECT jsonb_path_query('[1, [2, 3]]'::jsonb, '$[*]')""",
        """SELECT jsonb_path_query_first('{"b": "x"}', '$.b') #>> '{}'""",
        """SELECT d FROM (VALUES ('[1]'::jsonb), ('[5]')) t (d) WHERE d @? '$[*] ? (@ > 3)'""",
        """SELECT jsonb_path_exists('{"a": 1}', 'strict $.b')""",
        """SELECT jsonb_path_query('{"a": 1}', '$.a.')""",
    ],
)
def test_statements_with_paths(postgres: Any, text: str) -> None:
    try:
        theirs: Any = [
            tuple(_plain(each) for each in row)
            for row in postgres.execute(text.encode()).fetchall()
        ]
    except psycopg.Error as problem:
        theirs = problem.sqlstate
    try:
        mine: Any = [tuple(_plain(each) for each in row) for row in Cluster().run(text)]
    except CairnError as problem:
        mine = problem.sqlstate
    assert mine == theirs
