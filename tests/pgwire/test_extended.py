"""The rules about prepared statements and portals."""

from __future__ import annotations

import pytest

from cairn.model.errors import (
    CairnError,
    DuplicateCursor,
    DuplicateStatement,
    InvalidParameter,
    LimitExceeded,
    ProtocolViolation,
    UndefinedCursor,
    UndefinedStatement,
)
from cairn.pgwire.client import requests
from cairn.pgwire.messages import NO_DATA
from cairn.pgwire.server.extended import Signature, StatementBook
from cairn.pgwire.server.requests import Bind
from cairn.pgwire.values import oids
from cairn.pgwire.values.oids import INT8, TEXT

PAIR = Signature([INT8, TEXT], [("n", INT8), ("t", TEXT)])


def book(statements: int = 10, portals: int = 10) -> StatementBook[str]:
    made: StatementBook[str] = StatementBook(lambda: (statements, portals))
    made.parse(b"s", "plan", PAIR)
    return made


def bind(portal: bytes = b"", statement: bytes = b"s", **changes: object) -> Bind:
    fields: dict[str, object] = {
        "param_formats": (),
        "params": [b"1", b"x"],
        "result_formats": (),
    }
    return Bind(portal, statement, **(fields | changes))  # type: ignore[arg-type]


def test_parameters_are_decoded_by_type_and_format() -> None:
    portal = book().bind(bind(param_formats=(1, 0), params=[b"\0" * 7 + b"\7", None]))
    assert portal.values == [7, None]
    assert portal.statement.plan == "plan"


@pytest.mark.parametrize(("codes", "each"), [((), (0, 0)), ((1,), (1, 1)), ((0, 1), (0, 1))])
def test_format_codes_are_none_one_or_one_each(
    codes: tuple[int, ...], each: tuple[int, ...]
) -> None:
    shape = book().bind(bind(result_formats=codes)).shape
    assert shape.result_formats == each
    assert shape is PAIR.shape((), codes)  # made once, shared by all connections


def test_other_format_codes_are_refused() -> None:
    with pytest.raises(ProtocolViolation, match="got 3 format codes for 2 items"):
        book().bind(bind(result_formats=(0, 0, 0)))
    with pytest.raises(InvalidParameter, match="unsupported format code: 7"):
        book().bind(bind(param_formats=(7,)))


def test_many_combinations_of_codes_do_not_fill_the_memory() -> None:
    wide = Signature([], [("c", INT8)] * 10)
    for bits in range(1024):
        wide.shape((), tuple(bits >> i & 1 for i in range(10)))
    assert len(wide._shapes) <= 64


def test_a_wrong_number_of_parameters_is_told_in_postgresqls_words() -> None:
    with pytest.raises(ProtocolViolation) as caught:
        book().bind(bind(params=[b"1"]))
    assert caught.value.message == (
        'bind message supplies 1 parameters, but prepared statement "s" requires 2'
    )


def test_a_bad_parameter_leaves_no_portal_behind() -> None:
    made = book()
    with pytest.raises(CairnError, match=r"parameter \$1: decoding error: 'x' is not a valid int8"):
        made.bind(bind(b"p", params=[b"x", b"x"]))
    with pytest.raises(UndefinedCursor):
        made.portal(b"p")


def test_named_statements_and_portals_are_not_replaced() -> None:
    made = book()
    with pytest.raises(DuplicateStatement):
        made.parse(b"s", "other", PAIR)
    made.bind(bind(b"p"))
    with pytest.raises(DuplicateCursor):
        made.bind(bind(b"p"))


def test_the_unnamed_ones_are_replaced() -> None:
    made = book()
    made.parse(b"", "first", PAIR)
    made.parse(b"", "second", PAIR)
    assert made.bind(bind(statement=b"")).statement.plan == "second"
    assert made.bind(bind()).statement.plan == "plan"
    assert made.portal(b"").statement.plan == "plan"


def test_unknown_names_have_their_own_errors() -> None:
    made = book()
    with pytest.raises(UndefinedStatement, match='prepared statement "x" does not exist'):
        made.statement(b"x")
    with pytest.raises(UndefinedStatement, match="unnamed prepared statement"):
        made.bind(bind(statement=b""))
    with pytest.raises(UndefinedCursor, match='portal "x" does not exist'):
        made.portal(b"x")


def test_closing_what_does_not_exist_is_fine_and_deallocating_is_not() -> None:
    made = book()
    made.close("S", b"x")
    made.close("P", b"x")
    with pytest.raises(UndefinedStatement):
        made.deallocate(b"x")


def test_a_statement_takes_its_portals_with_it() -> None:
    made = book()
    made.bind(bind(b"p"))
    made.close("S", b"s")
    with pytest.raises(UndefinedCursor):
        made.portal(b"p")


def test_sync_closes_portals_outside_of_a_transaction_only() -> None:
    made = book()
    made.bind(bind(b"p"))
    made.sync(in_transaction=True)
    made.portal(b"p")
    made.sync(in_transaction=False)
    with pytest.raises(UndefinedCursor):
        made.portal(b"p")


def test_a_simple_query_replaces_the_unnamed_ones() -> None:
    made = book()
    made.parse(b"", "plan", PAIR)
    made.bind(bind())
    made.begin_simple_query()
    with pytest.raises(UndefinedCursor):
        made.portal(b"")
    with pytest.raises(UndefinedStatement):
        made.statement(b"")


def test_deallocate_all_forgets_everything() -> None:
    made = book()
    made.bind(bind(b"p"))
    made.deallocate_all()
    assert made.statements == []


def test_there_is_a_limit_to_statements_and_portals() -> None:
    made = book(statements=1, portals=1)
    with pytest.raises(LimitExceeded, match='"pg_statement_max"'):
        made.parse(b"s2", "plan", PAIR)
    made.bind(bind(b"p"))
    with pytest.raises(LimitExceeded, match='"pg_portal_max"'):
        made.bind(bind(b"p2"))
    made.bind(bind())


def test_zero_is_no_limit() -> None:
    made = book(statements=0, portals=0)
    made.parse(b"s2", "plan", PAIR)
    made.bind(bind(b"p"))
    assert len(made.statements) == 2


def test_a_statement_without_rows_describes_none() -> None:
    signature = Signature([], None)
    assert signature.statement_rows == NO_DATA
    assert signature.shape((), (1,)).description == NO_DATA  # asyncpg asks for binary anyway


def test_bytes_are_sent_as_they_are_where_the_server_wants_bytes() -> None:
    """As text they would be twice as long, and a chunk of Spark has megabytes."""
    assert requests.bind("s", [b"\x00\xff", 7], [oids.BYTEA, oids.INT8], []) == (
        b"B\0\0\0\x1c\0s\0" + b"\0\2\0\1\0\0" + b"\0\2\0\0\0\2\x00\xff" + b"\0\0\0\x017" + b"\0\0"
    )
    assert requests.bind("s", [b"\x00\xff"], None, []) == (
        b"B\0\0\0\x17\0s\0" + b"\0\0" + b"\0\1" + b"\0\0\0\6\\x00ff" + b"\0\0"
    )
