"""SET, SET LOCAL and set_config in blocks: what is in force afterwards is what PostgreSQL has."""

from __future__ import annotations

import os
import random
from typing import Any

import psycopg
import pytest

from tests.cluster.harness import Cluster
from tests.sql.postgres import postgres  # noqa: F401 (a fixture)

pytestmark = [pytest.mark.cluster, pytest.mark.clients]
STEPS = int(os.environ.get("CAIRN_SET_STEPS", "600"))
SEED = int(os.environ.get("CAIRN_SQL_SEED", "20261119"))
NAMES = ("mine.a", "mine.b", "statement_timeout")


def step(rng: random.Random) -> str:
    name, value = rng.choice(NAMES), f"{rng.randrange(1, 9)}s"
    mark = rng.choice("pq")
    return rng.choice(
        (
            *("BEGIN", "COMMIT", "ROLLBACK", f"SAVEPOINT {mark}", f"RELEASE {mark}"),
            *[f"ROLLBACK TO {mark}"] * 2,
            *[f"SET {name} = '{value}'"] * 3,
            *[f"SET LOCAL {name} = '{value}'"] * 3,
            f"SELECT set_config('{name}', '{value}', {rng.choice(('true', 'false'))})",
            *("RESET statement_timeout", "SET statement_timeout TO DEFAULT", "SELECT 1/0"),
        )
    )


def told(sql: Any, text: str) -> Any:
    try:
        found = sql.execute(text.encode())
    except psycopg.Error as problem:
        return problem.sqlstate
    return found.fetchall() if found.description else found.statusmessage


def test_what_is_in_force_after_blocks_is_the_same(cluster: Cluster, postgres: Any) -> None:  # noqa: F811
    print(f"seed {SEED}, {STEPS} steps")
    rng = random.Random(SEED)
    shown = "SELECT " + ", ".join(f"current_setting('{name}', true)" for name in NAMES)
    with cluster["i1"].connect() as ours:
        postgres.execute("RESET ALL")
        for name in NAMES:
            for sql in (ours, postgres):
                sql.execute(f"SET {name} = '9s'".encode())
        for at in range(STEPS):
            text = step(rng)
            assert told(ours, text) == told(postgres, text), (at, text)
            assert told(ours, shown) == told(postgres, shown), (at, text)
        told(postgres, "ROLLBACK")
        postgres.execute("RESET ALL")
