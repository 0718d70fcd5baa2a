"""One fake instance: a real socket, a toy language, and misbehaviour that tests ask for."""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from typing import TYPE_CHECKING, Any

from cairn.model.errors import (
    BehindPosition,
    CairnError,
    InvalidParameter,
    QueryCanceled,
    StatementInvalidated,
)
from cairn.model.members.events import AnyEvent, Version, encode
from cairn.pgwire.server import requests as ask
from cairn.pgwire.server.extended import Signature, StatementBook
from cairn.pgwire.server.server import PgServer
from cairn.pgwire.values import oids

if TYPE_CHECKING:
    from .fake_cluster import FakeCluster

ROW = re.compile(r"\(\s*\$\d+[^)]*\)")


class Text:
    """A statement of the toy language, with its shape and metadata."""

    def __init__(self, sql: str) -> None:
        self.sql = sql
        self.verb = sql.split()[0].lower()
        self.rows = len(ROW.findall(sql)) if self.verb == "insert" else 0
        self.params = [oids.INT8, oids.TEXT] * self.rows
        self.columns: list[tuple[str, int]] | None = None
        self.key: list[list[int]] = [[1, oids.INT8]] if self.rows == 1 else []
        if self.verb == "select":
            self.columns = [("id", oids.INT8), ("v", oids.TEXT)]
            if "id = $1" in sql:
                self.params, self.key = [oids.INT8], [[1, oids.INT8]]
            elif "v = $1" in sql:
                self.params = [oids.TEXT]
        elif self.verb not in ("insert", "begin", "commit", "rollback", "copy", "create"):
            raise CairnError(f"syntax error at {self.verb}", sqlstate="42601")


class FakeInstance:
    """One listening socket. Set `refuse`, `versions` … to make it misbehave."""

    def __init__(self, cluster: FakeCluster, name: str, port: int) -> None:
        self.cluster, self.name, self.port = cluster, name, port
        self.executed: list[tuple[str, list[Any]]] = []
        self.parsed: Counter[str] = Counter()
        self.refuse: list[str] = []  # SQLSTATEs for the next executions
        self.hang_up_on: str | None = None  # a verb: executed, then the connection is cut
        self.silent = False
        self.stuck = False  # executions are answered only when they are cancelled
        self.cancels = 0
        self.hints: list[str] = []  # notices that go with the next executions
        self.versions: tuple[str, ...] = ("0.1", "0.2")
        self.is_behind = False
        self.sessions: set[FakeSession] = set()
        self.server: asyncio.Server | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def stop(self) -> None:
        """Refuse new connections and cut the old ones."""
        if self.server is not None:
            self.server.close()
            self.server = None
        for session in list(self.sessions):
            session.cut()


class Held(Exception):
    """The statement is under way and will not end by itself."""


