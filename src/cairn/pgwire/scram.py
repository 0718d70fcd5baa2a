"""SCRAM-SHA-256 (RFC 5802, 7677), both halves. Passwords never leave the client."""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from hashlib import pbkdf2_hmac, sha256
from hmac import compare_digest, digest
from typing import Final

import msgspec

from cairn.model.errors import InvalidAuthorization, LimitExceeded, ProtocolViolation
from cairn.pgwire.saslprep import saslprep

MECHANISM: Final = "SCRAM-SHA-256"
MECHANISM_PLUS: Final = "SCRAM-SHA-256-PLUS"
DEFAULT_ITERATIONS: Final = 4096
NONCE_BYTES: Final = 18
SALT_BYTES: Final = 16
_MAX_NONCE_CHARS: Final = 512
_MAX_SALT_BYTES: Final = 1024
_MAX_MESSAGE_BYTES: Final = 8192
_NONCE: Final = re.compile(r"[\x21-\x2b\x2d-\x7e]+")  # printable without the comma
_BINDING_TYPE: Final = "tls-server-end-point"
_VERIFIER: Final = re.compile(r"SCRAM-SHA-256\$([0-9]{1,9}):([^:$]+)\$([^:$]+):([^:$]+)")


class Verifier(msgspec.Struct, frozen=True):
    """What a server keeps instead of the password."""

    iterations: int
    salt: bytes
    stored_key: bytes
    server_key: bytes

    def __str__(self) -> str:
        keys = f"{_b64(self.stored_key)}:{_b64(self.server_key)}"
        return f"{MECHANISM}${self.iterations}:{_b64(self.salt)}${keys}"


def make_verifier(password: str, *, salt: bytes, iterations: int = DEFAULT_ITERATIONS) -> Verifier:
    salted = pbkdf2_hmac("sha256", saslprep(password), salt, iterations)
    stored = sha256(_hmac(salted, b"Client Key")).digest()
    return Verifier(iterations, salt, stored, _hmac(salted, b"Server Key"))


def parse_verifier(text: str) -> Verifier:
    """The form PostgreSQL keeps in `pg_authid`. ValueError when it is none."""
    match = _VERIFIER.fullmatch(text)
    if match is None or not int(match[1]):
        raise ValueError("not a SCRAM-SHA-256 verifier")
    try:
        salt, stored, server = (b64decode(part, validate=True) for part in match.groups()[1:])
    except Base64Error:
        raise ValueError("not a SCRAM-SHA-256 verifier") from None
    if len(stored) != 32 or len(server) != 32:
        raise ValueError("not a SCRAM-SHA-256 verifier")
    return Verifier(int(match[1]), salt, stored, server)


def check_password(verifier: Verifier, password: str) -> bool:
    """For the console, whose logins come with the password itself."""
    made = make_verifier(password, salt=verifier.salt, iterations=verifier.iterations)
    return compare_digest(made.stored_key, verifier.stored_key)


def fake_verifier(user: str, *, secret: bytes) -> Verifier:
    """For a user that does not exist: always the same salt, and keys that no password has.

    It has as many iterations as those of real users: nothing tells the two apart.
    """
    name = user.encode("utf-8", "surrogatepass")
    salt = _hmac(secret, b"salt:" + name)[:SALT_BYTES]
    stored = _hmac(secret, b"stored:" + name)
    return Verifier(DEFAULT_ITERATIONS, salt, stored, _hmac(secret, b"server:" + name))


class ScramServer:
    """One login: `first`, then `final`. `nonce` is fresh randomness of NONCE_BYTES or more."""

    __slots__ = ("_binding", "_client_first", "_gs2", "_nonce", "_server_first", "_verifier")

    def __init__(
        self, verifier: Verifier, nonce: bytes, *, channel_binding: bytes | None = None
    ) -> None:
        """`channel_binding`: hash of our certificate if `SCRAM-SHA-256-PLUS` was chosen."""
        self._verifier = verifier
        self._nonce = _b64(nonce)
        self._binding = channel_binding
        self._gs2 = self._client_first = self._server_first = ""

    def first(self, client_first: bytes) -> bytes:
        """Answer the client's first message; ProtocolViolation if it is malformed."""
        text = _decoded(client_first)
        flag, _, rest = text.partition(",")
        authzid, _, bare = rest.partition(",")
        self._check_binding_flag(flag)
        if authzid and not authzid.startswith("a="):
            raise _malformed("an authorization identity is expected")
        attributes = _attributes(bare, "nr")  # the name is that of the startup packet
        nonce = attributes["r"]
        if len(nonce) > _MAX_NONCE_CHARS or _NONCE.fullmatch(nonce) is None:
            raise _malformed("the nonce is too long or not printable")
        self._gs2, self._client_first = text[: len(text) - len(bare)], bare
        self._nonce = nonce + self._nonce
        salt = _b64(self._verifier.salt)
        self._server_first = f"r={self._nonce},s={salt},i={self._verifier.iterations}"
        return self._server_first.encode()

    def _check_binding_flag(self, flag: str) -> None:
        if self._binding is not None:
            if flag != f"p={_BINDING_TYPE}":
                raise _malformed(f"channel binding {_BINDING_TYPE} is expected")
        elif flag not in ("n", "y"):
            raise _malformed("channel binding was not negotiated")

    def final(self, client_final: bytes) -> bytes | None:
        """Answer the client's last message, or None: the password is wrong."""
        text = _decoded(client_final)
        without_proof, found, _ = text.rpartition(",p=")
        attributes = _attributes(text, "crp")
        expected = self._gs2.encode() + (self._binding or b"")
        if not found or not compare_digest(_unb64(attributes["c"]), expected):
            raise _malformed("channel binding does not match")
        if not compare_digest(attributes["r"].encode(), self._nonce.encode()):
            raise _malformed("nonce does not match")
        proof = _unb64(attributes["p"])
        if len(proof) != 32:
            raise _malformed("the proof has a wrong length")
        signed = f"{self._client_first},{self._server_first},{without_proof}".encode()
        client_key = _xor(proof, _hmac(self._verifier.stored_key, signed))
        signature = _hmac(self._verifier.server_key, signed)
        if not compare_digest(sha256(client_key).digest(), self._verifier.stored_key):
            return None
        return b"v=" + b64encode(signature)


