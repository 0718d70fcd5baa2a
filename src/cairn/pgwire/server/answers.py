"""The backend messages a session may send, gathered until the runner takes them all at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from cairn.model.errors import CairnError
from cairn.pgwire import messages as m

_TAGS: Final[dict[str, bytes]] = {}  # CommandComplete of tags seen, up to a bound
_ENDS: Final[dict[str, bytes]] = {}  # the same with ReadyForQuery
_MAX_TAGS: Final = 1024


class Answers:
    """The output half of `PgServer`: one method per message, `take` for the bytes of all."""

    __slots__ = ("_out",)

    def __init__(self) -> None:
        self._out: list[bytes] = []

    def take(self) -> bytes:
        """All output so far, which is then forgotten."""
        out = self._out
        if len(out) == 1:
            return out.pop()
        data = b"".join(out)
        out.clear()
        return data

    def ready(self, status: str) -> None:
        """ReadyForQuery: `I` idle, `T` in a transaction, `E` in a failed one."""
        self._out.append(m.READY[status])

    def raw(self, encoded: bytes) -> None:
        """Whole messages made beforehand, such as a statement's RowDescription."""
        self._out.append(encoded)

    data_rows = raw

    def notice(self, text: str, severity: str = "NOTICE", code: str = "00000") -> None:
        self._out.append(m.notice_response(text, severity, code))

    def parse_complete(self) -> None:
        self._out.append(m.PARSE_COMPLETE)

    def bind_complete(self) -> None:
        self._out.append(m.BIND_COMPLETE)

    def close_complete(self) -> None:
        self._out.append(m.CLOSE_COMPLETE)

    def empty_query(self) -> None:
        self._out.append(m.EMPTY_QUERY)

    def portal_suspended(self) -> None:
        self._out.append(m.PORTAL_SUSPENDED)

    def command_complete(self, tag: str) -> None:
        made = _TAGS.get(tag)
        if made is None:
            made = m.command_complete(tag)
            if len(_TAGS) < _MAX_TAGS:
                _TAGS[tag] = made
        self._out.append(made)

    def complete_and_ready(self, head: bytes, tag: str) -> None:
        """What came before, and how it ends outside of a transaction."""
        self._out.append(head + self.ending(tag))

    def ending(self, tag: str) -> bytes:
        """CommandComplete, and ReadyForQuery outside of a transaction."""
        made = _ENDS.get(tag)
        if made is None:
            made = m.command_complete(tag) + m.READY["I"]
            if len(_ENDS) < _MAX_TAGS:
                _ENDS[tag] = made
        return made

    def copy_in_response(self, fmt: int, ncols: int) -> None:
        self._out.append(_copy_response(b"G", fmt, ncols))

    def copy_out_response(self, fmt: int, ncols: int) -> None:
        self._out.append(_copy_response(b"H", fmt, ncols))

    def copy_data(self, data: bytes) -> None:
        self._out.append(m.message(b"d", data))

    def copy_done(self) -> None:
        self._out.append(m.COPY_DONE)

    def auth_sasl(self, mechanisms: Sequence[str]) -> None:
        """AuthenticationSASL: ask the client to choose one of `mechanisms`."""
        names = b"".join(map(m.cstring, mechanisms))
        self._out.append(m.message(b"R", b"\0\0\0\x0a", names, b"\0"))

    def sasl_continue(self, data: bytes) -> None:
        self._out.append(m.message(b"R", b"\0\0\0\x0b", data))

    def sasl_final(self, data: bytes) -> None:
        self._out.append(m.message(b"R", b"\0\0\0\x0c", data))

    def parameter_status(self, name: str, value: str) -> None:
        self._out.append(m.message(b"S", m.cstring(name), m.cstring(value)))

    def backend_key_data(self, pid: int, key: bytes) -> None:
        self._out.append(m.message(b"K", m.UINT32.pack(pid), key))

    def error(self, error: CairnError, severity: str = "ERROR") -> None:
        """ErrorResponse alone, as within a simple query: ReadyForQuery is the session's."""
        self._out.append(m.error_response(error, severity))


def _copy_response(kind: bytes, fmt: int, ncols: int) -> bytes:
    return m.message(kind, bytes([fmt]), m.int16_list([fmt] * ncols))
