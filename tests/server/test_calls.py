"""`CALL cairn_…(…)` with arguments that are none: a SQLSTATE and the right form."""

from __future__ import annotations

import inspect
import random
from typing import Any

import psycopg
import pytest

from cairn.model.errors import CairnError
from cairn.model.members.cluster import Cluster as Members
from cairn.model.tables.catalog import Catalog
from cairn.server.calls.arguments import arguments
from cairn.server.calls.bulk import column_names
from cairn.server.calls.calls import CALLS
from cairn.server.calls.row_changes import _position
from cairn.server.calls.tiers import planned
from cairn.sql.api import prepare
from cairn.sql.plans import CallPlan
from tests.cluster.harness import Cluster


def given(name: str, text: str) -> list[Any]:
    plan = prepare(f"CALL {name}({text})", Catalog()).plan
    assert isinstance(plan, CallPlan)
    return arguments(name, CALLS[name][1], plan.arguments)


def refused(name: str, text: str) -> tuple[str, str, str | None]:
    with pytest.raises(CairnError) as caught:
        given(name, text)
    return caught.value.sqlstate, caught.value.message, caught.value.hint


def test_a_wrong_number_of_arguments_is_told_with_the_form() -> None:
    assert refused("cairn_rows", "'orders'") == (
        "42883",
        "procedure cairn_rows does not take 1 argument",
        "write CALL cairn_rows('name', 'after'[, limit])",
    )
    assert refused("cairn_rows_at", "'orders'")[2] == (
        "write CALL cairn_rows_at('name', 'at', low, high)"
    )
    assert refused("cairn_expel", "") == (
        "42883",
        "procedure cairn_expel does not take 0 arguments",
        "write CALL cairn_expel('name'[, force][, timeout_s])",
    )
    assert refused("cairn_status", "1")[2] == "write CALL cairn_status()"
    assert refused("cairn_compact", "1, 2")[2] == "write CALL cairn_compact([keep])"


def test_an_argument_of_a_wrong_kind_is_told_by_its_name() -> None:
    assert refused("cairn_compact", "'x'") == (
        "22023",
        "keep of cairn_compact must be a whole number",
        "write CALL cairn_compact([keep])",
    )
    assert refused("cairn_compact", "true")[0] == "22023"
    assert refused("cairn_compact", "1.5")[0] == "22023"
    assert refused("cairn_expel", "'i1', 1")[1] == "force of cairn_expel must be true or false"
    assert refused("cairn_rows", "5, null")[1] == "name of cairn_rows must be 'text'"


def test_right_arguments_are_taken() -> None:
    assert given("cairn_status", " ") == []
    assert given("cairn_expel", "'it''s', true, 5") == ["it's", True, 5]
    assert given("cairn_rows", "'t', '\"latest\"', 10") == ["t", '"latest"', 10]
    assert given("cairn_compact", "-1") == [-1]


@pytest.mark.cluster
def test_calls_are_prepared_and_take_parameters(cluster: Cluster) -> None:
    with cluster["i1"].connect() as connection:
        for _ in range(8):  # from the sixth on psycopg uses a statement that it has prepared
            [(found,)] = connection.execute("CALL cairn_status()").fetchall()
            assert found["cluster"]["name"] == "server"
        again = "CALL cairn_compact(%s)"
        for keep in (10, 20, 30, 40, 50, 60, 70):
            [(found,)] = connection.execute(again, (keep,)).fetchall()
            assert list(found) == ["compacted"]
        [(found,)] = connection.execute(again, ("1000",)).fetchall()  # as text
        assert list(found) == ["compacted"]
        with pytest.raises(psycopg.Error, match="keep of cairn_compact must be a whole number"):
            connection.execute(again, ("many",))
        with pytest.raises(psycopg.errors.UndefinedFunction, match="does not exist"):
            connection.execute("CALL something(%s)", (1,))
        [(found,)] = connection.execute("SELECT 1; CALL cairn_compact(1000)").fetchall()


