"""Names that nobody may give: those of the system, and none at all."""

from __future__ import annotations

import msgspec
import pytest

from cairn.model.errors import CairnError
from cairn.model.tables.catalog import ADMIN_ID, Catalog, Routine, View
from cairn.model.types.values import ColumnType
from cairn.sql import plans
from cairn.sql.api import prepare

from .harness import Cluster

CLUSTER = Cluster()
CLUSTER.run("CREATE TABLE t (a INT PRIMARY KEY) DISTRIBUTED BY (a)")
CATALOG = CLUSTER.catalog
VIEW = View(3000, "v", ("x",), (ColumnType.INTEGER,), "SELECT 1 AS x", ADMIN_ID, 1)


@pytest.mark.parametrize("name", ["_pico_x", "_cairn_x", "pg_x", '"pg_x y"'])
@pytest.mark.parametrize(
    "text",
    [
        "CREATE TABLE {} (id INT PRIMARY KEY)",
        "CREATE TABLE {} AS SELECT 1 AS id",
        "SELECT 1 AS id INTO {}",
        "ALTER TABLE t RENAME TO {}",
        "CREATE VIEW {} AS SELECT 1 AS x",
        "ALTER VIEW v RENAME TO {}",
    ],
)
def test_names_of_the_system_are_not_given(text: str, name: str) -> None:
    known = msgspec.structs.replace(CATALOG, views={"v": VIEW})
    with pytest.raises(CairnError, match="belong to the system") as told:
        _made(text.format(name), known)
    assert told.value.sqlstate == "0A000"


def test_an_upgrade_may_give_names_of_the_system() -> None:
    upgrading = msgspec.structs.replace(CATALOG, is_upgrading=True)
    _made("CREATE TABLE _pico_note (id INT PRIMARY KEY) DISTRIBUTED GLOBALLY", upgrading)


@pytest.mark.parametrize(
    "text",
    [
        'CREATE TABLE "" (id INT PRIMARY KEY)',
        'CREATE TABLE n ("" INT PRIMARY KEY)',
        'ALTER TABLE t RENAME TO ""',
        "CREATE USER \"\" WITH PASSWORD 'Passw0rd1'",
        'CREATE INDEX "" ON t (a)',
    ],
)
def test_a_name_has_a_letter_at_least(text: str) -> None:
    with pytest.raises(CairnError, match="zero-length") as told:
        prepare(text, CATALOG)
    assert told.value.sqlstate == "42601"


def test_a_call_of_ours_is_ours_whatever_procedures_there_are() -> None:
    mine = Routine(4000, "cairn_status", (), "DELETE FROM t", ADMIN_ID, 1)
    known = msgspec.structs.replace(CATALOG, routines={mine.name: mine})
    assert isinstance(prepare("CALL cairn_status()", known).plan, plans.CallPlan)


def _made(text: str, known: Catalog) -> None:
    prepared = prepare(text, known)
    if isinstance(prepared.plan, plans.DdlPlan):
        prepared.plan.build(known, 1, 9000)
