"""From the first byte to the first ReadyForQuery: TLS, login, options, a topology snapshot."""

from __future__ import annotations

import logging
import ssl
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from cairn.model.errors import CairnError, ProtocolViolation
from cairn.model.members.events import Version
from cairn.model.settings import parameters
from cairn.node.statements.context import Context
from cairn.pgwire.server.requests import (
    BadMessage,
    CancelReceived,
    NeedTls,
    SaslInitial,
    SaslResponse,
    StartupReceived,
    Terminate,
)
from cairn.pgwire.server.startup import StartupParams
from cairn.server.feed import asked_version
from cairn.server.session.entering.login import Login, read_flag
from cairn.server.session.settings import check_known

if TYPE_CHECKING:
    from cairn.server.session.session import Session

log = logging.getLogger("cairn.pg")


#: Parameters that a client may give with its startup message.
_SETTABLE = (
    *("read_preference", "read_concern", "forward", "sql_motion_row_max", "sql_vdbe_opcode_max"),
    *("sql_repartition", "statement_timeout", "atomic_blocks", "traceparent"),
    *("default_transaction_isolation", "default_transaction_read_only", "role"),
    "session_authorization",
)


#: What clients of Cairn and Picodata ask for there, and nowhere else.
_OF_STARTUP = (
    *("smart_connector", "smart_connector_after", "smart_connector_hints"),
    *("picodata_catalog_cdc", "picodata_stmt_invalidation"),
    *("pico_query_metadata", "pico_stmt_invalidation", "replication"),
)


class StartUp:
    """The part of a session that lets a client in, and out."""

    __slots__ = ("_login", "_session", "early", "is_shaking")

    def __init__(self, session: Session) -> None:
        self._session = session
        self._login: Login | None = None
        self.early: list[bytes] = []  # decrypted before `start_tls` gave its transport
        self.is_shaking = False

    def startup(self, request: StartupReceived) -> None:
        session = self._session
        tls = session.face.tls
        binding = tls.binding if tls is not None and session.pg.encrypted else None
        peer = session.transport.get_extra_info("peername")
        address = str(peer[0]) if isinstance(peer, tuple) and peer else ""
        encrypted = session.pg.encrypted
        self._login = Login(session.face, request.params, binding, address, is_encrypted=encrypted)
        session.pg.auth_sasl(self._login.mechanisms())

    def sasl_initial(self, request: SaslInitial) -> None:
        login = self._begun()
        self._session.pg.sasl_continue(login.first(request.mechanism, request.data))

    def _begun(self) -> Login:
        if self._login is None:
            raise ProtocolViolation("a SASL message before the startup packet")
        return self._login

    def sasl_response(self, request: SaslResponse) -> Coroutine[Any, Any, None] | None:
        session, login = self._session, self._begun()
        session.pg.sasl_final(login.final(request.data))
        session.user, session.user_id = login.user, login.user_id
        session.pid, session.cancel_key = session.face.new_key()
        self._check_names(login.params)
        self._read_options(login.params.options)
        version = asked_version(login.params.options, login.params.params)
        session.pg.auth_ok()
        for name, value in parameters.REPORTED.items():
            session.pg.parameter_status(name, value)
        session.greeted()
        if version is not None:
            return self._subscribe(version, login.params.options)
        session.pg.ready("I")
        return None

    async def _subscribe(self, version: Version, options: dict[str, str]) -> None:
        """A service connection: the snapshot comes before the first ReadyForQuery."""
        session = self._session
        try:
            await session.face.feed.subscribe(session, version, options)
        except CairnError as problem:
            session.pg.fatal(problem)
            return
        session.pg.ready("I")

    def _check_names(self, params: StartupParams) -> None:
        """A slip is refused, as PostgreSQL does it. Extensions (`_pq_.`) were negotiated before."""
        catalog, ignored = self._session.face.catalog, params.extensions()
        for name in params.options:
            if name not in ignored and name not in _OF_STARTUP:
                check_known(name, catalog, _OF_STARTUP)

    def _read_options(self, options: dict[str, str]) -> None:
        session = self._session
        both = read_flag(options, "picodata_stmt_invalidation")
        session.wants_metadata = read_flag(options, "pico_query_metadata") or both
        if both:
            session.wants_invalidation = "seed"
        elif read_flag(options, "pico_stmt_invalidation"):
            session.wants_invalidation = "named"
        session.parameters.logged_in(
            Context(
                user_id=session.user_id,
                user=session.user,
                pid=session.pid,
                wants_hints=read_flag(options, "smart_connector_hints"),
                wants_invalidation=bool(session.wants_invalidation),
                watch=session.running.watch,
                face=session.face,
            )
        )
        for name in _SETTABLE:
            if name in options:
                session.parameters.set(name, options[name])
        if "application_name" in options:
            session.parameters.note("application_name", options["application_name"])

    def cancel(self, request: CancelReceived) -> None:
        self._session.face.cancel(request.pid, request.key)

    def terminate(self, request: Terminate) -> None:
        self._session.close()

    def bad(self, request: BadMessage) -> None:
        block = self._session.block
        block.fail()
        self._session.pg.refuse(request, block.status)

    # --- TLS --------------------------------------------------------------------------------------

    def tls(self, request: NeedTls) -> None:
        session = self._session
        session.flush()  # the S, in clear
        session.transport.pause_reading()
        session.pg.tls_started()
        session.upgrade(self._start_tls())

    async def _start_tls(self) -> None:
        session = self._session
        assert session.face.tls is not None
        self.is_shaking = True
        try:
            upgraded = await session.face.tls.upgrade(session.transport, session)
        except (OSError, ssl.SSLError) as problem:
            if (untold := session.face.saying.untold("TLS")) is not None:
                more = f" ({untold} more before it)" if untold else ""
                log.info("TLS handshake of a client failed: %s%s", problem, more)
            session.close()
            session.transport.abort()
            return
        session.talk_over(upgraded)
        session.pg.feed(b"".join(self.early))
        self.early.clear()
