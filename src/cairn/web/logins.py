"""Who asks over HTTP: a login with the users of the cluster, and the cookie that remembers it.

A cookie is a token that every instance of the cluster understands, so that the console can go on
at another one. It is signed with what only members know (the service password) and with the user's
own verifier: a changed password, a dropped user and a lost right to log in end it at once.

Without a login, only this machine may look, and only at the topology.
"""

from __future__ import annotations

import asyncio
import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections import OrderedDict
from collections.abc import Callable
from hashlib import sha256
from time import time

import msgspec
from starlette.requests import Request

from cairn.model.errors import AuthenticationFailed, CairnError, InvalidAuthorization
from cairn.model.settings.auth_rules import is_loopback
from cairn.pgwire.server.startup import StartupParams
from cairn.server.audit import Who
from cairn.server.face import PgFace
from cairn.server.session.entering.login import Login

SESSION_S = 12 * 3600.0
TICKET_S = 60.0  # a ticket takes one from an instance that died to another
CHECKS = 4  # passwords that are looked at together: each takes some milliseconds of a core
WAITING = 100  # logins that wait for this
ENDED = 10_000  # tokens that were given up before their time


class User(msgspec.Struct, frozen=True):
    id: int
    name: str


class _Token(msgspec.Struct, frozen=True, array_like=True):
    user_id: int
    until_s: float
    kind: str  # session | ticket


class TooBusy(CairnError):
    sqlstate = "53300"


class Logins:
    def __init__(self, face: PgFace, clock: Callable[[], float] = time) -> None:
        self._face, self._clock = face, clock
        self._turns = asyncio.Semaphore(CHECKS)
        self._waiting = 0
        self._ended: OrderedDict[bytes, None] = OrderedDict()  # by what was signed

    @property
    def cookie(self) -> str:
        """Browsers keep cookies by host, not by port: two clusters on one machine differ."""
        return f"cairn_{self._face.cluster.cluster_uuid[:8]}"

    # --- who it is --------------------------------------------------------------------------------

    def user_of(self, request: Request) -> User | None:
        return self._read(request.cookies.get(self.cookie, ""), "session")

    # --- coming and going -------------------------------------------------------------------------

    async def log_in(self, request: Request, name: str, password: str) -> str:
        """The token of a new session, or the same error that a PostgreSQL client would get.

        In clear it must be meant for this machine, too: a page of a stranger, whose name he gives
        to 127.0.0.1, would guess from here, and lock out whoever sits here.
        """
        if not (is_encrypted(request) or is_local(request)):
            raise InvalidAuthorization(
                "passwords are taken over TLS only, or from this machine",
                hint="start the instance with --tls-cert and --tls-key, "
                "or open it as localhost, there or through an ssh tunnel to --http-listen",
            )
        if self._waiting >= WAITING:
            raise TooBusy("too many logins at once; try again")
        self._waiting += 1
        try:
            async with self._turns:
                login = Login(
                    self._face,
                    StartupParams(name, "", {}, {}),
                    address=address_of(request),
                    is_encrypted=is_encrypted(request),
                )
                await login.by_password(password)
        finally:
            self._waiting -= 1
        self._face.audit.write("login", Who(name, address_of(request)), door="http")
        return self._made(login.user_id, "session", SESSION_S)

    def log_out(self, request: Request) -> None:
        """Here its token counts no more; elsewhere it ends by its time."""
        token = request.cookies.get(self.cookie, "")
        if self._read(token, "session") is not None:
            self._end(token)

    def ticket(self, user: User) -> str:
        return self._made(user.id, "ticket", TICKET_S)

    def take_ticket(self, ticket: str) -> str:
        user = self._read(ticket, "ticket")
        if user is None:
            raise AuthenticationFailed("?")
        self._end(ticket)
        return self._made(user.id, "session", SESSION_S)

    def _end(self, token: str) -> None:
        self._ended[_decoded(token)] = None
        if len(self._ended) > ENDED:
            self._ended.popitem(last=False)

    # --- tokens -----------------------------------------------------------------------------------

    def _made(self, user_id: int, kind: str, seconds: float) -> str:
        body = msgspec.msgpack.encode(_Token(user_id, self._clock() + seconds, kind))
        signature = self._signature(user_id, body)
        assert signature is not None, "who has logged in is a user with a password"
        return urlsafe_b64encode(body + signature).decode()

    def _read(self, token: str, kind: str) -> User | None:
        if not 0 < len(token) <= 300:
            return None
        try:
            data = _decoded(token)
            found = msgspec.msgpack.decode(data[:-32], type=_Token)
        except (ValueError, msgspec.MsgspecError):
            return None
        if data in self._ended:
            return None
        signature = self._signature(found.user_id, data[:-32])
        if signature is None or not hmac.compare_digest(signature, data[-32:]):
            return None
        catalog = self._face.catalog
        user = catalog.user_by_id(found.user_id)
        is_good = found.kind == kind and found.until_s > self._clock()
        if user is None or not is_good or not catalog.may_log_in(user.id):
            return None
        return User(user.id, user.name)

    def _signature(self, user_id: int, body: bytes) -> bytes | None:
        user = self._face.catalog.user_by_id(user_id)
        if user is None or user.auth is None:
            return None
        key = hmac.digest(self._face.secret, b"console:" + user.auth[1].encode(), sha256)
        return hmac.digest(key, body, sha256)


def _decoded(token: str) -> bytes:
    """Many texts mean the same bytes: what has ended is known by these."""
    return urlsafe_b64decode(token.encode())


def address_of(request: Request) -> str:
    return request.client.host if request.client is not None else ""


def is_encrypted(request: Request) -> bool:
    return request.url.scheme == "https"


def is_from_here(request: Request) -> bool:
    """The connection comes from this machine, and not through a proxy that serves others."""
    if "x-forwarded-for" in request.headers or "forwarded" in request.headers:
        return False
    return is_loopback(address_of(request))


def is_local(request: Request) -> bool:
    """From here and meant for here: not by a name that a stranger has given to 127.0.0.1."""
    host = request.headers.get("host", "").rpartition(":")[0] or request.headers.get("host", "")
    return is_from_here(request) and host in ("127.0.0.1", "localhost", "[::1]")


def is_own_page(request: Request) -> bool:
    """Whether a change is asked for by our own page: other sites cannot send this header."""
    origin = request.headers.get("origin")
    host = request.headers.get("host", "")
    is_same = origin is None or origin.partition("://")[2] == host
    return is_same and request.headers.get("x-cairn") == "console"
