"""A new row that C stores leaves the same file as one that Python stores: row and record."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from struct import pack
from typing import Any

import apsw
import pytest

from cairn.model.errors import CairnError
from cairn.model.log.records import Shape
from cairn.model.tables.catalog import Catalog
from cairn.model.tables.schema import Index
from cairn.native.library import library
from cairn.native.point_inserts import PointInsert
from cairn.pgwire.server.frontend import DESCRIBE_EXECUTE_SYNC, EXECUTE_SYNC
from cairn.pgwire.server.requests import Bind
from cairn.pgwire.values import oids
from cairn.pgwire.values.formats import decode_params
from cairn.server.lane_layouts import bind_head, insert_of
from cairn.server.statements import as_cached
from cairn.sql import plans
from cairn.sql.api import prepare
from cairn.storage.data_db.data_store import RecordLost
from tests.native.test_point_reads import listed, spelled
from tests.replication.builders import Site
from tests.sql.harness import Cluster

pytestmark = pytest.mark.skipif(library() is None, reason="there was no compiler")

TABLES = """
CREATE TABLE t (id INT PRIMARY KEY, name TEXT, x DOUBLE, is_so BOOL, at TIMESTAMPTZ, d DECIMAL);
CREATE TABLE pair (name TEXT, id INT NOT NULL, PRIMARY KEY (name, id));
CREATE TABLE judged (id INT PRIMARY KEY, name TEXT NOT NULL, n INT CHECK (n > 0));
CREATE TABLE wide (id INT PRIMARY KEY, a INT, b INT, c INT, d INT, e INT, f INT, g INT, h INT,
    i INT, j INT, k INT, l INT, m INT, n INT, o INT, p INT, q INT)
