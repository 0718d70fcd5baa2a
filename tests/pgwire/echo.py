"""A session on top of PgServer with a toy database, shared by the tests of this directory.

It understands `echo $1::int8, …` (gives its parameters back), `rows N`, `fail`, `notice TEXT`,
`begin`, `commit`, `copy in`, `copy out N` and the empty statement.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any, NamedTuple

from cairn.model.errors import AuthenticationFailed, CairnError, SyntaxProblem
from cairn.pgwire.copy import CopyParser
from cairn.pgwire.copy_out import copy_encoder
from cairn.pgwire.scram import (
    MECHANISM,
    ScramServer,
    Verifier,
    fake_verifier,
    make_verifier,
)
from cairn.pgwire.server import requests as ask
from cairn.pgwire.server.extended import Signature, StatementBook
from cairn.pgwire.server.server import PgServer
from cairn.pgwire.values import oids
from cairn.pgwire.values.decoders import decode_string

TYPES = {name: oid for oid, name in oids.TYPE_NAMES.items()}
TYPES |= {oids.type_name(oid): oid for oid in oids.ARRAY_ELEMENTS}
USERS = {"alice": make_verifier("secret", salt=b"0123456789abcdef", iterations=4096)}


class Plan(NamedTuple):
    sql: str
    verb: str
    rest: str


def plan(sql: bytes, declared: Sequence[int]) -> tuple[Plan, Signature]:
    text = decode_string(sql).strip().removesuffix(";").strip()
    verb, _, rest = text.partition(" ")
    verb = verb.lower()
    if verb not in ("", "echo", "rows", "fail", "notice", "begin", "commit", "copy", "set"):
        raise SyntaxProblem(f'syntax error at or near "{verb}"', position=1)
    found: dict[int, int] = {i: oid for i, oid in enumerate(declared, 1) if oid}
    for number, name in re.findall(r"\$(\d+)(?:::([\w\[\]]+))?", rest if verb == "echo" else ""):
        found[int(number)] = found.get(int(number), TYPES.get(name or "text", oids.TEXT))
    params = [found[i] for i in sorted(found)]
    columns: list[tuple[str, int]] | None = None
    if verb == "echo":
        columns = [(f"p{i}", oid) for i, oid in enumerate(params, 1)]
    elif verb == "rows":
        columns = [("n", oids.INT8), ("t", oids.TEXT)]
    return Plan(text, verb, rest), Signature(params, columns)


def no_randomness(count: int) -> bytes:
    return bytes(range(count))


class EchoSession:
    """What a real session does, in small: requests in order, one `take()` per batch."""

    def __init__(
        self,
        pg: PgServer | None = None,
        *,
        trust: bool = False,
        random_bytes: Callable[[int], bytes] = no_randomness,
    ) -> None:
        self.pg = pg or PgServer()
        self.book: StatementBook[Plan] = StatementBook()
        self.status = "I"
        self.startup: ask.StartupReceived | None = None
        self.cancelled: tuple[int, bytes] | None = None
        self.closed = False
        self._trust, self._random = trust, random_bytes
        self._scram: ScramServer | None = None
        self._copy: CopyParser | None = None
        self._simple = False  # the COPY under way came by simple query
        self.copied: list[list[str | None]] = []

    def receive(self, data: bytes) -> bytes:
        requests = self.pg.feed(data)
        while requests:
            request = requests.popleft()
            try:
                self.handle(request)
            except CairnError as error:
                self.failed(error)
        self.closed = self.closed or self.pg.is_closed
        return self.pg.take()

    def failed(self, error: CairnError) -> None:
        if self.startup is None or self._scram is not None:
            self.pg.fatal(error)
            return
        self._copy = None
        self.status = "E" if self.status == "T" else self.status
        if self._simple:
            self._simple = False
            self.pg.error(error)
            self.pg.ready(self.status)
        else:
            self.pg.fail(error)

    def handle(self, request: ask.Request) -> None:
        match request:
            case ask.Bind():
                self.book.bind(request)
                self.pg.bind_complete()
            case ask.Describe(kind="P"):
                self.pg.raw(self.book.portal(request.name).shape.description)
            case ask.Describe():
                signature = self.book.statement(request.name).signature
                self.pg.raw(signature.parameter_description + signature.statement_rows)
            case ask.Execute():
                self.execute(request)
            case ask.Sync():
                self.book.sync(in_transaction=self.status == "T")
                self.pg.ready(self.status)
            case ask.Parse():
                self.book.check_name(request.name)
                self.book.parse(request.name, *plan(request.sql, request.param_oids))
                self.pg.parse_complete()
            case ask.Query():
                self.query(request.sql)
            case ask.Close():
                self.book.close(request.kind, request.name)
                self.pg.close_complete()
            case ask.CopyData() if self._copy:
                self.copied += self._copy.feed(request.data)
            case ask.CopyDone() if self._copy:
                self.copied += self._copy.finish()
                self._copy_ended()
            case ask.CopyFail() if self._copy:
                raise CairnError(f"COPY failed: {request.message}", sqlstate="57014")
            case ask.Terminate():
                self.closed = True
            case ask.BadMessage():
                self.pg.refuse(request, self.status)
            case _:
                self.before_login(request)

    def before_login(self, request: ask.Request) -> None:
        match request:
            case ask.StartupReceived():
                self.startup = request
                if self._trust:
                    self._welcome()
                else:
                    self._scram = ScramServer(self._verifier(), self._random(18))
                    self.pg.auth_sasl([MECHANISM])
            case ask.SaslInitial() if self._scram:
                self.pg.sasl_continue(self._scram.first(request.data))
            case ask.SaslResponse() if self._scram and self.startup:
                final = self._scram.final(request.data)
                if final is None:
                    raise AuthenticationFailed(self.startup.params.user)
                self.pg.sasl_final(final)
                self._scram = None
                self._welcome()
            case ask.CancelReceived():
                self.cancelled = (request.pid, request.key)

    def _verifier(self) -> Verifier:
        assert self.startup is not None
        user = self.startup.params.user
        return USERS.get(user) or fake_verifier(user, secret=b"node secret")

    def _welcome(self) -> None:
        self.pg.auth_ok()
        for name, value in (
            ("server_version", "15.0"),
            ("server_encoding", "UTF8"),
            ("client_encoding", "UTF8"),
            ("DateStyle", "ISO, MDY"),
            ("integer_datetimes", "on"),
            ("TimeZone", "UTC"),
        ):
            self.pg.parameter_status(name, value)
        self.pg.backend_key_data(7, b"\1\2\3\4")
        self.pg.ready("I")

    def query(self, sql: bytes) -> None:
        """Simple query: every statement of the string, then ReadyForQuery."""
        self.book.begin_simple_query()
        self._simple = True
        for statement in sql.split(b";") if sql.strip(b" ;") else [b""]:
            if statement.strip() or not sql.strip(b" ;"):
                made, signature = plan(statement, ())
                shape = signature.shape((), ())
                if signature.columns is not None:
                    self.pg.raw(shape.description)
                self._run(made, [], shape.encode_row)
        if self._copy is None:
            self._simple = False
            self.pg.ready(self.status)

    def _copy_ended(self) -> None:
        self._copy = None
        self.pg.command_complete(f"COPY {len(self.copied)}")
        if self._simple:
            self._simple = False
            self.pg.ready(self.status)

    def execute(self, request: ask.Execute) -> None:
        portal = self.book.portal(request.portal)
        made = portal.statement.plan
        if made.verb == "rows":
            portal.rows = portal.rows or iter(range(int(made.rest)))
            count = 0
            for n in islice(portal.rows, request.max_rows or None):
                self.pg.data_rows(portal.shape.encode_row((n, f"row {n}")))
                count += 1
            portal.sent += count
            if request.max_rows and count == request.max_rows:
                self.pg.portal_suspended()
            else:
                self.pg.command_complete(f"SELECT {count}")
            return
        self._run(made, portal.values, portal.shape.encode_row)

    def _run(self, made: Plan, values: list[Any], encode: Any) -> None:
        match made.verb:
            case "":
                self.pg.empty_query()
            case "echo":
                self.pg.data_rows(encode(values))
                self.pg.command_complete("SELECT 1")
            case "rows":
                count = int(made.rest)
                self.pg.data_rows(b"".join(encode((n, f"row {n}")) for n in range(count)))
                self.pg.command_complete(f"SELECT {count}")
            case "fail":
                raise CairnError("asked to fail", detail="a detail", hint="a hint", position=3)
            case "notice":
                self.pg.notice(made.rest)
                self.pg.command_complete("NOTICE")
            case "begin" | "commit":
                self.status = "T" if made.verb == "begin" else "I"
                self.pg.command_complete(made.verb.upper())
            case "copy" if made.rest.startswith("in"):
                self._copy, self.copied = CopyParser(ncols=2), []
                self.pg.copy_in_response(0, 2)
            case "copy":
                rows = [(n, f"row\t{n}") for n in range(int(made.rest.split()[1]))]
                self.pg.copy_out_response(0, 2)
                self.pg.raw(copy_encoder([oids.INT8, oids.TEXT])(rows))
                self.pg.copy_done()
                self.pg.command_complete(f"COPY {len(rows)}")
            case _:
                self.pg.command_complete(made.verb.upper())
