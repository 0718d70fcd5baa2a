"""What is not there is refused by its own name, with a way out where there is one."""

from __future__ import annotations

import pytest

from cairn.model.errors import CairnError

from .harness import Cluster


@pytest.fixture(scope="module")
def cluster() -> Cluster:
    made = Cluster()
    made.run("CREATE TABLE t (a INT PRIMARY KEY, s TEXT, f DATETIME)")
    return made


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("SELECT to_number(s, s) FROM t", "function to_number is not supported", None),
        ("SELECT unnest(ARRAY[1]), unnest(ARRAY[2])", "unnest is supported in FROM", "FROM unnest"),
        ("SELECT count(*), unnest(ARRAY[1]) FROM t", "unnest is supported in FROM", "FROM unnest"),
        (
            "ALTER TABLE t ALTER s TYPE INT",
            'column "s" cannot become bigint: it is text',
            "rename",
        ),
        ("ALTER TABLE t ALTER s TYPE VARCHAR(9)", 'column "s" cannot become character', "add a"),
        ("ALTER TABLE t ALTER s TYPE TEXT USING lower(s)", "USING with an expression", "add a"),
        (
            "SELECT * FROM jsonb_populate_recordset('{}')",
            "jsonb_populate_recordset in FROM",
            "generate_series",
        ),
        ("SELECT DISTINCT a FROM t ORDER BY 1 FETCH FIRST 2 ROWS WITH TIES", "WITH TIES", None),
        ("SELECT a FROM t FOR UPDATE SKIP LOCKED", "SKIP LOCKED is not supported", "40001"),
        ("SELECT @ 5", "the operator @ is not supported", "abs()"),
        ("SELECT '1:00'::timetz", "type timetz is not supported", "TIMESTAMP WITH"),
        (
            "CREATE INDEX i ON t ((random()))",
            "this function or operator in an index",
            "the same values",
        ),
        ("CREATE SCHEMA x", "CREATE SCHEMA is not supported", "in front of the tables' names"),
        ("DROP SCHEMA public", "DROP SCHEMA public is not supported", "by name"),
        ("UPDATE t SET s = 'x' FROM t AS u RETURNING *", "RETURNING of another table's", "name"),
        ("INSERT INTO t (a) VALUES (1) RETURNING random()", "a function that depends on", None),
    ],
)
def test_it_is_refused_by_name(cluster: Cluster, text: str, message: str, hint: str | None) -> None:
    with pytest.raises(CairnError) as found:
        cluster.run(text)
    assert found.value.sqlstate == "0A000" and found.value.message.startswith(message)
    assert hint is None or hint in (found.value.hint or "")


def test_an_index_without_a_name_gets_one() -> None:
    cluster = Cluster()
    cluster.run("CREATE TABLE t (a INT PRIMARY KEY, b INT, c INT)")
    for _ in range(2):
        cluster.run("CREATE INDEX ON t (b, c)")
    names = [index.name for index in cluster.catalog.indexes[cluster.catalog.tables["t"].id]]
    assert names == ["t_b_c_idx", "t_b_c_idx1"]
