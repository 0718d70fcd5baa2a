"""What has come back: matches the server's answers with what was asked, for `PgClient`."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

import msgspec

from cairn.model.errors import CairnError, ProtocolViolation
from cairn.pgwire import messages as m
from cairn.pgwire.client import backend
from cairn.pgwire.client.backend import Notice, Result, ServerError
from cairn.pgwire.values.oids import ARRAY_ELEMENTS, TYPE_NAMES
from cairn.pgwire.values.rows import RowDecoder

_DATA_ROW: Final = ord("D")


class Prepared(msgspec.Struct):
    """A named statement as the server described it; `columns` in the format we ask them in."""

    name: str
    param_oids: tuple[int, ...] = ()
    columns: list[m.Column] = []
    read: RowDecoder | None = None


class ServerAnswer(msgspec.Struct):
    """What one request gave: the results before `error`, if that came."""

    results: list[Result] = []
    error: CairnError | None = None


class Batch(msgspec.Struct):
    """What was sent up to one ReadyForQuery."""

    bound: deque[Prepared | None] = msgspec.field(default_factory=deque)  # None: described
    preparing: str | None = None
    may_copy: bool = False
    extended: bool = False
    outcome: ServerAnswer = msgspec.field(default_factory=ServerAnswer)


class Replies:
    """The open connection's state. `batches` are those not yet answered, oldest first."""

    def __init__(self) -> None:
        self.batches: deque[Batch] = deque()
        self.outcomes: list[ServerAnswer] = []
        self.on_notice: list[Callable[[Notice], None]] = []
        self.parameters: dict[str, str] = {}
        self.statements: dict[str, Prepared] = {}
        self.status = "I"
        self.pid, self.key = 0, b""
        self.copying_in = False
        self.copied: list[bytes] = []
        self._result: Result | None = None
        self._read: RowDecoder | None = None
        self._prepared = Prepared("")
        self._handlers: dict[int, Callable[[bytes], bytes | None]] = {
            ord("1"): self._nothing,
            ord("2"): self._bound,
            ord("3"): self._nothing,
            ord("A"): self._nothing,
            ord("C"): self._complete,
            ord("E"): self._error,
            ord("G"): self._copy_in,
            ord("H"): self._copy_out,
            ord("I"): self._empty,
            ord("K"): self._key_data,
            ord("N"): self._notice,
            ord("S"): self._parameter,
            ord("T"): self._columns,
            ord("Z"): self.ready,
            ord("c"): self._nothing,
            ord("d"): self._copy_data,
            ord("n"): self._no_columns,
            ord("s"): self._suspended,
            ord("t"): self._parameter_oids,
            ord("v"): self._negotiated,
        }

    def take_row(self, kind: int, data: bytes, at: int, end: int) -> bool:
        """DataRow, the only message there are many of."""
        if kind != _DATA_ROW:
            return False
        if self._result is None or self._read is None:
            raise ProtocolViolation("a row came without a description")
        self._result.rows.append(self._read(data, at, end))
        return True

    def take(self, kind: int, body: bytes) -> bytes:
        """Any other message; what it makes us send."""
        handler = self._handlers.get(kind)
        if handler is None:
            raise ProtocolViolation(f"unexpected message {chr(kind)!r} from the server")
        return handler(body) or b""

    def last_error(self) -> CairnError | None:
        """Of the request under way: a server says why before it hangs up."""
        return self.batches[0].outcome.error if self.batches else None

    def _batch(self) -> Batch:
        if not self.batches:
            raise ProtocolViolation("the server answers what was not asked")
        return self.batches[0]

    def _nothing(self, body: bytes) -> None:
        """Only says that all is well."""

    def _begin(self, columns: list[m.Column], read: RowDecoder | None) -> None:
        self._result, self._read = Result(columns, []), read

    def _bound(self, body: bytes) -> None:
        bound = self._batch().bound
        if not bound:
            raise ProtocolViolation("the server bound what was not asked")
        prepared = bound.popleft()
        if prepared is not None:
            self._begin(prepared.columns, prepared.read)

    def _columns(self, body: bytes) -> None:
        columns = backend.decode_columns(body)
        if self._batch().preparing is None:
            self._begin(columns, backend.reader(columns))
            return
        self._prepared.columns = [(name, oid, int(_is_known(oid))) for name, oid, _ in columns]
        self._prepared.read = backend.reader(self._prepared.columns)

    def _no_columns(self, body: bytes) -> None:
        self._begin([], None)

    def _parameter_oids(self, body: bytes) -> None:
        self._prepared = Prepared("", backend.decode_parameter_oids(body))

    def _complete(self, body: bytes) -> None:
        (tag,) = backend.decode_strings(body, 1)
        self._finish(tag)

    def _empty(self, body: bytes) -> None:
        self._result = None
        self._finish(None)

    def _suspended(self, body: bytes) -> None:
        self._finish(None).suspended = True

    def _finish(self, tag: str | None) -> Result:
        result = self._result or Result([], [])
        result.tag = tag
        self._batch().outcome.results.append(result)
        self._result = self._read = None
        return result

    def _error(self, body: bytes) -> None:
        error = ServerError(backend.decode_fields(body))
        self.copying_in = False
        self._result = self._read = None
        if error.severity in ("FATAL", "PANIC") or not self.batches:
            raise error  # the server hangs up after this one
        if self.batches[0].outcome.error is None:
            self.batches[0].outcome.error = error

    def ready(self, body: bytes) -> None:
        status = body.decode("ascii", "replace")
        if status not in ("I", "T", "E"):
            raise ProtocolViolation(f"transaction status {status!r} does not exist")
        self.status, self.copying_in = status, False
        if not self.batches:
            return
        batch = self.batches.popleft()
        if batch.preparing is not None and batch.outcome.error is None:
            self._prepared.name = batch.preparing
            self.statements[batch.preparing] = self._prepared
        self.outcomes.append(batch.outcome)

    def _notice(self, body: bytes) -> None:
        notice = backend.decode_notice(body)
        for listener in self.on_notice:
            listener(notice)

    def _parameter(self, body: bytes) -> None:
        name, value = backend.decode_strings(body, 2)
        self.parameters[name] = value

    def _key_data(self, body: bytes) -> None:
        self.pid, self.key = backend.decode_key_data(body)

    def _negotiated(self, body: bytes) -> None:
        if len(body) < 8:
            raise ProtocolViolation("a protocol negotiation is cut short")
        (count,) = m.UINT32.unpack_from(body, 4)
        backend.decode_strings(body[8:], count)  # options of ours that it does not know

    def _copy_in(self, body: bytes) -> bytes | None:
        backend.decode_copy_format(body)
        batch = self._batch()
        if batch.may_copy:
            self.copying_in = True
            return None
        # Nobody here has data to give. In extended mode the server has dropped our Sync.
        refusal = m.message(b"f", m.cstring("COPY FROM STDIN was not expected here"))
        return refusal if not batch.extended else refusal + m.SYNC_MESSAGE

    def _copy_out(self, body: bytes) -> None:
        backend.decode_copy_format(body)

    def _copy_data(self, body: bytes) -> None:
        if self._batch().may_copy:
            self.copied.append(body)


def _is_known(oid: int) -> bool:
    return oid in TYPE_NAMES or oid in ARRAY_ELEMENTS
