"""The server half of the protocol: bytes in, requests out; answers in, bytes out.

A session feeds what arrived, takes requests from `requests` one by one, calls the answer methods
and sends `take()`. `PgServer` knows the phases and the framing; what the SQL means it does not.
"""

from __future__ import annotations

from collections import deque
from enum import Enum
from typing import Final

from cairn.model.errors import CairnError, InvalidAuthorization, ProtocolViolation, Unsupported
from cairn.pgwire import messages as m
from cairn.pgwire.server.answers import Answers
from cairn.pgwire.server.frontend import (
    DECODERS,
    DESCRIBE_EXECUTE_SYNC,
    DESCRIBE_UNNAMED,
    EXECUTE_SYNC,
    EXECUTE_UNNAMED,
    NO_HEAD,
    SIMPLE_KINDS,
    decode_bind,
    decode_bind_head,
    decode_sasl_initial,
    ending_copy,
)
from cairn.pgwire.server.requests import (
    FLUSH,
    SYNC,
    BadMessage,
    CancelReceived,
    CopyData,
    Flush,
    NeedTls,
    Request,
    SaslResponse,
    StartupReceived,
    Sync,
    Terminate,
)
from cairn.pgwire.server.startup import Cancel, Startup, Tls, decode_first_packet
from cairn.pgwire.server.wrong_doors import http_refusal, is_http_request

_BIND, _COPY_DATA, _SYNC, _PASSWORD, _FUNCTION_CALL = map(ord, "BdSpF")
_NOT_IN_COPY: Final = frozenset(map(ord, "QPBDECHSFcfX"))
_header: Final = m.HEADER.unpack_from


class Phase(Enum):
    """Where a connection is. Each phase accepts only its own messages."""

    STARTUP = "startup"
    TLS = "TLS handshake"
    AUTHENTICATION = "authentication"
    OPEN = "open"
    CLOSED = "closed"


