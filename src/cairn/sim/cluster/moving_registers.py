"""A load that does not commute: each key is a register that one client writes, deletes and reads.

A client goes on to the next operation when it knows how the last one ended, so for each key there
is one order of writes. What a read may show follows from it: the last value that was acknowledged,
or one whose end is not known and that came after it. A value that was overwritten, a deleted row
that is back, and a row that nobody wrote are violations.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import apsw

from cairn.model.errors import CairnError
from cairn.model.rpc import ReadRequest, WriteRequest
from cairn.node.execution import Execution
from cairn.sim.cluster.checks import Violation
from cairn.sim.cluster.load import TABLE, Load
from cairn.sim.cluster.node import SimNode
from cairn.sim.cluster.world import World

BUCKETS = 30
_NAME = TABLE.physical_name
PUT = f"INSERT INTO {_NAME} VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET c1 = excluded.c1"
DELETE = f"DELETE FROM {_NAME} WHERE bucket_id = ? AND c0 = ?"
APPEND = f"UPDATE {_NAME} SET c1 = c1 || ? WHERE bucket_id = ? AND c0 = ?"
READ = f"SELECT c1 FROM {_NAME} WHERE bucket_id = ? AND c0 = ?"
NOT_DONE = ("PC001", "PC003", "PC004")  # certainly nothing happened


class Register:
    """What a key may hold: `values[0]` is certain, the others may have been written after it."""

    def __init__(self) -> None:
        self.values: list[str | None] = [None]
        self.writes = 0

    def wrote(self, value: Callable[[str | None], str | None], is_certain: bool) -> None:
        """A write ended. Uncertain ones leave every older possibility open."""
        after = [value(old) for old in self.values]
        found = after if is_certain else [*self.values, *after]
        self.values = list(dict.fromkeys(found))


class Registers:
    """Keys 0…count, spread over all buckets; clients find owners as the instances know them."""

    def __init__(self, world: World, load: Load, count: int = 60) -> None:
        self.world, self._load = world, load
        self.keys = {key: Register() for key in range(count)}
        self.acked = self.unknown = self.reads = 0
        self.longest_s = 0.0  # that a client waited for a certain end
        self.violation: str | None = None

    async def run(self, seconds: float, clients: int = 6) -> None:
        end = self.world.loop.time() + seconds
        await asyncio.gather(*(self._client(number, clients, end) for number in range(clients)))
        if self.violation is not None:
            raise Violation(self.violation)

    async def _client(self, number: int, clients: int, end: float) -> None:
        chance = self.world.chance
        mine = [key for key in self.keys if key % clients == number]
        while self.world.loop.time() < end and self.violation is None:
            key = chance.choice(mine)
            await asyncio.sleep(chance.uniform(0.0, 0.02))
            match chance.choice(("put", "put", "append", "append", "delete", "read", "read")):
                case "put":
                    await self._put(key)
                case "append":
                    await self._append(key)
                case "delete":
                    await self._delete(key)
                case "read":
                    await self._read(key)

    # --- operations -------------------------------------------------------------------------------

    async def _put(self, key: int) -> None:
        register = self.keys[key]
        register.writes += 1
        text = f"{key}.{register.writes}"
        bucket = bucket_of(key)
        await self._write(key, PUT, (bucket, key, text), lambda _: text)

    async def _append(self, key: int) -> None:
        register = self.keys[key]
        register.writes += 1
        text = f",{register.writes}"
        await self._write(
            key,
            APPEND,
            (text, bucket_of(key), key),
            lambda old: None if old is None else old + text,
        )

    async def _delete(self, key: int) -> None:
        await self._write(key, DELETE, (bucket_of(key), key), lambda _: None)

    async def _write(
        self,
        key: int,
        sql: str,
        row: tuple[Any, ...],
        value: Callable[[str | None], str | None],
    ) -> None:
        request = WriteRequest(TABLE.id, 1, sql, (row,), (bucket_of(key),))
        begun = self.world.loop.time()
        outcome = await self._at_owner(key, lambda execution: execution.write(request))
        register = self.keys[key]
        if outcome is None:
            register.wrote(value, is_certain=False)
            self.unknown += 1
            return
        register.wrote(value, is_certain=True)
        self.acked += 1
        self.longest_s = max(self.longest_s, self.world.loop.time() - begun)

    async def _read(self, key: int) -> None:
        request = ReadRequest(READ, (bucket_of(key), key), {TABLE.id: 1}, bucket_of(key))
        outcome = await self._at_owner(key, lambda execution: execution.read(request))
        if outcome is None:
            return
        found = outcome[0][0] if outcome else None
        self.reads += 1
        register = self.keys[key]
        if found not in register.values:
            self.violation = (
                f"key {key} (bucket {bucket_of(key)}) was read as {found!r}, "
                f"it can only be one of {register.values}"
            )

    async def _at_owner(self, key: int, work: Callable[[Execution], Awaitable[Any]]) -> Any:
        """Ask whoever an instance takes for the owner, until it was done or may have been."""
        deadline = self.world.loop.time() + 60.0
        while self.world.loop.time() < deadline:
            node = self._owner(key)
            if node is None:
                await asyncio.sleep(0.02)
                continue
            try:
                return await self._inside(node, work)
            except CairnError as problem:
                if problem.sqlstate not in NOT_DONE:
                    return None
                await asyncio.sleep(0.01)
            except (asyncio.CancelledError, TimeoutError):
                return None  # it died, or stands still
        return None

    async def _inside(self, node: SimNode, work: Callable[[Execution], Awaitable[Any]]) -> Any:
        execution = self._load.execution(node)

        async def run() -> Any:
            return await work(execution)

        assert node.process is not None
        task = self.world.loop.create_task(run(), context=node.process.context)
        async with asyncio.timeout(5.0):
            return await asyncio.shield(task)

    def _owner(self, key: int) -> SimNode | None:
        """By the map of some running instance, which may be an old one."""
        knowing = [node for node in self.world.running() if node.instance is not None]
        if not knowing:
            return None
        chosen = self.world.chance.choice(knowing).instance
        assert chosen is not None
        cluster = chosen.state.cluster
        owner = cluster.owner_of("default", bucket_of(key))
        replicaset = cluster.replicasets.get(owner or "")
        node = None
        if replicaset is not None:
            node = self.world.nodes.get(replicaset.current_master_name)
        if node is None or node.instance is None or not node.is_running:
            return None
        return node

    # --- the end ----------------------------------------------------------------------------------

    def check(self) -> None:
        """After calm: every key at its owner, once, with a value that it may have."""
        leader = self.world.leader()
        assert leader is not None and leader.instance is not None
        cluster = leader.instance.state.cluster
        for node in self.world.running():
            row = node.instance.row if node.instance is not None else None
            if row is None:
                continue
            owned = cluster.owned(row.replicaset_name)
            have = rows_of(node)
            for key, register in self.keys.items():
                bucket = bucket_of(key)
                is_ours = any(each.start <= bucket <= each.end for each in owned)
                found = have.pop((bucket, key), None)
                if is_ours and found not in register.values:
                    raise Violation(
                        f"{node.name} has key {key} as {found!r}, it can only be one of "
                        f"{register.values}"
                    )
                if not is_ours and found is not None:
                    raise Violation(f"{node.name} still has key {key}, which it does not own")
            if have:
                raise Violation(f"{node.name} has rows that nobody wrote: {have}")

    async def settled(self, timeout_s: float = 60.0) -> None:
        """Until `check` finds nothing, for replicas take a moment; then what it finds is wrong."""
        deadline = self.world.loop.time() + timeout_s
        while True:
            try:
                self.check()
                return
            except Violation:
                if self.world.loop.time() > deadline:
                    raise
            await asyncio.sleep(0.5)


def bucket_of(key: int) -> int:
    return key % BUCKETS + 1


def rows_of(node: SimNode) -> dict[tuple[int, int], Any]:
    connection = apsw.Connection(str(node.dir / "data.db"), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        found: list[Any] = connection.execute(f"SELECT bucket_id, c0, c1 FROM {_NAME}").fetchall()
    finally:
        connection.close()
    return {(bucket, key): value for bucket, key, value in found}
