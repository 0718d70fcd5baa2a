"""From the first byte to the first ReadyForQuery: TLS, login, options, a topology snapshot."""

from __future__ import annotations

import logging
import ssl
from collections.abc import Coroutine
from typing import Any

from cairn.model.errors import CairnError, ProtocolViolation
from cairn.model.events import Version
from cairn.pgwire.requests import (
    CancelReceived,
    NeedTls,
    SaslInitial,
    SaslResponse,
    StartupReceived,
)
from cairn.server import settings
from cairn.server.connection import HIGH_WATER, Connection
from cairn.server.feed import asked_version
from cairn.server.login import Login, read_flag

log = logging.getLogger("cairn.pg")


#: Parameters that a client may give with its startup message.
_SETTABLE = (
    *("read_preference", "read_concern", "forward", "sql_motion_row_max", "sql_vdbe_opcode_max"),
    "statement_timeout",
)


class Entering(Connection):
    """The part of a connection before it may ask anything."""

    def _on_startup(self, request: StartupReceived) -> None:
        tls = self.service.tls
        binding = tls.binding if tls is not None and self.pg.encrypted else None
        peer = self.transport.get_extra_info("peername")
        address = str(peer[0]) if isinstance(peer, tuple) and peer else ""
        self.login = Login(self.service, request.params, binding, address)
        self.pg.auth_sasl(self.login.mechanisms())

    def _on_sasl_initial(self, request: SaslInitial) -> None:
        if self.login is None:
            raise ProtocolViolation("a SASL message before the startup packet")
        self.pg.sasl_continue(self.login.first(request.mechanism, request.data))

    def _on_sasl_response(self, request: SaslResponse) -> Coroutine[Any, Any, None] | None:
        if self.login is None:
            raise ProtocolViolation("a SASL message before the startup packet")
        self.pg.sasl_final(self.login.final(request.data))
        self.user, self.user_id = self.login.user, self.login.user_id
        options = self.login.params.options
        self._read_options(options)
        self._know_context()
        version = asked_version(options, self.login.params.params)
        self._greet()
        if version is not None:
            return self._subscribe(version, options)
        self.pg.ready(self.status)
        return None

    async def _subscribe(self, version: Version, options: dict[str, str]) -> None:
        """A service connection: the snapshot comes before the first ReadyForQuery."""
        try:
            await self.service.feed.subscribe(self, version, options)
        except CairnError as problem:
            self.pg.fatal(problem)
            return
        self.pg.ready(self.status)

    def _greet(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.pg.auth_ok()
        for name, value in settings.REPORTED.items():
            self.pg.parameter_status(name, value)
        self.pid, self.cancel_key = self.service.enlist(self)
        self.pg.backend_key_data(self.pid, self.cancel_key)

    def _read_options(self, options: dict[str, str]) -> None:
        both = read_flag(options, "picodata_stmt_invalidation")
        self.wants_metadata = read_flag(options, "pico_query_metadata") or both
        if both:
            self.wants_invalidation = "seed"
        elif read_flag(options, "pico_stmt_invalidation"):
            self.wants_invalidation = "named"
        self.wants_hints = read_flag(options, "smart_connector_hints")
        for name in _SETTABLE:
            if name in options:
                self.set_parameter(name, options[name])
        if "application_name" in options:
            self.parameters["application_name"] = options["application_name"]

    def _on_cancel(self, request: CancelReceived) -> None:
        self.service.cancel(request.pid, request.key)

    def _on_tls(self, request: NeedTls) -> Coroutine[Any, Any, None]:
        self._flush()  # the S, in clear
        self.transport.pause_reading()
        self._upgrading = []
        self.pg.tls_started()
        return self._start_tls()

    async def _start_tls(self) -> None:
        assert self.service.tls is not None and self._upgrading is not None
        self._shaking = True
        try:
            self.transport = await self.service.tls.upgrade(self.transport, self)
        except (OSError, ssl.SSLError) as problem:
            log.info("TLS handshake failed: %s", problem)
            self._closing = True
            self.transport.abort()
            return
        self.transport.set_write_buffer_limits(HIGH_WATER)
        early, self._upgrading = self._upgrading, None
        self.pg.feed(b"".join(early))
