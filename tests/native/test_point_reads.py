"""A row by its key that C reads and tells is told byte for byte as Python tells it."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from pathlib import Path
from struct import pack

import apsw
import pytest

from cairn.model.errors import CairnError
from cairn.model.tables.schema import create_table_sql
from cairn.native.library import library
from cairn.native.point_reads import PointRead
from cairn.pgwire import messages as m
from cairn.pgwire.server.extended import Shape
from cairn.pgwire.server.frontend import (
    DESCRIBE_EXECUTE_SYNC,
    EXECUTE_SYNC,
    decode_bind,
    decode_bind_head,
)
from cairn.pgwire.server.requests import Bind
from cairn.pgwire.values import oids
from cairn.pgwire.values.formats import decode_params
from cairn.server.lane_layouts import read_of
from cairn.server.statements import as_cached
from cairn.sql import plans
from cairn.sql.api import prepare
from cairn.storage.readers import RowReader
from tests.sql.harness import Cluster

pytestmark = pytest.mark.skipif(library() is None, reason="there was no compiler")

KEYS = (*range(-3, 40), 127, 128, 255, 256, 65_535, 65_536, 2**31, 2**32, 2**63 - 1, -(2**63))
NAMES = ("", "a", "ключ", "😀", "x" * 300, "it's", "0", "-1")
REALS = (0.0, -0.0, 0.1, 2.5, 1e15, 123456.789, 1e-4, 1e-5, 1e16, 1e300, -7.0)
TABLES = """
CREATE TABLE t (id INT PRIMARY KEY, name TEXT, x DOUBLE, is_so BOOL, d DECIMAL);
CREATE TABLE pair (name TEXT, id INT, x DOUBLE, PRIMARY KEY (name, id));
CREATE TABLE many (id INT, part INT, name TEXT, PRIMARY KEY (id, part)) DISTRIBUTED BY (id);
CREATE TABLE known (id INT PRIMARY KEY, name TEXT) DISTRIBUTED GLOBALLY
"""
TAKEN = (
    "SELECT id, name, x, is_so FROM t WHERE id = $1",
    "SELECT name FROM t WHERE $1 = id",
    "SELECT name, id FROM t WHERE id = $2 AND name = $1",
    "SELECT x FROM t WHERE id = $1 AND (name <> $2 OR name IS NULL)",
    "SELECT * FROM pair WHERE id = $1 AND name = $2",
    "SELECT part, name FROM many WHERE id = $1 ORDER BY part",
    "SELECT count(*) FROM many WHERE id = $1",
    "SELECT name FROM known WHERE id = $1",
)
LEFT = (
    "SELECT d FROM t WHERE id = $1",
    "SELECT name FROM t WHERE id = $1 + 1",
    "SELECT name FROM t WHERE id = 7",
    "SELECT name FROM t WHERE id = $1 AND x = $2",
    "SELECT current_timestamp::text FROM t WHERE id = $1",
    "SELECT name FROM t",
    "SELECT name FROM t WHERE id = $1 OPTION (sql_vdbe_opcode_max = 5)",
)


@pytest.fixture(scope="module")
def tables() -> Cluster:
    made = Cluster(1)
    for text in TABLES.split(";"):
        made.run(text)
    return made


@pytest.fixture(scope="module")
def reader(tables: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RowReader]:
    folder: Path = tmp_path_factory.mktemp("rows")
    chance = random.Random(1)
    for file in ("data.db", "raft.db"):
        apsw.Connection(str(folder / file)).execute("CREATE TABLE unused (x)")
    for name in ("t", "pair", "many", "known"):
        table = tables.catalog.tables[name]
        file = apsw.Connection(str(folder / ("raft.db" if table.is_global else "data.db")))
        file.execute(create_table_sql(table))
        for key in KEYS:
            fill(tables, file, name, key, chance)
    found = RowReader(folder / "data.db", folder / "raft.db", lambda _: None)
    yield found
    found.close()


def fill(
    tables: Cluster, file: apsw.Connection, name: str, key: int, chance: random.Random
) -> None:
    """A row by the product's own INSERT, or several."""
    named, real = chance.choice(NAMES), chance.choice((*REALS, None))
    rows = {
        "t": ["$1, $2, $3, $4, 1.50"],
        "pair": ["$2, $1, $3"],
        "many": [f"$1, {part}, $2" for part in range(key % 4)],
        "known": ["$1, $2"],
    }[name]
    truth = chance.choice((True, False, None))
    for row in rows:
        text = f"INSERT INTO {name} VALUES ({row})"
        prepared = prepare(text, tables.catalog, user_id=1)
        values = prepared.start([key, named, real, truth][: len(prepared.param_types)], None)
        plan = prepared.plan
        if isinstance(plan, plans.PointWrite):
            file.execute(plan.sql, plan.bind(values))
        else:
            number = tables.catalog.tables[name].id
            file.execute(f"INSERT INTO t{number} VALUES (?, ?)", (key, named))


