"""Blocks, procedures and views with words lost, doubled and exchanged: an error of ours, always."""

from __future__ import annotations

import random

import pytest

from cairn.model.errors import CairnError
from cairn.sql.api import prepare
from cairn.sql.parse.lexer import tokens

from .harness import Cluster

TEXTS = (
    "DO $$ BEGIN ATOMIC LET v = (SELECT b FROM t WHERE a = $1); LET w = v || 'x'; "
    "IF v = 'y' AND CASE WHEN $2 > 1 THEN true ELSE false END THEN "
    "UPDATE t SET b = w WHERE a = $1; INSERT INTO t VALUES ($1, w); END IF; "
    "RETURN QUERY SELECT a, b FROM t WHERE a = $1; DELETE FROM t WHERE a = 1; END $$",
    "DO LANGUAGE SQL 'BEGIN INSERT INTO t VALUES (1, ''x''); END'",
    "CREATE OR REPLACE PROCEDURE p(INT, TEXT) LANGUAGE SQL SECURITY INVOKER AS "
    "$$ BEGIN UPDATE t SET b = $2 WHERE a = $1; END $$",
    "CREATE PROCEDURE q(NUMERIC(5, 2)) AS 'DELETE FROM t WHERE a = $1'",
    "DROP PROCEDURE IF EXISTS p(INT, TEXT)",
    "ALTER PROCEDURE p(INT) RENAME TO q",
    "CREATE OR REPLACE VIEW v (x, y) AS SELECT a, b FROM t WHERE a > 1 ORDER BY a LIMIT 3",
    "DROP VIEW IF EXISTS v CASCADE",
)


@pytest.fixture(scope="module")
def cluster() -> Cluster:
    found = Cluster()
    found.run("CREATE TABLE t (a INT PRIMARY KEY, b TEXT)")
    found.run("CREATE TABLE g (a INT PRIMARY KEY, b TEXT) DISTRIBUTED GLOBALLY")
    return found


def garbled(text: str, chance: random.Random) -> str:
    words = [token.text for token in tokens(text)]
    for at, word in enumerate(words):
        if word.startswith("$$"):
            words[at] = f"$${garbled(word[2:-2], chance)}$$"
    for _ in range(chance.randint(0, 2)):
        if not words:
            break
        at = chance.randrange(len(words))
        match chance.randrange(4):
            case 0:
                del words[at]
            case 1:
                words.insert(at, words[at])
            case 2:
                other = chance.randrange(len(words))
                words[at], words[other] = words[other], words[at]
            case _:
                words[at] = chance.choice(("", "g", "$9", "NULL", ";", "(", ")", "END", "LET", "'"))
    return " ".join(words)


@pytest.mark.parametrize("seed", range(20))
def test_garbled_texts_are_understood_or_refused(cluster: Cluster, seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(60):
        try:
            text = garbled(chance.choice(TEXTS), chance)
        except CairnError:
            continue  # its words cannot even be told apart
        assert sqlstate(text, cluster) != "XX000", text


def sqlstate(text: str, cluster: Cluster) -> str:
    try:
        prepare(text, cluster.catalog)
    except CairnError as problem:
        return problem.sqlstate
    return "00000"


def test_a_value_that_is_only_a_parenthesis_is_refused(cluster: Cluster) -> None:
    assert sqlstate("DO $$ BEGIN LET v = (; END $$", cluster) == "42601"
