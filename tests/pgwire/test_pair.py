"""The two halves of the protocol against each other, in memory."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from uuid import UUID

import pytest

from cairn.model.errors import InvalidAuthorization, InvalidParameter, Unreachable
from cairn.pgwire.client.backend import Notice, ServerError
from cairn.pgwire.client.client import ClientPhase
from cairn.pgwire.server.server import PgServer
from cairn.pgwire.values.oids import INT8, TEXT

from .coupling import Pair


@pytest.mark.parametrize("chunk", [1, 3, 1 << 20])
def test_a_client_logs_in_and_asks_however_the_bytes_are_cut(chunk: int) -> None:
    pair = Pair(chunk=chunk, params={"options": "smart_connector=0.1"}).connected()
    assert pair.pg.parameters["server_version"] == "15.0"
    assert pair.server.startup is not None
    assert pair.server.startup.params.options["smart_connector"] == "0.1"
    pair.carry(pair.pg.query("rows 3"))
    assert pair.pg.take_rows() == [(0, "row 0"), (1, "row 1"), (2, "row 2")]


def test_a_wrong_password_and_an_unknown_user_look_alike() -> None:
    texts = []
    for user, password in (("alice", "wrong"), ("nobody", "wrong")):
        pair = Pair(user=user, password=password)
        with pytest.raises(ServerError) as caught:
            pair.carry(pair.pg.connect())
        assert (caught.value.sqlstate, caught.value.severity) == ("28P01", "FATAL")
        texts.append(caught.value.message.replace(user, "USER"))
        assert pair.server.closed and pair.pg.is_closed
    assert texts[0] == texts[1]


def test_a_server_that_does_not_know_the_password_is_found_out() -> None:
    pair = Pair()
    outgoing = pair.server.receive(pair.pg.connect())
    outgoing = pair.server.receive(pair.pg.receive(outgoing))
    answer = pair.server.receive(pair.pg.receive(outgoing))
    forged = answer.replace(b"v=", b"v=AAAA", 1)
    forged = forged[:1] + (int.from_bytes(forged[1:5]) + 4).to_bytes(4) + forged[5:]
    with pytest.raises(InvalidAuthorization, match="could not prove"):
        pair.pg.receive(forged)


def test_several_statements_in_one_query_give_several_results() -> None:
    pair = Pair().connected()
    pair.carry(pair.pg.query("rows 1; begin; rows 2"))
    assert [result.tag for result in pair.pg.take_results()] == ["SELECT 1", "BEGIN", "SELECT 2"]
    assert pair.pg.status == "T"


def test_an_empty_query_has_an_answer_of_its_own() -> None:
    pair = Pair().connected()
    pair.carry(pair.pg.query("  ;"))
    (result,) = pair.pg.take_results()
    assert (result.columns, result.rows, result.tag) == ([], [], None)


def test_an_error_carries_its_fields_and_the_session_goes_on() -> None:
    pair = Pair().connected()
    pair.carry(pair.pg.query("fail"))
    with pytest.raises(ServerError) as caught:
        pair.pg.take_results()
    error = caught.value
    assert (error.sqlstate, error.message) == ("XX000", "asked to fail")
    assert (error.detail, error.hint, error.position) == ("a detail", "a hint", 3)
    pair.carry(pair.pg.query("rows 1"))
    assert pair.pg.take_rows() == [(0, "row 0")]


def test_an_error_inside_a_transaction_is_told_by_the_status() -> None:
    pair = Pair().connected()
    pair.carry(pair.pg.query("begin"))
    pair.carry(pair.pg.execute("fail"))
    assert pair.pg.status == "E"


def test_parameters_of_every_type_come_back_as_they_went() -> None:
    pair = Pair().connected()
    values = [
        True,
        -5,
        2.5,
        Decimal("1.50"),
        "text with 'quotes' and — dashes",
        UUID("12345678-1234-5678-1234-567812345678"),
        datetime(2024, 2, 29, 12, 0, 0, 250000, tzinfo=UTC),
        None,
        [1, None, 3],
        {"a": [1, 2]},
        10**20,
        b"\0\xff",
    ]
    marks = ", ".join(f"${i}" for i in range(1, len(values) + 1))
    pair.carry(pair.pg.execute(f"echo {marks}", values))
    ((*got,),) = pair.pg.take_rows()
    assert got == [Decimal(v) if v == 10**20 else v for v in values]


def test_a_prepared_statement_is_described_once_and_answers_in_binary() -> None:
    pair = Pair().connected()
    pair.carry(pair.pg.prepare("s1", "echo $1::int8, $2::text, $3::numeric"))
    assert pair.pg.take_results() == []
    assert pair.pg.statements["s1"].param_oids == (20, 25, 1700)
    assert pair.pg.statements["s1"].columns == [("p1", 20, 1), ("p2", 25, 1), ("p3", 1700, 1)]
    pair.carry(pair.pg.execute_prepared("s1", [1, "x", Decimal("0.05")]))
    assert pair.pg.take_rows() == [(1, "x", Decimal("0.05"))]


def test_many_executions_travel_in_one_pipeline() -> None:
    pair = Pair().connected()
    pair.carry(pair.pg.prepare("s1", "echo $1::int8"))
    pair.pg.take_results()
    pair.carry(pair.pg.execute_many("s1", [[n] for n in range(100)]))
    assert [result.rows for result in pair.pg.take_results()] == [[(n,)] for n in range(100)]


def test_requests_may_be_piled_up_and_each_has_its_own_outcome() -> None:
    pair = Pair().connected()
    piled = pair.pg.query("rows 1") + pair.pg.execute("fail") + pair.pg.execute("echo $1", [4])
    pair.carry(piled)
    first, second, third = pair.pg.take_outcomes()
    assert first.results[0].rows == [(0, "row 0")]
    assert second.error is not None and second.error.message == "asked to fail"
    assert third.results[0].rows == [(4,)]


def test_a_row_limit_suspends_the_portal() -> None:
    pair = Pair().connected()
    pair.carry(pair.pg.execute("rows 5", max_rows=2))
    (result,) = pair.pg.take_results()
    assert result.suspended and len(result.rows) == 2


def test_a_closed_statement_is_gone() -> None:
    pair = Pair().connected()
    pair.carry(pair.pg.prepare("s1", "rows 1"))
    statement = pair.pg.statements["s1"]
    pair.carry(pair.pg.close_statement("s1"))
    pair.pg.take_results()
    pair.pg.statements["s1"] = statement  # as if it had been closed behind our back
    pair.carry(pair.pg.execute_prepared("s1"))
    with pytest.raises(ServerError, match='prepared statement "s1" does not exist') as caught:
        pair.pg.take_results()
    assert caught.value.sqlstate == "26000"


def test_notices_reach_every_listener() -> None:
    pair = Pair().connected()
    seen: list[Notice] = []
    pair.pg.on_notice.append(seen.append)
    pair.carry(pair.pg.query('notice {"map":"bucket"}'))
    expected = {"S": "NOTICE", "C": "00000", "M": '{"map":"bucket"}'}
    assert seen == [Notice("NOTICE", "00000", '{"map":"bucket"}', expected)]


@pytest.mark.parametrize("chunk", [1, 7, 1 << 20])
def test_rows_are_copied_in_both_directions(chunk: int) -> None:
    pair = Pair(chunk=chunk).connected()
    pair.carry(pair.pg.query("copy in", copy=True))
    assert pair.pg.wants_copy_data
    pair.carry(pair.pg.copy_data(b"1\ta\n2\t\\N") + pair.pg.copy_data(b"\n3\tb\\tc\n"))
    pair.carry(pair.pg.copy_done())
    assert pair.pg.take_results()[0].row_count == 3
    assert pair.server.copied == [["1", "a"], ["2", None], ["3", "b\tc"]]
    pair.carry(pair.pg.query("copy out 2", copy=True))
    assert b"".join(pair.pg.take_copy()) == b"0\trow\\t0\n1\trow\\t1\n"
    assert pair.pg.take_results()[0].tag == "COPY 2"


def test_a_copy_that_the_client_gives_up_is_an_error_and_nothing_more() -> None:
    pair = Pair().connected()
    pair.carry(pair.pg.query("copy in", copy=True))
    pair.carry(pair.pg.copy_fail("changed my mind"))
    with pytest.raises(ServerError, match="changed my mind"):
        pair.pg.take_results()
    assert pair.pg.is_idle


@pytest.mark.parametrize("extended", [False, True])
def test_a_copy_that_nobody_expects_is_declined_by_itself(extended: bool) -> None:
    pair = Pair().connected()
    pair.carry(pair.pg.execute("copy in") if extended else pair.pg.query("copy in"))
    with pytest.raises(ServerError, match="was not expected"):
        pair.pg.take_results()
    pair.carry(pair.pg.query("rows 1"))
    assert pair.pg.take_rows() == [(0, "row 0")]


def test_bad_copy_data_ends_the_copy_with_its_line() -> None:
    pair = Pair().connected()
    pair.carry(pair.pg.query("copy in", copy=True))
    pair.carry(pair.pg.copy_data(b"1\ta\n2\n") + pair.pg.copy_data(b"3\tc\n"))
    with pytest.raises(ServerError, match="missing data for column 2 of 2") as caught:
        pair.pg.take_results()
    assert (caught.value.sqlstate, caught.value.detail) == ("22P04", "COPY, line 2")


def test_the_key_for_cancelling_travels_on_a_connection_of_its_own() -> None:
    pair = Pair().connected()
    other = Pair()
    assert other.server.receive(pair.pg.cancel_request()) == b""
    assert other.server.cancelled == (7, b"\1\2\3\4")
    assert other.server.closed


def test_a_terminated_connection_takes_no_more_requests() -> None:
    pair = Pair().connected()
    pair.server.receive(pair.pg.terminate())
    assert pair.server.closed
    with pytest.raises(Unreachable):
        pair.pg.query("rows 1")


def test_tls_is_asked_for_and_started_by_both_sides() -> None:
    pair = Pair(server=PgServer(tls_available=True, require_tls=True), tls="require")
    answer = pair.server.receive(pair.pg.connect())
    assert answer == b"S"
    assert pair.pg.receive(answer) == b"" and pair.pg.needs_tls
    pair.server.pg.tls_started()
    pair.carry(pair.pg.tls_started())
    assert pair.pg.is_idle and pair.server.pg.encrypted


def test_a_client_that_only_prefers_tls_goes_on_without() -> None:
    pair = Pair(tls="prefer").connected()
    assert not pair.server.pg.encrypted


def test_a_client_that_requires_tls_does_not_go_on_without() -> None:
    pair = Pair(tls="require")
    with pytest.raises(InvalidAuthorization, match="does not support TLS"):
        pair.carry(pair.pg.connect())
    assert pair.pg.phase is ClientPhase.CLOSED


def test_a_server_that_requires_tls_says_so() -> None:
    pair = Pair(server=PgServer(tls_available=True, require_tls=True))
    with pytest.raises(ServerError, match="requires the client to use ssl") as caught:
        pair.carry(pair.pg.connect())
    assert caught.value.sqlstate == "28000"


def test_a_nul_in_a_statement_is_refused_before_it_is_sent() -> None:
    pair = Pair().connected()
    with pytest.raises(InvalidParameter):
        pair.pg.query("rows 1\0; fail")
    assert pair.pg.is_idle


def test_a_wrong_number_of_parameters_is_noticed_at_home() -> None:
    pair = Pair().connected()
    pair.carry(pair.pg.prepare("s", "echo $1", [INT8]))
    with pytest.raises(InvalidParameter, match="1 parameters are needed, 2 were given"):
        pair.pg.execute_prepared("s", [1, 2])


def test_columns_are_told_with_name_type_and_format() -> None:
    pair = Pair().connected()
    pair.carry(pair.pg.execute("rows 0"))
    (result,) = pair.pg.take_results()
    assert result.columns == [("n", INT8, 0), ("t", TEXT, 0)]
