"""Whether the files of this instance are whole, and its rows those of its replicaset.

A page that is damaged is noticed by whoever reads it first: a statement, a replica that pulls, or
the scrub, which reads everything now and then at a low rate and lets replicas compare their rows
with the master's. Then:

- a replica puts `data.db` aside and takes a full copy of its master, once that has read its own
  file and can give one: two damaged files may each have what the other has lost;
- a master that has a healthy replica hands over to it (the governor does it) and is a replica then;
- if its log cannot be read, one replica takes a full copy of it, so that somebody has all rows;
- a master without one goes on with what it can read and says what a person can do;
- a `data.db` that is not there at a start, or cannot be opened, counts as damaged and not as one
  without rows: it is put aside, and others are asked for a copy (`opening.py`);
- `raft.db` is not mended here: it holds votes and promises that nobody else knows.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path

import msgspec

from cairn.model.errors import CairnError, NoMaster, UnknownCall
from cairn.model.members.topology import Grade, Replicaset
from cairn.model.members.topology import Instance as InstanceRow
from cairn.model.rpc import DamageReport, Empty
from cairn.net.peers import Peers
from cairn.node.rows.copies import Copies, CopyPiece, CopyRequest
from cairn.node.rows.data_plane import DataPlane
from cairn.node.rows.place import Place
from cairn.storage.data_db.full_copy import can_be_copied
from cairn.storage.files import checksums, setting_aside
from cairn.storage.files.scrub import Digest, Span, compare, digest, is_whole, suspects, trees_of

log = logging.getLogger("cairn.scrub")

INTERVAL_S = 86_400.0  # unless `scrub_interval` says otherwise; 0: never by itself
ROWS_PER_S = 20_000  # unless `scrub_rows_per_s` says otherwise; 0: no limit
PIECE_ROWS = 2_000  # aimed at: what is read in one go
TREE_ROWS = 1_000  # what a tree, or a megabyte of pages, counts for the rate
LOOK_S = 1.0
TRIES = 20  # of one piece whose rows change all the time
AGAIN_S = 0.2
COMPARE_S = 30.0
SCHEMA_TREE = "sqlite_schema"
BARRED_S = 15.0  # a log that cannot be read for so long is not waited for; a copy is taken
LOOKED_S = 60.0  # how long it counts that all pages were read and found good


class CompareRequest(msgspec.Struct, frozen=True):
    """ "I have these rows at this position. You too?" """

    subscriber: str
    replicaset: str
    span: Span
    digest: Digest


class CompareResponse(msgspec.Struct, frozen=True):
    is_same: bool | None  # None: rows changed in between


class GivingResponse(msgspec.Struct, frozen=True):
    """Whether all rows of `data.db` can be read; None: it is being found out."""

    can_give: bool | None


class Health:
    def __init__(
        self,
        place: Place,
        peers: Peers,
        data: DataPlane,
        copies: Copies,
        raft_path: Path,
        repair: Callable[[str], None],
        barred_s: Callable[[str], float],
    ) -> None:
        self._place, self._peers, self._data, self._copies = place, peers, data, copies
        self._name, self._uuid, self._state = place.name, place.uuid, place.state
        self._raft_path, self._repair = raft_path, repair
        self._barred_s = barred_s  # for how long damage has kept us from following an upstream
        self.damage: dict[str, str] = {}  # file → what is wrong with it
        self.accused: dict[str, str] = {}  # another instance → what its rows are said to be
        self.scrubs = self.compared = self.differences = 0
        self._is_suspected = False  # a replica has other rows than we
        self._looked_at = float("-inf")  # when all pages had been read
        self._can_give = True  # a full copy, as far as that look has shown
        self._waits_for = ""  # why a damaged file is kept
        self._is_given = False  # the rows are here, whatever was put aside before
        self._is_told = asyncio.Event()
        loop = asyncio.get_running_loop()
        self._alarm = lambda: _wake(loop, self._is_told)
        checksums.listeners.append(self._alarm)
        self._is_unread = not data.store.is_read
        if data.store.damage:
            self._is_told.set()

    def close(self) -> None:
        checksums.listeners.remove(self._alarm)

    # --- what others are told -------------------------------------------------------------------

    def report(self) -> DamageReport:
        return DamageReport(self._name, tuple(self.problems()), tuple(self._damaged()))

    def _damaged(self) -> list[str]:
        """Whose rows should not be served, if there is somebody better."""
        return ([self._name] if "data.db" in self.damage else []) + sorted(self.accused)

    def problems(self) -> list[str]:
        found = [f"{self._name}: {file} is damaged: {why}" for file, why in self.damage.items()]
        found = [f"{line}; {self._way_out(line)}" for line in found]
        found += self._missing()
        return found + [f"{name}: {why}" for name, why in sorted(self.accused.items())]

    def _missing(self) -> list[str]:
        """Nobody can give the rows that are to be copied."""
        if not self._place.must_copy or self._has_living_master():
            return []
        return [
            f"{self._name} has none of the rows that it had, and nobody who is there has them and "
            "is a majority: start one that has them, put the lost data.db back (one that was "
            f"damaged is in {setting_aside.ASIDE}/), let the others go on without it with cairn "
            f"expel {self._name} --force, or restore a backup"
        ]

    def _has_living_master(self) -> bool:
        master = self._master()
        if master is None or master.name == self._name:
            return False
        return master.current_state.grade is master.target_state.grade is Grade.ONLINE

    def _way_out(self, line: str) -> str:
        if "raft.db is" in line:
            return (
                f"expel {self._name}, empty its directory and let it join under a new name"
                if len(self._state.cluster.instances) > 1
                else "restore the directory from a copy"
            )
        master, others = self._master(), self._others()
        if not others:
            return (
                "no other instance has these rows: what can be read is served; add an instance to "
                "the replicaset, or restore a copy"
            )
        if master is None or master.name == self._name:
            return "the replicaset gets another master, if somebody has whole rows"
        if self._waits_for:
            return self._waits_for
        return f"a full copy of {master.name} is taken"

    # --- looking --------------------------------------------------------------------------------

    async def run(self) -> None:
        """An alarm at once; everything when its time has come."""
        loop = asyncio.get_running_loop()
        since = loop.time()
        while True:
            await self._wait(LOOK_S)
            interval_s = self._interval_s() if self.scrubs else self._interval_s() / 10
            is_due = 0 < interval_s <= loop.time() - since
            if self._is_told.is_set():
                self._is_told.clear()
                await self.look()
            elif is_due or self._is_unread:
                await self.look(is_slow=True)
            self._is_unread = False
            if is_due or (self._is_suspected and self._is_replica()):
                self._is_suspected = False
                await self.compare()
            if is_due:
                self.scrubs += 1
                since = loop.time()
            await self._decide()

    async def _wait(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._is_told.wait()
        except TimeoutError:
            return

    async def look(self, *, is_slow: bool = False) -> None:
        """Read every page of both files. Slowly: some at a time, and nobody has to wait for that;
        where something seems to be wrong, all of it again to know what."""
        for path in (self._raft_path, self._data.store.path):
            bad: list[str] = []
            if not is_slow or not checksums.IS_LOADED or await self._is_suspect(path):
                bad = await self._bad_trees(path)
            if path.name == "data.db":
                self._can_give = can_be_copied(self._data.store, bad)
            if bad:
                words = ", ".join(map(self._in_words, bad))
                self._found(path.name, f"the checksum of a page is wrong in {words}")
            elif path.name in self.damage and "checksum" in self.damage[path.name]:
                del self.damage[path.name]  # the pages were written anew
        self._looked_at = asyncio.get_running_loop().time()

    async def _is_suspect(self, path: Path) -> bool:
        first, is_bad = 1, False
        while first and not is_bad:
            first, is_bad = await asyncio.to_thread(suspects, path, first)
            await self._rest(TREE_ROWS)
        return is_bad

    async def _bad_trees(self, path: Path) -> list[str]:
        bad: list[str] = []
        try:
            trees = await asyncio.to_thread(trees_of, path)
        except Exception as problem:
            if not checksums.is_damage(problem):
                raise
            return [SCHEMA_TREE]
        for tree in trees:
            if not await asyncio.to_thread(is_whole, path, tree):
                bad.append(tree)
            await self._rest(TREE_ROWS)
        return bad

    def _in_words(self, tree: str) -> str:
        if tree == SCHEMA_TREE:
            return "the list of tables"
        for table in self._state.catalog.tables.values():
            if tree == table.physical_name:
                return f"table {table.name}"
            for index in self._state.catalog.indexes.get(table.id, ()):
                if tree == index.physical_name:
                    return f"index {index.name}"
        return tree

    def _found(self, file: str, why: str) -> None:
        if self.damage.get(file) != why:
            self.damage[file] = why
            log.error("%s", self.problems()[list(self.damage).index(file)])

    # --- comparing ------------------------------------------------------------------------------

    async def compare(self) -> None:
        """A replica's rows with its master's, table by table, some buckets at a time."""
        for table_id, table in list(self._data.store.tables.items()):
            mine = self._mine()
            tier = self._state.cluster.tiers.get(mine.tier) if mine is not None else None
            last = tier.bucket_count if tier is not None else 0
            low, width = 0, 1
            while low <= last and self._is_replica():
                span = Span(table_id, low, min(low + width - 1, last))
                rows = await self._compare_piece(table.name, span)
                low = span.high + 1
                width = max(width // 2, 1) if rows > PIECE_ROWS else min(2 * width, 4096)

    async def _compare_piece(self, table: str, span: Span) -> int:
        master, found = self._master(), self._mine()
        if master is None or found is None:
            return 0
        rows, is_same = await self._asked(master, found, span)
        if is_same is False:
            self.differences += 1
            await self._settle(table, span, master, found)
        self.compared += rows
        await self._rest(rows)
        return rows

    async def _asked(
        self, other: InstanceRow, mine: Replicaset, span: Span
    ) -> tuple[int, bool | None]:
        rows = 0
        for _ in range(TRIES):
            try:
                found = await asyncio.to_thread(digest, self._data.store.path, span)
            except Exception as problem:
                if not checksums.is_damage(problem):
                    raise
                self._is_told.set()  # which pages is found out first
                return rows, None
            rows = found.rows
            request = CompareRequest(self._uuid, mine.uuid, span, found)
            try:
                answer = await self._peers.call(
                    other.raft_id, "compare_rows", request, CompareResponse, COMPARE_S
                )
            except CairnError as problem:
                log.debug("%s does not compare: %s", other.name, problem)
                return rows, None
            if answer.is_same is not None:
                return rows, answer.is_same
            await asyncio.sleep(AGAIN_S)
        return rows, None

    async def _settle(self, table: str, span: Span, master: InstanceRow, mine: Replicaset) -> None:
        """Two differ: whoever has the same as a third is right; without one, the master is."""
        where = f"rows of table {table} in buckets {span.low} to {span.high}"
        for other in self._others():
            if other.name == master.name:
                continue
            _, is_same = await self._asked(other, mine, span)
            if is_same:
                why = f"{where} differ from those of {self._name} and {other.name}"
                if self.accused.get(master.name) != why:
                    log.error("%s: %s", master.name, why)
                self.accused = {master.name: why}
                return
        self._found("data.db", f"{where} differ from those of {master.name}")

    async def handle_compare(self, request: CompareRequest) -> CompareResponse:
        self._place.check_peer(request.replicaset, request.subscriber)
        path, span = self._data.store.path, request.span
        if self._place.must_copy:
            raise NoMaster("this instance has no complete rows itself")
        is_same = await asyncio.to_thread(partial(compare, path, span, request.digest))
        if is_same is False:
            self._is_suspected = True
        return CompareResponse(is_same)

    # --- deciding -------------------------------------------------------------------------------

    async def _decide(self) -> None:
        master = self._master()
        self.accused = {
            name: why
            for name, why in self.accused.items()
            if master is not None and name == master.name
        }
        self._waits_for = ""
        if self._place.is_complete and not self._is_given:
            self._is_given = True
            setting_aside.given(self._data.store.path.parent)
        if master is None or master.name == self._name:
            return
        if master.current_state.grade is not Grade.ONLINE:
            return
        why = self.damage.get("data.db", "")
        if not why and self._shall_copy(master):
            why = f"the log of {master.name} is damaged, all of its rows are to be had by a copy"
        if why and await self._is_given_by(master):
            self._repair(why)

    def _shall_copy(self, master: InstanceRow) -> bool:
        """Whether ours is the file to be given up for what the log of a damaged master cannot tell.

        Of several replicas one does so: the others keep what they have until somebody is whole.
        """
        others = [each for each in self._others() if each.name != master.name]
        there = [each.name for each in others if each.current_state.grade is Grade.ONLINE]
        return self._barred_s(master.uuid) > BARRED_S and all(self._name < name for name in there)

    async def _is_given_by(self, master: InstanceRow) -> bool:
        try:
            answer = await self._peers.call(
                master.raft_id, "can_give_copy", Empty(), GivingResponse, COMPARE_S
            )
        except UnknownCall:  # of a version that does not say
            return True
        except CairnError as problem:
            self._waits_for = f"a full copy of {master.name} is taken when it answers: {problem}"
            return False
        if answer.can_give is False:
            self._waits_for = (
                f"{master.name} is damaged too: this file is kept, and a full copy is taken when "
                "the replicaset has a master that can give one"
            )
        return answer.can_give is True and self._master() is master

    async def handle_can_give(self, _: Empty) -> GivingResponse:
        """Asked by who would give up its file for a copy of ours: all pages are read first."""
        if asyncio.get_running_loop().time() - self._looked_at > LOOKED_S:
            self._is_told.set()
            return GivingResponse(None)
        return GivingResponse(self._can_give)

    async def handle_copy(self, request: CopyRequest) -> CopyPiece:
        """Whoever begins a copy deletes what it has: one that has no end is not begun."""
        if request.copy_id == 0 and not self._can_give:
            self._is_told.set()  # it may have been mended since
            raise checksums.page_damaged("a page that a full copy needs is damaged")
        return await self._copies.give(request)

    def _is_replica(self) -> bool:
        master = self._master()
        return master is not None and master.name != self._name and not self._place.must_copy

    def _mine(self) -> Replicaset | None:
        me = self._state.cluster.instances.get(self._name)
        return self._state.cluster.replicasets.get(me.replicaset_name) if me else None

    def _master(self) -> InstanceRow | None:
        mine = self._mine()
        return self._state.cluster.master_of(mine.name) if mine is not None else None

    def _others(self) -> list[InstanceRow]:
        mine = self._mine()
        if mine is None:
            return []
        return [
            each
            for each in self._state.cluster.members(mine.name)
            if each.name != self._name and each.name in mine.members
        ]

    def _interval_s(self) -> float:
        return float(self._state.setting("scrub_interval", INTERVAL_S))

    async def _rest(self, rows: int) -> None:
        rate = int(self._state.setting("scrub_rows_per_s", ROWS_PER_S))
        await asyncio.sleep(rows / rate if rate > 0 else 0)


def _wake(loop: asyncio.AbstractEventLoop, event: asyncio.Event) -> None:
    """From whatever thread has met a damaged page."""
    try:
        loop.call_soon_threadsafe(event.set)
    except RuntimeError:  # the loop is closed
        return
