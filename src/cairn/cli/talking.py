"""Talking to a cluster from a command: a DSN, a password, queries over pgwire."""

from __future__ import annotations

import contextlib
import math
import os
import socket
import ssl
import sys
import time
from collections.abc import Callable
from copy import copy
from getpass import getpass
from pathlib import Path
from typing import Any

import msgspec

from cairn.client.logic.router import ONE_OF_MANY_S
from cairn.client.settings import certificate_hash, parse_dsn, split_address
from cairn.client.standstill import ASK_AFTER_S, left_alone, lives
from cairn.model.errors import CairnError, InvalidParameter, Unreachable
from cairn.model.settings.dsn import split_dsn
from cairn.pgwire.client.client import PgClient
from cairn.pgwire.client.replies import ServerAnswer
from cairn.pgwire.client.requests import ssl_request

DEFAULT_DSN = "postgresql://admin@127.0.0.1:4327/cairn"
SCHEMES = ("postgresql", "postgres", "cairn")
CONNECT_S = 5.0
#: Not Online yet, or going: another instance may answer.
_ASK_ANOTHER = ("57P01", "57P03")
NO_PASSWORD = "no password was given: PGPASSWORD, --password-file or in the DSN"


class TalkProblem(Exception):
    """What to print and with which code to exit: 1 failed, 3 unreachable, 4 unknown end."""

    def __init__(self, message: str, exit_code: int = 1, *, sqlstate: str = "") -> None:
        super().__init__(message)
        self.exit_code = exit_code
        self.sqlstate = sqlstate  # the server's, when it was the server that said no


class Target:
    """A DSN as the driver reads it, TLS included; several hosts are tried in order."""

    def __init__(self, dsn: str | None, password_file: str | None) -> None:
        parts = split_dsn(dsn or DEFAULT_DSN)
        if parts is None or parts.scheme not in SCHEMES:
            raise TalkProblem("--dsn: write postgresql://user@host:port/cairn", 2)
        try:
            self.settings = parse_dsn(
                dsn or DEFAULT_DSN, password=password_of(parts.password, password_file) or None
            )
        except InvalidParameter as problem:
            raise TalkProblem(f"--dsn: {_in_words(problem)}", 2) from None
        except ValueError as problem:
            raise TalkProblem(f"--dsn: {problem}", 2) from None

    @property
    def user(self) -> str:
        return self.settings.user

    @property
    def password(self) -> str:
        return self.settings.password or ""

    @property
    def hosts(self) -> list[tuple[str, int]]:
        return [split_address(host) for host in self.settings.hosts]

    def at(self, address: str) -> Target:
        """The same account at another instance."""
        other = copy(self)
        other.settings = msgspec.structs.replace(self.settings, hosts=(address,))
        return other


def password_of(in_dsn: str, password_file: str | None, flag: str = "--password-file") -> str:
    """The file beats the DSN, which beats PGPASSWORD; a person at a terminal is asked."""
    if password_file:
        try:
            return Path(password_file).read_text().strip()
        except OSError as problem:
            raise TalkProblem(f"{flag} {password_file}: {problem.strerror}", 2) from None
        except UnicodeDecodeError:
            raise TalkProblem(f"{flag} {password_file}: it is not text", 2) from None
    given = in_dsn or os.environ.get("PGPASSWORD", "")
    if not given and sys.stdin.isatty() and sys.stderr.isatty():
        return getpass("password: ")
    return given