def test_every_call_has_kinds_that_can_be_told() -> None:
    for name in CALLS:
        with pytest.raises(CairnError, match="does not take"):
            given(name, ", ".join(["1"] * 20))
        with pytest.raises(CairnError):
            given(name, ", ".join(["null"] * 9))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "[1]",
        '{"a": "b"}',
        '"now"',
        '{"a": -1}',
        '{"a": 9223372036854775808}',
        '{"a": [1, 1e30]}',
    ],
)
def test_what_is_no_position_is_refused(text: str) -> None:
    with pytest.raises(CairnError, match="not a position") as caught:
        _position(text)
    assert caught.value.sqlstate == "22023"


@pytest.mark.parametrize("text", ["", "a, b", "[]", "[1]", '"a"'])
def test_what_is_no_list_of_columns_is_refused(text: str) -> None:
    with pytest.raises(CairnError, match="not a list of columns"):
        column_names(text)


#: Calls that would end what other tests use, or wait for long.
SPARED = {
    *("cairn_restart", "cairn_restore", "cairn_restore_rows", "cairn_backup"),
    *("cairn_expel", "cairn_rebalance", "cairn_tier", "cairn_terminate", "cairn_cancel"),
}
TEXTS = (
    *(
        "",
        "nowhere",
        "odd_calls",
        "{}",
        '"latest"',
        "[1]",
        "a=1",
        "weight",
        "set",
        "add",
        "default",
    ),
    *("default_1", "i1", "id", '["id"]', "9" * 5000, "replication_factor=99999999999999999999"),
    *('{"a":[1,99999999999999999999999]}', '{"a":1e999}', "[" * 3000, "\U0010ffff", "\\x00ff"),
    *('{"a":-1}', "nan", "drain", "plan", "1.5", "append", "replace", "begin", "insert"),
)
NUMBERS = ("0", "-1", "1", "9223372036854775807", "99999999999999999999", "1e300", "-1e300", "0.5")


def odd(parameter: inspect.Parameter, chance: random.Random) -> str:
    """A value that is mostly of the right kind."""
    if chance.random() < 0.1:
        return chance.choice(("NULL", "true", "1", "'x'"))
    if parameter.annotation in ("int", "float"):
        return chance.choice(NUMBERS)
    return "'" + chance.choice(TEXTS).replace("'", "''") + "'"


@pytest.mark.parametrize("name", sorted(set(CALLS) - SPARED))
def test_no_argument_of_a_call_is_an_internal_error(cluster: Cluster, name: str) -> None:
    node, chance, wrong = cluster["i1"], random.Random(name), []
    node.sql("CREATE TABLE IF NOT EXISTS odd_calls (id INT PRIMARY KEY) DISTRIBUTED BY (id)")
    _, *takes = inspect.signature(CALLS[name][1]).parameters.values()
    needs = sum(each.default is each.empty for each in takes)
    with node.connect() as connection:
        for _ in range(150 if takes else 1):
            several = takes[: chance.randint(needs, len(takes))]
            text = f"CALL {name}({', '.join(odd(each, chance) for each in several)})"
            try:
                connection.execute(text)  # type: ignore[arg-type]
            except psycopg.Error as problem:
                if problem.sqlstate in (None, "XX000"):
                    wrong.append((text[:200], str(problem)))
    assert wrong == []
    assert set(cluster.states("i2").values()) == {"Online"}


@pytest.mark.parametrize(
    "options",
    [
        "replication_factor=99999999999999999999",
        "replication_factor=" + "9" * 5000,
        "replication_factor=-1",
        "replication_factor=1_0",
        "replication_factor=٣",
        "replication_factor=",
        "replication_factor=2 replication_factor=3",
        "can_vote=maybe",
        "=3",
        "color=red",
    ],
)
def test_what_is_no_option_of_a_tier_is_refused(options: str) -> None:
    with pytest.raises(CairnError) as told:
        planned(Members(), "add", "hot", options)
    assert told.value.sqlstate == "22023"