class Asked:
    """One statement in one shape, both ways."""

    def __init__(
        self,
        tables: Cluster,
        reader: RowReader,
        text: str,
        declared: tuple[int, ...] = (),
        param_formats: tuple[int, ...] = (),
        result_formats: tuple[int, ...] = (),
    ) -> None:
        prepared = prepare(text, tables.catalog, param_oids=declared, user_id=1)
        self.cached = as_cached(text.encode(), declared, prepared, tables.catalog)
        self.plan = prepared.plan
        self.reader = reader
        self.formats = param_formats, result_formats
        self.shape: Shape = self.cached.signature.shape(param_formats, result_formats)
        found = read_of(self.cached, self.shape, param_formats, result_formats)
        self.read: PointRead | None = None
        if found is not None and isinstance(self.plan, plans.PointRead):
            self.read = reader.point_read(self.plan.sql, found)

    def request(self, values: list[bytes | None], rest: bytes) -> bytes:
        given, wanted = self.formats
        body = b"\0s1\0" + listed(given) + pack("!H", len(values))
        for value in values:
            body += pack("!i", -1) if value is None else pack("!i", len(value)) + value
        body += listed(wanted)
        return b"B" + pack("!I", len(body) + 4) + body + rest

    @property
    def parameters_at(self) -> int:
        return 5 + len(b"\0s1\0" + listed(self.formats[0]) + b"\0\0")

    def in_python(self, bind: Bind, is_described: bool) -> tuple[int, bytes]:
        """Bucket and answer of the ordinary way."""
        assert isinstance(self.plan, plans.PointRead)
        values = decode_params(self.shape.decoders, bind.params)
        args = self.plan.bind(values)
        looks = (self.reader.quick(self.plan.sql, args) for _ in range(100))
        rows = next(rows for rows in looks if rows is not None)  # a pause may make one too long
        told = rows if self.cached.convert is None else self.cached.convert(rows)
        answer = self.shape.bound if is_described else m.BIND_COMPLETE
        answer += b"".join(map(self.shape.encode_row, told))
        answer += m.command_complete(f"SELECT {len(rows)}") + m.READY["I"]
        return 1 if self.plan.bucket is None else self.plan.bucket(values), answer

    def in_c(self, data: bytes) -> tuple[int, bytes] | None:
        assert self.read is not None
        bucket = self.reader.bucket(self.read, data, self.parameters_at)
        looks = (self.reader.answer(self.read) for _ in range(3 if bucket else 0))
        return next(((bucket, found[0]) for found in looks if found is not None), None)


def listed(codes: tuple[int, ...]) -> bytes:
    return pack(f"!{len(codes) + 1}H", len(codes), *codes)


def spelled(chance: random.Random, oid: int, code: int) -> bytes | None:
    """A value of a client, mostly of a row that is there; some are odd, some are wrong."""
    if chance.random() < 0.03:
        return None
    if oid in (oids.TEXT, oids.VARCHAR):
        odd = (b"\xff", b"a\0b", b"\xed\xa0\x80", b"\xc3")
        return chance.choice(odd) if chance.random() < 0.05 else chance.choice(NAMES).encode()
    size = {oids.INT2: 2, oids.INT4: 4, oids.INT8: 8}[oid]
    least, most = -(2 ** (8 * size - 1)), 2 ** (8 * size - 1) - 1
    number = min(max(chance.choice(KEYS), least), most)
    if code:
        wrong = chance.randbytes(chance.randint(0, 9))
        return wrong if chance.random() < 0.05 else number.to_bytes(size, signed=True)
    odd = (b"", b"-", b"+5", b" 7", b"007", b"1e3", b"1_0", b"9" * 30, b"--1", "٣".encode(), b"-0")
    return chance.choice(odd) if chance.random() < 0.1 else str(number).encode()


@pytest.mark.parametrize("text", TAKEN)
def test_both_ways_tell_the_same(tables: Cluster, reader: RowReader, text: str) -> None:
    chance = random.Random(text)
    taken = asked = 0
    for whole in (0, oids.INT8, oids.INT4, oids.INT2):
        for code in (0, 1):
            for wanted in ((), (0,), (1,)):
                types = prepare(text, tables.catalog, user_id=1).param_types
                declared = tuple(whole if str(type_) == "integer" else 0 for type_ in types)
                codes = (code,) * len(types)
                one = Asked(tables, reader, text, declared, codes, wanted)
                assert one.read is not None
                for _ in range(60):
                    oids_ = one.cached.signature.param_oids
                    values = [spelled(chance, oid, code) for oid in oids_]
                    is_described = chance.random() < 0.5
                    rest = DESCRIBE_EXECUTE_SYNC if is_described else EXECUTE_SYNC
                    bind = Bind(b"", b"s1", codes, values, wanted)
                    try:
                        expected = one.in_python(bind, is_described)
                    except CairnError:
                        expected = None
                    found = one.in_c(one.request(values, rest))
                    assert found is None or found == expected, (values, codes, wanted)
                    taken += found is not None
                    asked += 1
    assert taken > asked / 2


@pytest.mark.parametrize("text", LEFT)
def test_what_is_not_plain_is_left_to_python(tables: Cluster, reader: RowReader, text: str) -> None:
    assert Asked(tables, reader, text).read is None


