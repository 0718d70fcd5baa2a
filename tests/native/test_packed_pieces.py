"""Rows that are packed where they are read: what SQLite tells, and what it says when it fails."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from typing import Any

import apsw
import pytest

from cairn.model.errors import MotionLimit
from cairn.native.library import library
from cairn.storage.files.pieces import PackedPieces, plain
from cairn.storage.groups import Groups
from cairn.storage.packed_twin import packed_rows
from cairn.storage.readers import only_reading

pytestmark = pytest.mark.skipif(library() is None, reason="there was no compiler")
ASKED = "SELECT * FROM packed_pieces(?, ?, ?)"


@pytest.fixture
def connection() -> Iterator[apsw.Connection]:
    found = apsw.Connection(":memory:")
    found.execute("CREATE TABLE t (a INTEGER, b)")
    dice = random.Random(5)
    rows = [(at, value(dice, at)) for at in range(3_000)]
    found.executemany("INSERT INTO t VALUES (?, ?)", rows)
    yield found
    found.close()


def value(dice: random.Random, at: int) -> Any:
    kinds = (None, at * 2**40, -at, at / 7, "ż" * dice.randrange(40), bytes(dice.randrange(300)))
    return dice.choice(kinds)


def taken(groups: Groups, sql: str, args: tuple[Any, ...] = (), most: int = 50_000) -> list[Any]:
    pieces = PackedPieces(groups.packed(sql, args, ""))
    found: list[Any] = []
    while True:
        piece = pieces.take(most)
        found += plain(piece.rows)
        if piece.is_last:
            return found


@pytest.mark.parametrize("most", [1, 20_000, 10**9])
def test_pieces_have_all_rows_in_their_order(connection: apsw.Connection, most: int) -> None:
    sql = "SELECT b, a, b || '' FROM t WHERE a >= ? ORDER BY a DESC"
    expected = connection.execute(sql, (17,)).fetchall()
    assert taken(Groups(connection), sql, (17,), most) == expected


def test_all_kinds_of_values_are_given_to_the_statement(connection: apsw.Connection) -> None:
    values = (None, 1, -(2**63), 2.5, "text " * 100, b"\0\xff" * 300)
    assert taken(Groups(connection), "SELECT ?, ?, ?, ?, ?, ?", values) == [values]


def test_packed_rows_reads_what_was_packed(connection: apsw.Connection) -> None:
    groups = Groups(connection)
    packed = b"".join(part for part, _ in groups.packed("SELECT a, b FROM t", (), ""))
    expected = connection.execute("SELECT a, b FROM t").fetchall()
    found = connection.execute("SELECT c0, c1 FROM packed_rows(?, 2)", (packed,)).fetchall()
    assert found == expected
    assert list(packed_rows(packed, 2)) == expected  # the same in Python


def test_an_answer_without_rows_is_one_empty_piece(connection: apsw.Connection) -> None:
    pieces = PackedPieces(Groups(connection).packed("SELECT a FROM t WHERE a < 0", (), ""))
    piece = pieces.take(100)
    assert (len(piece.rows), piece.is_last) == (0, True)


def test_too_many_rows_are_refused(connection: apsw.Connection) -> None:
    pieces = PackedPieces(Groups(connection).packed("SELECT a FROM t", (), ""), row_max=100)
    with pytest.raises(MotionLimit):
        pieces.take(10**9)


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("SELECT", "incomplete input"),
        ("SELECT missing FROM t", "no such column: missing"),
        ("SELECT json_extract('{', '$')", "malformed JSON"),
        ("SELECT " + ", ".join("1" * 300), "256 columns"),
        ("", "256 columns"),
    ],
)
def test_what_fails_says_why(connection: apsw.Connection, sql: str, words: str) -> None:
    with pytest.raises(apsw.SQLError, match=words):
        taken(Groups(connection), sql)
    assert taken(Groups(connection), "SELECT 1") == [(1,)]


def test_a_statement_that_fails_after_some_rows_fails(connection: apsw.Connection) -> None:
    sql = "SELECT a, CASE WHEN a = 2500 THEN json_extract('{', '$') END FROM t ORDER BY a"
    with pytest.raises(apsw.SQLError, match="malformed JSON"):
        taken(Groups(connection), sql)


def test_an_error_of_a_function_of_python_is_told_as_it_is(connection: apsw.Connection) -> None:
    def fails(at: int) -> int:
        raise KeyError(at)

    connection.create_scalar_function("fails", fails, 1)
    with pytest.raises(KeyError):
        taken(Groups(connection), "SELECT fails(a) FROM t")
    assert taken(Groups(connection), "SELECT 1") == [(1,)]


def test_values_that_are_damaged_or_too_many_are_refused(connection: apsw.Connection) -> None:
    Groups(connection)
    for given in (b"\x01\x02", b"\xd9", b"\xc6\xff\xff\xff\xff", b"\xc1"):
        with pytest.raises(apsw.SQLError, match="do not fit"):
            connection.execute(ASKED, ("SELECT ?", given, 100)).fetchall()


def test_an_interrupt_ends_the_statement_inside(connection: apsw.Connection) -> None:
    groups = Groups(connection)
    begun = threading.Event()
    connection.set_progress_handler(begun.is_set, 1_000)
    begun.set()
    with pytest.raises(apsw.InterruptError):
        taken(groups, "SELECT count(*) FROM t x, t y, t z")


def test_nobody_writes_by_it_who_may_only_read(connection: apsw.Connection) -> None:
    groups = Groups(connection)
    connection.authorizer = only_reading
    for sql in (
        "DELETE FROM t",
        "DROP TABLE t",
        "ATTACH ':memory:' AS x",
        "SELECT load_extension(1)",
    ):
        with pytest.raises(apsw.Error, match="not authorized"):
            taken(groups, sql)
    assert taken(groups, "SELECT count(*) FROM t") == [(3_000,)]


def test_a_cursor_that_is_closed_half_way_leaves_nothing_open(connection: apsw.Connection) -> None:
    groups = Groups(connection)
    for _ in range(50):
        cursor = groups.packed("SELECT a, b FROM t", (), "")
        next(cursor)
        cursor.close(True)
    connection.execute("DROP TABLE t")  # it would be locked
