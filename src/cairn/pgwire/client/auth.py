"""How a client proves itself, and what it refuses to do for a server that asks for less."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import md5
from typing import Literal, TypeAlias

from cairn.model.errors import InvalidAuthorization, ProtocolViolation, Unsupported
from cairn.pgwire.messages import INT32, UINT32, cstring, message
from cairn.pgwire.scram import MECHANISM, MECHANISM_PLUS, NONCE_BYTES, ScramClient

ChannelBinding: TypeAlias = Literal["disable", "prefer", "require"]


class ClientAuth:
    """Answers Authentication messages. `is_done` after AuthenticationOk that was due."""

    __slots__ = (
        "_binding",
        "_hash",
        "_max_iterations",
        "_password",
        "_random",
        "_scram",
        "_user",
        "_verified",
        "_weak",
        "is_done",
    )

    def __init__(
        self,
        user: str,
        password: str | None,
        random_bytes: Callable[[int], bytes],
        *,
        channel_binding: ChannelBinding,
        allow_weak: bool,
        max_iterations: int,
    ) -> None:
        self._user, self._password, self._random = user, password, random_bytes
        self._binding, self._weak = channel_binding, allow_weak
        self._max_iterations = max_iterations
        self._hash: bytes | None = None  # of the server's certificate, when TLS is on
        self._scram: ScramClient | None = None
        self._verified = False
        self.is_done = False

    def tls_started(self, certificate_hash: bytes | None) -> None:
        self._hash = certificate_hash

    def receive(self, body: bytes) -> bytes:
        """The answer to one Authentication message."""
        if len(body) < 4:
            raise ProtocolViolation("an authentication request is cut short")
        (kind,) = UINT32.unpack_from(body)
        match kind:
            case 0:
                return self._accepted()
            case 3:
                return self._cleartext()
            case 5:
                return self._md5(body[4:])
            case 10:
                return self._begin(body[4:])
            case 11:
                return self._continue(body[4:])
            case 12:
                return self._finish(body[4:])
        raise Unsupported(f"the server asks for authentication method {kind}")

    def _accepted(self) -> bytes:
        if self._scram is not None and not self._verified:
            raise InvalidAuthorization("the server skipped the end of SCRAM authentication")
        if self._binding == "require" and not (self._verified and self._hash):
            raise _binding_missing()
        self.is_done = True
        return b""

    def _needed_password(self) -> str:
        if self._password is None:
            raise InvalidAuthorization("the server asks for a password and none was given")
        return self._password

    def _check_weak(self, method: str) -> None:
        if self._binding == "require":
            raise _binding_missing()
        if not self._weak:
            raise InvalidAuthorization(
                f"the server asks for a {method} password, which is refused",
                hint="only SCRAM-SHA-256 keeps the password secret from the server",
            )

    def _cleartext(self) -> bytes:
        self._check_weak("cleartext")
        return message(b"p", cstring(self._needed_password()))

    def _md5(self, salt: bytes) -> bytes:
        self._check_weak("md5")
        inner = md5((self._needed_password() + self._user).encode()).hexdigest()
        return message(b"p", cstring("md5" + md5(inner.encode() + salt[:4]).hexdigest()))

    def _begin(self, body: bytes) -> bytes:
        offered = [name.decode("ascii", "replace") for name in body.split(b"\0") if name]
        can_bind = self._hash is not None and self._binding != "disable"
        bind = can_bind and MECHANISM_PLUS in offered
        if self._binding == "require" and not bind:
            raise _binding_missing()
        mechanism = MECHANISM_PLUS if bind else MECHANISM
        if mechanism not in offered or self._scram is not None:
            raise Unsupported(f"the server offers {', '.join(offered)[:200]}, not {MECHANISM}")
        self._scram = ScramClient(
            self._needed_password(),
            self._random(NONCE_BYTES),
            channel_binding=self._hash if bind else None,
            could_bind=can_bind and not bind,
            max_iterations=self._max_iterations,
        )
        first = self._scram.first()
        return message(b"p", cstring(mechanism), INT32.pack(len(first)), first)

    def _continue(self, data: bytes) -> bytes:
        if self._scram is None:
            raise ProtocolViolation("SASL continues before it began")
        return message(b"p", self._scram.final(data))

    def _finish(self, data: bytes) -> bytes:
        if self._scram is None:
            raise ProtocolViolation("SASL ends before it began")
        self._scram.verify(data)
        self._verified = True
        return b""


def _binding_missing() -> InvalidAuthorization:
    return InvalidAuthorization("channel binding is required and the server does not do it")
