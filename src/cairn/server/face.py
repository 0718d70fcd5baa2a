"""What all sessions of an instance share: plans, dispatch, logins, cancellation, counters."""

from __future__ import annotations

import hmac
import os
from collections.abc import Sequence
from time import monotonic
from typing import Any

from cairn.model.errors import CairnError
from cairn.model.log.applied import Applied
from cairn.model.members.cluster import Cluster
from cairn.model.settings.auth_rules import Rule, parse_rules
from cairn.model.settings.parameters import SETTINGS
from cairn.model.tables.catalog import Catalog
from cairn.model.tables.system_tables import PICO_DB_CONFIG, PICO_PRIVILEGE, PICO_USER
from cairn.net.door import shares_of_files
from cairn.net.saying import Saying
from cairn.node.boot.config import InstanceConfig
from cairn.node.instance import Instance
from cairn.node.statements.context import Context, Face
from cairn.node.statements.temporary.tables import forget_catalogs
from cairn.node.waiting import until
from cairn.node.watching.activity import Asker
from cairn.node.watching.client import Client
from cairn.server.audit import AuditLog
from cairn.server.catalog.pg_catalog import PgCatalog
from cairn.server.chunk_size import ChunkSizes
from cairn.server.connections import Connections
from cairn.server.feed import Feed
from cairn.server.live_tables import LiveTables
from cairn.server.lockouts import Lockouts
from cairn.server.sampler import Sampler
from cairn.server.slow_log import SlowLog
from cairn.server.statements import Cached, StatementCache
from cairn.server.tls import ServerTls
from cairn.sql.plans import CatalogRead, Prepared

GOODBYE_S = 3.0  # for the statements that run when the instance ends
LAST_WORDS_S = 0.3  # for the last bytes to leave, longer than a session lingers


