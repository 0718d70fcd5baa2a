"""Blows against a cluster under load, one method each; a trial draws from those its kind allows.

`drawn` is the one source of chance, so a seed says which blows fall when.
"""

from __future__ import annotations

import asyncio
import contextvars
import random
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from cairn.model.errors import CairnError
from cairn.model.log import ops
from cairn.model.log.ranges import one_key, whole_table
from cairn.model.members.topology import Grade, Replicaset
from cairn.model.rpc import ExpelRequest, ExpelResponse
from cairn.model.tables import rows
from cairn.model.tables import system_tables as system
from cairn.sim.cluster.blows.moments import Moments
from cairn.sim.cluster.blows.schema_blows import OF_COLUMNS, SCHEMA, SchemaChange, other_change
from cairn.sim.cluster.loads.load import TABLE
from cairn.sim.cluster.loads.quiet import Quiet
from cairn.sim.cluster.node import SimNode
from cairn.sim.cluster.world import World

Make = Callable[[Any], ops.Op | None]
PAGE = 4096
DAY_S = 86_400
_FLIP = """
import sys
with open(sys.argv[1], "r+b") as file:
    file.seek(int(sys.argv[2]))
    byte = file.read(1)
    file.seek(int(sys.argv[2]))
    file.write(bytes([byte[0] ^ 1]))
"""


