"""Enums give the rows, the order and the refusals that PostgreSQL gives, wherever rows lie."""

from __future__ import annotations

from typing import Any

import pytest

from cairn.model.errors import CairnError

from .corpus_enums import SCRIPT
from .harness import Cluster

pytestmark = pytest.mark.clients
psycopg = pytest.importorskip("psycopg")
Answer = tuple[str, list[Any]]


def _theirs(postgres: Any, text: str) -> Answer:
    try:
        cursor = postgres.execute(text.encode(), prepare=False)
    except psycopg.Error as error:
        return str(error.sqlstate), []
    return "", cursor.fetchall() if cursor.description else []


def _ours(cluster: Cluster, text: str) -> Answer:
    try:
        found = cluster.run(text)
    except CairnError as error:
        return error.sqlstate, []
    return "", found if isinstance(found, list) else []


@pytest.mark.parametrize(
    "distribution",
    [
        "DISTRIBUTED BY (id)",
        "DISTRIBUTED BY (m)",
        "DISTRIBUTED BY (m, id)",
        "DISTRIBUTED BY ()",
        "DISTRIBUTED GLOBALLY",
    ],
)
def test_labels_sort_and_compare_as_declared(postgres: Any, distribution: str) -> None:
    cluster, problems = Cluster(), []
    for line in SCRIPT.strip().splitlines():
        if distribution.endswith("GLOBALLY") and " m = " in line and "UPDATE" in line:
            line = line.replace("UPDATE", "SELECT 1 --")  # keys of global tables are not updated
        theirs = _theirs(postgres, line.replace(" {}", ""))
        ours = _ours(cluster, line.replace("{}", distribution))
        if "ORDER BY" not in line:
            theirs, ours = ((state, sorted(rows, key=repr)) for state, rows in (theirs, ours))
        if ours != theirs:
            problems.append(f"{line}\n    ours: {ours}\n    PostgreSQL: {theirs}")
    assert not problems, "\n".join(problems)
