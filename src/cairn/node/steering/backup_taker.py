"""Whoever is asked for a backup: it holds all masters at once, and gives their parts away.

The moment is tried again, a little later, when something was in the way: a master that changed, a
bucket or a schema on its way, a long statement at the writer. What was in the way is told.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from cairn.model.backups import (
    ALIVE,
    CopyRequest,
    Held,
    HoldRequest,
    Piece,
    PieceRequest,
    Released,
    Stamp,
)
from cairn.model.errors import CairnError, NotInPrerequisiteState, TimedOut
from cairn.model.members.cluster import Cluster
from cairn.model.members.topology import Position
from cairn.model.rpc import Empty
from cairn.model.tables.catalog import Catalog
from cairn.model.tables.catalog_rows import catalog_of
from cairn.model.tables.pictures import cluster_of
from cairn.model.tables.schema import Table
from cairn.net.peers import Peers
from cairn.node.consensus.global_state import GlobalState
from cairn.node.consensus.leader import Leader
from cairn.node.consensus.quorum import Patience, Voters
from cairn.node.consensus.raft_runner import RaftRunner
from cairn.node.rows.upkeep.backups import HOLD_S, IDLE_S, PIECE_BYTES, Backups
from cairn.node.runtime import Runtime
from cairn.replication.cut import owners, spoilt
from cairn.storage.files.sqlite import open_reader
from cairn.storage.raft_db.ddl import PENDING
from cairn.storage.raft_db.global_tables import TableDump, dump_tables

log = logging.getLogger("cairn.backup")

T = TypeVar("T")
AGAIN_S, AGAIN_MAX_S = 0.2, 3.0  # masters that are held again and again serve nobody
APART_S = 0.2  # between two moments: every reader may ask for one, and each holds all masters
TAKE_S = 30.0  # how long the moment is looked for
ANSWER_S = 10.0


class GlobalDump(msgspec.Struct, frozen=True):
    """All global tables at one position of Raft."""

    term: int
    index: int
    tables: list[TableDump]


class Moment(msgspec.Struct):
    """What was held at one moment, while it is given away."""

    id: str
    cluster: Cluster
    schema_version: int
    taken_at: str
    held: dict[str, Held]
    givers: dict[str, int]  # replicaset → raft_id of its master
    dump: bytes
    waits: list[str]  # what was in the way before
    used: float
    told: float = 0.0  # when all of them were last told that they are wanted


class BackupTaker:
    def __init__(
        self,
        raft_id: int,
        path: Path,
        state: GlobalState,
        runner: RaftRunner,
        leader: Leader,
        peers: Peers,
        runtime: Runtime,
        here: Backups,
        voters: Voters,
    ) -> None:
        self._raft_id, self._path, self._state, self._runner = raft_id, path, state, runner
        self._leader, self._peers, self._runtime, self._here = leader, peers, runtime, here
        self._voters = voters
        self._moments: dict[str, Moment] = {}
        self._turn = asyncio.Lock()
        self._not_before = 0.0

    async def take(self, after: dict[str, Stamp]) -> Moment:
        """One moment of the whole cluster. `after`: replicaset → where the backup before stands."""
        loop = asyncio.get_running_loop()
        async with self._turn:
            await asyncio.sleep(self._not_before - loop.time())
            try:
                return await self._found(after)
            finally:
                self._not_before = loop.time() + APART_S

    async def _found(self, after: dict[str, Stamp]) -> Moment:
        self._forget()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + TAKE_S
        waits: list[str] = []
        pause, patience = AGAIN_S, Patience(self._voters)
        while True:
            found = await self._attempt(after)
            if isinstance(found, Moment):
                found.waits = waits
                self._moments[found.id] = found
                log.info("backup %s at index %d", found.id, found.cluster.position.index)
                return found
            if not waits or waits[-1] != found:
                waits.append(found)
                log.info("backup: %s; trying again", found)
            if patience.is_over() and (lost := self._voters.no_quorum()) is not None:
                raise lost
            if loop.time() > deadline:
                raise TimedOut(f"no moment for a backup was found: {found}", hint="try again later")
            await asyncio.sleep(pause)
            pause = min(2 * pause, AGAIN_MAX_S)

    async def _attempt(self, after: dict[str, Stamp]) -> Moment | str:
        cluster, copy_id = self._state.cluster, self._runtime.uuid()
        givers = {
            name: cluster.instances[cluster.replicasets[name].current_master_name].raft_id
            for name in owners(cluster)
            if cluster.replicasets[name].current_master_name in cluster.instances
        }
        asked = {name: HoldRequest(copy_id, name, after.get(name)) for name in givers}
        held: dict[str, Held] = {}
        moment: Moment | None = None
        try:
            try:
                async with asyncio.timeout(HOLD_S):
                    answers = await asyncio.gather(
                        *(self._ask(givers[n], "backup_hold", asked[n], Held) for n in givers)
                    )
                    held = {each.replicaset: each for each in answers}
                    dump = await self._dump()
            except TimeoutError:
                return "a master did not stop within a second: a long statement, or it is away"
            except CairnError as problem:
                return problem.message
            found = _pictures(dump)
            reason = spoilt(*found, held, is_changing=PENDING in found[0].properties)
            if reason is not None:
                return reason
            version = int(found[0].properties.get("global_schema_version", 0))
            taken_at, now = self._now(), asyncio.get_running_loop().time()
            body = msgspec.msgpack.encode(dump)
            moment = Moment(
                copy_id,
                found[0],
                version,
                taken_at,
                held,
                givers,
                body,
                waits=[],
                used=now,
                told=now,
            )
        finally:
            released = await self._release(copy_id, givers)
            if moment is None or not released:
                await self._end(copy_id, givers)
        return moment if released else "a master went on writing before all had stopped"

    def _now(self) -> str:
        """To the microsecond: records are compared with it."""
        return self._runtime.wall_clock().isoformat(timespec="microseconds")

    async def _dump(self) -> GlobalDump:
        """At a position that Raft has while all masters are held."""
        await self._leader.catch_up(HOLD_S)
        return await asyncio.to_thread(_dumped, self._path)

    async def _release(self, copy_id: str, givers: dict[str, int]) -> bool:
        """Whether all of them had stopped until now."""
        request = CopyRequest(copy_id)
        answers = await asyncio.gather(
            *(self._ask(to, "backup_release", request, Released) for to in givers.values()),
            return_exceptions=True,
        )
        return all(isinstance(each, Released) and each.was_held for each in answers)

    async def _end(self, copy_id: str, givers: dict[str, int]) -> None:
        request = CopyRequest(copy_id)
        await asyncio.gather(
            *(self._ask(to, "backup_end", request, Empty) for to in givers.values()),
            return_exceptions=True,
        )

    async def _ask(self, raft_id: int, method: str, body: Any, answer: type[T]) -> T:
        if raft_id != self._raft_id:
            return await self._peers.call(raft_id, method, body, answer, ANSWER_S)
        calls: dict[str, Any] = {
            "backup_hold": self._here.hold,
            "backup_release": self._here.release,
            "backup_piece": self._here.piece,
            "backup_end": self._here.end,
        }
        found: T = await calls[method](body)
        return found

    # --- giving it away ---------------------------------------------------------------------------

    async def piece(self, moment_id: str, part: str, offset: int) -> Piece:
        """Of the rows of a replicaset; of the global tables if `part` is empty."""
        moment = self._moments.get(moment_id)
        if moment is None:
            raise NotInPrerequisiteState("this backup was given up", hint="begin it anew")
        moment.used = asyncio.get_running_loop().time()
        await self._keep_alive(moment, part)
        if not part:
            total = len(moment.dump)
            return Piece(moment.dump[offset : offset + PIECE_BYTES], total, total, True)
        if part not in moment.givers:
            raise NotInPrerequisiteState(f"replicaset {part} has no part in this backup")
        request = PieceRequest(moment_id, offset)
        return await self._ask(moment.givers[part], "backup_piece", request, Piece)

    async def _keep_alive(self, moment: Moment, part: str) -> None:
        """Parts are taken one after the other: the others wait, however long the first is."""
        if moment.used - moment.told < IDLE_S / 6:
            return
        moment.told = moment.used
        request = PieceRequest(moment.id, ALIVE)
        await asyncio.gather(
            *(
                self._ask(to, "backup_piece", request, Piece)
                for name, to in moment.givers.items()
                if name != part
            ),
            return_exceptions=True,  # whoever has gone is noticed when its part is asked for
        )

    async def end(self, moment_id: str) -> None:
        moment = self._moments.pop(moment_id, None)
        if moment is not None:
            await self._end(moment_id, moment.givers)

    def _forget(self) -> None:
        now = asyncio.get_running_loop().time()
        for moment in list(self._moments.values()):
            if now - moment.used > IDLE_S:
                del self._moments[moment.id]


def _pictures(dump: GlobalDump) -> tuple[Cluster, Catalog]:
    rows = {each.table_id: each.rows for each in dump.tables}

    def content(table: Table) -> list[list[Any]]:
        return [row[: len(table.columns)] for row in rows.get(table.id, [])]

    position = Position(dump.term, dump.index)
    return cluster_of(content, position), catalog_of(content, dump.index)


def _dumped(path: Path) -> GlobalDump:
    reader = open_reader(path)
    try:
        reader.execute("BEGIN")
        facts: dict[str, Any] = dict(
            reader.execute("SELECT key, value FROM raft_state WHERE key LIKE 'applied%'")
        )
        return GlobalDump(
            int(facts.get("applied_term", 0)), int(facts.get("applied", 0)), dump_tables(reader)
        )
    finally:
        reader.close()
