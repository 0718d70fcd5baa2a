"""The console's side of the HTTP port: its files, its login, and what it asks for.

Everything that changes something, and everything of people's rows, needs a login; then it is a
statement like any other, run with the rights of that user.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from importlib.resources import files
from typing import Any

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from cairn.model.errors import (
    AccessDenied,
    AuthenticationFailed,
    CairnError,
    InvalidAuthorization,
    InvalidParameter,
)
from cairn.model.unexpected import owned
from cairn.server.calls.calls import check_looking, cluster_status
from cairn.server.face import PgFace
from cairn.web.asking import Asking, Running
from cairn.web.logins import SESSION_S, Logins, TooBusy, User, address_of, is_local, is_own_page
from cairn.web.overview import Overview

MOST_BODY = 1024 * 1024  # of somebody who has logged in
MOST_OF_STRANGER = 16 * 1024
_TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
_STATES: tuple[tuple[type[CairnError], int], ...] = (
    (AuthenticationFailed, 401),
    (InvalidAuthorization, 403),
    (AccessDenied, 403),
    (TooBusy, 429),
)
_encode = msgspec.json.Encoder(enc_hook=str).encode
Answer = Callable[[Request], Awaitable[Any]]


class NoLogin(AuthenticationFailed):
    def __init__(self) -> None:
        CairnError.__init__(self, "log in first", sqlstate="28000")


class Credentials(msgspec.Struct):
    user: str = ""
    password: str = ""
    ticket: str = ""


class Question(msgspec.Struct):
    sql: str


class Console:
    def __init__(self, face: PgFace, *, is_encrypted: bool) -> None:
        self._face, self._is_encrypted = face, is_encrypted
        self._logins, self._asking = Logins(face), Asking(face)
        self._overview = Overview(face, is_encrypted=is_encrypted)
        static = files("cairn.web") / "static"
        self._files = {
            each.name: each.read_bytes() for each in static.iterdir() if "." in each.name
        }

    def routes(self) -> list[Route]:
        seen = [
            ("/api/v1/status", self._status),
            ("/api/v1/overview", self._look),
            ("/api/v1/samples", self._samples),
            ("/api/v1/events", self._events),
        ]
        done = [
            ("/api/v1/login", self._log_in),
            ("/api/v1/logout", self._log_out),
            ("/api/v1/query", self._query),
        ]
        return [
            Route("/", partial(self._file, name="console.html")),
            *(
                Route(f"/static/{name}", partial(self._file, name=name))
                for name in self._files
                if name != "console.html"
            ),
            *(Route(path, self._answered(work)) for path, work in seen),
            *(Route(path, self._answered(work), methods=["POST"]) for path, work in done),
        ]

    # --- answers ----------------------------------------------------------------------------------

    def _answered(self, work: Answer) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            try:
                found = await work(request)
            except ClientDisconnect:
                return Response(status_code=400)
            except Exception as problem:
                return _refused(owned(problem, "a request over HTTP"))
            return found if isinstance(found, Response) else _json(found)

        return answer

    async def _file(self, request: Request, name: str) -> Response:
        data = self._files[name]
        kind = _TYPES.get(name.rpartition(".")[2], "application/octet-stream")
        return Response(data, media_type=None, headers={"content-type": kind, **self._guards()})

    def _guards(self) -> dict[str, str]:
        """Nothing from elsewhere is loaded or run; other consoles may be asked if they live."""
        others = " ".join(["'self'", *self._overview.consoles().values()])
        return {
            "content-security-policy": (
                "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
                f"connect-src {others}; base-uri 'none'; form-action 'none'; "
                "frame-ancestors 'none'"
            ),
            "x-content-type-options": "nosniff",
            "referrer-policy": "no-referrer",
            "cache-control": "no-cache",
        }

    # --- looking ----------------------------------------------------------------------------------

    def _check_looking(self, request: Request) -> None:
        """At the topology: whoever may read it in SQL, and whoever is on this machine."""
        user = self._logins.user_of(request)
        if user is not None:
            check_looking(self._face.catalog, user.id, user.name)
        elif not is_local(request):
            raise NoLogin

    async def _status(self, request: Request) -> Any:
        self._check_looking(request)
        return await cluster_status(self._face)

    async def _look(self, request: Request) -> Any:
        self._check_looking(request)
        user = self._logins.user_of(request)
        return {**await self._overview.get(), "me": self._me(user)}

    def _me(self, user: User | None) -> dict[str, Any] | None:
        """Who looks, with a ticket for another instance in case that this one dies."""
        if user is None:
            return None
        is_admin = self._face.catalog.is_super(user.id)
        return {"name": user.name, "is_admin": is_admin, "ticket": self._logins.ticket(user)}

    async def _samples(self, request: Request) -> Any:
        self._check_looking(request)
        try:
            since_s = float(request.query_params.get("since", "0"))
        except ValueError:
            raise InvalidParameter("since is a number of seconds") from None
        return await self._overview.samples(since_s)

    async def _events(self, request: Request) -> Any:
        self._check_looking(request)
        after = _position(request.query_params.get("after"))
        before = _position(request.query_params.get("before"))
        return await self._overview.events(after or (0, 0), before)

    # --- doing ------------------------------------------------------------------------------------

    async def _body(self, request: Request, kind: type[Any], most: int = MOST_OF_STRANGER) -> Any:
        """Of a request that our own page has sent: a form of another site cannot."""
        self._check_page(request)
        data = bytearray()
        async for piece in request.stream():
            data += piece
            if len(data) > most:
                raise InvalidParameter("the request is too long")
        try:
            return msgspec.json.decode(data, type=kind)
        except (msgspec.MsgspecError, UnicodeDecodeError) as problem:
            raise InvalidParameter(f"the request is no {kind.__name__}: {problem}") from None

    def _check_page(self, request: Request) -> None:
        if not is_own_page(request):
            raise InvalidAuthorization(
                "this is only for the console itself",
                hint="send the header X-Cairn: console from the same origin",
            )

    async def _log_in(self, request: Request) -> Any:
        given = await self._body(request, Credentials)
        if given.ticket:
            token = self._logins.take_ticket(given.ticket)
        else:
            token = await self._logins.log_in(request, given.user, given.password)
        response = _json({"ok": True})
        response.set_cookie(
            self._logins.cookie,
            token,
            max_age=int(SESSION_S),
            httponly=True,
            samesite="strict",
            secure=self._is_encrypted,
        )
        return response

    async def _log_out(self, request: Request) -> Any:
        await self._body(request, dict)
        self._logins.log_out(request)
        response = _json({"ok": True})
        response.delete_cookie(self._logins.cookie, httponly=True, samesite="strict")
        return response

    async def _query(self, request: Request) -> Any:
        self._check_page(request)
        user = self._logins.user_of(request)
        if user is None:
            raise NoLogin  # nothing is read of a stranger
        question = await self._body(request, Question, MOST_BODY)
        running = Running()
        work = self._asking.run(user, address_of(request), question.sql, running)
        return await _unless_gone(request, work, running)


async def _unless_gone(
    request: Request, work: Coroutine[Any, Any, dict[str, Any]], running: Running
) -> dict[str, Any]:
    """Whoever closes the page, or stops it, does not want the answer any more."""
    loop = asyncio.get_running_loop()
    answer, gone = loop.create_task(work), loop.create_task(_gone(request))
    try:
        await asyncio.wait({answer, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not answer.done():
            running.stop()
        return await answer
    finally:
        gone.cancel()


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _position(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    term, colon, index = text.partition(":")
    if not (colon and term.isascii() and term.isdigit() and index.isascii() and index.isdigit()):
        raise InvalidParameter("a position is TERM:INDEX")
    return min(int(term), 2**62), min(int(index), 2**62)


def _json(value: Any, code: int = 200) -> Response:
    headers = {"x-content-type-options": "nosniff", "cache-control": "no-store"}
    return Response(_encode(value), code, headers, "application/json")


def _refused(problem: CairnError) -> Response:
    code = next((code for kind, code in _STATES if isinstance(problem, kind)), 400)
    told = {
        "message": problem.message,
        "sqlstate": problem.sqlstate,
        "detail": problem.detail,
        "hint": problem.hint,
        "position": problem.position,
    }
    return _json({"error": told}, 500 if problem.sqlstate == "XX000" else code)
