"""Hostile input for every way into the compiled part, one step at a time.

Memory that C is given here ends where it is said to end, to the byte, so that a sanitizer sees
whatever is read behind it (`sanitized.py`). Without one the answers are still judged.
"""

from __future__ import annotations

import ctypes
import random
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import apsw
import msgspec

from cairn.model.errors import CairnError, LimitExceeded
from cairn.model.log.packed_rows import as_list, unpacked
from cairn.native.batches import DAMAGED, ODD, RowBatch
from cairn.native.library import (
    ArrowColumn,
    Column,
    CopyPlan,
    Int32,
    OutColumn,
    OutPlan,
    library,
)
from cairn.native.loading import FUNCTIONS, load
from cairn.pgwire.messages import DATA_ROW
from cairn.pgwire.values.encoders import float_text
from cairn.sql.functions.functions import register
from cairn.storage.data_db.packed_insert import PackedInsert
from cairn.storage.groups import Groups
from tests.fuzz.mutate import mutated
from tests.native import test_decimals, test_packed_messages
from tests.native.test_functions import KINDS, in_c, in_python, random_value
from tests.native.test_packed_rows import ROWS, TABLE

Step = Callable[[random.Random], None]
_libc = ctypes.CDLL(None)
_libc.malloc.restype = ctypes.c_void_p
_libc.malloc.argtypes = (ctypes.c_size_t,)
_libc.free.argtypes = (ctypes.c_void_p,)
_encode = msgspec.msgpack.Encoder().encode
INT64 = (0, 1, -1, 127, 128, 255, 256, -32, -33, 2**31, -(2**31) - 1, 2**63 - 1, -(2**63))


@contextmanager
def exact(data: bytes, shift: int = 0) -> Iterator[int]:
    """An address with these bytes and none behind them; `shift` takes it off its alignment."""
    found = _libc.malloc(len(data) + shift)
    try:
        ctypes.memmove(found + shift, data, len(data))
        yield found + shift
    finally:
        _libc.free(found)


def taken(batch: RowBatch) -> list[tuple[Any, ...]]:
    found = batch.sorted(300)
    return unpacked(found.of(found.buckets))


# --- lines ----------------------------------------------------------------------------------------

_FIELDS = (
    *(b"", b"1", b"-1", b"9223372036854775807", b"99999999999999999999", b"-", b"1.5", b"1e308"),
    *(b"-0.0", b"." * 70, b"1" * 63, b"t", b"false", b"\\N", b"\\", b"\\.", b"\\t", b"\\x41"),
    *(b"2024-02-29 23:59:59.999999+15:59", b"0001-01-01", b"9999-12-31", b"2024-01-01 1:2:3"),
    *(b"00000000-0000-0000-0000-00000000000f", b'"quoted ""text"""', b'"', b"x" * 300, b"\xff"),
    *("é€😀".encode(), b"y" * 5_000, b"z" * 4_000, b"\xf0\x9f", b"\r", b"\0"),
    *(b"\\q" + b"w" * 3_000, b"w" * 3_000 + b"\\q"),
)


def lines(chance: random.Random) -> None:
    fields = chance.randint(1, 6)
    kinds = [chance.randrange(9) for _ in range(fields)]
    kinds[0] = chance.choice((0, 1, 3, 4, 5))
    described = [
        Column(kind, chance.randrange(2), chance.choice((0, 0, 1, 31)) if kind == 3 else 0)
        for kind in kinds
    ]
    order = [*range(fields), *([-1] * chance.randrange(3))]
    chance.shuffle(order)
    keys = [at for at, kind in enumerate(kinds) if kind in (0, 1, 3, 4, 5)]
    key = [0, *chance.sample(keys, chance.randrange(len(keys)))]
    is_csv, null = chance.random() < 0.5, chance.choice((b"", b"\\N", b"null"))
    delimiter = chance.choice(b",\t|")
    plan = CopyPlan(
        *(is_csv, delimiter, ord('"'), null, len(null)),
        *(fields, (Column * fields)(*described), len(order), (Int32 * len(order))(*order)),
        *(len(key), (Int32 * len(key))(*key), chance.choice((1, 300))),
    )
    assert library().copy_prepare(plan) != ODD
    rows = (
        bytes([delimiter]).join(chance.choice(_FIELDS) for _ in range(fields))
        for _ in range(chance.randrange(20))
    )
    data = mutated(chance, b"\n".join(rows)) + b"\n"
    start = chance.choice((0, 0, chance.randrange(len(data))))
    batch, used, found = RowBatch(), ctypes.c_size_t(), ctypes.c_size_t()
    with exact(data) as address:
        text = ctypes.cast(address, ctypes.c_char_p)
        library().copy_take(batch._batch, plan, text, start, len(data), used, found)
    assert used.value <= len(data) - start
    assert not used.value or data[start + used.value - 1] == ord("\n")
    assert found.value == data[start : start + used.value].count(b"\n")
    rows_taken = taken(batch)
    assert len(rows_taken) <= found.value
    assert all(len(row) == len(order) + 1 and 1 <= row[0] <= 300 for row in rows_taken)


