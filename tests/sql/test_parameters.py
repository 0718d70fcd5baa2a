"""Parameter types come from casts, columns and context, and from the client where it told them."""

from __future__ import annotations

import pytest

from cairn.model.errors import CairnError
from cairn.sql.api import prepare

from .harness import Cluster


@pytest.fixture(scope="module")
def cluster() -> Cluster:
    found = Cluster()
    found.run(
        "CREATE TABLE t (a INT PRIMARY KEY, s TEXT, d DECIMAL, f DOUBLE, b BOOLEAN, u UUID, "
        "at DATETIME, n UNSIGNED)"
    )
    return found


def types(cluster: Cluster, text: str, oids: tuple[int, ...] = ()) -> list[str]:
    found = prepare(text, cluster.catalog, param_oids=oids, user_id=1)
    return [type_.value for type_ in found.param_types]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT $1", ["string"]),
        ("SELECT $1::int, $2::uuid", ["integer", "uuid"]),
        ("SELECT * FROM t WHERE a = $1 AND s = $2 AND d > $3", ["integer", "string", "decimal"]),
        ("SELECT * FROM t WHERE f < $1 AND b = $2 AND u = $3", ["double", "boolean", "uuid"]),
        ("SELECT * FROM t WHERE at >= $1 AND $2 = n", ["datetime", "integer"]),
        ("SELECT * FROM t WHERE a IN ($1, $2)", ["integer", "integer"]),
        ("SELECT * FROM t WHERE a BETWEEN $1 AND $2", ["integer", "integer"]),
        ("SELECT * FROM t WHERE s LIKE $1", ["string"]),
        ("SELECT * FROM t WHERE $1", ["boolean"]),
        ("SELECT a + $1, d * $2 FROM t", ["integer", "decimal"]),
        ("SELECT coalesce(a, $1), CASE WHEN b THEN f ELSE $2 END FROM t", ["integer", "double"]),
        ("SELECT * FROM t LIMIT $1 OFFSET $2", ["integer", "integer"]),
        ("SELECT $1, a FROM t WHERE a = $1", ["integer"]),
        ("SELECT substr(s, $1, $2), lower($3) FROM t", ["integer", "integer", "string"]),
        ("INSERT INTO t (a, s, d) VALUES ($1, $2, $3)", ["integer", "string", "decimal"]),
        ("INSERT INTO t (a, at) SELECT $1, $2", ["integer", "datetime"]),
        ("UPDATE t SET d = $1 WHERE a = $2", ["decimal", "integer"]),
        ("SELECT $1 UNION SELECT 1", ["integer"]),
        ("SELECT _pico_bucket($1) AS buckets;", ["string"]),
        ("INSERT INTO t (a, f) VALUES ($1, $2 - 100)", ["integer", "double"]),
        ("INSERT INTO t (a, d) VALUES ($1, ($2 + 1) * $3)", ["integer", "decimal", "decimal"]),
        ("INSERT INTO t (a, n) VALUES ($1, $2 - 1.5)", ["integer", "decimal"]),
        ("UPDATE t SET f = -$1 * 2 WHERE a = $2 + 1", ["double", "integer"]),
        ("SELECT a FROM t WHERE f < $1 + 1", ["double"]),
        ("SELECT a FROM t WHERE $1 - 1 < d", ["decimal"]),
        ("SELECT $1 - 100", ["integer"]),
        ("SELECT a FROM t OPTION (sql_motion_row_max = $1)", ["integer"]),
    ],
)
def test_types_are_inferred(cluster: Cluster, text: str, expected: list[str]) -> None:
    assert types(cluster, text) == expected


def test_declared_types_are_kept(cluster: Cluster) -> None:
    assert types(cluster, "SELECT * FROM t WHERE a = $1", (21,)) == ["integer"]
    assert types(cluster, "SELECT * FROM t WHERE d = $1", (20,)) == ["integer"]
    assert types(cluster, "SELECT $1, $2", (1043, 0)) == ["string", "string"]


@pytest.mark.parametrize(
    ("text", "sqlstate"),
    [
        ("SELECT $2::int", "42P18"),
        ("SELECT $0", "42P02"),
        ("SELECT $70000", "42P02"),
        ("SELECT $1 + $2", "42725"),
        ("INSERT INTO t (a, d, b) VALUES (1, $1, $1::boolean)", "42P08"),
        ("SELECT a FROM t WHERE at = $1 AND u = $1", "42883"),
        ("SELECT a FROM t WHERE a = ? AND s = $1", "42601"),
    ],
)
def test_bad_parameters_are_refused(cluster: Cluster, text: str, sqlstate: str) -> None:
    with pytest.raises(CairnError) as error:
        types(cluster, text)
    assert error.value.sqlstate == sqlstate


def test_question_marks_are_counted(cluster: Cluster) -> None:
    text = "SELECT a FROM t WHERE s = ? AND a = ? AND s <> '?'"
    assert types(cluster, text) == ["string", "integer"]
    assert cluster.run(text, ["x", 1]) == []


def test_result_columns_are_named_as_postgresql_names_them(cluster: Cluster) -> None:
    text = (
        "SELECT a, t.s, a AS \"X y\", a + 1, count(*) OVER (), lower(s), a::text, '1'::int, "
        "CASE WHEN b THEN 1 END, coalesce(a, 1), (SELECT 1 AS z), EXISTS (SELECT 1), true, "
        "sum(a) OVER (), current_timestamp FROM t"
    )
    found = prepare(text, cluster.catalog, user_id=1)
    assert [column.name for column in found.columns] == [
        *("a", "s", "X y", "?column?", "count", "lower", "a", "int4", "case", "coalesce", "z"),
        *("exists", "bool", "sum", "current_timestamp"),
    ]
