"""What applications, ORMs and analysts send: rows, names and types as PostgreSQL has them."""

from __future__ import annotations

from typing import Any

import pytest

from cairn.model.errors import CairnError
from cairn.model.types.interval_text import parse_interval
from cairn.model.types.values import OIDS
from cairn.sql.api import prepare

from .corpus import lines
from .corpus_work import REFUSED, TABLES, WORK
from .harness import Cluster
from .postgres import difference, report

pytestmark = pytest.mark.clients
psycopg = pytest.importorskip("psycopg")
#: What is told under another number here: all integers are int8, all texts text.
_SAME = {
    **dict.fromkeys((21, 23, 26), 20),
    **dict.fromkeys((18, 19, 705, 1042, 1043), 25),
    **dict.fromkeys((1005, 1007), 1016),
    **dict.fromkeys((1002, 1003, 1015), 1009),
    700: 701,
    1021: 1022,
}


class _Parts(psycopg.adapt.Loader):  # type: ignore[misc,name-defined]
    """An interval as it is kept: as a timedelta it would lose its months."""

    def load(self, data: Any) -> Any:
        return parse_interval(bytes(data).decode())


class Work:
    def __init__(self, postgres: Any, tables: str = TABLES) -> None:
        postgres.adapters.register_loader("interval", _Parts)
        self.cluster, self.postgres = Cluster(), postgres
        for text in lines(tables):
            if text.startswith("CREATE TABLE"):
                postgres.execute(f"DROP TABLE IF EXISTS {text.split()[2]}")
            postgres.execute(text)
            self.cluster.run(text)

    def theirs(self, text: str) -> tuple[Any, list[Any]]:
        try:
            cursor = self.postgres.execute(text.encode())
        except psycopg.Error as problem:
            return problem.sqlstate, []
        told = [(each.name, each.type_code) for each in cursor.description]
        return [(name, _SAME.get(oid, oid)) for name, oid in told], cursor.fetchall()

    def ours(self, text: str) -> tuple[Any, list[Any]]:
        try:
            prepared = prepare(text, self.cluster.catalog, user_id=1)
            rows = self.cluster.execute(prepared)
        except CairnError as problem:
            return problem.sqlstate, []
        return [(each.name, OIDS[each.type]) for each in prepared.columns], rows

    def compared(self, text: str) -> str | None:
        theirs, ours = self.theirs(text), self.ours(text)
        if theirs[0] != ours[0]:
            return f"{text}\n    ours: {ours[0]}\n    PostgreSQL: {theirs[0]}"
        found = difference(ours[1], theirs[1], ordered="ORDER BY" in text.upper())
        return None if found is None else f"{text}\n    {found}"


@pytest.fixture(scope="module")
def work(postgres: Any) -> Work:
    return Work(postgres)


def test_work_gives_the_same_rows_names_types_and_errors(work: Work) -> None:
    report([work.compared(text) for text in lines(WORK)])


def test_what_is_not_there_is_refused_and_never_answered(work: Work) -> None:
    told = {text: work.ours(text)[0] for text in lines(REFUSED)}
    assert {text: state for text, state in told.items() if state != "0A000"} == {}