# --- columns of Arrow -----------------------------------------------------------------------------


def columns(chance: random.Random) -> None:
    """Whole numbers, reals, texts and nothing; at any address, from any place on."""
    count, offset = chance.randrange(1, 20), chance.randrange(10)
    all_ = offset + count
    kinds = [chance.randrange(5) for _ in range(chance.randrange(1, 5))]
    buckets = [chance.randint(1, 300) for _ in range(count)]
    wanted: list[list[Any]] = [[bucket] for bucket in buckets]
    described, kept = [], []
    for kind in kinds:
        there = [chance.random() < 0.7 for _ in range(all_)]
        bits = bytearray((all_ + 7) // 8)
        for at, each in enumerate(there):
            bits[at >> 3] |= each << (at & 7)
        shift = chance.choice((0, 1, 3, 8))
        places = b""
        values: list[Any]
        if kind == 0:
            values = [chance.choice(INT64) for _ in range(all_)]
            body = struct.pack(f"={all_}q", *values)
        elif kind == 1:
            values = [chance.uniform(-1e9, 1e9) for _ in range(all_)]
            body = struct.pack(f"={all_}d", *values)
        else:
            values = ["é" * chance.choice((0, 1, 40)) for _ in range(all_)]
            if chance.random() < 0.2:
                values = [""] * all_
            ends = [0]
            for each in values:
                ends.append(ends[-1] + len(each.encode()))
            body, places = "".join(values).encode(), struct.pack(f"={all_ + 1}i", *ends)
            if kind == 3:
                values = [each.encode() for each in values]
        memory = [exact(bytes(bits)), exact(body, shift), exact(places, chance.choice((0, 1, 4)))]
        kept += memory
        valid, body_at, places_at = (each.__enter__() for each in memory)
        body_at = body_at if body else 0  # Arrow has no buffer for texts that are all empty
        described.append(ArrowColumn(kind, valid, body_at, places_at, offset))
        for row in range(count):
            at = offset + row
            wanted[row].append(values[at] if there[at] and kind != 4 else None)
    batch = RowBatch()
    first = chance.randrange(count)
    with exact(struct.pack(f"={count}i", *buckets)) as buckets_at:
        batch.take_columns(described, buckets_at, first, count)
        batch.take_columns(described, buckets_at, 0, first)
    for each in kept:
        each.__exit__(None, None, None)
    assert sorted(taken(batch), key=repr) == sorted(map(tuple, wanted), key=repr)


# --- packed rows ----------------------------------------------------------------------------------


def packed(chance: random.Random) -> None:
    """What C takes of damaged rows is what Python reads there."""
    connection = apsw.Connection(":memory:")
    connection.execute("CREATE TABLE t600(b, c1, c2, c3)")
    insert = PackedInsert(connection)
    rows = [_encode(row) for row in chance.sample(ROWS, chance.randrange(len(ROWS)))]
    damaged = mutated(chance, b"".join(rows))
    if chance.random() < 0.3:
        damaged = chance.randbytes(chance.randrange(40))
    whole = as_list([damaged], max(len(rows) + chance.choice((-1, 0, 0, 0, 1)), 0))
    try:
        insert.insert(TABLE, whole)
    except (msgspec.DecodeError, apsw.Error):
        return
    finally:
        stored = connection.execute("SELECT * FROM t600").fetchall()
        connection.close()
    plain = [tuple(None if v != v else v for v in row) for row in unpacked(whole)]
    assert repr(stored) == repr([tuple(map(_as_sqlite, row)) for row in plain])


def _as_sqlite(value: Any) -> Any:
    return int(value) if isinstance(value, bool) else value


# --- records to messages --------------------------------------------------------------------------


def _varint(value: int) -> bytes:
    found = [value & 127]
    while value := value >> 7:
        found.append(value & 127 | 128)
    return bytes(reversed(found))


def _record(chance: random.Random, kinds: Sequence[int]) -> bytes:
    head, body = b"", b""
    for kind in kinds:
        if chance.random() < 0.2:
            value, type_ = b"", 0
        elif kind == 2:
            value = chance.choice((b"", b"a,b", b'"', b"\\N", b"\n\r\t\b", b"x" * 500))
            type_ = 13 + 2 * len(value)
        elif kind == 1 and chance.random() < 0.7:
            value, type_ = chance.choice((struct.pack(">d", 1.5), chance.randbytes(8))), 7
        else:
            type_ = chance.choice((1, 2, 3, 4, 5, 6, 8, 9))
            value = chance.randbytes((0, 1, 2, 3, 4, 6, 8, 8, 0, 0)[type_])
        head, body = head + _varint(type_), body + value
    return _varint(len(head) + 1) + head + body


def _out_plan(chance: random.Random, kinds: Sequence[int]) -> OutPlan:
    null = chance.choice((b"", b"\\N", b"NULL"))
    plan = OutPlan(
        *(chance.randrange(2), DATA_ROW, chance.randrange(2)),
        *(chance.choice(b",\t|"), ord('"')),
        *(chance.choice(b'"\\'), null, len(null), len(kinds)),
    )
    plan.column = (OutColumn * len(kinds))(
        *(OutColumn(kind, at, chance.choice((0, 2, 4, 8))) for at, kind in enumerate(kinds))
    )
    library().out_prepare(plan)
    return plan


def pages(chance: random.Random) -> None:
    kinds = [chance.randrange(4) for _ in range(chance.randint(1, 8))]
    plan, memory, starts = _out_plan(chance, kinds), b"", []
    for _ in range(chance.randrange(6)):
        starts.append(len(memory))
        memory += mutated(chance, _record(chance, kinds))
    if chance.random() < 0.2:
        starts.append(chance.choice((-1, len(memory), len(memory) - 1, 2**62, -(2**63))))
    out = RowBatch()
    with exact(memory) as at, exact(struct.pack(f"={len(starts)}q", *starts)) as starts_at:
        state = out.write_rows(plan, at, len(memory), starts_at, len(starts))
    assert state in (0, ODD, DAMAGED)
    data, lengths_at = out.written()
    count = out._batch.contents.rows
    assert count == len(starts) or state
    lengths = (ctypes.c_uint32 * count).from_address(lengths_at) if count else ()
    at = 0
    for length in lengths:  # each says of itself how long it is
        assert bytes(data[at : at + 1]) == (b"d" if plan.is_line else b"D")
        assert int.from_bytes(data[at + 1 : at + 5], "big") == length - 1
        at += length
    assert at == len(data)


def reals(chance: random.Random) -> None:
    """Any eight bytes as a real: the digits that Python writes, or none."""
    plan = OutPlan(label=DATA_ROW, columns=1, null=b"")
    plan.column = (OutColumn * 1)(OutColumn(1, 0, 0))
    library().out_prepare(plan)
    for _ in range(50):
        bits = chance.getrandbits(64)
        if chance.random() < 0.7:  # of a usual size
            bits = chance.randrange(0x3F1A36E2EB1C432D, 0x4202A05F20000000)
        memory = b"\x02\x07" + bits.to_bytes(8, "big")
        [value] = struct.unpack(">d", memory[2:])
        out = RowBatch()
        with exact(memory) as at, exact(bytes(8)) as starts_at:
            state = out.write_rows(plan, at, len(memory), starts_at, 1)
        assert state in (0, ODD)
        if not state:
            assert bytes(out.written()[0][11:]).decode() == float_text(value or 0.0)


# --- arithmetic -----------------------------------------------------------------------------------

_OTHERS = (None, b"\xff", "text", 1, 1.5, -(2**63), 1e300, "", b"")


def functions(chance: random.Random) -> None:
    connection = apsw.Connection(":memory:")
    assert load(connection, FUNCTIONS)
    for name, kinds in KINDS.items():
        for _ in range(5):
            args = tuple(random_value(chance, kind) for kind in kinds)
            assert in_c(connection, name, args) == in_python(name, args), (name, args)
            others = tuple(chance.choice(_OTHERS) for _ in kinds)
            with suppress(apsw.SQLError):  # of another type: refused
                connection.execute(f"SELECT {name}({', '.join('?' * len(kinds))})", others)
    connection.close()


def decimals(chance: random.Random) -> None:
    """Also damaged ones, and a sum whose memory runs out."""
    connection = apsw.Connection(":memory:")
    register(connection)
    assert load(connection, FUNCTIONS)
    for name, count in test_decimals.NAMES:
        kinds = test_decimals.kinds_of(name, count)
        for _ in range(5):
            args = tuple(test_decimals.argument(chance, kind) for kind in kinds)
            told = test_decimals.told_by_c(connection, name, args)
            assert told == test_decimals.told_by_python(name, args), (name, args)
            damaged = bytearray(test_decimals.drawn(chance))
            damaged[chance.randrange(len(damaged))] = chance.randrange(256)
            test_decimals.told_by_c(connection, name, (bytes(damaged), *args[1:]))
    fail_after = getattr(library(), "fail_after", None)
    rows = [(test_decimals.drawn(chance),) for _ in range(20)]
    connection.execute("CREATE TABLE numbers (value)")
    connection.executemany("INSERT INTO numbers VALUES (?)", rows)
    if fail_after is not None:
        fail_after(chance.randrange(5))
    try:
        with suppress(apsw.Error):
            connection.execute("SELECT z_sum(value), n_sum(value) FROM numbers").fetchall()
    finally:
        if fail_after is not None:
            fail_after(-1)
    connection.close()


def twins(chance: random.Random) -> None:
    """Functions that leave to Python what is not plain, asked for anything."""
    connection = apsw.Connection(":memory:")
    register(connection)
    assert load(connection, FUNCTIONS)
    others = (*_OTHERS, "year", "week", "%", "a%_\\", "\\", "é" * 90, 10**15, "_" * 400)
    for name, count in (("n_extract", 2), ("d_part", 2), ("t_trunc", 2), ("t_shift", 4)) * 2:
        args = tuple(chance.choice(others) for _ in range(count))
        test_decimals.told_by_c(connection, name, args)
    for _ in range(20):
        args = tuple(chance.choice(others) for _ in range(3))
        test_decimals.told_by_c(connection, chance.choice(("c_like", "c_ilike")), args)
    connection.close()


def messages(chance: random.Random) -> None:
    test_packed_messages.test_values_of_other_types_are_left_to_python(chance.randrange(2**32))
    test_packed_messages.test_messages_are_equal(chance.randrange(1, 2**32))


def groups(chance: random.Random) -> None:
    """Values of any type under any kinds, and memory that runs out as in `no_memory`."""
    connection = apsw.Connection(":memory:")
    Groups(connection)
    others = (*_OTHERS, b"", b"\x02" * 40, "é" * 90, -(2**63), 2.5, 0.0, None)
    rows = [(chance.choice(others), chance.choice(others)) for _ in range(chance.randrange(60))]
    connection.execute("CREATE TABLE t (a, b)")
    connection.executemany("INSERT INTO t VALUES (?, ?)", rows)
    word = "k" * chance.randrange(3) + "".join(chance.choice("kacirlgnz?") for _ in range(3))
    given = ", ".join(chance.choice("ab") for _ in range(chance.randrange(6)))
    made = f"SELECT packed_groups('{word}'{given and ', '}{given}) FROM t"
    fail_after = getattr(library(), "fail_after", None) or (lambda count: None)
    fail_after(chance.choice((-1, chance.randrange(12))))
    try:
        connection.execute(f"SELECT * FROM packed_rows(({made}), {len(word)})").fetchall()
    except (apsw.SQLError, apsw.NoMemError, MemoryError):
        pass
    finally:
        fail_after(-1)
    connection.close()


# --- memory that runs out -------------------------------------------------------------------------


def no_memory(chance: random.Random) -> None:
    """Only where `failing.c` was built in."""
    fail_after = getattr(library(), "fail_after", None)
    if fail_after is None:
        return
    rows = [(chance.randint(1, 300), at, "x" * chance.randrange(3_000)) for at in range(30)]
    connection = apsw.Connection(":memory:")
    connection.execute("CREATE TABLE t600(b, c1, c2, c3)")
    insert = PackedInsert(connection)
    fail_after(chance.randrange(30))
    try:
        batch = RowBatch()
        with suppress(LimitExceeded):
            for at in range(0, 30, 7):
                batch.add(rows[at : at + 7])
        with suppress(LimitExceeded):
            batch.sorted(300)
        insert.insert(TABLE, _encode(ROWS))
    except (CairnError, apsw.NoMemError, MemoryError, msgspec.DecodeError):
        pass
    finally:
        fail_after(-1)
    batch = RowBatch()  # and it works again
    batch.add(rows)
    assert len(taken(batch)) == 30
    connection.close()


STEPS: dict[str, Step] = {
    step.__name__: step
    for step in (
        lines,
        columns,
        packed,
        pages,
        reals,
        functions,
        decimals,
        twins,
        messages,
        groups,
        no_memory,
    )
}
