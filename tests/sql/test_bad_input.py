"""Whatever comes in, the answer is a SQLSTATE, a sentence and, where known, a place."""

# ruff: noqa: E501 (a case is one line)

from __future__ import annotations

import random
from decimal import Decimal

import pytest

from cairn.model.errors import CairnError
from cairn.sql.api import prepare
from cairn.sql.functions import texts

from .corpus import ERRORS, ORDERED, PLAIN, TABLES, lines
from .harness import Cluster, sqlstate_of


@pytest.fixture(scope="module")
def cluster() -> Cluster:
    found = Cluster()
    for ours, _ in TABLES:
        found.run(ours)
    return found


def failure(cluster: Cluster, text: str) -> CairnError:
    with pytest.raises(CairnError) as error:
        cluster.run(text)
    return error.value


@pytest.mark.parametrize(
    ("text", "sqlstate", "position", "message"),
    [
        ("SELECT nope FROM item", "42703", 8, 'column with name "nope" not found'),
        ("SELECT id FROM nope", "42P01", 16, 'table with name "nope" not found'),
        ("SELEC 1", "42601", 1, 'syntax error at or near "SELEC"'),
        ("SELECT id FRM item x y", "42601", 15, 'syntax error at or near "item"'),
        ("SELECT a,\nFROM item", "42601", 11, 'syntax error at or near "FROM"'),
        ("SELECT 'abc", "42601", 8, "unterminated quoted string"),
        (
            "SELECT s + 1 FROM item",
            "42883",
            8,
            "could not resolve operator overload for +(text, int)",
        ),
        ("SELECT wibble(1)", "42883", 8, "function wibble(integer) does not exist"),
        ("SELECT id FROM item FOR UPDATE SKIP LOCKED", "0A000", None, "SKIP LOCKED is not supported: nothing is locked here"),
        (
            "INSERT INTO item (id) VALUES (1) RETURNING (SELECT 1)",
            "0A000",
            None,
            "a sub-query in RETURNING is not supported",
        ),
        ("SELECT * FROM (WITH x AS (DELETE FROM item) SELECT 1) s", "0A000", None, "WITH clause containing a data-modifying statement must be at the top level"),
        ("INSERT INTO item VALUES (1, 2), (3)", "42601", 34, "VALUES lists must all be the same length"),
        ("SELECT 1; SELECT 2", "42601", 9, "cannot insert multiple commands into a prepared statement"),
        ("SELECT count(*) FROM item GROUP BY", "42601", None, "syntax error: GROUP BY names nothing"),
        ("SELECT interval 'a day'", "22007", 17, 'invalid input syntax for type interval: "a day"'),
        ("UPDATE item SET ok = 5", "42804", None, 'column "ok" is of type boolean but expression is of type integer'),
    ],
)  # fmt: skip
def test_errors_name_what_is_wrong_and_where(
    cluster: Cluster, text: str, sqlstate: str, position: int | None, message: str
) -> None:
    found = failure(cluster, text)
    assert (found.sqlstate, found.message) == (sqlstate, message)
    if position is not None:
        assert found.position == position


def test_limits_of_the_reference_hold(cluster: Cluster) -> None:
    assert cluster.run("SELECT " + "(" * 190 + "1" + ")" * 190) == [(1,)]
    for text, sqlstate in (
        ("SELECT " + "(" * 300 + "1" + ")" * 300, "54001"),
        ("SELECT " + "(" * 40_000 + "1" + ")" * 40_000, "54001"),
        ("SELECT " + "(" * 100_000 + "1" + ")" * 100_000, "54000"),  # too many words
        ("SELECT " + "+".join(["1"] * 1000), "54001"),
        ("SELECT " + "NOT " * 5000 + "true", "54001"),
        ("SELECT " + " UNION ALL SELECT ".join(["1"] * 60), "54000"),
        (f"SELECT concat({', '.join(['1'] * 200)})", "54023"),
    ):
        assert failure(cluster, text).sqlstate == sqlstate, text[:60]


def test_long_chains_are_no_deep_nesting(cluster: Cluster) -> None:
    assert cluster.run("SELECT id FROM item WHERE " + " OR ".join(["id = 1"] * 3000)) == []
    assert cluster.run("SELECT id FROM item WHERE id IN (" + ", ".join(["1"] * 5000) + ")") == []
    assert cluster.run("SELECT " + " || ".join(["'a'"] * 3000)) == [("a" * 3000,)]


def test_mangled_statements_never_crash(cluster: Cluster) -> None:
    """Tokens dropped, doubled, swapped and cut: an answer or a CairnError, nothing else."""
    rng = random.Random(3)
    texts = [*lines(ORDERED), *lines(PLAIN), *lines(ERRORS)]
    for _ in range(3000):
        words = rng.choice(texts).split(" ")
        for _ in range(rng.randrange(1, 4)):
            at = rng.randrange(len(words))
            match rng.randrange(5):
                case 0:
                    del words[at]
                case 1:
                    words.insert(at, words[rng.randrange(len(words))])
                case 2:
                    words[at] = rng.choice(
                        ("(", ")", ",", "'", "::", "$1", "NULL", ";", "\x00", "é")
                    )
                case 3:
                    words[at] = words[at][: rng.randrange(len(words[at]) + 1)]
                case _:
                    words = words[: at + 1]
            if not words:
                break
        text = " ".join(words)
        sqlstate = sqlstate_of(lambda text=text: prepare(text, cluster.catalog, user_id=1))
        assert sqlstate[:2] not in ("XX", "08"), text


@pytest.mark.parametrize(
    "form",
    [
        "nullif({}, 1)",
        "greatest({}, 1)",
        "CASE {} WHEN 1 THEN 2 WHEN 3 THEN 4 END",
        "concat({}::bool, '')::bool::int",
    ],
)
def test_a_short_text_that_stands_for_an_endless_expression_is_refused(
    cluster: Cluster, form: str
) -> None:
    """Each names its operand more than once. Whoever planned it was busy for ever, on the loop."""
    text = "id"
    for _ in range(30):
        text = form.format(text)
    problem = failure(cluster, f"SELECT {text} FROM item")
    assert problem.sqlstate == "54001"
    assert "stands for more than" in problem.message


def test_the_greatest_and_the_least_of_many_are_found(cluster: Cluster) -> None:
    """Each operand tripled the expression: twenty ended the instance."""
    numbers = [*range(7, 30), *range(7)]
    words = ", ".join(map(str, numbers))
    assert cluster.run(f"SELECT greatest(NULL, {words}, NULL), least({words}, NULL)") == [(29, 0)]
    assert cluster.run("SELECT greatest(NULL, 1.50, 1.5), least(NULL::int, NULL)") == [
        (Decimal("1.50"), None)
    ]


@pytest.mark.parametrize(
    "text",
    [
        "SELECT length(concat({0}, {0}, {0}))",
        "SELECT length(concat_ws('-', {0}, {0}, {0}))",
        "SELECT length(json_agg({0})::text) FROM generate_series(1, 3)",
        "SELECT length(jsonb_object_agg(g, {0})::text) FROM generate_series(1, 3) g",
        "SELECT array_length(array_agg({0}), 1) FROM generate_series(1, 3)",
        "SELECT length(string_agg(DISTINCT g || {0}, '')) FROM generate_series(1, 3) g",
    ],
)
def test_a_text_that_is_too_long_is_refused_before_it_is_made(
    cluster: Cluster, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(texts, "MAX_LENGTH", 2500)
    problem = failure(cluster, text.format("repeat('x', 1000)"))
    assert (problem.sqlstate, problem.message) == ("54000", "requested length too large")
