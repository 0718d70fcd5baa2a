"""What all sessions of an instance share: plans, dispatch, logins, cancellation, counters."""

from __future__ import annotations

import hmac
import json
import os
import random
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import apsw

import cairn
from cairn.model.catalog import Catalog
from cairn.model.cluster import Cluster
from cairn.model.errors import CairnError, InvalidParameter
from cairn.model.rpc import ReadRequest, WriteRequest
from cairn.model.system_tables import PICO_DB_CONFIG, PICO_PRIVILEGE, PICO_USER
from cairn.model.values import datetime_to_micros
from cairn.net.link import Handler
from cairn.node.boot.config import InstanceConfig
from cairn.node.instance import Instance, decoding
from cairn.node.statements.context import Context
from cairn.node.statements.execution import Execution
from cairn.node.statements.executor import Executor
from cairn.node.statements.schema_changes import SchemaChanges
from cairn.node.steering.queue_runner import QueueRunner
from cairn.pgwire.scram import make_verifier
from cairn.server.catalog.pg_catalog import PgCatalog
from cairn.server.feed import Feed
from cairn.server.session import settings
from cairn.server.session.lockouts import Lockouts
from cairn.server.statements import Cached, StatementCache
from cairn.server.tls import ServerTls
from cairn.sql.api import Prepared
from cairn.sql.functions import functions
from cairn.sql.functions.function_list import LATE_FUNCTIONS
from cairn.sql.plans import CatalogRead
from cairn.storage.state_machine import Applied

if TYPE_CHECKING:
    from cairn.server.session.session import Session

MAX_CONNECTIONS = 15_000
_CHANCE = random.SystemRandom()


