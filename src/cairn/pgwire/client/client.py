"""The client half of the protocol, for our driver and the command line.

Every request method returns bytes to send; `receive` takes what came and returns what to send
next. When `is_idle`, `take_results` gives the results or raises what the server reported.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any, Final, Literal, TypeAlias

from cairn.model.errors import CairnError, InvalidAuthorization, ProtocolViolation, Unreachable
from cairn.pgwire import messages as m
from cairn.pgwire.client import requests as ask
from cairn.pgwire.client.auth import ChannelBinding, ClientAuth
from cairn.pgwire.client.backend import Notice, Result, ServerError, decode_fields
from cairn.pgwire.client.params import guess_oid
from cairn.pgwire.client.replies import Batch, Prepared, Replies, ServerAnswer

_MAX_BEFORE_LOGIN: Final = 30_000  # nothing that a server says before that is longer
_header: Final = m.HEADER.unpack_from

TlsMode: TypeAlias = Literal["disable", "prefer", "require"]


class ClientPhase(Enum):
    NEW = "new"
    TLS_ANSWER = "waiting for the answer to SSLRequest"
    TLS_HANDSHAKE = "TLS handshake"
    LOGIN = "login"
    OPEN = "open"
    CLOSED = "closed"


class PgClient:
    """One connection. Requests may be piled up before their answers come (pipelining)."""

    def __init__(
        self,
        user: str,
        *,
        random_bytes: Callable[[int], bytes],
        password: str | None = None,
        database: str | None = None,
        params: Mapping[str, str] | None = None,
        tls: TlsMode = "disable",
        channel_binding: ChannelBinding = "prefer",
        allow_weak_auth: bool = False,
        max_scram_iterations: int = 200_000,
        max_message_bytes: int = m.MAX_MESSAGE_BYTES,
    ) -> None:
        """`params` are further startup keys, such as `options` or `application_name`."""
        self._startup = {"user": user, "database": database or user, **(params or {})}
        self._tls = tls
        self._limit = max_message_bytes
        self._auth = ClientAuth(
            user,
            password,
            random_bytes,
            channel_binding=channel_binding,
            allow_weak=allow_weak_auth,
            max_iterations=max_scram_iterations,
        )
        self.phase = ClientPhase.NEW
        self._replies = Replies()
        self._unread: bytes | bytearray = b""
        self._missing = 0

    # --- connecting -------------------------------------------------------------------------------

    def connect(self) -> bytes:
        """The first bytes of the connection."""
        assert self.phase is ClientPhase.NEW
        if self._tls == "disable":
            return self._start()
        self.phase = ClientPhase.TLS_ANSWER
        return ask.ssl_request()

    def _start(self) -> bytes:
        self.phase = ClientPhase.LOGIN
        return ask.startup(self._startup)

    @property
    def needs_tls(self) -> bool:
        """Shake hands now, check the certificate, then send what `tls_started` returns."""
        return self.phase is ClientPhase.TLS_HANDSHAKE

    def tls_started(self, certificate_hash: bytes | None = None) -> bytes:
        """`certificate_hash`: of the server's certificate, for channel binding (RFC 5929)."""
        assert self.needs_tls
        self._auth.tls_started(certificate_hash)
        return self._start()

    def _receive_tls_answer(self, data: bytes) -> bytes:
        if data.startswith(b"HTTP/"):
            told = "an HTTP server answers there (--http-listen), no PostgreSQL (--pg-listen)"
            raise self._broken(ProtocolViolation(told))
        if len(data) > 1:
            # Only someone between us and the server could have put more here than one byte.
            raise self._broken(ProtocolViolation("received unencrypted data after SSL response"))
        if data == b"S":
            self.phase = ClientPhase.TLS_HANDSHAKE
            return b""
        if data == b"N" and self._tls == "prefer":
            return self._start()
        if data == b"N":
            raise self._broken(InvalidAuthorization("the server does not support TLS"))
        raise self._broken(ProtocolViolation("the server's answer to SSLRequest is none"))

    # --- what the server sends --------------------------------------------------------------------

    def receive(self, data: bytes) -> bytes:
        """Take what came. Raises when the connection cannot go on, and is closed then."""
        if self.phase is ClientPhase.TLS_ANSWER:
            return self._receive_tls_answer(data) if data else b""
        if self.phase not in (ClientPhase.LOGIN, ClientPhase.OPEN):
            raise self._broken(ProtocolViolation("the server speaks out of turn"))
        if self._unread:
            joined = self._joined(data)
            if joined is None:
                return b""
            data = joined
        try:
            return self._receive_messages(data)
        except CairnError as error:
            raise self._broken(error) from None

    def _joined(self, data: bytes) -> bytes | None:
        unread = self._unread
        if not isinstance(unread, bytearray):
            unread = self._unread = bytearray(unread)
        unread += data
        self._missing -= len(data)
        if self._missing > 0:
            return None
        self._unread = b""
        return bytes(unread)

    def _receive_messages(self, data: bytes) -> bytes:
        at, size, end = 0, len(data), 0
        answers: list[bytes] = []
        while at + 5 <= size:
            kind, length = _header(data, at)
            limit = self._limit if self.phase is ClientPhase.OPEN else _MAX_BEFORE_LOGIN
            if not 4 <= length <= limit:
                raise ProtocolViolation(f"invalid message length {length} from the server")
            end = at + 1 + length
            if end > size:
                break
            if not self._replies.take_row(kind, data, at + 5, end):
                answers.append(self._handle(kind, data[at + 5 : end]))
            at = end
        if at < size:
            self._unread = data[at:]
            self._missing = (5 if at + 5 > size else end - at) - (size - at)
        return b"".join(answers)

    def _handle(self, kind: int, body: bytes) -> bytes:
        if self.phase is ClientPhase.OPEN:
            return self._replies.take(kind, body)
        if kind == ord("R") and not self._auth.is_done:
            return self._auth.receive(body)
        if kind == ord("E"):
            raise ServerError(decode_fields(body))
        if kind in b"NvA" or (self._auth.is_done and kind in b"SK"):
            return self._replies.take(kind, body)
        if kind == ord("Z") and self._auth.is_done:
            self._replies.ready(body)
            self.phase = ClientPhase.OPEN
            return b""
        raise ProtocolViolation(f"unexpected message {chr(kind)!r} during login")

    def _broken(self, error: CairnError) -> CairnError:
        self.phase = ClientPhase.CLOSED
        self._unread = b""
        return error

    def connection_lost(self) -> CairnError:
        """The bytes ended. What to raise to whoever is waiting."""
        is_first = self.phase is ClientPhase.TLS_ANSWER
        self.phase = ClientPhase.CLOSED
        if is_first:
            return Unreachable(
                "the server closed the connection before its first word",
                hint="is this the port for PostgreSQL clients (--pg-listen)?",
            )
        return self._replies.last_error() or Unreachable("the server closed the connection")

    # --- where we are -----------------------------------------------------------------------------

    @property
    def is_idle(self) -> bool:
        """Logged in, and everything asked has been answered."""
        return self.phase is ClientPhase.OPEN and not self._replies.batches

    @property
    def is_closed(self) -> bool:
        return self.phase is ClientPhase.CLOSED

    @property
    def status(self) -> str:
        """`I` idle, `T` in a transaction, `E` in a failed one; as of the last answer."""
        return self._replies.status

    @property
    def parameters(self) -> dict[str, str]:
        """ParameterStatus as the server tells it: server_version, TimeZone …"""
        return self._replies.parameters

    @property
    def on_notice(self) -> list[Callable[[Notice], None]]:
        """Called with every notice, in the order they come. Append to it."""
        return self._replies.on_notice

    @property
    def statements(self) -> dict[str, Prepared]:
        return self._replies.statements

    # --- asking -----------------------------------------------------------------------------------

    def query(self, sql: str, *, copy: bool = False) -> bytes:
        """Simple query, several statements if you like; `copy` if COPY may be among them."""
        return self._send(Batch(may_copy=copy), [ask.query(sql)])

    def execute(self, sql: str, params: Sequence[Any] = (), *, max_rows: int = 0) -> bytes:
        """One statement with parameters, prepared without a name. Rows come as text."""
        oids = [guess_oid(value) for value in params]
        parts = [ask.parse("", sql, oids), ask.bind("", params, None, ())]
        parts += [ask.describe("P", ""), ask.execute(max_rows), m.SYNC_MESSAGE]
        return self._send(Batch(bound=deque([None]), extended=True), parts)

    def prepare(self, name: str, sql: str, oids: Sequence[int] = ()) -> bytes:
        """Prepare under a name; afterwards `statements[name]` describes it."""
        parts = [ask.parse(name, sql, oids), ask.describe("S", name), m.SYNC_MESSAGE]
        return self._send(Batch(preparing=name, extended=True), parts)

    def execute_prepared(self, name: str, params: Sequence[Any] = (), max_rows: int = 0) -> bytes:
        return self.execute_many(name, [params], max_rows)

    def execute_many(self, name: str, rows: Sequence[Sequence[Any]], max_rows: int = 0) -> bytes:
        """A pipeline with one Sync: what fails stops the rest; one Result per row of `rows`."""
        statement = self.statements[name]
        formats = [fmt for _, _, fmt in statement.columns]
        parts: list[bytes] = []
        for params in rows:
            parts.append(ask.bind(name, params, statement.param_oids, formats))
            parts.append(ask.execute(max_rows))
        parts.append(m.SYNC_MESSAGE)
        return self._send(Batch(bound=deque([statement] * len(rows)), extended=True), parts)

    def close_statement(self, name: str) -> bytes:
        self.statements.pop(name, None)
        return self._send(Batch(extended=True), [ask.close("S", name), m.SYNC_MESSAGE])

    def _send(self, batch: Batch, parts: list[bytes]) -> bytes:
        if self.phase is not ClientPhase.OPEN:
            raise Unreachable(f"the connection is not open: {self.phase.value}")
        ask.check_sizes(parts, self._limit)
        self._replies.batches.append(batch)
        return b"".join(parts)

    def terminate(self) -> bytes:
        self.phase = ClientPhase.CLOSED
        return m.TERMINATE_MESSAGE

    def cancel_request(self) -> bytes:
        """To be sent alone, on a connection of its own (encrypted if this one is)."""
        return ask.cancel(self._replies.pid, self._replies.key)

    # --- COPY -------------------------------------------------------------------------------------

    @property
    def wants_copy_data(self) -> bool:
        """The server waits for `copy_data`, then `copy_done` or `copy_fail`."""
        return self._replies.copying_in

    def copy_data(self, chunk: bytes) -> bytes:
        assert self.wants_copy_data
        data = m.message(b"d", chunk)
        ask.check_sizes([data], self._limit)
        return data

    def copy_done(self) -> bytes:
        self._replies.copying_in = False
        return m.COPY_DONE

    def copy_fail(self, why: str) -> bytes:
        self._replies.copying_in = False
        return m.message(b"f", m.cstring(why))

    def take_copy(self) -> list[bytes]:
        """The chunks of COPY TO STDOUT that have come so far."""
        chunks, self._replies.copied = self._replies.copied, []
        return chunks

    # --- answers ----------------------------------------------------------------------------------

    def take_outcomes(self) -> list[ServerAnswer]:
        """One per request answered, in order: results, and the error that ended it if any."""
        outcomes, self._replies.outcomes = self._replies.outcomes, []
        return outcomes

    def take_results(self) -> list[Result]:
        """All results since the last call; raises the first error instead."""
        outcomes = self.take_outcomes()
        for outcome in outcomes:
            if outcome.error is not None:
                raise outcome.error
        return [result for outcome in outcomes for result in outcome.results]

    def take_rows(self) -> list[tuple[Any, ...]]:
        """The rows of the last statement that had any."""
        results = [result for result in self.take_results() if result.columns]
        return results[-1].rows if results else []