@pytest.mark.parametrize("rest", [b"", b"S\0\0\0\4", EXECUTE_SYNC + b"S\0\0\0\4", b"X\0\0\0\4"])
def test_another_request_behind_the_bind_is_left_to_python(
    tables: Cluster, reader: RowReader, rest: bytes
) -> None:
    one = Asked(tables, reader, TAKEN[0])
    assert one.in_c(one.request([b"7"], EXECUTE_SYNC)) is not None
    assert one.in_c(one.request([b"7"], rest)) is None


def test_damaged_bytes_are_refused_or_read_as_python_reads_them(
    tables: Cluster, reader: RowReader
) -> None:
    chance = random.Random(5)
    one = Asked(tables, reader, "SELECT * FROM pair WHERE id = $1 AND name = $2")
    whole = one.request([b"12", b"a"], EXECUTE_SYNC)
    long = one.request([b"12", b"x" * 5_000], EXECUTE_SYNC)
    assert one.in_c(long) is None  # more than the room for a key
    for _ in range(4_000):
        data = bytearray(whole)
        for _ in range(chance.randint(1, 3)):
            at = chance.randrange(1, len(data))
            data[at] = chance.choice((0, 1, 4, 127, 128, 255, chance.randrange(256)))
        if chance.random() < 0.3:
            del data[chance.randrange(5, len(data)) :]
        given = bytes(data)
        if given[5 : one.parameters_at] != whole[5 : one.parameters_at]:
            continue  # another statement: the session sees that
        found = one.in_c(given)
        if found is not None:
            end = 1 + int.from_bytes(given[1:5])
            bind = decode_bind(given, 5, end, decode_bind_head(given, 5, end))
            assert given[end:] == EXECUTE_SYNC
            assert (bind.param_formats, bind.result_formats) == one.formats
            assert found == one.in_python(bind, is_described=False)


def test_a_table_that_is_made_anew_is_read_anew(tables: Cluster, tmp_path: Path) -> None:
    """The statement stays, as the session's: SQLite prepares it again."""
    for file in ("data.db", "raft.db"):
        apsw.Connection(str(tmp_path / file)).execute("CREATE TABLE unused (x)")
    data = apsw.Connection(str(tmp_path / "data.db"))
    table = tables.catalog.tables["t"]
    data.execute(create_table_sql(table))
    fill(tables, data, "t", 7, random.Random(1))
    reader = RowReader(tmp_path / "data.db", tmp_path / "raft.db", lambda _: None)
    one = Asked(tables, reader, "SELECT id FROM t WHERE id = $1")
    asked = one.request([b"7"], EXECUTE_SYNC)
    before = one.in_c(asked)
    data.execute(create_table_sql(table).replace("CREATE TABLE", "DROP TABLE").split("(")[0])
    assert one.in_c(asked) is None
    data.execute(create_table_sql(table))
    assert one.in_c(asked) != before
    fill(tables, data, "t", 7, random.Random(1))
    assert one.in_c(asked) == before
    reader.close()
    one.read = None  # and nothing is freed twice


def test_a_request_may_end_anywhere(tables: Cluster, reader: RowReader) -> None:
    """What it says of its own length is true, and a value in it is cut off: nothing is read behind
    the end, which only `make sanitize` can see."""
    text = "SELECT id, name, x, is_so FROM t WHERE id = $1"
    one = Asked(tables, reader, text, (oids.INT8,), (1,))
    bind = one.request([(7).to_bytes(8)], b"")
    assert one.in_c(bind + EXECUTE_SYNC) is not None
    for end in range(one.parameters_at, len(bind)):
        cut = bind[:1] + pack("!I", end - 1) + bind[5:end]
        assert one.in_c(cut) is None
        assert one.in_c(cut + EXECUTE_SYNC) is None


def test_each_reading_is_ended_before_the_next(tables: Cluster, reader: RowReader) -> None:
    one = Asked(tables, reader, TAKEN[0])
    assert one.read is not None
    told = []
    for _ in range(20):
        reader.bucket(one.read, one.request([b"7"], EXECUTE_SYNC), one.parameters_at)
        told.append(reader.answer(one.read))
    assert len([answer for answer in told if answer is not None]) > 15  # pauses may spoil some


def test_one_that_is_forgotten_on_another_thread_is_ended_on_its_own(
    tables: Cluster, tmp_path: Path
) -> None:
    """A thread that held Python's lock and waited for SQLite's would stop the instance."""
    for file in ("data.db", "raft.db"):
        apsw.Connection(str(tmp_path / file)).execute("CREATE TABLE unused (x)")
    apsw.Connection(str(tmp_path / "data.db")).execute(create_table_sql(tables.catalog.tables["t"]))
    reader = RowReader(tmp_path / "data.db", tmp_path / "raft.db", lambda _: None)
    forgotten = [Asked(tables, reader, TAKEN[0])]
    thread = threading.Thread(target=forgotten.clear)
    thread.start()
    thread.join()
    assert len(reader._given_up._waiting) == 1
    following = Asked(tables, reader, TAKEN[1])
    assert following.read is not None
    assert not reader._given_up._waiting
    reader.close()