class Nemesis:
    """What can happen to one world. Everything it breaks, `mend` puts right."""

    def __init__(self, world: World, drawn: random.Random, quiet: Quiet | None = None) -> None:
        self.world, self.drawn = world, drawn
        self._quiet = quiet or Quiet()
        self.done: list[str] = []
        self._gone: set[str] = set()  # asked to leave for good
        self.moments = Moments(world)
        self._rotting: str | None = None  # whose disk changes bytes by itself

    def note(self, what: str) -> None:
        self.done.append(f"{self.world.loop.time():8.3f} {what}")

    async def mend(self) -> None:
        self._quiet.end()
        self.world.wire.heal()
        for node in self.world.nodes.values():
            node.resume()
            if node.runtime is not None:
                node.runtime.disk_delay_s = min(node.runtime.disk_delay_s, 0.01)
            self.back(node)

    def back(self, node: SimNode) -> None:
        if node.is_leaving:
            self.later(1.0, partial(self.back, node))
        if not node.is_running and node.lives and node.exit_code != 5:
            node.start()

    # --- who --------------------------------------------------------------------------------------

    def some(self, fits: Callable[[SimNode], bool] = lambda _: True) -> SimNode | None:
        found = [node for node in self.world.running() if not node.is_paused and fits(node)]
        return self.drawn.choice(found) if found else None

    def master_or_any(self) -> SimNode | None:
        """Masters are hit more often than others."""
        if self.drawn.random() < 0.6:
            found = self.some(lambda node: is_master(node))
            if found is not None:
                return found
        return self.some()

    def masters(self) -> list[SimNode]:
        return [node for node in self.world.running() if is_master(node)]

    def some_master(self) -> SimNode | None:
        return self.some(is_master)

    def replicasets(self) -> dict[str, Replicaset]:
        leader = self.world.leader()
        if leader is None or leader.instance is None:
            return {}
        return leader.instance.state.cluster.replicasets

    # --- proposals --------------------------------------------------------------------------------

    async def propose(self, make: Make, ranges: tuple[Any, ...] = ()) -> bool:
        """At the leader, as a client of it; whether it is known to have been accepted."""
        leader = self.world.leader()
        if leader is None or leader.instance is None or leader.process is None or leader.is_paused:
            return False
        instance, process = leader.instance, leader.process

        async def work() -> bool:
            try:
                op = make(instance)
                if op is None:
                    return False
                await instance.proposer.cas(op, instance.proposer.predicate(ranges), timeout_s=2.0)
            except CairnError:
                return False
            return True

        task = self.world.loop.create_task(work(), context=process.context)
        while not task.done() and leader.process is process and leader.is_running:
            await asyncio.sleep(0.01)
        return task.done() and not task.cancelled() and task.result()

    async def _change_replicaset(
        self, name: str, change: Callable[[Replicaset], Replicaset]
    ) -> bool:
        def make(instance: Any) -> ops.Op | None:
            found = instance.state.cluster.replicasets.get(name)
            if found is None:
                return None
            row = rows.replicaset_row(change(found))
            return ops.Batch((ops.Replace(system.PICO_REPLICASET.id, row),))

        return await self.propose(make, (one_key(system.PICO_REPLICASET.id, (name,)),))

    # --- masters, buckets, members ----------------------------------------------------------------

    async def switch(self, heir: SimNode | None = None) -> None:
        """A planned change, to a given member or to any that is there."""
        to = heir or self.some(lambda node: node.grade is Grade.ONLINE)
        if to is None or to.instance is None or to.instance.row is None:
            return
        name, where = to.instance.row.name, to.instance.row.replicaset_name
        found = self.replicasets().get(where)
        if found is None or name not in found.members:
            return
        if await self._change_replicaset(
            where, lambda each: msgspec.structs.replace(each, target_master_name=name)
        ):
            self.note(f"switch {where} to {to}")
            until = self.world.loop.time() + self.drawn.uniform(0.0, 4.0)
            while not is_master(to) and self.world.loop.time() < until:
                await asyncio.sleep(0.05)

    async def weigh(self) -> None:
        """Buckets shall move."""
        names = sorted(self.replicasets())
        if len(names) < 2:
            return
        name, weight = self.drawn.choice(names), self.drawn.choice((0.25, 0.5, 1.0, 2.0, 4.0))
        if await self._change_replicaset(
            name,
            lambda each: msgspec.structs.replace(each, weight=weight, weight_origin="user"),
        ):
            self.note(f"weight {weight} for {name}")

    async def mode(self) -> None:
        """From sync to async or back, under load."""

        def make(instance: Any) -> ops.Op | None:
            [tier] = instance.state.cluster.tiers.values()
            other = "async" if tier.replication_mode == "sync" else "sync"
            changed = msgspec.structs.replace(tier, replication_mode=other)
            return ops.Batch((ops.Replace(system.PICO_TIER.id, rows.tier_row(changed)),))

        if await self.propose(make, (whole_table(system.PICO_TIER.id),)):
            self.note("another replication mode")

    async def replace(self, who: SimNode | None = None) -> None:
        """One is expelled, and another joins: often under the same name."""
        victim = who or self.some(lambda node: node.grade is Grade.ONLINE)
        if victim is None or victim.instance is None or victim.instance.row is None:
            return
        if self._gone or len(self.world.running()) < len(self._members()):
            return  # one at a time, and only while nobody else is away
        name, uuid = victim.instance.row.name, victim.instance.row.uuid
        request = ExpelRequest(victim.instance.identity.cluster_uuid, uuid)
        asker = self.some(lambda node: node is not victim and node.instance is not None)
        if asker is None or asker.instance is None or asker.process is None:
            return
        self.note(f"expel {victim}, asked at {asker}")
        instance = asker.instance

        async def ask() -> None:
            try:
                await instance.leader.ask("expel", request, ExpelResponse, 10.0)
                self._gone.add(victim.name)
            except CairnError as problem:
                self.note(f"expel {victim}: {problem}")

        self.world.loop.create_task(ask(), context=asker.process.context)
        if self.drawn.random() < 0.7:
            until = self.world.loop.time() + 30.0
            while victim.is_running and self.world.loop.time() < until:
                await asyncio.sleep(0.1)
        reused = name if self.drawn.random() < 0.6 else None
        self.join(reused)
        self._gone.clear()

    def join(self, instance_name: str | None = None) -> SimNode:
        number = len(self.world.nodes) + 1
        peers = tuple(node.config.advertise for node in self.world.running())
        self.note(f"join n{number} as {instance_name or 'a new name'} through {peers}")
        node = self.world.add(f"n{number}", peers, instance_name=instance_name)
        node.start()
        return node

    def _members(self) -> list[SimNode]:
        return [node for node in self.world.nodes.values() if node.exit_code != 5]

    # --- schema -----------------------------------------------------------------------------------

    async def alter(self) -> None:
        make = SchemaChange(self.drawn)
        if await self.propose(make, SCHEMA):
            self.note(f"change {make.what}")

    async def alter_columns(self) -> None:
        """Columns of the table under load: they come, go, and must or may be NULL."""
        make = SchemaChange(self.drawn, (TABLE,), OF_COLUMNS)
        if await self.propose(make, SCHEMA):
            self.note(f"change {make.what}")

    async def alter_while_moving(self) -> None:
        """Buckets are on their way when the columns change."""
        await self.weigh()
        await asyncio.sleep(self.drawn.choice((0.05, 0.2, 0.4)))
        await self.alter_columns()

    async def other_table(self) -> None:
        """A table that nobody writes comes, is emptied, and goes."""
        if await self.propose(other_change, SCHEMA):
            self.note("another table comes, is emptied or goes")

    async def forget_logs(self) -> None:
        """Whoever is away needs a snapshot."""
        self.note("forget Raft's logs")
        for node in self.world.running():
            if node.instance is None or node.is_paused or node.process is None:
                continue
            runner = node.instance.runner
            if runner.applied_index >= runner.view.first_index():
                node.process.context.run(runner.compact, runner.applied_index)

    async def forget_row_logs(self, most: int = 20) -> None:
        """As `row_log_max` does: of each origin some records are left, and whoever is behind, or is
        being given buckets, needs the rows themselves.
        """
        keep = self.drawn.choice([each for each in (1, 3, 20) if each <= most])
        self.note(f"forget the logs of rows but for {keep} records")
        for node in self.world.running():
            if node.instance is None or node.is_paused or node.process is None:
                continue
            data = node.instance.data

            async def work(data: Any = data) -> None:
                for origin, lsn in list(data.vclock.items()):
                    if lsn > keep:
                        await data.run(partial(data.store.prune, origin, lsn - keep))

            self.world.loop.create_task(work(), context=node.process.context)

    async def short_logs(self) -> None:
        """Raft's logs are forgotten all the time."""
        most = self.drawn.choice((1, 3, 10))
        if await self.set("raft_wal_count_max", most):
            self.note(f"raft_wal_count_max = {most}")

    async def graph(self) -> None:
        """Rows come from everybody, or around a ring of members, now and then with a way across."""
        found = self.replicasets()
        members = list(found[self.drawn.choice(sorted(found))].members) if found else []
        if len(members) < 3:
            return
        self.drawn.shuffle(members)
        ways = list(zip(members, members[1:] + members[:1], strict=True))
        if self.drawn.random() < 0.3:
            ways.append((members[1], members[0]))
        text = "" if self.drawn.random() < 0.2 else ",".join(f"{up}>{down}" for up, down in ways)
        if await self.set("replication_graph", text):
            self.note(f"rows go {text or 'from all to all'}")

    async def set(self, name: str, value: float | str) -> bool:
        """A setting of the cluster."""
        table = system.PICO_DB_CONFIG.id

        def make(_: Any) -> ops.Op:
            return ops.Batch((ops.Replace(table, (name, "", rows.to_json(value))),))

        return await self.propose(make, (whole_table(table),))

    # --- time, network, disks ---------------------------------------------------------------------

    async def pause(self) -> None:
        if node := self.master_or_any():
            seconds = self.drawn.choice((0.2, 0.9, 1.5, 4.0, 8.0))
            self.note(f"pause {node} for {seconds} s")
            node.pause()
            self.later(seconds, node.resume)

    async def clock(self) -> None:
        """A wall clock may say anything; the clock of leases runs a few hundredths wrong."""
        node = self.master_or_any()
        if node is None or node.runtime is None:
            return
        jump = self.drawn.choice((-40 * DAY_S, -7200, -3, 3, 7200, 40 * DAY_S))
        rate = self.drawn.uniform(0.96, 1.04)
        self.note(f"the clock of {node} jumps by {jump} s and runs at {rate:.3f}")
        node.runtime.jump(jump)
        node.runtime.run_at(rate)

    async def cut(self) -> None:
        """Some links of one instance, one way or both."""
        if node := self.master_or_any():
            for other in self.world.nodes.values():
                for one, two in ((node, other), (other, node)):
                    if node is not other and self.drawn.random() < 0.5:
                        self.note(f"cut {one} → {two}")
                        self.world.wire.cut(one.name, two.name)

    async def leave(self) -> None:
        """A master is cut off while nobody writes, and is only read from until all is mended."""
        if node := self.some(is_master):
            left = node

            def cut() -> None:
                for other in self.world.nodes.values():
                    if other is not left:
                        self.world.wire.cut(left.name, other.name)
                        self.world.wire.cut(other.name, left.name)

            if await self._quiet.leave_to_readers(left, cut):
                self.note(f"{left} is left to readers")
                await asyncio.sleep(self.drawn.uniform(2.0, 5.0))

    async def heal(self) -> None:
        self.note("mend all links")
        self.world.wire.heal()

    async def slow_disk(self) -> None:
        node = self.master_or_any()
        if node is None or node.runtime is None:
            return
        runtime, delay = node.runtime, self.drawn.choice((0.05, 0.3, 1.0))
        self.note(f"the disk of {node} takes {delay} s")
        before, runtime.disk_delay_s = min(runtime.disk_delay_s, 0.01), delay
        back = self.drawn.uniform(0.5, 4.0)
        self.world.loop.call_later(back, setattr, runtime, "disk_delay_s", before)

    async def full_disk(self) -> None:
        """One group finds no space: its instance ends and is started again."""
        node = self.master_or_any()
        if node is None or node.runtime is None or not node.runtime.disks:
            return
        disk = self.drawn.choice(node.runtime.disks)
        self.note(f"the disk of {node} is full for {disk.path.name}")
        disk.is_full = True
        self.back_later(node, 2.0, 6.0)

    async def rot(self) -> None:
        """One bit of one page changes on the disk of an instance, whatever the page holds.

        Always the same one, and only while everybody is there: what rots in two places is lost.
        """
        if self._rotting is None:
            found = self.some(lambda each: each.grade is Grade.ONLINE)
            self._rotting = found.name if found is not None else None
        node = self.world.nodes.get(self._rotting or "")
        if node is None or node.instance is None or node.grade is not Grade.ONLINE:
            return
        if len(self.world.running()) < len(self._members()):
            return
        store = node.instance.data.store
        store.connection.execute("PRAGMA main.wal_checkpoint(PASSIVE)").fetchall()
        pages = store.path.stat().st_size // PAGE
        at = self.drawn.randrange(1, max(pages, 2)) * PAGE + self.drawn.randrange(PAGE)
        self.note(f"byte {at} of {store.path.name} of {node} rots")
        # By another process: to close a file in this one would give up the locks of SQLite.
        command = [sys.executable, "-I", "-S", "-c", _FLIP, str(store.path), str(at)]
        subprocess.run(command, check=True)

    async def lag(self) -> None:
        """A replica is away while logs are forgotten: it needs a snapshot and a copy."""
        if len(self.world.running()) < len(self._members()):
            return
        node = self.some(lambda each: not is_master(each))
        if node is None:
            return
        self.note(f"kill {node}, a replica, for a while")
        node.crash(power=self.drawn.random() < 0.3)
        await asyncio.sleep(self.drawn.uniform(0.5, 1.5))
        await self.forget_logs()
        await self.forget_row_logs(1)
        self.back_later(node, 0.2, 0.5)

    # --- ends -------------------------------------------------------------------------------------

    async def kill(self) -> None:
        if node := self.master_or_any():
            power = self.drawn.random() < 0.5
            self.note(f"{'power cut of' if power else 'kill'} {node}")
            node.crash(power=power)
            self.back_later(node, 0.0, 5.0)

    async def kill_replica(self) -> None:
        """Somebody who is no master, and only while all others are there."""
        if len(self.world.running()) == len(self._members()):
            node = self.some(lambda each: not is_master(each))
            if node is not None:
                self.note(f"kill {node}, a replica")
                node.crash(power=self.drawn.random() < 0.3)

    async def stop(self) -> None:
        if node := self.master_or_any():
            self.note(f"stop {node}")
            node.stop()
            self.back_later(node, 0.5, 5.0)

    async def power(self) -> None:
        """The power goes in the whole house."""
        if self.drawn.random() < 0.7:
            await self.kill()
            return
        self.note("power cut everywhere")
        for node in self.world.running():
            node.crash(power=True)
            self.back_later(node, 0.5, 2.0)

    async def blackout(self) -> None:
        """The power goes in the whole house, and one stays away: where a majority has all rows, it
        goes on without that one.
        """
        away = self.master_or_any()
        if away is None or len(self.world.running()) < len(self._members()):
            return
        self.note(f"power cut everywhere, {away} stays away")
        row = away.instance.row if away.instance is not None else None
        tiers = {} if away.instance is None else away.instance.state.cluster.tiers
        for node in self.world.running():
            node.crash(power=True)
            if node is not away:
                self.back_later(node, 0.0, 4.0)
        if row is not None and tiers[row.tier].replication_mode == "sync":
            name = row.replicaset_name
            await self.world.until(lambda: self._is_served(name), f"{name} to be served", 90.0)
        else:
            await asyncio.sleep(self.drawn.uniform(5.0, 20.0))
        self.back(away)

    def _is_served(self, name: str) -> bool:
        return any(
            is_master(node)
            and node.instance is not None
            and node.instance.row is not None
            and node.instance.row.replicaset_name == name
            and node.instance.lease.is_held(node.instance.data.fence.epoch)
            for node in self.world.running()
        )

    async def lose_tail(self) -> None:
        """A disk that lied: the last records of rows are gone, Raft's are not."""
        node = self.master_or_any()
        if node is None or node.instance is None or node.runtime is None:
            return
        commits = self.drawn.randint(1, 8)
        for disk in node.runtime.disks:
            if disk.path.name == "data.db":
                disk.forget(commits)
        self.note(f"power cut of {node}, which loses {commits} commits of rows")
        node.crash(power=True)
        self.back_later(node, 0.0, 1.0)

    def back_later(self, node: SimNode, least: float, most: float) -> None:
        self.later(self.drawn.uniform(least, most), partial(self.back, node))

    def later(self, seconds: float, work: Callable[[], None]) -> None:
        """Whoever asks may be an instance that is dead by then."""
        self.world.loop.call_later(seconds, work, context=contextvars.Context())


def is_master(node: SimNode) -> bool:
    return node.instance is not None and node.instance.data.fence.is_master
