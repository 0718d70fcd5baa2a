"""COPY in and out: rows in bulk, each chunk straight to the replicasets that own it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from cairn.model.errors import CairnError, QueryCanceled, Unsupported
from cairn.model.values import OIDS, parse_text
from cairn.pgwire.copy import CopyParser
from cairn.pgwire.copy_out import copy_encoder, header_line
from cairn.pgwire.requests import CopyData, CopyDone, CopyFail
from cairn.server import running
from cairn.server.statements import Cached
from cairn.sql import plans

if TYPE_CHECKING:
    from cairn.server.session import Session

CHUNK_ROWS = 10_000
OUT_ROWS = 2_000


def _format(options: dict[str, str]) -> Literal["text", "csv"]:
    name = options.get("format", "text").lower()
    if name == "text":
        return "text"
    if name == "csv":
        return "csv"
    raise Unsupported(f"COPY format {name} is not supported: text or csv")


def _options(options: dict[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key in ("delimiter", "null", "quote", "escape"):
        if key in options:
            found[key] = options[key]
    return found


def _has_header(options: dict[str, str]) -> bool:
    return options.get("header", "false").lower() in ("true", "on", "1", "")


async def copy_out(session: Session, cached: Cached, plan: plans.CopyPlan) -> int:
    assert plan.query is not None
    fmt = _format(plan.options)
    query = session.service.statements.get(
        plan.query.text.encode(), (), session.user_id, session.service.catalog
    )
    outcome = await running.run(session, query, ())
    rows: Sequence[Any] = outcome.rows or ()
    if query.convert is not None:
        rows = query.convert(rows)
    oids = [OIDS[column.type] for column in plan.query.columns]
    encode = copy_encoder(oids, fmt, **_options(plan.options))
    session.pg.copy_out_response(0, len(oids))
    if _has_header(plan.options):
        names = [column.name for column in plan.query.columns]
        session.pg.copy_data(header_line(names, fmt, **_header_options(plan.options)))
    for start in range(0, len(rows), OUT_ROWS):
        session.pg.raw(encode(rows[start : start + OUT_ROWS]))
        session._flush()
        await _drained(session)
    session.pg.copy_done()
    return len(rows)


def _header_options(options: dict[str, str]) -> dict[str, Any]:
    return {key: options[key] for key in ("delimiter", "quote", "escape") if key in options}


async def _drained(session: Session) -> None:
    """A client that reads slowly is waited for; the instance keeps no more than a little."""
    while session.transport.get_write_buffer_size() > 4 * 1024 * 1024:
        if session.transport.is_closing():
            raise QueryCanceled("the client is gone")
        await asyncio.sleep(0.005)
    await asyncio.sleep(0)


class CopyIn:
    """One COPY FROM STDIN."""

    def __init__(self, session: Session, plan: plans.CopyPlan) -> None:
        assert plan.insert is not None
        self._session, self._plan = session, plan
        self._parser = CopyParser(
            _format(plan.options),
            ncols=len(plan.columns),
            header=_has_header(plan.options),
            **_options(plan.options),
        )
        self._types = plan.insert.param_types
        self._rows: list[list[Any]] = []
        self._count = 0

    async def run(self) -> int:
        """Until the client is done; the number of rows taken."""
        session = self._session
        try:
            while True:
                messages = session.take_copy_messages()
                if not messages:
                    if session.pg.requests:
                        raise CairnError("unexpected message during COPY", sqlstate="57014")
                    if session.transport.is_closing() or session.cancelled.is_set():
                        raise QueryCanceled("COPY was cancelled")
                    session.transport.resume_reading()
                    await asyncio.sleep(0.001)
                    continue
                for message in messages:
                    if await self._take(message):
                        return self._count
        except BaseException:
            self._drain()
            raise

    async def _take(self, message: CopyData | CopyDone | CopyFail) -> bool:
        if isinstance(message, CopyFail):
            raise QueryCanceled(f"COPY from stdin failed: {message.message}")
        if isinstance(message, CopyData):
            self._add(self._parser.feed(message.data))
            while len(self._rows) >= CHUNK_ROWS:
                await self._write()
            return False
        self._add(self._parser.finish())
        while self._rows:
            await self._write()
        return True

    def _drain(self) -> None:
        """After an error the client may go on sending: what has come is thrown away."""
        self._session.take_copy_messages()

    def _add(self, lines: Sequence[Sequence[str | None]]) -> None:
        types = self._types
        for fields in lines:
            try:
                self._rows.append(
                    [
                        None if field is None else parse_text(type_, field)
                        for type_, field in zip(types, fields, strict=True)
                    ]
                )
            except CairnError as problem:
                line = self._count + len(self._rows) + 1
                problem.detail = f"COPY {self._table_name()}, line {line}"
                raise

    def _table_name(self) -> str:
        return self._plan.table.name if self._plan.table is not None else ""

    async def _write(self) -> None:
        chunk, self._rows = self._rows[:CHUNK_ROWS], self._rows[CHUNK_ROWS:]
        insert = self._plan.insert
        assert insert is not None
        dispatcher = self._session.service.dispatcher
        plan = insert.plan
        if isinstance(plan, plans.PointWrite):
            rows = [(plan.bucket(values), plan.bind(values)) for values in chunk]
            count = await dispatcher.insert_rows(plan.table, plan.tier, plan.sql, rows)
        elif isinstance(plan, plans.ShardedInsert):
            rows = [row for values in chunk for row in plan.rows(values)]
            count = await dispatcher.insert_rows(plan.table, plan.tier, plan.sql, rows)
        elif isinstance(plan, plans.GlobalWrite):
            count = 0
            for values in chunk:
                count += await dispatcher.write_global(
                    plan, insert.start(values), self._session.user_id, running.DML_S
                )
        else:
            raise Unsupported("COPY into this table is not supported")
        self._count += count