class FakeSession(asyncio.Protocol):
    def __init__(self, instance: FakeInstance) -> None:
        self.instance, self.cluster = instance, instance.cluster
        self.pg = PgServer(known_extensions=frozenset({"smart_connector"}))
        self.book: StatementBook[Text] = StatementBook()
        self.made_at: dict[bytes, int] = {}
        self.status = "I"
        self.version: Version | None = None
        self.options: dict[str, str] = {}
        self.transport: asyncio.Transport | None = None
        self.copying: bytearray | None = None
        self.simple = False
        self.held = False

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.instance.sessions.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.instance.sessions.discard(self)

    def cut(self) -> None:
        if self.transport is not None:
            self.transport.abort()

    def data_received(self, data: bytes) -> None:
        requests = self.pg.feed(data)
        while requests and not self.held:
            request = requests.popleft()
            try:
                self.handle(request)
            except Held:
                self.held = True
            except CairnError as error:
                if self.simple:
                    self.simple, self.copying = False, None
                    self.pg.error(error)
                    self.pg.ready(self.status)
                elif self.pg.phase.value == "authentication":
                    self.pg.fatal(error)
                else:
                    self.pg.fail(error)
        assert self.transport is not None
        out = self.pg.take()
        if not self.instance.silent:
            self.transport.write(out)
        if self.pg.is_closed:
            self.transport.close()

    def cancel(self) -> None:
        if self.held:
            self.held = False
            self.pg.fail(QueryCanceled("canceling statement due to user request"))
            self.data_received(b"")

    def push(self, events: list[AnyEvent]) -> None:
        for event in events:
            self.pg.notice(encode(event))
        if self.transport is not None:
            self.transport.write(self.pg.take())

    def handle(self, request: ask.Request) -> None:
        match request:
            case ask.StartupReceived():
                self.welcome(request.params.options)
            case ask.Parse():
                self.parse(request)
            case ask.Bind():
                self.check_version(request.statement)
                self.book.bind(request)
                self.pg.bind_complete()
            case ask.Describe(kind="P"):
                self.pg.raw(self.book.portal(request.name).shape.description)
            case ask.Describe():
                signature = self.book.statement(request.name).signature
                self.pg.raw(signature.parameter_description + signature.statement_rows)
            case ask.Execute():
                portal = self.book.portal(request.portal)
                rows, tag = self.execute(portal.statement.plan, portal.values)
                self.pg.data_rows(b"".join(portal.shape.encode_row(row) for row in rows))
                self.pg.command_complete(tag)
            case ask.Close():
                self.book.close(request.kind, request.name)
                self.pg.close_complete()
            case ask.Sync():
                self.pg.ready(self.status)
            case ask.Query():
                self.query(Text(request.sql.decode()))
            case ask.CopyData():
                assert self.copying is not None
                self.copying += request.data
            case ask.CopyDone():
                self.end_copy()
            case ask.CopyFail():
                raise CairnError(f"COPY failed: {request.message}", sqlstate="57014")
            case ask.CancelReceived():
                self.instance.cancels += 1
                for session in self.instance.sessions:
                    session.cancel()
            case ask.BadMessage():
                self.pg.refuse(request, self.status)
            case _:
                pass

    def welcome(self, options: dict[str, str]) -> None:
        self.options = options
        asked = options.get("smart_connector")
        self.pg.auth_ok()
        self.pg.parameter_status("server_version", "15.0")
        if asked is not None:
            if asked not in self.instance.versions:
                message = f"smart_connector version {asked} is not spoken here"
                return self.pg.fatal(InvalidParameter(message))
            after = options.get("smart_connector_after")
            if after is not None and self.instance.is_behind:
                return self.pg.fatal(BehindPosition("this instance is behind"))
            self.version = "0.1" if asked == "0.1" else "0.2"
            for event in self.cluster.opening(self.version, after):
                self.pg.notice(encode(event))
        self.pg.backend_key_data(1, b"abcd")
        self.pg.ready("I")
        return None

    def parse(self, request: ask.Parse) -> None:
        text = Text(request.sql.decode())
        self.instance.parsed[text.sql] += 1
        self.book.parse(request.name, text, Signature(text.params, text.columns))
        self.made_at[request.name] = self.cluster.schema_version
        if "picodata_stmt_invalidation" in self.options:
            notice = {
                "type": "PreparedStatementMetadata",
                "query": text.sql,
                "tier": "default",
                "dk_cols": [number - 1 for number, _ in text.key],
                "dk_meta": text.key,
                "hash_version": 2,
            }
            self.pg.notice(json.dumps(notice))
        self.pg.parse_complete()

    def check_version(self, name: bytes) -> None:
        made, now = self.made_at.get(name, 0), self.cluster.schema_version
        if made != now:
            raise StatementInvalidated(prepared_version=made, current_version=now)

    def execute(self, text: Text, values: list[Any]) -> tuple[list[tuple[Any, ...]], str]:
        instance = self.instance
        if instance.refuse and text.verb not in ("begin", "commit"):
            code = instance.refuse.pop(0)
            raise CairnError(f"refused with {code}", sqlstate=code)
        if instance.stuck:
            raise Held
        if instance.hints:
            self.pg.notice(instance.hints.pop(0))
        instance.executed.append((text.verb, values))
        if instance.hang_up_on == text.verb:
            self.cut()
        table = self.cluster.rows
        match text.verb:
            case "insert":
                pairs = list(zip(values[::2], values[1::2], strict=True))
                for key, _ in pairs:
                    if key in table:
                        raise CairnError(f"duplicate key {key}", sqlstate="23505")
                table.update(pairs)
                return [], f"INSERT 0 {len(pairs)}"
            case "select":
                found = [
                    row
                    for row in table.items()
                    if not values or row[0] == values[0] or row[1] == values[0]
                ]
                return found, f"SELECT {len(found)}"
            case "begin" | "commit" | "rollback":
                self.status = "T" if text.verb == "begin" else "I"
                return [], text.verb.upper()
        return [], text.verb.upper()

    def query(self, text: Text) -> None:
        self.simple = True
        if text.verb == "copy" and "stdin" in text.sql.lower():
            self.copying = bytearray()
            self.pg.copy_in_response(0, 2)
            return
        if text.verb == "copy":
            self.pg.copy_out_response(0, 2)
            for key, value in self.cluster.rows.items():
                self.pg.copy_data(f"{key}\t{value}\n".encode())
            self.pg.copy_done()
            self.pg.command_complete(f"COPY {len(self.cluster.rows)}")
        else:
            rows, tag = self.execute(text, [])
            shape = Signature(text.params, text.columns).shape((), ())
            if text.columns is not None:
                self.pg.raw(shape.description)
            self.pg.data_rows(b"".join(shape.encode_row(row) for row in rows))
            self.pg.command_complete(tag)
        self.simple = False
        self.pg.ready(self.status)

    def end_copy(self) -> None:
        assert self.copying is not None
        if self.instance.refuse:
            code = self.instance.refuse.pop(0)
            raise CairnError(f"refused with {code}", sqlstate=code)
        if self.instance.hang_up_on == "copy":
            self.cut()
        lines = bytes(self.copying).decode().splitlines()
        rows = [line.split("\t") for line in lines]
        for key, *_ in rows:
            if not key.isdigit():
                raise CairnError(f"bad line {key!r}", sqlstate="22P02")
        self.cluster.rows.update({int(key): value for key, value in rows})
        self.instance.executed.append(("copy", [int(key) for key, _ in rows]))
        self.simple, self.copying = False, None
        self.pg.command_complete(f"COPY {len(lines)}")
        self.pg.ready(self.status)
