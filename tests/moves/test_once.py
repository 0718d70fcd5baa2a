"""Operations that are done once, repeated after their buckets moved."""

from __future__ import annotations

import msgspec

from cairn.model.log.records import Operation
from cairn.model.rpc import WriteRequest
from cairn.node.statements.owner.carrying_out import left_of

INSERT = "INSERT INTO t VALUES (?, ?)"
ROWS = WriteRequest(1, 1, INSERT, ((3, "a"), (4, "b"), (5, "c")), (3, 4, 5), operation="once")
OPEN = "UPDATE t AS x SET n = n + 1 WHERE /*buckets:x*/"
ALL = WriteRequest(
    *(1, 1, "UPDATE t AS x SET n = n + 1 WHERE (x.bucket_id BETWEEN 10 AND 30)", ((),)),
    ranges=((10, 30),),
    operation="once",
    open_sql=OPEN,
)


def done(*ranges: tuple[int, int]) -> Operation:
    return Operation("once", 7, ranges)


def test_what_was_done_everywhere_is_not_done_again() -> None:
    assert left_of(ROWS, done((3, 5))) is None
    assert left_of(ALL, done((1, 9), (10, 30))) is None
    assert left_of(ROWS, Operation("once", 7, None)) is None


def test_rows_of_buckets_that_came_without_it_are_written() -> None:
    wanted = msgspec.structs.replace(ROWS, rows=((4, "b"),), buckets=(4,))
    assert left_of(ROWS, done((3, 3), (5, 5))) == wanted


def test_a_part_by_ranges_leaves_out_what_came_with_its_buckets() -> None:
    """T was never asked for its own part; buckets 10–15 came from S, where it was done."""
    text = "UPDATE t AS x SET n = n + 1 WHERE (x.bucket_id BETWEEN 16 AND 30)"
    wanted = msgspec.structs.replace(ALL, sql=text, ranges=((16, 30),))
    assert left_of(ALL, done((10, 15))) == wanted


def test_a_change_by_key_is_cut_in_all_its_statements() -> None:
    more = (("INSERT", ((3, 1, "n"), (6, 2, "n"))), ("UPDATE", ((3, 8, "u"), (6, 9, "u"))))
    request = WriteRequest(
        *(1, 1, "DELETE", ((3, 1), (6, 2)), (3, 6)), more=more, must_change=2, operation="once"
    )
    wanted = WriteRequest(
        *(1, 1, "DELETE", ((6, 2),), (6,)),
        more=(("INSERT", ((6, 2, "n"),)), ("UPDATE", ((6, 9, "u"),))),
        must_change=1,
        operation="once",
    )
    assert left_of(request, done((3, 3))) == wanted
