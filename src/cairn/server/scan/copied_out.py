"""COPY out: rows in bulk, each chunk as it is read."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from cairn.model.errors import QueryCanceled, Unsupported
from cairn.model.types.values import OIDS
from cairn.pgwire.copy import CopyFormat
from cairn.pgwire.copy_out import copy_encoder, header_line
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
    raise Unsupported(f"COPY format {name} is not supported: text or csv")


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
    fmt, options = format_of(plan.options), options_of(plan.options)
    columns: tuple[Any, ...] = ()

    async def begin() -> scans.Chunks:
        nonlocal columns
        present = query()
        columns, convert = present.prepared.columns, present.convert
        lines = copy_encoder([OIDS[column.type] for column in columns], fmt, **options)

        def encode(rows: Sequence[Any]) -> bytes:
            return lines(rows if convert is None else convert(rows))

        asked = LinesAsked(fmt, options, tuple(column.scale for column in columns))
        return await scans.chunks(caller, present, encode, asked)

    chunks = await scans.begun(caller, begin)
    names = [column.name for column in columns]
    session.pg.copy_out_response(0, len(names))
    if has_header(plan.options):
        session.pg.raw(header_line(names, fmt, **_header_options(plan.options)))
    total = 0
    async for count, data in chunks:
        session.pg.raw(data)
        session.running.told_bytes += len(data)
        session.flush()
        await _drained(session)
        total += count
    session.pg.copy_done()
    return total


def _header_options(options: dict[str, str]) -> dict[str, Any]:
    return {key: options[key] for key in ("delimiter", "quote", "escape") if key in options}


async def _drained(session: Any) -> None:
    """A client that reads slowly is waited for; the instance keeps no more than a little."""
    while session.transport.get_write_buffer_size() > 4 * 1024 * 1024:
        if session.transport.is_closing():
            raise QueryCanceled("the client is gone")
        await asyncio.sleep(0.005)
    await asyncio.sleep(0)
