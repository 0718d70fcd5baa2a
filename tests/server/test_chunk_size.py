"""A COPY writes more rows at once only while nobody waits for it."""

from __future__ import annotations

from cairn.model.settings import limits
from cairn.server.chunk_size import (
    LARGE_BYTES,
    LARGE_ROWS,
    LONGEST_S,
    REMEMBERED_S,
    SMALL_BYTES,
    SMALL_ROWS,
    ChunkSize,
    ChunkSizes,
)


def grown() -> ChunkSize:
    size = ChunkSize(columns=3)
    for _ in range(4):
        size.stored(size.rows, LONGEST_S / 10, is_alone=True)
    return size


def test_chunks_of_a_copy_that_is_alone_grow_as_far_as_they_may() -> None:
    size, rows = ChunkSize(columns=3), []
    for _ in range(4):
        rows.append(size.rows)
        size.stored(size.rows, LONGEST_S / 10, is_alone=True)
    assert rows == [SMALL_ROWS, 2 * SMALL_ROWS, 4 * SMALL_ROWS, LARGE_ROWS]


def test_whoever_else_writes_makes_the_next_chunk_small() -> None:
    size = grown()
    size.stored(LARGE_ROWS, LONGEST_S / 10, is_alone=False)
    assert size.rows == SMALL_ROWS


def test_a_chunk_that_took_too_long_makes_the_next_one_fit_the_time() -> None:
    size = grown()
    size.stored(200_000, 2 * LONGEST_S, is_alone=True)
    assert size.rows == 100_000
    size.stored(100_000, 100 * LONGEST_S, is_alone=True)
    assert size.rows == SMALL_ROWS


def test_a_chunk_ends_at_its_rows_or_at_its_bytes() -> None:
    small, large = ChunkSize(columns=3), grown()
    assert [small.is_enough(*each) for each in ((SMALL_ROWS, 1), (1, SMALL_BYTES), (1, 1))] == [
        *(True, True, False)
    ]
    assert [
        large.is_enough(*each) for each in ((LARGE_ROWS, 1), (1, LARGE_BYTES), (1, SMALL_BYTES))
    ] == [True, True, False]


def test_whatever_fits_a_chunk_fits_a_record() -> None:
    """A text of one digit may be a number of nine bytes in the log."""
    columns = 500
    size = ChunkSize(columns)
    for _ in range(4):
        size.stored(size.rows, LONGEST_S / 10, is_alone=True)
    rows = next(rows for rows in range(LARGE_ROWS) if size.is_enough(rows, rows * columns * 2))
    assert rows * (5 + 9 * (columns + 1)) < limits.RECORD_BYTES


def test_a_copy_begins_with_what_the_one_before_it_has_learnt() -> None:
    now = [0.0]
    sizes = ChunkSizes(lambda: now[0])
    first = sizes.begin(columns=3)
    first.stored(SMALL_ROWS, LONGEST_S / 10, is_alone=True)
    first.stored(10, LONGEST_S, is_alone=True)  # its end: a few rows
    assert sizes.begin(columns=3).rows == 2 * SMALL_ROWS
    now[0] = REMEMBERED_S
    assert sizes.begin(columns=3).rows == SMALL_ROWS


def test_chunks_that_share_the_writer_know_how_many_they_are() -> None:
    sizes = ChunkSizes(lambda: 0.0)
    with sizes.storing() as first, sizes.storing() as second:
        assert (first, second) == (1, 2)
    with sizes.storing() as again:
        assert again == 1