class ScramClient:
    """The other end. It trusts nothing: a hostile server gets neither password nor much CPU."""

    __slots__ = ("_binding", "_first", "_gs2", "_max", "_nonce", "_password", "_signature")

    def __init__(
        self,
        password: str,
        nonce: bytes,
        *,
        channel_binding: bytes | None = None,
        could_bind: bool = False,
        max_iterations: int = 200_000,
    ) -> None:
        """`could_bind`: we would have bound the channel but the server did not offer it."""
        self._password, self._max = password, max_iterations
        self._binding = channel_binding
        self._gs2 = "y,," if could_bind else "n,,"
        if channel_binding is not None:
            self._gs2 = f"p={_BINDING_TYPE},,"
        self._nonce = _b64(nonce)
        self._first = f"n=,r={self._nonce}"
        self._signature = b""

    def first(self) -> bytes:
        return (self._gs2 + self._first).encode()

    def final(self, server_first: bytes) -> bytes:
        text = _decoded(server_first)
        attributes = _attributes(text, "rsi")
        nonce, salt = attributes["r"], _unb64(attributes["s"])
        if not nonce.startswith(self._nonce) or len(nonce) == len(self._nonce):
            raise _malformed("the server's nonce does not continue ours")
        if len(nonce) > 2 * _MAX_NONCE_CHARS or not 0 < len(salt) <= _MAX_SALT_BYTES:
            raise _malformed("nonce or salt has a wrong length")
        iterations = self._iterations(attributes["i"])
        salted = pbkdf2_hmac("sha256", saslprep(self._password), salt, iterations)
        client_key = _hmac(salted, b"Client Key")
        bound = _b64(self._gs2.encode() + (self._binding or b""))
        final = f"c={bound},r={nonce}"
        signed = f"{self._first},{text},{final}".encode()
        proof = _xor(client_key, _hmac(sha256(client_key).digest(), signed))
        self._signature = _hmac(_hmac(salted, b"Server Key"), signed)
        return f"{final},p={_b64(proof)}".encode()

    def _iterations(self, text: str) -> int:
        if not (text.isascii() and text.isdigit() and len(text) < 20 and int(text)):
            raise _malformed("the iteration count is not a number")
        if int(text) > self._max:
            raise LimitExceeded(
                f"the server asks for {text} hash iterations, more than the limit of {self._max}"
            )
        return int(text)

    def verify(self, server_final: bytes) -> None:
        """The server knows the verifier too, or InvalidAuthorization."""
        attributes = _attributes(_decoded(server_final), "v")
        if not self._signature or not compare_digest(_unb64(attributes["v"]), self._signature):
            raise InvalidAuthorization("the server could not prove that it knows the password")


def _attributes(text: str, required: str) -> dict[str, str]:
    """`a=…,b=…` that begins with `required` in this order; extensions may follow."""
    pairs = [part.partition("=") for part in text.split(",")]
    names = [name for name, _, _ in pairs]
    if "m" in names:
        raise _malformed("mandatory extensions are not supported")
    # Extensions stand before the proof, after everything else.
    wanted = [name for name in names if name in required]
    if "".join(wanted) != required or names[0] != required[0]:
        raise _malformed(f"attributes {', '.join(required)} are expected")
    return {name: value for name, _, value in pairs}


def _decoded(data: bytes) -> str:
    if len(data) > _MAX_MESSAGE_BYTES:
        raise _malformed("the message is too long")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise _malformed("not valid UTF-8") from None


def _malformed(why: str) -> ProtocolViolation:
    return ProtocolViolation("malformed SCRAM message", detail=why)


def _b64(data: bytes) -> str:
    return b64encode(data).decode()


def _unb64(text: str) -> bytes:
    try:
        return b64decode(text.encode(), validate=True)
    except (Base64Error, UnicodeEncodeError):
        raise _malformed("not valid base64") from None


def _hmac(key: bytes, data: bytes) -> bytes:
    return digest(key, data, "sha256")


def _xor(left: bytes, right: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(left, right, strict=True))
