"""The short cut for prepared statements says what the general way says, or nothing."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cairn.client.logic.quick import Quick
from cairn.model.errors import CairnError
from cairn.pgwire import messages as m
from cairn.pgwire.client.backend import Result
from cairn.pgwire.client.client import ClientPhase, PgClient
from cairn.pgwire.client.replies import Prepared
from cairn.pgwire.values import oids
from cairn.pgwire.values.rows import row_decoder, row_encoder

COLUMNS: list[m.Column] = [("id", oids.INT8, 1), ("v", oids.TEXT, 1)]
OIDS, FORMATS = [oids.INT8, oids.TEXT], [1, 1]
PREPARED = Prepared("s", (oids.INT8, oids.TEXT), COLUMNS, row_decoder(OIDS, FORMATS))


def client() -> PgClient:
    pg = PgClient("u", random_bytes=os.urandom)
    pg.phase = ClientPhase.OPEN
    pg.statements["s"] = PREPARED
    return pg


def answer_of(rows: list[tuple[Any, ...]], status: str = "I") -> bytes:
    encode = row_encoder(OIDS, FORMATS)
    tag = m.message(b"C", m.cstring(f"SELECT {len(rows)}"))
    return m.BIND_COMPLETE + b"".join(map(encode, rows)) + tag + m.READY[status]


def general(data: bytes) -> Result | None:
    """What `PgClient` makes of it; None if that is not one whole result."""
    pg = client()
    pg.execute_prepared("s", (1, "x"))
    try:
        pg.receive(data)
        return pg.take_results()[-1] if pg.is_idle and not pg._unread else None
    except (CairnError, IndexError):
        return None


TEXTS = st.text().filter(lambda text: "\0" not in text)
ROWS = st.lists(st.tuples(st.none() | st.integers(-(2**63), 2**63 - 1), st.none() | TEXTS))


@given(ROWS)
def test_a_usual_answer_is_read_as_the_general_way_reads_it(rows: list[tuple[Any, ...]]) -> None:
    data = answer_of(rows)
    found = Quick("s", PREPARED).answer(data)
    assert found is not None and found == general(data) and found.rows == rows


@given(
    st.lists(st.tuples(st.integers(0, 99), st.text("abc", max_size=5)), max_size=4),
    st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), min_size=1, max_size=4),
    st.integers(0, 12),
)
@settings(max_examples=400)
def test_damaged_answers_are_never_read_otherwise_than_the_general_way(
    rows: list[tuple[int, str]], damage: list[tuple[int, int]], cut: int
) -> None:
    data = bytearray(answer_of(rows))
    for at, byte in damage:
        data[at % len(data)] = byte
    del data[len(data) - cut :]
    found = Quick("s", PREPARED).answer(bytes(data))
    assert found is None or found == general(bytes(data))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        answer_of([(1, "x")], status="T"),
        answer_of([(1, "x")])[:-1],
        m.notice_response("{}") + answer_of([]),
        m.BIND_COMPLETE + m.notice_response("{}") + answer_of([])[5:],
        answer_of([]) + answer_of([]),
        m.BIND_COMPLETE + b"D\0\0\0\6\0\1" + answer_of([])[5:],  # a row without its fields
        m.BIND_COMPLETE + b"D\xff\xff\xff\xff" + answer_of([])[5:],
        m.BIND_COMPLETE + b"D\0\0\0\0" + answer_of([])[5:],
        m.BIND_COMPLETE + m.READY["I"],
    ],
)
def test_what_is_not_usual_is_left_to_the_general_way(data: bytes) -> None:
    assert Quick("s", PREPARED).answer(data) is None


@given(
    st.none() | st.integers() | st.booleans() | st.floats(allow_nan=False) | st.decimals(0, 9),
    st.none() | TEXTS,
)
def test_requests_are_those_of_the_general_way(key: Any, text: str | None) -> None:
    assert Quick("s", PREPARED).request((key, text)) == client().execute_prepared("s", (key, text))


def test_requests_that_need_care_go_the_general_way() -> None:
    quick = Quick("s", PREPARED)
    assert quick.request((1,)) is None  # a parameter is missing
    assert quick.request((1, "x" * (1 << 20))) is None
    moment = datetime(2026, 1, 2, tzinfo=UTC)
    usual = client().execute_prepared("s", (Decimal("1.50"), moment))
    assert quick.request((Decimal("1.50"), moment)) == usual
    as_json = Prepared("s", (oids.JSON,), [], None)
    assert Quick("s", as_json).request(("text",)) is None
