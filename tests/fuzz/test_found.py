"""What fuzzing has found, each once and plainly."""

from __future__ import annotations

import math
import os
import shutil
import socket
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import psycopg
import pytest

from cairn.cli.copies.files import verify
from cairn.cli.talking import TalkProblem
from cairn.client.settings import parse_dsn
from cairn.model.errors import InvalidParameter, ProtocolViolation
from cairn.model.log.records import Body, Kind, RowChange, RowOp, decode_body, encode_body
from cairn.model.rpc import (
    BlockItem,
    BlockRequest,
    ReadRequest,
    SchemaChangeRequest,
    WaitIndexRequest,
)
from cairn.model.types.row_shape import RowShape
from cairn.node.statements.blocks.block_owner import values_of
from cairn.sql.api import prepare
from tests.fuzz import files as fuzzed
from tests.fuzz.target import Target
from tests.sql.harness import empty_catalog

pytestmark = pytest.mark.cluster


@pytest.mark.parametrize(
    ("text", "state"),
    [
        ("CALL cairn_status(1e308)", "42883"),
        ("SELECT pg_get_userbyid()", "42883"),
        ("SELECT pg_subscript() FROM pg_user", "42883"),
        ("SELECT current_catalog(table_schema) FROM information_schema.tables", "42883"),
        ("SELECT pg_item(relname, 'x') FROM pg_class", "42883"),
        ("SELECT pg_generate_series('x', 2) FROM pg_namespace", "42883"),
        ("SELECT to_regtype(1, 2)::text FROM pg_namespace", "42883"),
    ],
)
def test_wrong_arguments_are_an_error_of_the_statement(
    target: Target,
    text: str,
    state: str,
) -> None:
    with target.node.connect() as connection, pytest.raises(psycopg.Error) as refused:
        connection.execute(text)
    assert refused.value.sqlstate == state


@pytest.mark.parametrize("number", ["1e32768", "-1e40000"])
def test_a_number_that_no_decimal_can_hold_is_out_of_range(target: Target, number: str) -> None:
    """As PostgreSQL says it, whatever way it comes: COPY in binary told an internal error."""
    with target.node.connect() as connection:
        with pytest.raises(psycopg.errors.NumericValueOutOfRange):
            connection.execute("INSERT INTO things (id, n) VALUES (901, %s)", (Decimal(number),))
        with (
            pytest.raises(psycopg.errors.NumericValueOutOfRange),
            connection.cursor().copy("COPY things (id, n) FROM STDIN (FORMAT binary)") as copy,
        ):
            copy.set_types(["int8", "numeric"])
            copy.write_row((901, Decimal(number)))


def test_a_port_that_is_no_number_is_refused() -> None:
    with pytest.raises(InvalidParameter):
        parse_dsn("postgresql://admin:x@127.0.0.1:432²/cairn")


def test_a_record_with_a_text_that_is_none_is_damaged_like_any_other() -> None:
    """A backup that was changed, or a page: whoever reads the log knows one error."""
    row = RowChange(1024, 1, RowOp.INSERT, None, (1, "table_t"))
    good = encode_body(Body(Kind.ROWS, 0, (row,)))
    assert decode_body(good).changes == (row,)
    with pytest.raises(msgspec.DecodeError):
        decode_body(good.replace(b"table_t", b"table_\xae"))


def test_a_fraction_is_no_whole_number_in_the_catalogue(target: Target) -> None:
    text = "SELECT 1e308, string_agg(matviewowner) FROM pg_matviews"
    assert target.node.sql(text) == [(1e308, None)]


@pytest.mark.parametrize(
    "shape",
    [
        {"types": ["integer"], "scales": [None], "formats": []},
        {"types": ["integer"], "scales": [], "formats": [0]},
        {"types": [], "scales": [], "formats": [1]},
        {"types": ["integer"], "scales": [None], "formats": [7]},
    ],
)
def test_a_peers_shape_of_rows_fits_itself(shape: dict[str, Any]) -> None:
    with pytest.raises(msgspec.ValidationError, match="for each column"):
        msgspec.msgpack.decode(msgspec.msgpack.encode(shape), type=RowShape)


