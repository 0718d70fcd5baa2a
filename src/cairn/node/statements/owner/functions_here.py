"""SQL functions that know the instance: who it is, who leads, which buckets are whose."""

from __future__ import annotations

import json
import random
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import apsw

import cairn
from cairn.model.errors import InvalidParameter, UndefinedTable
from cairn.model.members.topology import Grade
from cairn.model.settings import limits, parameters
from cairn.model.tables.sequences import numbering
from cairn.model.types.values import datetime_to_micros
from cairn.node.consensus.global_state import GlobalState
from cairn.node.consensus.raft_runner import RaftRunner
from cairn.node.statements.asker.numbers import Numbers, current_number
from cairn.sql.functions import functions
from cairn.sql.functions.function_list import (
    BY_NAME,
    CURRENT_NUMBER,
    LATE_FUNCTIONS,
    NEXT_NUMBER,
)
from cairn.sql.functions.numbers import known_by_name
from cairn.sql.parse.lexer import plain_name

_CHANCE = random.SystemRandom()


class FunctionsHere:
    def __init__(
        self,
        name: str,
        directory: Path,
        state: GlobalState,
        runner: RaftRunner,
        numbers: Numbers,
        apart: functions.Apart,
    ) -> None:
        self._name, self._directory, self._numbers = name, directory, numbers
        self._state, self._runner, self._apart = state, runner, apart

    def register(
        self, connection: apsw.Connection, through: Callable[[Any], Any] = lambda function: function
    ) -> None:
        """All functions, those that need no instance too. `through` changes those that tell of this
        instance and this moment: a block notes what they gave."""
        functions.register(connection, self._apart, apsw.memory_used)
        connection.limit(apsw.SQLITE_LIMIT_LENGTH, limits.VALUE_BYTES)
        for name, function in self._known().items():
            connection.create_scalar_function(name, known_by_name(name, through(function)), -1)
        take: Any = through(self._numbers.next)
        connection.create_scalar_function(NEXT_NUMBER, take, -1)
        known: Any = self._current
        connection.create_scalar_function(CURRENT_NUMBER, known, 2)

    def _current(self, table: int, name: str | None) -> int | None:
        if table == BY_NAME:
            if name is None:
                return None
            found = numbering(self._state.catalog, plain_name(name))
            if found is None:
                raise UndefinedTable(f'relation "{name}" does not exist')
            table = found.table.id
        return current_number(table, name or "")

    def _known(self) -> dict[str, Any]:
        known: dict[str, Any] = {
            "version": lambda *_: f"PostgreSQL 15.0 (Cairn {cairn.__version__})",
            "pico_instance_uuid": lambda *who: self._row("uuid", *who),
            "pico_instance_name": lambda *who: self._row("name", *who),
            "pico_replicaset_name": lambda *who: self._row("replicaset_name", *who),
            "pico_tier_name": lambda *who: self._row("tier", *who),
            "pico_instance_dir": lambda *_: str(self._directory),
            "pico_config_file_path": lambda *_: None,
            "pico_raft_leader_id": lambda *_: self._runner.leader_id or None,
            "pico_raft_leader_uuid": self._leader_uuid,
            "pico_instance_health_status": self._health,
            "_pico_bucket": self._buckets,
            "current_schema": lambda *_: "public",
            "current_database": lambda *_: "cairn",
            "current_catalog": lambda *_: "cairn",
            "current_setting": lambda name, *_: parameters.default(self._state.catalog, name or ""),
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
        cluster = self._state.cluster
        row = cluster.instances.get(self._name) if who is None else cluster.find(who)
        return None if row is None else str(getattr(row, field))

    def _health(self, who: str | None = None) -> str | None:
        """What the cluster holds of an instance; NULL for one that nobody knows."""
        cluster = self._state.cluster
        row = cluster.instances.get(self._name) if who is None else cluster.find(who)
        if row is None:
            return None
        if row.current_state.grade is not Grade.ONLINE or not self._runner.leader_id:
            return "broken"
        return "healthy" if row.target_state.grade is Grade.ONLINE else "degraded"

    def _leader_uuid(self, *_: Any) -> str | None:
        leader = self._state.cluster.by_raft_id(self._runner.leader_id)
        return None if leader is None else leader.uuid

    def _user_name(self, user_id: int) -> str:
        user = self._state.catalog.user_by_id(user_id)
        return f"unknown (OID={user_id})" if user is None else user.name

    def _buckets(self, tier: str | None) -> str:
        """`_pico_bucket(tier)`: the present owners by uuid, neighbours merged; never an error
        while ranges move."""
        if tier is None:
            raise InvalidParameter("_pico_bucket: tier name is null")
        cluster = self._state.cluster
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