"""
NAMED = ("t", "pair", "judged", "wide")
TAKEN = (
    "INSERT INTO t (id, name, x, is_so, at) VALUES ($1, $2, $3, $4, $5)",
    "INSERT INTO t (id, x, name) VALUES ($1, 3, 'it''s')",
    "INSERT INTO t (name, id, x, at) VALUES ($1, $2, NULL, '2024-02-29 12:00:00+00')",
    "INSERT INTO t (id, name) VALUES ($1, $2) ON CONFLICT DO NOTHING",
    "INSERT INTO t (id, name) VALUES ($1, $2) ON CONFLICT (id) DO NOTHING",
    "INSERT INTO pair VALUES ($2, $1)",
    "INSERT INTO judged VALUES ($1, $2, $3)",
    "INSERT INTO wide VALUES ($1, 1, -1, 127, 128, 255, 256, 65535, 65536, 2147483647, "
    "4294967295, 4294967296, -32, -33, -128, -129, NULL, $2)",
)
LEFT = (
    "INSERT INTO t (id, d) VALUES ($1, 1.50)",
    "INSERT INTO t (id, d) VALUES ($1, $2)",
    "INSERT INTO t (id, name) VALUES ($1, upper($2))",
    "INSERT INTO t (id) VALUES ($1 + 1)",
    "INSERT INTO t (id) VALUES (7)",
    "INSERT INTO t (id) VALUES ($1), ($2)",
    "INSERT INTO t (id) VALUES ($1) RETURNING id",
    "INSERT INTO t (id, name) VALUES ($1, $2) ON CONFLICT (id) DO UPDATE SET name = 'x'",
    "INSERT INTO t (id, name) VALUES ($1, $2) ON CONFLICT DO REPLACE",
    "INSERT INTO t (id, at) VALUES ($1, now())",
    "UPDATE t SET name = $2 WHERE id = $1",
    "DELETE FROM t WHERE id = $1",
)
REALS = (0.0, -0.0, 0.1, -7.0, 1e300, 5e-324, float("inf"), float("nan"), 2.0**63)
TIMES = (0, -1, 1, -(63 * 10**15), 252 * 10**15, 2**63 - 1, -(2**63))


@pytest.fixture(scope="module")
def tables() -> Cluster:
    made = Cluster(1)
    for text in TABLES.split(";"):
        made.run(text)
    return made


@pytest.fixture
def sites(tables: Cluster, tmp_path: Path) -> Iterator[tuple[Site, Site]]:
    """One that is written by C, and one by Python, masters of the same epoch."""
    found = Site(tmp_path, "c"), Site(tmp_path, "python")
    for site in found:
        site.store.origin = "same"
        site.master(1)
        for name in NAMED:
            table = tables.catalog.tables[name]
            index = Index(table.id, 1, "by_name", ("name",), unique=name == "judged")
            shape = Shape(table.id, table, () if name == "wide" else (index,))
            site.group(lambda shape=shape, site=site: site.store.reshape(shape))
    yield found
    for site in found:
        site.close()


class New:
    """One INSERT in one shape, both ways."""

    def __init__(
        self, catalog: Catalog, text: str, declared: tuple[int, ...] = (), code: int = 0
    ) -> None:
        prepared = prepare(text, catalog, param_oids=declared, user_id=1)
        self.cached = as_cached(text.encode(), declared, prepared, catalog)
        self.plan = prepared.plan
        self.codes = (code,) * len(prepared.param_types)
        row = insert_of(self.cached, self.codes, ())
        self.insert = None if row is None else PointInsert(row)

    def request(self, values: list[bytes | None], rest: bytes = EXECUTE_SYNC) -> tuple[bytes, int]:
        head = bind_head(Bind(b"", b"s1", self.codes, values, ()))
        body = head
        for value in values:
            body += pack("!i", -1) if value is None else pack("!i", len(value)) + value
        body += listed(())
        return b"B" + pack("!I", len(body) + 4) + body + rest, 5 + len(head)

    def in_c(self, site: Site, values: list[bytes | None], rest: bytes = EXECUTE_SYNC) -> Any:
        """Rows and lsn; None: it is left to Python."""
        assert self.insert is not None and isinstance(self.plan, plans.PointWrite)
        data, at = self.request(values, rest)
        table = self.plan.table.id
        bucket = self.insert.bucket(data, at)
        if not bucket:
            return None
        return site.group(lambda: site.store.insert_asked(table, bucket, self.insert, data, at))

    def in_python(self, site: Site, values: list[bytes | None]) -> Any:
        """The same, or None where it is refused."""
        assert isinstance(self.plan, plans.PointWrite)
        shape = self.cached.signature.shape(self.codes, ())
        try:
            row = self.plan.bind(decode_params(shape.decoders, values))
            sql, table = self.plan.sql, self.plan.table.id
            return site.group(lambda: site.store.insert_row(table, sql, row))
        except (CairnError, apsw.Error):
            return None


def content(site: Site, tables: Cluster) -> Any:
    execute = site.store.connection.execute
    rows = {
        name: execute(f"SELECT * FROM {tables.catalog.tables[name].physical_name}").fetchall()
        for name in NAMED
    }
    log = execute("SELECT place, epoch, body FROM row_log").fetchall()
    return rows, log, site.store.vclock, site.store.touched._at


def value(chance: random.Random, oid: int, code: int) -> bytes | None:
    if oid == oids.FLOAT8:
        found: bytes | None = pack("!d", chance.choice(REALS))
    elif oid == oids.BOOL:
        found = chance.choice((b"\0", b"\1", b"\2", b""))
    elif oid in (oids.TIMESTAMPTZ, oids.TIMESTAMP):
        found = pack("!q", chance.choice((*TIMES, chance.randrange(10**15))))
    elif oid == oids.TEXT and chance.random() < 0.03:
        return chance.choice(("y" * 60_000, "ключ" * 5_000)).encode()
    else:
        return spelled(chance, oid, code)
    if not code:
        found = chance.choice((b"t", b"1", b"2024-01-01", b"nonsense"))
    return None if chance.random() < 0.1 else found


@pytest.mark.parametrize("code", [0, 1], ids=["text", "binary"])
@pytest.mark.parametrize("text", TAKEN)
def test_both_ways_leave_the_same_file(
    tables: Cluster, sites: tuple[Site, Site], text: str, code: int
) -> None:
    chance = random.Random(f"{text} {code}")
    by_c, by_python = sites
    taken = asked = 0
    for whole in (oids.INT8, oids.INT4):
        types = prepare(text, tables.catalog, user_id=1).param_types
        declared = tuple(whole if str(type_) == "integer" else 0 for type_ in types)
        new = New(tables.catalog, text, declared, code)
        if new.insert is None:
            assert not code
            return  # texts of reals and times are left to Python
        for _ in range(120):
            values = [value(chance, oid, code) for oid in new.cached.signature.param_oids]
            rest = chance.choice((EXECUTE_SYNC, DESCRIBE_EXECUTE_SYNC))
            found = new.in_c(by_c, values, rest)
            expected = new.in_python(by_python, values)
            if found is None:  # the ordinary way follows
                assert new.in_python(by_c, values) == expected
            else:
                assert found == expected, values
            taken += found is not None
            asked += expected is not None
    assert taken > asked / 2
    assert content(by_c, tables) == content(by_python, tables)
    assert len(content(by_c, tables)[1]) > 10


@pytest.mark.parametrize("text", LEFT)
def test_what_is_not_plain_is_left_to_python(tables: Cluster, text: str) -> None:
    assert New(tables.catalog, text).insert is None


def test_a_row_that_is_refused_leaves_nothing(tables: Cluster, sites: tuple[Site, Site]) -> None:
    site, _ = sites
    new = New(tables.catalog, "INSERT INTO judged VALUES ($1, $2, $3)")
    assert new.in_c(site, [b"1", b"first", b"1"]) == (1, 5)
    before = content(site, tables)
    key, index = [b"1", b"other", b"1"], [b"1", b"first", b"2"]
    null, check = [b"3", None, b"1"], [b"4", b"x", b"0"]
    refused: list[list[bytes | None]] = [[*key], [*index], [*null], [*check]]
    assert [new.in_c(site, values) for values in refused] == [None] * 4
    assert content(site, tables) == before
    assert new.in_c(site, [b"5", b"fifth", None]) == (1, 6)


def test_what_else_has_to_be_written_is_left_to_python(
    tables: Cluster, sites: tuple[Site, Site]
) -> None:
    site, _ = sites
    new = New(tables.catalog, "INSERT INTO pair VALUES ($2, $1)")
    site.master(2)  # the first record of an epoch says so in another table as well
    assert new.in_c(site, [b"1", b"a"]) is None
    assert new.in_python(site, [b"1", b"a"]) == (1, 5)
    assert new.in_c(site, [b"2", b"a"]) == (1, 6)


def test_a_row_without_its_record_ends_the_group(tables: Cluster, sites: tuple[Site, Site]) -> None:
    site, _ = sites
    new = New(tables.catalog, "INSERT INTO pair VALUES ($2, $1)")
    assert new.in_c(site, [b"1", b"a"]) == (1, 5)
    site.store.vclock["same"] -= 1  # the place of its record is taken
    with pytest.raises(RecordLost):
        new.in_c(site, [b"2", b"a"])


def test_changes_of_others_are_seen_again_after_it(
    tables: Cluster, sites: tuple[Site, Site]
) -> None:
    site, _ = sites
    new = New(tables.catalog, "INSERT INTO pair VALUES ($2, $1)")
    assert new.in_c(site, [b"1", b"a"]) == (1, 5)
    table = tables.catalog.tables["pair"].physical_name

    def change() -> int:
        site.store.connection.execute(f"UPDATE {table} SET c1 = 7")
        return site.store.count_rows()

    assert site.group(lambda: site.store.statement(change)) == (1, 6)
    assert len(content(site, tables)[1]) == 6


def test_a_statement_of_another_file_is_not_used(tables: Cluster, sites: tuple[Site, Site]) -> None:
    first, second = sites
    new = New(tables.catalog, "INSERT INTO pair VALUES ($2, $1)")
    assert new.in_c(first, [b"1", b"a"]) == (1, 5)
    assert new.in_c(second, [b"1", b"a"]) is None
    assert new.insert is not None and not new.insert.is_known


def test_a_table_that_has_gone_is_left_to_python(tables: Cluster, sites: tuple[Site, Site]) -> None:
    site, _ = sites
    table = tables.catalog.tables["pair"]
    new = New(tables.catalog, "INSERT INTO pair VALUES ($2, $1)")
    assert new.in_c(site, [b"1", b"a"]) == (1, 5)
    site.group(lambda: site.store.reshape(Shape(table.id, None)))
    assert new.in_c(site, [b"2", b"a"]) is None
    site.group(lambda: site.store.reshape(Shape(table.id, table)))
    assert new.in_c(site, [b"2", b"a"]) == (1, 8)


def test_a_request_may_end_anywhere(tables: Cluster, sites: tuple[Site, Site]) -> None:
    """Nothing is read behind its end, which only `make sanitize` can see."""
    site, _ = sites
    new = New(tables.catalog, TAKEN[0], (oids.INT8, 0, 0, 0, 0), 1)
    assert new.insert is not None
    values: list[bytes | None] = [(7).to_bytes(8), b"seven", pack("!d", 0.5), b"\1", bytes(8)]
    data, at = new.request(values, b"")
    for end in range(at, len(data)):
        cut = data[:1] + pack("!I", end - 1) + data[5:end]
        assert not new.insert.bucket(cut, at)
        assert not new.insert.bucket(cut + EXECUTE_SYNC, at)
    assert new.in_c(site, values) == (1, 5)