class Talk:
    """A blocking connection for commands. Every wait has an end."""

    def __init__(self, target: Target, params: dict[str, str] | None = None) -> None:
        """At the first host of the DSN that lets us in: one that stands still is passed over.

        Where there are several, all are asked with little patience before any is with more.
        """
        hosts = target.settings.hosts
        for patience_s in (ONE_OF_MANY_S, CONNECT_S) if len(hosts) > 1 else (CONNECT_S,):
            refusals: list[TalkProblem] = []
            for address in hosts:
                try:
                    return self._log_in(target.at(address), params or {}, patience_s)
                except TalkProblem as problem:
                    if problem.exit_code != 3 and problem.sqlstate not in _ASK_ANOTHER:
                        raise
                    refusals.append(problem)
        if len(refusals) == 1:
            raise refusals[0]
        raise TalkProblem("; ".join(str(each) for each in refusals), 3)

    def _log_in(self, target: Target, params: dict[str, str], patience_s: float) -> None:
        self._target, self._is_lost = target, False
        self._pg = PgClient(
            target.user,
            random_bytes=os.urandom,
            password=target.password,
            database="cairn",
            params=params,
            tls=target.settings.tls,
            channel_binding=target.settings.channel_binding,
        )
        self._socket, host = self._dial(target, patience_s)
        self.notices: list[str] = []
        self._pg.on_notice.append(lambda notice: self.notices.append(notice.message))
        try:
            self._exchange(self._pg.connect, patience_s)
            if self._pg.needs_tls:
                certificate = self._encrypt(target, host)
                self._exchange(lambda: self._pg.tls_started(certificate), patience_s)
        except TalkProblem as problem:
            self.close()
            if not target.password and problem.sqlstate.startswith("28"):
                raise TalkProblem(NO_PASSWORD, sqlstate=problem.sqlstate) from None
            if problem.exit_code == 4:  # nothing was asked yet, so nothing is unknown
                text = f"{target.settings.hosts[0]} did not answer within {patience_s:g} s"
                raise TalkProblem(text, 3) from None
            raise

    @property
    def address(self) -> str:
        """Of the instance that let us in."""
        return self._target.settings.hosts[0]

    @staticmethod
    def _dial(target: Target, patience_s: float) -> tuple[socket.socket, str]:
        [(host, port)] = target.hosts
        try:
            return socket.create_connection((host, port), timeout=patience_s), host
        except OSError as problem:
            raise TalkProblem(
                f"cannot reach {host}:{port}: {problem.strerror or problem}", 3
            ) from None

    def _encrypt(self, target: Target, host: str) -> bytes | None:
        """The rest is under TLS; what the certificate gives for channel binding."""
        try:
            context = target.settings.ssl_context()
        except OSError as problem:
            raise TalkProblem(f"sslrootcert, sslcert or sslkey of the DSN: {problem}", 2) from None
        try:
            encrypted = context.wrap_socket(self._socket, server_hostname=host)
        except OSError as problem:
            raise TalkProblem(f"no TLS with {host}: {problem}", 3) from None
        self._socket = encrypted
        return certificate_hash(encrypted.getpeercert(True))

    def _exchange(self, ask: Callable[[], bytes], timeout_s: float | None) -> None:
        until = math.inf if timeout_s is None else time.monotonic() + timeout_s
        if self._is_lost:
            raise TalkProblem("the connection was lost", 3)
        try:
            outgoing = ask()
            while True:
                if outgoing:
                    self._socket.settimeout(timeout_s)
                    self._socket.sendall(outgoing)
                if self._pg.is_idle or self._pg.needs_tls:
                    return
                data = self._received(until)
                if not data:
                    self._is_lost = True
                    raise _gone(self._pg.connection_lost())
                outgoing = self._pg.receive(data)
        except TimeoutError:
            self._is_lost = True  # an answer that came now would be taken for the next one's
            raise TalkProblem("the cluster did not answer in time; the end is unknown", 4) from None
        except OSError as problem:
            self._is_lost = True
            raise TalkProblem(f"the connection was lost: {problem}", 3) from None
        except CairnError as problem:
            raise _told(problem) from None

    def _received(self, until: float) -> bytes:
        while True:
            self._socket.settimeout(max(0.001, min(ASK_AFTER_S, until - time.monotonic())))
            try:
                return self._socket.recv(65536)
            except TimeoutError:
                if time.monotonic() >= until:
                    raise
            if not lives(self.address, self._socket):
                self._is_lost = True
                raise TalkProblem(f"{left_alone(self.address).message}; the end is unknown", 4)

    def rows(self, sql: str, params: tuple[Any, ...] = (), timeout_s: float = 10.0) -> list[Any]:
        self._exchange(lambda: self._pg.execute(sql, list(params)), timeout_s)
        try:
            return list(self._pg.take_rows())
        except CairnError as problem:
            raise _told(problem) from None

    def call(self, text: str, timeout_s: float = 10.0) -> Any:
        """A `CALL cairn_…`: its answer is one JSON value."""
        self._exchange(lambda: self._pg.query(text), timeout_s)
        try:
            return self._pg.take_rows()[0][0]
        except CairnError as problem:
            raise _told(problem) from None

    def run(self, text: str) -> list[ServerAnswer]:
        """Statements as a person writes them, with all their results; no limit but the cluster's.

        What a COPY would want from us is refused.
        """
        self._exchange(lambda: self._pg.query(text), None)
        return self._pg.take_outcomes()

    def take_copied(self) -> bytes:
        """What a COPY TO STDOUT of the last `run` gave."""
        return b"".join(self._pg.take_copy())

    def take_notices(self) -> list[str]:
        found, self.notices = self.notices, []
        return found

    def certificate(self) -> bytes | None:
        """What the server showed, in DER; None: this connection is not encrypted."""
        encrypted = self._socket if isinstance(self._socket, ssl.SSLSocket) else None
        return None if encrypted is None else encrypted.getpeercert(True)

    def cancel(self) -> None:
        """Ask the server to end what runs, on a connection of its own."""
        with contextlib.suppress(OSError, TalkProblem):
            sock, host = self._dial(self._target, CONNECT_S)
            with sock:
                if isinstance(self._socket, ssl.SSLSocket):
                    sock.sendall(ssl_request())
                    if sock.recv(1) != b"S":
                        return
                    context = self._target.settings.ssl_context()
                    with context.wrap_socket(sock, server_hostname=host) as encrypted:
                        encrypted.sendall(self._pg.cancel_request())
                else:
                    sock.sendall(self._pg.cancel_request())

    def wait_notices(self, timeout_s: float) -> list[str]:
        """Notices that arrive by themselves; a silence of `timeout_s` is a problem."""
        if not self.notices:
            self._socket.settimeout(timeout_s)
            try:
                data = self._socket.recv(65536)
            except TimeoutError:
                raise TalkProblem(f"{self.address} was silent for {timeout_s:g} s", 3) from None
            except OSError as problem:
                raise TalkProblem(f"the connection was lost: {problem}", 3) from None
            if not data:
                raise TalkProblem("the instance closed the connection", 3)
            try:
                self._pg.receive(data)
            except CairnError as problem:
                raise _told(problem, 3) from None
        found, self.notices = self.notices, []
        return found

    def close(self) -> None:
        self._socket.close()


def _gone(problem: CairnError) -> TalkProblem:
    """The server hung up; what it said last, if anything, is why."""
    is_away = isinstance(problem, Unreachable) or problem.sqlstate in _ASK_ANOTHER
    return _told(problem, 3 if is_away else 1)


def _told(problem: CairnError, exit_code: int = 1) -> TalkProblem:
    return TalkProblem(_in_words(problem), exit_code, sqlstate=problem.sqlstate)


def _in_words(problem: CairnError) -> str:
    return f"{problem.message} ({problem.hint})" if problem.hint else problem.message
