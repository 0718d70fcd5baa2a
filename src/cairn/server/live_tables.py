"""Tables whose rows are made when they are asked for, for whoever asks.

They are read like PostgreSQL's catalogue. What the instances do has the instance that told it; one
that does not answer is missing. What others run or wrote is for administrators only, as in
`pg_stat_activity`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from cairn.model.members.cluster import Cluster
from cairn.model.settings.parameters import DEFAULTS, PRIVATE
from cairn.model.tables.catalog import Catalog
from cairn.model.tables.locks import Locks
from cairn.model.tables.schema import Table
from cairn.model.watched import Kind, WatchRequest
from cairn.node.watching.activity import HIDDEN, Asker, Row, session_row
from cairn.node.watching.watching import Watching


class LiveTables:
    def __init__(
        self,
        watching: Watching,
        catalog: Callable[[], Catalog],
        cluster: Callable[[], Cluster],
        locks: Callable[[], Locks],
    ) -> None:
        self._watching, self._catalog, self._cluster = watching, catalog, cluster
        self._all_locks = locks
        self.activity = watching.activity
        self._made: dict[str, Callable[[Asker], Awaitable[list[Row]]]] = {
            "pg_stat_activity": self._activity,
            "_cairn_sessions": self._sessions,
            "_cairn_statements": self._statements,
            "_cairn_slow_statements": self._slow,
            "_cairn_table_stats": self._table_stats,
            "pg_settings": self._settings,
            "pg_views": self._views,
            "pg_locks": self._locks,
        }

    async def rows(self, sql: str, asker: Asker) -> dict[str, list[Row]]:
        """Of every such table that the query names."""
        return {name: await made(asker) for name, made in self._made.items() if name in sql}

    async def _activity(self, asker: Asker) -> list[Row]:
        return self.activity.rows(asker)

    async def _sessions(self, asker: Asker) -> list[Row]:
        return [
            {"instance": told.name} | session_row(each, self.activity.may_see(asker, each.user_id))
            for told in await self._watching.ask_all(WatchRequest(("sessions",)))
            for each in told.sessions
        ]

    async def _settings(self, asker: Asker) -> list[Row]:
        """Those of the cluster, and what sessions begin with."""
        catalog = self._catalog()
        is_admin = catalog.is_super(asker.user_id)
        sessions = {**DEFAULTS, "max_index_keys": "32"}
        found: list[Row] = [
            {"name": key, "setting": value, "source": "default"}
            for key, value in sessions.items()
            if key not in {name for name, _ in catalog.settings}
        ]
        return found + [
            {"name": key, "setting": str(value), "source": "cluster"}
            for (key, scope), value in catalog.settings.items()
            if not scope and (is_admin or key not in PRIVATE)
        ]

    async def _locks(self, asker: Asker) -> list[Row]:
        """Advisory locks of the whole cluster. A session is named by its instance, too: those of
        two instances may have the same number."""
        names = {each.raft_id: each.name for each in self._cluster().instances.values()}
        return [
            {
                "locktype": "advisory",
                "database": 1,
                "classid": each.key.number >> 32 & 0xFFFFFFFF,
                "objid": each.key.number & 0xFFFFFFFF,
                "objsubid": each.key.space,
                "virtualtransaction": f"{names.get(each.owner.raft_id)}/{each.owner.session}",
                "pid": each.owner.session,
                "mode": "ExclusiveLock" if each.mode == "exclusive" else "ShareLock",
                "granted": int(each.is_held),
                "fastpath": 0,
            }
            for each in self._all_locks()
        ]

    async def _views(self, asker: Asker) -> list[Row]:
        """The text of a view may have values in it: it is for its owner and administrators."""
        catalog = self._catalog()
        owners = {user.id: user.name for user in catalog.users.values()}
        return [
            {
                "schemaname": "public",
                "viewname": view.name,
                "viewowner": owners.get(view.owner, "admin"),
                "definition": self._shown(asker, view.owner, view.body),
            }
            for view in catalog.views.values()
        ]

    async def _statements(self, asker: Asker) -> list[Row]:
        return [
            {
                "instance": told.name,
                **self._whose(each.user_id),
                "kind": Kind(each.kind).word,
                "query": self._shown(asker, each.user_id, each.query),
                "calls": each.calls,
                "errors": each.errors,
                "total_ms": each.total_s * 1000,
                "mean_ms": each.total_s * 1000 / each.calls if each.calls else None,
                "max_ms": each.max_s * 1000,
                "rows": each.rows,
                "hops": each.hops,
                "bytes": each.bytes,
                "cache_hits": max(each.calls + each.errors - each.plans, 0),
                "evicted": told.evicted,
            }
            for told in await self._watching.ask_all(WatchRequest(("statements",)))
            for each in told.statements
        ]

    async def _slow(self, asker: Asker) -> list[Row]:
        return [
            {
                "instance": told.name,
                "ended_at": each.at_us,
                **self._whose(each.user_id),
                "query": self._shown(asker, each.user_id, each.query),
                "took_ms": each.took_s * 1000,
                "rows": each.rows,
                "hops": each.hops,
                "plan": self._shown(asker, each.user_id, "\n".join(each.plan)),
            }
            for told in await self._watching.ask_all(WatchRequest(("slow",)))
            for each in told.slow
        ]

    async def _table_stats(self, asker: Asker) -> list[Row]:
        """A sharded table has a row for each replicaset, told by its master; a global one, one."""
        catalog, cluster = self._catalog(), self._cluster()
        masters = {
            row.current_master_name: (name, row.tier) for name, row in cluster.replicasets.items()
        }
        rows: list[Row] = []
        is_global_told: set[int] = set()
        for told in await self._watching.ask_all(WatchRequest(("tables",))):
            for size in told.tables:
                table = catalog.table_by_id(size.table_id)
                if table is None or table.is_sequence:  # a sequence has no rows
                    continue
                if not _may_read(catalog, asker.user_id, table):
                    continue
                place: tuple[str | None, str | None] = (None, None)
                if table.is_global:
                    if table.id in is_global_told:
                        continue
                    is_global_told.add(table.id)
                elif told.name in masters and masters[told.name][1] == _tier(table):
                    place = masters[told.name]
                else:
                    continue
                rows.append(
                    {
                        "table_name": table.name,
                        "table_id": table.id,
                        "tier": place[1],
                        "replicaset": place[0],
                        "instance": told.name,
                        "rows": size.rows,
                        "bytes": size.bytes,
                        "index_bytes": size.index_bytes,
                    }
                )
        return _with_shares(rows)

    def _whose(self, user_id: int) -> dict[str, Any]:
        user = self._catalog().user_by_id(user_id)
        return {"usesysid": user_id, "usename": None if user is None else user.name}

    def _shown(self, asker: Asker, user_id: int, text: str) -> str:
        return text if self.activity.may_see(asker, user_id) else HIDDEN


def _may_read(catalog: Catalog, user_id: int, table: Table) -> bool:
    return table.owner == user_id or catalog.allows(user_id, "read", "table", table.id)


def _tier(table: Table) -> str | None:
    return None if table.sharding is None else table.sharding.tier


def _with_shares(rows: list[Row]) -> list[Row]:
    """`share`: of all rows of the table; `skew`: the fullest replicaset against an even share."""
    by_table: dict[int, list[Row]] = {}
    for row in rows:
        by_table.setdefault(row["table_id"], []).append(row)
    for parts in by_table.values():
        total = sum(row["rows"] for row in parts)
        fullest = max(row["rows"] for row in parts)
        for row in parts:
            row["share"] = row["rows"] / total if total else None
            row["skew"] = fullest * len(parts) / total if total else None
    return rows