class PgServer(Answers):
    """One connection. `requests` is what the client asked and the session has not taken yet."""

    __slots__ = (
        "_copying",
        "_encryption_asked",
        "_head",
        "_sasl_begun",
        "_skipping",
        "_unread",
        "encrypted",
        "known_extensions",
        "max_message_bytes",
        "missing",
        "phase",
        "requests",
        "require_tls",
        "tls_available",
    )

    def __init__(
        self,
        *,
        tls_available: bool = False,
        require_tls: bool = False,
        known_extensions: frozenset[str] = frozenset(),
        max_message_bytes: int = m.MAX_MESSAGE_BYTES,
    ) -> None:
        super().__init__()
        self.tls_available, self.require_tls = tls_available, require_tls
        self.known_extensions = known_extensions
        self.max_message_bytes = max_message_bytes
        self.phase = Phase.STARTUP
        self.encrypted = False
        self.requests: deque[Request] = deque()
        self._unread: bytes | bytearray = b""
        self.missing = 0  # bytes that the message at the start of `_unread` still needs
        self._head = NO_HEAD
        self._skipping = False  # after an error, until Sync
        self._copying = False
        self._sasl_begun = False
        self._encryption_asked: set[Tls] | None = None

    # --- what the client sends --------------------------------------------------------------------

    def feed(self, data: bytes | bytearray | memoryview) -> deque[Request]:
        """Decode all whole messages. Returns `requests`, to which they were appended."""
        if self._unread:
            whole = self._joined(data)
            if whole is None:
                return self.requests
        else:
            whole = data if type(data) is bytes else bytes(data)
        if self.phase is Phase.OPEN:
            self._decode(whole)
        elif self.phase is Phase.STARTUP:
            self._decode_startup(whole)
        elif self.phase is Phase.AUTHENTICATION:
            self._decode_authentication(whole, 0)
        elif self.phase is Phase.TLS:
            self._refuse_early_bytes()
        return self.requests

    def feed_first(self, data: bytes) -> None:
        """Whole messages that came before all that waits: they were kept from the line."""
        requests = self.requests
        later, unread = list(requests), self._unread
        requests.clear()
        self._unread = b""
        self._decode(data)
        requests.extend(later)
        self._unread = unread

    def forget(self) -> None:
        """The client is gone: what it has sent is not kept until somebody collects garbage."""
        self.requests.clear()
        self._unread, self._head = b"", NO_HEAD

    @property
    def unread(self) -> int:
        """Bytes of a message that is not whole."""
        return len(self._unread)

    def is_between(self) -> bool:
        """Whether nothing is half read, asked or being skipped: what comes is a new request."""
        return not (self.requests or self._unread or self._skipping or self._copying)

    def _joined(self, data: bytes | bytearray | memoryview) -> bytes | None:
        """What was left and `data`, or None while one large message is still on its way."""
        unread = self._unread
        if not isinstance(unread, bytearray):
            unread = self._unread = bytearray(unread)
        unread += data
        self.missing -= len(data)
        if self.missing > 0:
            return None
        self._unread = b""
        return bytes(unread)

    def _keep(self, data: bytes, at: int, wanted: int) -> None:
        """Hold the part of a message that is here; it needs `wanted` bytes."""
        self._unread = data[at:]
        self.missing = wanted - (len(data) - at)

    def _decode(self, data: bytes) -> None:
        at, size = 0, len(data)
        append = self.requests.append
        limit = self.max_message_bytes
        while at + 5 <= size:
            kind, length = _header(data, at)
            end = at + 1 + length
            if length < 4 or length > limit:
                self._refuse_length(length)
                return
            if end > size:
                break
            if self._skipping:
                at = self._skip(kind, at, end)
                continue
            if self._copying and kind in _NOT_IN_COPY:
                self._in_copy(kind, data, at + 5, end)
                at = end
                continue
            try:
                if kind == _BIND:
                    head = self._head
                    if not data.startswith(head.raw, at + 5, end):
                        head = self._head = decode_bind_head(data, at + 5, end)
                    append(decode_bind(data, at + 5, end, head))
                    if data.startswith(DESCRIBE_EXECUTE_SYNC, end):
                        append(DESCRIBE_UNNAMED)
                        append(EXECUTE_UNNAMED)
                        append(SYNC)
                        end += len(DESCRIBE_EXECUTE_SYNC)
                    elif data.startswith(EXECUTE_SYNC, end):
                        append(EXECUTE_UNNAMED)
                        append(SYNC)
                        end += len(EXECUTE_SYNC)
                elif kind == _COPY_DATA:
                    end = self._copy_data(data, at, size)
                elif (decode := DECODERS.get(kind)) is not None:
                    append(decode(data, at + 5, end))
                elif not self._is_function_call(kind):
                    return
            except CairnError as error:
                append(BadMessage(error, "ready" if kind in SIMPLE_KINDS else "skip"))
            at = end
        if at < size:
            self._keep(data, at, 5 if at + 5 > size else end - at)

    def _copy_data(self, data: bytes, at: int, size: int) -> int:
        """Take all neighbouring CopyData that are whole, as one request; the offset behind."""
        pieces = []
        limit = self.max_message_bytes
        while at + 5 <= size:
            kind, length = _header(data, at)
            end = at + 1 + length
            if kind != _COPY_DATA or end > size or not 4 <= length <= limit:
                break
            pieces.append(data[at + 5 : end])
            at = end
        self.requests.append(CopyData(pieces[0] if len(pieces) == 1 else b"".join(pieces)))
        return at

    def _skip(self, kind: int, at: int, end: int) -> int:
        """Pass over a message after an error; Sync and Terminate are looked at again."""
        if kind in b"SX":
            self._skipping = False
            return at
        return end

    def copy_in_response(self, fmt: int, ncols: int) -> None:
        """CopyInResponse: CopyData follows, until CopyDone, CopyFail or what we take for one.

        Sync and Flush mean nothing meanwhile: clients send them before they know of the COPY.
        """
        super().copy_in_response(fmt, ncols)
        self._copying = True
        waiting = list(self.requests)
        self.requests.clear()  # in place: the session holds it too
        for request in waiting:
            if self._copying and not isinstance(request, CopyData):
                if isinstance(request, Sync | Flush):
                    continue
                self._copying = False
                request = ending_copy(request)
            self.requests.append(request)

    def _in_copy(self, kind: int, data: bytes, at: int, end: int) -> None:
        if kind in b"SH":
            return
        self._copying = False
        try:
            request: Request = DECODERS[kind](data, at, end) if kind in b"cfX" else FLUSH
        except CairnError:
            request = FLUSH
        self.requests.append(ending_copy(request))

    def _is_function_call(self, kind: int) -> bool:
        """Refuse a message that we have no decoder for; only this one can be passed over."""
        if kind == _FUNCTION_CALL:
            refusal = Unsupported("feature is not supported: function calls")
            self.requests.append(BadMessage(refusal, "ready"))
            return True
        self._broken(f"invalid frontend message type {kind}")
        return False

    def _refuse_length(self, length: int) -> None:
        limit = self.max_message_bytes if self.phase is Phase.OPEN else m.MAX_STARTUP_BYTES
        self._broken(f"invalid message length {length}", f"at most {limit} bytes are taken")

    def _broken(self, text: str, detail: str | None = None) -> None:
        """Nothing behind this point can be trusted to be a message."""
        self._give_up(ProtocolViolation(text, detail=detail))

    def _give_up(self, error: CairnError) -> None:
        self.requests.append(BadMessage(error, "close"))
        self.phase = Phase.CLOSED
        self._unread = b""

    # --- before the connection is open ------------------------------------------------------------

    def _decode_startup(self, data: bytes) -> None:
        """Take the packets that have no kind. Only an encryption request may be followed."""
        if len(data) < 4:
            self._keep(data, 0, 4)
            return
        (length,) = m.UINT32.unpack_from(data)
        if not 8 <= length <= m.MAX_STARTUP_BYTES:
            self._refuse_stranger(data)
            return
        if len(data) < length:
            self._keep(data, 0, length)
            return
        try:
            packet = decode_first_packet(data[4:length], self.known_extensions)
        except CairnError as error:
            self._give_up(error)
            return
        rest = data[length:]
        if isinstance(packet, Tls):
            self._answer_encryption(packet, rest)
        elif isinstance(packet, Cancel):
            self.requests.append(CancelReceived(packet.pid, packet.key))
            self.phase = Phase.CLOSED
        else:
            self._begin(packet, rest)

    def _refuse_stranger(self, start: bytes) -> None:
        """It is no PostgreSQL client, or a broken one."""
        if is_http_request(start):
            why = "this port is for PostgreSQL clients (--pg-listen): HTTP is at --http-listen"
            self._out.append(http_refusal(why))
            self._broken(why)
        elif start.startswith(b"\x16\x03"):
            self._broken("TLS has to be asked for first: sslnegotiation=direct is not supported")
        else:
            self._broken("invalid length of startup packet")

    def _answer_encryption(self, asked: Tls, rest: bytes) -> None:
        before = self._encryption_asked or set()
        if asked in before or self.encrypted:
            self._broken(f"a second {asked.value}")
            return
        self._encryption_asked = before | {asked}
        if asked is Tls.SSL and self.tls_available:
            self.phase = Phase.TLS
            if rest:
                self._refuse_early_bytes()
                return
            self._out.append(b"S")
            self.requests.append(NeedTls())
            return
        self._out.append(b"N")
        if rest:
            self._decode_startup(rest)

    def _refuse_early_bytes(self) -> None:
        """Whoever put plain bytes before the handshake wants them taken for the client's."""
        self._broken("received unencrypted data after SSL request")

    def tls_started(self) -> None:
        """The handshake is done: the startup packet comes now, inside."""
        assert self.phase is Phase.TLS
        self.phase, self.encrypted = Phase.STARTUP, True

    def _begin(self, startup: Startup, rest: bytes) -> None:
        if self.require_tls and not self.encrypted:
            self._give_up(InvalidAuthorization("this server requires the client to use ssl"))
            return
        self.phase = Phase.AUTHENTICATION
        if startup.negotiation:
            self._out.append(startup.negotiation)
        self.requests.append(StartupReceived(startup.params))
        if rest:
            self._decode_authentication(rest, 0)

    def _decode_authentication(self, data: bytes, at: int) -> None:
        """Only password messages may come; a second startup packet is none and ends it all."""
        while at + 5 <= len(data):
            kind, length = _header(data, at)
            if kind != _PASSWORD:
                self._broken(f"expected a SASL response, got message type {kind}")
                return
            if not 4 <= length <= m.MAX_STARTUP_BYTES:
                self._refuse_length(length)
                return
            end = at + 1 + length
            if end > len(data):
                self._keep(data, at, end - at)
                return
            try:
                if self._sasl_begun:
                    self.requests.append(SaslResponse(data[at + 5 : end]))
                else:
                    self.requests.append(decode_sasl_initial(data, at + 5, end))
            except CairnError as error:
                self._give_up(error)
                return
            self._sasl_begun = True
            at = end
        if at < len(data):
            self._keep(data, at, 5)

    def auth_ok(self) -> None:
        """The user is who they say: from here on the connection takes queries."""
        assert self.phase is Phase.AUTHENTICATION
        self._out.append(m.AUTH_OK)
        self.phase = Phase.OPEN

    # --- when something goes wrong ----------------------------------------------------------------

    def error(self, error: CairnError, severity: str = "ERROR") -> None:
        """ErrorResponse alone, as within a simple query: ReadyForQuery is the session's."""
        super().error(error, severity)
        self._copying = False

    def fail(self, error: CairnError) -> None:
        """ErrorResponse in extended mode: everything up to the next Sync is dropped."""
        self.error(error)
        requests = self.requests
        while requests and not isinstance(requests[0], Sync | Terminate):
            if isinstance(requests[0], BadMessage) and requests[0].recovery == "close":
                return
            requests.popleft()
        self._skipping = not requests

    def fatal(self, error: CairnError) -> None:
        """The last thing the client hears. Send `take()`, then close."""
        self.error(error, "FATAL")
        self.phase = Phase.CLOSED
        self.requests.clear()
        self._unread = b""

    def refuse(self, bad: BadMessage, status: str = "I") -> None:
        """Answer a message that was none, so that the client can find its place again."""
        if bad.recovery == "close":
            self.fatal(bad.error)
        elif bad.recovery == "skip":
            self.fail(bad.error)
        else:
            self.error(bad.error)
            self.ready(status)

    @property
    def is_closed(self) -> bool:
        return self.phase is Phase.CLOSED
