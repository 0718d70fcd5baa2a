"""`CALL cairn_…(…)` with arguments that are none: a SQLSTATE and the right form."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from cairn.model.errors import CairnError
from cairn.model.tables.catalog import Catalog
from cairn.server.calls.arguments import arguments
from cairn.server.calls.bulk import column_names
from cairn.server.calls.calls import CALLS
from cairn.server.calls.row_changes import _position
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


@pytest.mark.parametrize("text", ["", "x", "[1]", '{"a": "b"}', '"now"'])
def test_what_is_no_position_is_refused(text: str) -> None:
    with pytest.raises(CairnError, match="not a position") as caught:
        _position(text)
    assert caught.value.sqlstate == "22023"


@pytest.mark.parametrize("text", ["", "a, b", "[]", "[1]", '"a"'])
def test_what_is_no_list_of_columns_is_refused(text: str) -> None:
    with pytest.raises(CairnError, match="not a list of columns"):
        column_names(text)
