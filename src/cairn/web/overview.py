"""What the console shows of the cluster: gathered once a second at most, for all who look."""

from __future__ import annotations

import asyncio
import re
from ipaddress import ip_address
from time import monotonic
from typing import Any

import msgspec

from cairn.model.members.topology import ConnectionType
from cairn.model.tables.system_tables import CAIRN_EVENT
from cairn.model.watched import SAMPLED, WatchRequest
from cairn.server.calls.calls import cluster_status
from cairn.server.face import PgFace
from cairn.web.health import judge

FRESH_S = 0.9
MOST_EVENTS = 500
_WAYS = (ConnectionType.HTTP, ConnectionType.PGPROTO, ConnectionType.PEER)
_PLAIN = re.compile(r"https?://[\w.\-\[\]:]+")  # it goes into a header


class Overview:
    def __init__(self, face: PgFace, *, is_encrypted: bool) -> None:
        self._face, self._scheme = face, "https" if is_encrypted else "http"
        self._made: dict[str, Any] = {}
        self._good_until = 0.0
        self._making: asyncio.Task[None] | None = None

    async def get(self) -> dict[str, Any]:
        """Who comes while it is made waits for the same one."""
        if monotonic() >= self._good_until or not self._made:
            if self._making is None:
                self._making = asyncio.get_running_loop().create_task(self._make())
                self._making.add_done_callback(self._done)
            await asyncio.shield(self._making)
        return self._made

    def _done(self, _: object) -> None:
        self._making = None

    async def _make(self) -> None:
        face = self._face
        watching = face.instance.watching
        status, told = await asyncio.gather(
            cluster_status(face), watching.ask_all(WatchRequest(("last",)))
        )
        last = {
            each.name: dict(zip(("at_s", *SAMPLED), each.samples[-1], strict=True))
            for each in told
            if each.samples
        }
        position = face.cluster.position
        self._made = {
            "here": face.instance.name,
            "position": [position.term, position.index],
            "health": [msgspec.to_builtins(problem) for problem in judge(status, last)],
            "status": status,
            "last": last,
            "buckets": _buckets(face),
            "routes": _routes(face),
            "consoles": self.consoles(),
        }
        self._good_until = monotonic() + FRESH_S

    def consoles(self) -> dict[str, str]:
        """By instance: where its console is."""
        cluster = self._face.cluster
        found = {}
        for name, row in sorted(cluster.instances.items()):
            addresses = [cluster.address(row.raft_id, kind) for kind in _WAYS]
            url = console_url(self._scheme, *addresses)
            if url is not None:
                found[name] = url
        return found

    async def samples(self, since_s: float) -> dict[str, Any]:
        told = await self._face.instance.watching.ask_all(WatchRequest(("samples",), since_s))
        return {
            "names": ["at_s", *SAMPLED],
            "instances": {
                each.name: [
                    [float(f"{value:.6g}") if at else value for at, value in enumerate(row)]
                    for row in each.samples
                ]
                for each in told
            },
        }

    async def events(self, after: tuple[int, int], before: tuple[int, int] | None) -> list[Any]:
        """The events that smart clients are told, oldest first: those after a position, or the
        last ones before one."""
        table, order = CAIRN_EVENT.physical_name, "DESC" if before else "ASC"
        term, index = before or after
        sign = "<" if before else ">"
        sql = (
            f"SELECT c0, c1, c2, c4, c5 FROM raft.{table} WHERE (c0, c1) {sign} (?, ?) "
            f"ORDER BY c0 {order}, c1 {order}, c2 {order} LIMIT {MOST_EVENTS}"
        )

        def read() -> list[Any]:
            reader = self._face.execution.reads.thread_reader()
            return list(reader.connection.execute(sql, (term, index)))

        rows = await asyncio.to_thread(read)
        if before:
            rows.reverse()
        return [
            {
                "raft": [row[0], row[1]],
                "n": row[2],
                "at": row[3],
                "body": msgspec.json.decode(row[4]),
            }
            for row in rows
        ]


def console_url(scheme: str, http: str | None, pg: str | None, peer: str | None) -> str | None:
    """An instance that listens everywhere is reached where its clients or peers reach it."""
    if not http:
        return None
    host, _, port = http.rpartition(":")
    try:
        is_any = ip_address(host.strip("[]")).is_unspecified
    except ValueError:
        is_any = not host
    if is_any:
        host = (pg or peer or "").rpartition(":")[0]
    url = f"{scheme}://{host}:{port}"
    return url if host and _PLAIN.fullmatch(url) else None


def _routes(face: PgFace) -> list[list[Any]]:
    """`_routing` by names: who takes whose rows through whom, in how many hops."""
    names = {row.uuid: row.name for row in face.cluster.instances.values()}
    routes = face.instance.replication.mesh.routing.table()
    return sorted(
        [*(names.get(uuid, uuid) for uuid in (subscriber, source, via)), depth]
        for subscriber, source, via, depth in routes
    )


def _buckets(face: PgFace) -> dict[str, list[list[Any]]]:
    """By tier: start, end, state, owner, and where it goes."""
    cluster = face.cluster
    return {
        tier: [
            [
                row.start,
                row.end,
                row.state.value,
                row.owner,
                row.target_replicaset if row.target_replicaset != row.owner else None,
            ]
            for row in cluster.tier_buckets(tier)
        ]
        for tier in cluster.tiers
    }