class Service:
    def __init__(self, instance: Instance, config: InstanceConfig) -> None:
        self.instance, self.config = instance, config
        # For the salts of users that do not exist: the same on every instance and after a restart.
        uuid_ = instance.identity.cluster_uuid or config.cluster_name
        self.secret = hmac.digest(config.service_secret or b"\0", uuid_.encode(), "sha256")
        self.sessions: dict[int, Session] = {}
        self._next_pid = 1
        self.lockouts = Lockouts(config.instance_dir)
        self.statements = StatementCache()
        self.pg_catalog = PgCatalog()
        self.tls: ServerTls | None = None  # set by the listener
        self.execution = Execution(instance, self.register)
        self.schema_changes = SchemaChanges(
            instance, lambda password: str(make_verifier(password, salt=os.urandom(16)))
        )
        self.executor = Executor(
            instance, self.execution, self.schema_changes, self._replan, self._read_catalog
        )
        self.queue = QueueRunner(instance, self.executor)
        self.feed = Feed(self)
        instance.handlers.update(self._handlers())
        instance.on_applied.append(self._users_changed)
        instance.on_installed.append(lambda *_: self._installed())
        self._installed()

    @property
    def catalog(self) -> Catalog:
        return self.instance.state.catalog

    @property
    def cluster(self) -> Cluster:
        return self.instance.state.cluster

    def _handlers(self) -> dict[str, Handler]:
        return {
            "read_rows": decoding(ReadRequest, self.execution.handle_read),
            "write_rows": decoding(WriteRequest, self.execution.write),
        }

    def _replan(self, stale: Cached, user: int) -> Cached:
        return self.statements.replanned(stale, user, self.catalog)

    async def _read_catalog(
        self, plan: CatalogRead, prepared: Prepared, params: Sequence[Any], context: Context
    ) -> Any:
        return await self.pg_catalog.read(
            plan, prepared.columns, params, self.catalog, context.user, context.cancelled
        )

    def close(self) -> None:
        for session in list(self.sessions.values()):
            session.shut_down()
        self.execution.close()
        self.pg_catalog.close()
        self.statements.close()

    def _users_changed(self, done: list[Applied]) -> None:
        """A user was changed, on whichever instance: its failed logins count no more."""
        touched = {change.table for applied in done for change in applied.changes}
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

    def _installed(self) -> None:
        self._read_settings()
        self.statements.forget()
        self._end_sessions()

    def _read_settings(self) -> None:
        self.executor.opcode_max = int(self.instance.state.setting("sql_vdbe_opcode_max", 0) or 0)

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

    def enlist(self, session: Session) -> tuple[int, bytes]:
        pid = self._next_pid
        self._next_pid = self._next_pid % 0x7FFFFFFF + 1
        self.sessions[pid] = session
        return pid, os.urandom(4)

    def cancel(self, pid: int, key: bytes) -> None:
        session = self.sessions.get(pid)
        if session is not None and session.cancel_key == key:
            session.cancel()

    # --- functions that know the instance ---------------------------------------------------------

    def register(self, connection: apsw.Connection) -> None:
        functions.register(connection)
        for name, function in self._late_functions().items():
            connection.create_scalar_function(name, function, -1)

    def _late_functions(self) -> dict[str, Any]:
        known: dict[str, Any] = {
            "version": lambda *_: f"PostgreSQL 15.0 (Cairn {cairn.__version__})",
            "pico_instance_uuid": lambda *who: self._row("uuid", *who),
            "pico_instance_name": lambda *who: self._row("name", *who),
            "pico_replicaset_name": lambda *who: self._row("replicaset_name", *who),
            "pico_tier_name": lambda *who: self._row("tier", *who),
            "pico_instance_dir": lambda *_: str(self.config.instance_dir),
            "pico_config_file_path": lambda *_: None,
            "pico_raft_leader_id": lambda *_: self.instance.runner.leader_id or None,
            "pico_raft_leader_uuid": self._leader_uuid,
            "pico_instance_health_status": lambda *_: "healthy",
            "_pico_bucket": self._buckets,
            "current_schema": lambda *_: "public",
            "current_database": lambda *_: "cairn",
            "current_catalog": lambda *_: "cairn",
            "current_setting": lambda name, *_: settings.default(self.catalog, name or ""),
            "pg_backend_pid": lambda *_: os.getpid(),
            "pg_get_userbyid": self._user_name,
            "pg_table_is_visible": lambda *_: 1,
            "pg_encoding_to_char": lambda *_: "UTF8",
            "random": lambda *_: _CHANCE.random(),
            "gen_random_uuid": lambda *_: uuid.uuid4().bytes,
            "clock_timestamp": lambda *_: datetime_to_micros(datetime.now(UTC)),
        }
        return {name: known.get(name, _nothing) for name in LATE_FUNCTIONS}

    def _row(self, field: str, who: str | None = None) -> str | None:
        """A fact of this instance, or of one given by name or uuid."""
        row = self.instance.row if who is None else self.cluster.find(who)
        return None if row is None else str(getattr(row, field))

    def _leader_uuid(self, *_: Any) -> str | None:
        leader = self.cluster.by_raft_id(self.instance.runner.leader_id)
        return None if leader is None else leader.uuid

    def _user_name(self, user_id: int) -> str:
        user = self.catalog.user_by_id(user_id)
        return f"unknown (OID={user_id})" if user is None else user.name

    def _buckets(self, tier: str | None) -> str:
        """`_pico_bucket(tier)`: the present owners by uuid, neighbours merged; never an error
        while ranges move."""
        if tier is None:
            raise InvalidParameter("_pico_bucket: tier name is null")
        cluster = self.cluster
        if tier not in cluster.tiers:
            raise InvalidParameter(f"_pico_bucket: tier '{tier}' doesn't exist")
        found: list[dict[str, Any]] = []
        for bucket in cluster.tier_buckets(tier):
            uuid = cluster.replicasets[bucket.owner].uuid
            last = found[-1] if found else None
            if (
                last is not None
                and last["current_replicaset_uuid"] == uuid
                and last["bucket_id_end"] + 1 == bucket.start
            ):
                last["bucket_id_end"] = bucket.end
                continue
            found.append(
                {
                    "tier_name": tier,
                    "bucket_id_start": bucket.start,
                    "bucket_id_end": bucket.end,
                    "state": "active",
                    "current_replicaset_uuid": uuid,
                    "target_replicaset_uuid": uuid,
                }
            )
        return json.dumps(found)


def _nothing(*_: Any) -> None:
    return None
