"""COPY out: rows in bulk, each chunk as it is read."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from cairn.model.errors import QueryCanceled, Unsupported
from cairn.model.types.row_shape import RowShape
from cairn.model.types.values import OIDS
from cairn.node.statements.owner.encoding import rows_encoder
from cairn.pgwire.copy import CopyFormat
from cairn.pgwire.copy_binary import TRAILER, with_header
from cairn.pgwire.copy_out import copy_encoder, header_line
from cairn.pgwire.messages import BINARY_FORMAT, TEXT_FORMAT
from cairn.server.scan import arrow, scans
from cairn.server.scan.statement import LinesAsked
from cairn.server.statements import Cached
from cairn.sql import plans


def format_of(options: dict[str, str]) -> CopyFormat:
    name = options.get("format", "text").lower()
    if name == "text":
        return "text"
    if name == "csv":
        return "csv"
    raise Unsupported(f"COPY format {name} is not supported: text, csv or binary")


def is_binary(options: dict[str, str]) -> bool:
    return options.get("format", "").lower() == "binary"


def is_arrow(options: dict[str, str]) -> bool:
    return options.get("format", "").lower() == "arrow"


def options_of(options: dict[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key in ("delimiter", "null", "quote", "escape"):
        if key in options:
            found[key] = options[key]
    return found


def has_header(options: dict[str, str]) -> bool:
    return options.get("header", "false").lower() in ("true", "on", "1", "")


async def copy_out(session: Any, cached: Cached, plan: plans.CopyPlan) -> int:
    """To the client of a session; the number of rows."""
    caller = session.running.caller()

    def query() -> Cached:
        """Asked each time it is begun: by now the table may have other columns, or be another one
        of that name, which the user may not read."""
        found = session.face.statements.get(
            cached.text, (), caller.context.user_id, session.running.catalog
        )
        if found is not cached:
            session.running.check(found)
        now = found.prepared.plan
        assert isinstance(now, plans.CopyPlan) and now.query is not None
        fresh: Cached = caller.understood(now.query.text)
        return fresh

    if is_arrow(plan.options):
        return await arrow.copy_out(session, caller, query, lambda: _drained(session))
    in_binary = is_binary(plan.options)
    columns: tuple[plans.OutColumn, ...] = ()

    async def begin() -> scans.Chunks:
        nonlocal columns
        present = query()
        columns = present.prepared.columns
        asked, encode = _in_binary(columns) if in_binary else _in_lines(present, plan.options)
        return await scans.chunks(caller, present, encode, asked)

    chunks = await scans.begun(caller, begin)
    names = [column.name for column in columns]
    session.pg.copy_out_response(BINARY_FORMAT if in_binary else TEXT_FORMAT, len(names))
    if has_header(plan.options):
        fmt = format_of(plan.options)
        session.pg.raw(header_line(names, fmt, **_header_options(plan.options)))
    total = 0
    async for count, data in chunks:
        session.pg.raw(with_header(bytes(data)) if in_binary and not total else data)
        session.running.told_bytes += len(data)
        session.flush()
        await _drained(session)
        total += count
    if in_binary:
        session.pg.raw(TRAILER if total else with_header(b""))
    session.pg.copy_done()
    return total


def _in_lines(present: Cached, options: dict[str, str]) -> tuple[LinesAsked, scans.Encode]:
    columns, convert = present.prepared.columns, present.convert
    fmt, style = format_of(options), options_of(options)
    lines = copy_encoder([OIDS[column.type] for column in columns], fmt, **style)

    def encode(rows: Sequence[Any]) -> bytes:
        return lines(rows if convert is None else convert(rows))

    return LinesAsked(fmt, style, tuple(column.scale for column in columns)), encode


def _in_binary(columns: Sequence[plans.OutColumn]) -> tuple[RowShape, scans.Encode]:
    """Rows are the same bytes as those of a SELECT."""
    shape = RowShape(
        tuple(column.type for column in columns),
        tuple(column.scale for column in columns),
        tuple(column.code(BINARY_FORMAT) for column in columns),
        is_copy=True,
    )
    encode = rows_encoder(shape)
    return shape, lambda rows: encode(list(rows))


def _header_options(options: dict[str, str]) -> dict[str, Any]:
    return {key: options[key] for key in ("delimiter", "quote", "escape") if key in options}


async def _drained(session: Any) -> None:
    """A client that reads slowly is waited for; the instance keeps no more than a little."""
    while session.transport.get_write_buffer_size() > 4 * 1024 * 1024:
        if session.transport.is_closing():
            raise QueryCanceled("the client is gone")
        await asyncio.sleep(0.005)
    await asyncio.sleep(0)
