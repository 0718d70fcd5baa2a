"""A client of the HTTP port, as the page in a browser is: it keeps cookies and sends the header."""

from __future__ import annotations

import http.client
import json
import ssl
from http.cookies import SimpleCookie
from typing import Any

from tests.cluster.harness import PASSWORD

OWN = {"X-Cairn": "console", "Content-Type": "application/json"}


class Browser:
    def __init__(self, port: int, host: str = "127.0.0.1", cafile: str | None = None) -> None:
        self.port, self.host, self._cafile = port, host, cafile
        self.cookies: dict[str, str] = {}
        self.headers: dict[str, str] = {}  # of the last answer
        self._timeout_s = 20.0

    def ask(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> tuple[int, Any]:
        sent = dict(headers or {}) | self._cookie()
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        connection = self._connection()
        try:
            connection.request(method, path, data, sent)
            answer = connection.getresponse()
            text = answer.read()
            self.headers = {name.lower(): value for name, value in answer.getheaders()}
            for name, morsel in SimpleCookie(answer.getheader("Set-Cookie", "")).items():
                self.cookies[name] = morsel.value
        finally:
            connection.close()
        is_json = "json" in (answer.getheader("Content-Type") or "")
        return answer.status, json.loads(text) if is_json else text.decode()

    def send(self, path: str, body: Any) -> http.client.HTTPConnection:
        """Without waiting for the answer."""
        connection = self._connection()
        connection.request("POST", path, json.dumps(body).encode(), OWN | self._cookie())
        return connection

    def _cookie(self) -> dict[str, str]:
        pairs = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        return {"Cookie": pairs} if pairs else {}

    def _connection(self) -> http.client.HTTPConnection:
        if self._cafile is None:
            return http.client.HTTPConnection(self.host, self.port, timeout=self._timeout_s)
        context = ssl.create_default_context(cafile=self._cafile)
        context.check_hostname = False
        return http.client.HTTPSConnection(
            self.host, self.port, timeout=self._timeout_s, context=context
        )

    def get(self, path: str, headers: dict[str, str] | None = None) -> tuple[int, Any]:
        return self.ask("GET", path, None, headers)

    def post(self, path: str, body: Any, headers: dict[str, str] | None = None) -> tuple[int, Any]:
        return self.ask("POST", path, body, OWN if headers is None else headers)

    def log_in(self, user: str = "admin", password: str = PASSWORD) -> tuple[int, Any]:
        return self.post("/api/v1/login", {"user": user, "password": password})

    def query(self, sql: str, timeout_s: float = 20.0) -> tuple[int, Any]:
        self._timeout_s = timeout_s
        return self.post("/api/v1/query", {"sql": sql})
