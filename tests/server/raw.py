"""A PostgreSQL client made of bytes: it can say what no driver would."""

from __future__ import annotations

import os
import socket
from struct import pack, unpack

from cairn.pgwire.scram import ScramClient
from tests.cluster.harness import PASSWORD

PROTOCOL_3_0 = 196608


def message(kind: bytes, body: bytes = b"") -> bytes:
    return kind + pack("!I", len(body) + 4) + body


def startup_packet(protocol: int = PROTOCOL_3_0, **pairs: str) -> bytes:
    body = pack("!I", protocol)
    for name, value in pairs.items():
        body += name.encode() + b"\0" + value.encode() + b"\0"
    return pack("!I", len(body) + 5) + body + b"\0"


def sasl_initial(data: bytes, mechanism: bytes = b"SCRAM-SHA-256") -> bytes:
    return message(b"p", mechanism + b"\0" + pack("!i", len(data)) + data)


def fields(body: bytes) -> dict[str, str]:
    """ErrorResponse or NoticeResponse taken apart."""
    parts = body.rstrip(b"\0").split(b"\0")
    return {part[:1].decode(): part[1:].decode() for part in parts if part}


class Raw:
    """One connection. `read` gives (kind, body); kind is empty when the server has hung up."""

    def __init__(self, port: int, timeout_s: float = 10.0) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout_s)
        self._unread = b""

    def __enter__(self) -> Raw:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, *data: bytes) -> Raw:
        self.socket.sendall(b"".join(data))
        return self

    def _take(self, count: int) -> bytes:
        while len(self._unread) < count:
            try:
                piece = self.socket.recv(65536)
            except ConnectionResetError:
                piece = b""
            if not piece:
                return b""
            self._unread += piece
        taken, self._unread = self._unread[:count], self._unread[count:]
        return taken

    def read(self) -> tuple[bytes, bytes]:
        head = self._take(5)
        if not head:
            return b"", b""
        (length,) = unpack("!I", head[1:])
        return head[:1], self._take(length - 4) if length > 4 else b""

    def read_byte(self) -> bytes:
        return self._take(1)

    def until(self, *kinds: bytes) -> list[tuple[bytes, bytes]]:
        """Messages up to the first of `kinds`, or to the end."""
        found = []
        while True:
            found.append(self.read())
            if not found[-1][0] or found[-1][0] in kinds:
                return found

    def error(self) -> dict[str, str]:
        """The next error; an assertion fails when the server hangs up without one."""
        *_, (kind, body) = self.until(b"E")
        assert kind == b"E", "no error came"
        return fields(body)

    def is_closed(self) -> bool:
        return self.until(b"never")[-1][0] == b""

    def log_in(self, user: str = "admin", password: str = PASSWORD, **pairs: str) -> Raw:
        self.send(startup_packet(user=user, **pairs))
        return self.answer_scram(password)

    def answer_scram(self, password: str = PASSWORD) -> Raw:
        self.until(b"R")
        scram = ScramClient(password, os.urandom(18))
        self.send(sasl_initial(scram.first()))
        _, body = self.read()
        self.send(message(b"p", scram.final(body[4:])))
        *greeting, (kind, body) = self.until(b"Z", b"E")
        assert kind == b"Z", fields(body)
        self.cancel_key = dict(greeting)[b"K"]
        return self

    def query(self, text: str | bytes) -> list[tuple[bytes, bytes]]:
        data = text if isinstance(text, bytes) else text.encode()
        return self.send(message(b"Q", data + b"\0")).until(b"Z")