class PgFace(Face):
    def __init__(self, instance: Instance, config: InstanceConfig, tls: ServerTls | None) -> None:
        self.instance, self.config, self.tls = instance, config, tls
        # For the salts of users that do not exist: the same on every instance and after a restart.
        uuid_ = instance.identity.cluster_uuid or config.cluster_name
        self.secret = hmac.digest(config.service_secret or b"\0", uuid_.encode(), "sha256")
        watching = instance.watching
        self.statistics = watching.statistics
        self.sessions: dict[int, Client] = watching.activity.sessions
        self._next_pid = 1
        self._schema_version = 0
        self.lockouts = Lockouts(config.instance_dir)
        self.saying = Saying()
        self.audit = AuditLog(
            config.instance_dir, lambda: self._log_limits("audit"), self._is_administrator
        )
        instance.news.on_applied.append(self.audit.applied)
        self.connections = Connections(self.number, shares_of_files().clients)
        self._rules: tuple[str, tuple[Rule, ...]] = ("", ())
        self.statements = StatementCache(self.statistics)
        self.pg_catalog = PgCatalog(
            LiveTables(
                watching,
                lambda: self.catalog,
                lambda: self.cluster,
                lambda: instance.state.locks,
            )
        )
        self.execution, self.executor = instance.execution, instance.executor
        self.slow_log = SlowLog(
            config.instance_dir,
            lambda: self._log_limits("slow"),
            self.statistics,
            self.executor,
            self._user_name,
        )
        self.sampler = Sampler(instance, config.instance_dir)
        self.feed = Feed(instance)
        self.chunk_sizes = ChunkSizes(monotonic)
        instance.news.on_applied.append(self._applied)
        instance.news.on_installed.append(lambda *_: self._installed())
        self._installed()

    @property
    def catalog(self) -> Catalog:
        return self.instance.state.catalog

    def _is_administrator(self, name: str) -> bool:
        user = self.catalog.users.get(name)
        return user is not None and self.catalog.is_super(user.id)

    def _log_limits(self, name: str) -> tuple[int, int]:
        size, count = f"{name}_log_size_max", f"{name}_log_count_max"
        return self.number(size), self.number(count)

    def number(self, setting: str) -> int:
        return int(self.instance.state.setting(setting, SETTINGS[setting]))

    def rules(self) -> tuple[Rule, ...]:
        """Read once for each change of the setting, which was checked when it was made."""
        text = str(self.instance.state.setting("auth_rules", ""))
        if text != self._rules[0]:
            self._rules = text, parse_rules(text)
        return self._rules[1]

    @property
    def cluster(self) -> Cluster:
        return self.instance.state.cluster

    async def plan_again(self, statement: Any, context: Context) -> Cached:
        user_id = context.user_id

        def now() -> Catalog:
            return context.catalog(self.catalog)

        fresh = await self.statements.replanned(statement, user_id, now)
        fresh.check_rights(user_id, now())  # a view may name other tables now
        return fresh

    async def read_catalog(
        self, plan: CatalogRead, prepared: Prepared, params: Sequence[Any], context: Context
    ) -> list[tuple[Any, ...]]:
        return await self.pg_catalog.read(
            plan,
            prepared.columns,
            params,
            context.catalog(self.catalog),
            Asker(context.user, context.user_id, context.pid),
            context.cancelled,
        )

    async def say_goodbye(self) -> None:
        """End sessions one by one as they come to rest; who works too long is not waited for."""

        for session in list(self.sessions.values()):
            session.end_at_rest()
        if not await until(lambda: not self.sessions, GOODBYE_S, 0.01):
            for session in list(self.sessions.values()):
                session.shut_down()
            await until(lambda: not self.sessions, LAST_WORDS_S, 0.01)

    def close(self) -> None:
        for session in list(self.sessions.values()):
            session.shut_down()
        self.pg_catalog.close()
        self.statements.close()
        self.audit.close()
        self.slow_log.close()
        self.sampler.close()
        self.instance.watching.tracer.close()

    def _user_name(self, user_id: int) -> str:
        user = self.catalog.user_by_id(user_id)
        return str(user_id) if user is None else user.name

    def _applied(self, done: list[Applied]) -> None:
        """A user was changed, on whichever instance: its failed logins count no more."""
        touched = {change.table for applied in done for change in applied.changes}
        if self._schema_version != self.catalog.version:
            self._schema_version = self.catalog.version
            forget_catalogs()
        if PICO_DB_CONFIG.id in touched:
            self._read_settings()
        if not touched & {PICO_USER.id, PICO_PRIVILEGE.id}:
            return
        for applied in done:
            for change in applied.changes:
                if change.table == PICO_USER.id and change.old is not None:
                    self.lockouts.forget(change.old[1])
        if PICO_USER.id in touched:
            self.statements.forget()
        self._end_sessions()

    def _read_settings(self) -> None:
        self.slow_log.set_threshold(self.number("slow_statement_ms"))
        setting = self.instance.state.setting
        self.instance.watching.tracer.configure(
            str(setting("trace_endpoint", "")),
            float(setting("trace_sample_ratio", SETTINGS["trace_sample_ratio"])),
            self.config.cluster_name,
        )

    def _installed(self) -> None:
        self._read_settings()
        self.statements.forget()
        self._end_sessions()

    def _end_sessions(self) -> None:
        """Sessions of users that are gone, or may not log in any more."""
        catalog = self.catalog
        for session in list(self.sessions.values()):
            if not catalog.may_log_in(session.user_id):
                session.hang_up(
                    CairnError(
                        "terminating connection because its user was dropped or locked",
                        sqlstate="57P01",
                    )
                )

    # --- sessions ---------------------------------------------------------------------------------

    def new_key(self) -> tuple[int, bytes]:
        """The number of a session, and what a client has to know to cancel by it."""
        pid = self._next_pid
        self._next_pid = self._next_pid % 0x7FFFFFFF + 1
        return pid, os.urandom(4)

    def cancel(self, pid: int, key: bytes) -> None:
        session = self.sessions.get(pid)
        if session is not None and session.cancel_key == key:
            session.cancel()