@pytest.mark.parametrize("kind", [WaitIndexRequest, SchemaChangeRequest])
@pytest.mark.parametrize("seconds", [math.nan, math.inf, 1e300])
def test_a_peers_time_limit_is_a_number_that_a_timer_takes(kind: Any, seconds: float) -> None:
    values: dict[str, Any] = {each.encode_name: 1 for each in msgspec.structs.fields(kind)}
    msgspec.convert(values, kind)
    with pytest.raises(msgspec.ValidationError, match="timeout_s"):
        msgspec.convert(values | {"timeout_s": seconds}, kind)


@pytest.mark.parametrize("limit", ["row_max", "opcode_max"])
def test_a_peers_limit_is_not_below_zero(limit: str) -> None:
    values = {"sql": "SELECT 1", "args": [], "tables": {}}
    msgspec.convert({**values, limit: 0}, ReadRequest)
    with pytest.raises(msgspec.ValidationError, match=limit):
        msgspec.convert({**values, limit: -1}, ReadRequest)


@pytest.mark.parametrize(
    ("args", "now"),
    [((1, 2), 0), ((), 0), (("x",), 0), (([],), 0), ((1,), 10**30)],
    ids=["too many", "too few", "another kind", "a list", "a time beyond all calendars"],
)
def test_a_peers_block_has_values_for_its_parameters(args: tuple[Any, ...], now: int) -> None:
    text = "SELECT name FROM _pico_instance WHERE $1::datetime < now()"
    prepared = prepare(text, empty_catalog(), user_id=1)
    good = BlockItem(text, 1, 0, (1_000_000,))
    assert len(values_of(good, prepared)) == 1 + prepared.hidden
    with pytest.raises(ProtocolViolation):
        values_of(msgspec.structs.replace(good, args=args, now=now), prepared)


def test_a_peers_block_has_a_statement_or_a_read() -> None:
    values = {"items": [], "is_commit": False, "tier": "default"}
    read = {"sql": "SELECT 1", "args": [], "tables": {}}
    msgspec.convert({**values, "read": read}, BlockRequest)
    with pytest.raises(msgspec.ValidationError, match="neither a statement nor a read"):
        msgspec.convert(values, BlockRequest)


@pytest.mark.parametrize("seconds", ["x", "nan", "-1", "inf", ""])
def test_a_time_limit_in_a_dsn_is_a_number(seconds: str) -> None:
    with pytest.raises(InvalidParameter):
        parse_dsn(f"postgresql://admin@h/cairn?connect_timeout={seconds or '%20'}")


def test_a_bad_request_behind_a_good_one_costs_its_connection(target: Target) -> None:
    before = target.node.log().count("cairn.bug")
    for _ in range(50):
        with socket.create_connection(("127.0.0.1", target.http_port), 5) as client:
            client.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n\xff\0 what\r\n\r\n")
            client.shutdown(socket.SHUT_WR)
            while client.recv(65536):
                pass
    assert target.node.log().count("cairn.bug") == before


def test_a_backup_writes_no_file_elsewhere_whatever_names_are_in_it(
    target: Target, tmp_path: Path
) -> None:
    """Restoring one that continues another made a file by the name of its replicaset."""
    folder, last = fuzzed.taken(target)
    copied, scratch = tmp_path / "backups", tmp_path / "deep" / "scratch"
    shutil.copytree(folder, copied)
    scratch.mkdir(parents=True)
    fuzzed.rename(copied, "../../elsewhere")
    fuzzed.restored(copied / last, scratch, None)
    assert not (tmp_path / "elsewhere.db").exists()
    assert len(list(scratch.glob("*.db"))) == 1


@pytest.mark.parametrize("victim", ["manifest.json", "global.msgpack"])
def test_a_pipe_in_a_backup_is_not_waited_for(target: Target, tmp_path: Path, victim: str) -> None:
    folder, last = fuzzed.taken(target)
    shutil.copytree(folder, tmp_path / "backups")
    path = tmp_path / "backups" / last / victim
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(TalkProblem, match=f"{victim} is no file"):
        verify(tmp_path / "backups" / last)
