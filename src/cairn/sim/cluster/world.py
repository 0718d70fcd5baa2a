"""One simulated cluster: its loop, its network, its nodes, and what is asked of it at the end."""

from __future__ import annotations

import asyncio
import logging
import random
import shutil
import tempfile
import traceback
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from cairn.model.members.cluster import Cluster
from cairn.model.members.topology import Grade, Tier
from cairn.node.boot.config import InstanceConfig
from cairn.node.instance import Instance
from cairn.node.rows.data_plane import fence_of
from cairn.node.rows.routes import Routes
from cairn.node.statements.blocks import block_owner
from cairn.sim.cluster.checks import Checks, Violation, check_masters
from cairn.sim.cluster.loop import PROCESS, VirtualLoop
from cairn.sim.cluster.node import SimNode
from cairn.sim.cluster.wire import Wire
from cairn.storage import readers
from cairn.storage.files import checksums

SAMPLE_S = 0.02
FOUND_S = 60.0
ENDLESS_S = 1e9
SETTLE_S = 200.0  # patience of the governor and of the sentinel is up to a minute each


class World:
    """Nodes by name. `run` carries out a scenario and then checks that nothing was broken."""

    def __init__(self, seed: int, tiers: tuple[Tier, ...] = (Tier("default", 1),)) -> None:
        self.seed, self.tiers = seed, tiers
        self.chance = random.Random(seed)
        self.loop = VirtualLoop()
        self.wire = Wire(self.loop, random.Random(seed + 1))
        self.checks = Checks(self.loop.time)
        base = "/dev/shm" if Path("/dev/shm").is_dir() else None
        self.dir = Path(tempfile.mkdtemp(prefix="cairn-sim-", dir=base))
        self.nodes: dict[str, SimNode] = {}
        #: Gives an instance what its faces would.
        self.equip: Callable[[SimNode, Instance], None] | None = None
        #: Limits of real time, which are not there: how busy this machine is shows nowhere.
        self.real_limits: list[tuple[Any, str]] = [(readers, "QUICK_S"), (block_owner, "QUICK_S")]
        #: Told at every moment at which a node could die.
        self.on_step: Callable[[SimNode, str], None] = lambda node, what: None

    def add(self, name: str, peers: tuple[str, ...], **options: Any) -> SimNode:
        address = options.pop("address", f"{name}:3301")
        config = InstanceConfig(
            cluster_name="sim",
            instance_name=options.pop("instance_name", name),
            instance_dir=self.dir / name,
            listen=address,
            advertise=address,
            pg_listen=f"{name}:4327",
            pg_advertise=f"{name}:4327",
            peers=peers,
            tiers=self.tiers,
            **options,
        )
        node = self.nodes[name] = SimNode(self, config, self.dir / name)
        return node

    # --- running ----------------------------------------------------------------------------------

    def run(self, scenario: Callable[[], Awaitable[None]]) -> None:
        """Raises `Violation` for a broken promise, whatever else the scenario says."""
        handler = _Tell(self.loop)
        logger = logging.getLogger("cairn")
        logger.addHandler(handler)
        bugs = logging.getLogger("cairn.bug")
        bugs.setLevel("ERROR")
        bugs.addHandler(handler_of_bugs := _Bugs(self.loop))
        before = [*checksums.listeners]
        limits = {(module, name): getattr(module, name) for module, name in self.real_limits}
        for module, name in limits:
            setattr(module, name, ENDLESS_S)
        try:
            self.loop.run_until_complete(self._guarded(scenario))
        finally:
            for (module, name), limit in limits.items():
                setattr(module, name, limit)
            logger.removeHandler(handler)
            bugs.removeHandler(handler_of_bugs)
            checksums.listeners[:] = before  # processes that crashed took none of theirs away
            self.close()

    async def _guarded(self, scenario: Callable[[], Awaitable[None]]) -> None:
        work = asyncio.ensure_future(scenario())
        while not work.done():
            await asyncio.wait({work}, timeout=SAMPLE_S)
            self._look()
        work.result()
        self._look()
        for node in self.running():
            if node.instance is None:
                continue
            if not node.instance.state.is_as_on_disk():
                raise Violation(f"{node.name} has another picture than its tables")
            cluster, routes = (
                node.instance.state.cluster,
                node.instance.executor.reads.owners.routes,
            )
            if vars(routes) != vars(Routes(cluster)):
                raise Violation(f"{node.name} has other routes than its picture")
            if node.instance.data.fence != fence_of(node.instance.name, cluster):
                raise Violation(f"{node.name} has another fence than its picture")

    def _look(self) -> None:
        check_masters(list(self.nodes.values()))
        if self.checks.violation is not None:
            raise Violation(self.checks.violation)
        if self.loop.problems:
            raise Violation(f"a callback failed: {self.loop.problems[0]}")

    def close(self) -> None:
        for node in self.nodes.values():
            if node.is_running:
                assert node.process is not None
                node.process.crash()
                node.process.close_files()
        self.loop.bury()
        shutil.rmtree(self.dir, ignore_errors=True)

    # --- waiting ----------------------------------------------------------------------------------

    async def until(self, condition: Callable[[], bool], what: str, timeout_s: float) -> None:
        deadline = self.loop.time() + timeout_s
        while not condition():
            if self.loop.time() > deadline:
                raise Violation(f"{what} did not happen within {timeout_s:g} s; {self.story()}")
            await asyncio.sleep(0.05)

    async def online(self, *names: str, timeout_s: float = FOUND_S) -> None:
        def all_online() -> bool:
            return all(self.nodes[name].grade is Grade.ONLINE for name in names)

        await self.until(all_online, f"{', '.join(names)} Online", timeout_s)

    async def settled(self, timeout_s: float = SETTLE_S) -> None:
        """The wished topology: everybody Online or gone, and the governor has nothing to do."""
        await self.until(lambda: self.why_unsettled() is None, "the end", timeout_s)

    # --- looking ----------------------------------------------------------------------------------

    def leader(self) -> SimNode | None:
        leaders = [node for node in self.nodes.values() if node.is_leader and node.is_running]
        return max(leaders, key=_term, default=None)

    def running(self) -> list[SimNode]:
        return [node for node in self.nodes.values() if node.is_running]

    def why_unsettled(self) -> str | None:
        leader = self.leader()
        if leader is None or leader.instance is None:
            return "no leader"
        instance = leader.instance
        cluster = instance.state.cluster
        for node in self.nodes.values():
            why = self._why_not_there(node, cluster)
            if why:
                return why
        status = instance.governor.status
        if status.step != "idle" or [why for why in status.blocked_by if "waiting for" not in why]:
            return f"governor: {status.step} {status.subject} {status.blocked_by}"
        return why_wrong(cluster) or self._why_behind(instance.runner.applied_index)

    def _why_not_there(self, node: SimNode, cluster: Cluster) -> str | None:
        uuid_file = node.dir / "instance_uuid"
        uuid = uuid_file.read_text().strip() if uuid_file.exists() else ""
        row = cluster.by_uuid(uuid)
        if node.is_leaving:
            return f"{node.name} is leaving"
        if node.is_running:
            if row is None:
                return f"{node.name} runs and has no row"
            if row.current_state.grade is not Grade.ONLINE or row.current_state != row.target_state:
                return f"{node.name} is {row.current_state}, target {row.target_state}"
        elif node.exit_code == 5 and row is not None:
            return f"{node.name} says that it was expelled and is {row.current_state}"
        elif row is not None and row.current_state.grade not in (Grade.OFFLINE,):
            return f"{node.name} does not run and is {row.current_state}"
        elif row is None and node.lives and node.exit_code not in (0, 1, 5):
            return f"{node.name} was expelled and ended with {node.exit_code}"
        return None

    def _why_behind(self, index: int) -> str | None:
        for node in self.running():
            if node.instance is None or node.instance.runner.applied_index < index:
                return f"{node.name} is behind"
        return None

    def story(self) -> str:
        """Where everybody stands, for a failure."""
        lines = [f"t={self.loop.time():.1f} {self.why_unsettled()}"]
        leader = self.leader()
        if leader is not None and leader.instance is not None:
            moves = leader.instance.state.cluster.moves.values()
            lines += [f"move {move.id}: {move} {move.phase}" for move in moves if move.is_open]
            lines += leader.instance.move_driver.waits
        for node in self.nodes.values():
            instance = node.instance
            if instance is None:
                lines.append(f"{node.name}: exit {node.exit_code} {node.problem}")
                continue
            status, core = instance.governor.status, instance.runner.core
            lines.append(
                f"{node.name}: {core.role.name} term {core.term} leader {core.leader} "
                f"applied {instance.runner.applied_index} voters {core.conf.voters} "
                f"learners {core.conf.learners} row {instance.row and instance.row.current_state} "
                f"→ {instance.row and instance.row.target_state}; {status.step} {status.subject} "
                f"{status.blocked_by} {status.last_error}"
            )
        return "\n  ".join(lines)


def why_wrong(cluster: Cluster) -> str | None:
    """What is not as it should be in a quiet cluster."""
    for row in cluster.instances.values():
        if row.target_state.grade is Grade.EXPELLED:
            return f"{row.name} is not gone yet"
    for replicaset in cluster.replicasets.values():
        online = [
            row.name
            for row in cluster.members(replicaset.name)
            if row.current_state.grade is Grade.ONLINE
        ]
        if replicaset.current_master_name != replicaset.target_master_name:
            return f"{replicaset.name} is between two masters"
        if online and replicaset.current_master_name not in online:
            return f"{replicaset.name} has no live master"
        if set(online) - set(replicaset.members):
            return f"{replicaset.name} does not count all its members"
    for tier in cluster.tiers.values():
        filled = [r for r in cluster.replicasets.values() if r.tier == tier.name and r.weight > 0]
        if bool(filled) != bool(cluster.tier_buckets(tier.name)):
            return f"tier {tier.name} has {len(filled)} replicasets and no buckets"
    return None


def _term(node: SimNode) -> int:
    return 0 if node.instance is None else node.instance.runner.term


class _Tell(logging.Handler):
    """Log lines with virtual time and the name of the instance."""

    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def emit(self, record: logging.LogRecord) -> None:
        if TRACE is not None:
            line = f"{self._loop.time():9.3f} {PROCESS.get()!s:7} {record.name}: "
            TRACE(line + record.getMessage())


#: Set to hear the story of a run.
TRACE: Callable[[str], None] | None = None


class _Bugs(logging.Handler):
    """In life an unexpected error is logged and the instance goes on; here the seed fails."""

    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def emit(self, record: logging.LogRecord) -> None:
        problem = record.exc_info[1] if record.exc_info else None
        lines = traceback.format_exception(problem)[-3:] if problem is not None else []
        self._loop.problems.append(f"{record.getMessage()}: {''.join(lines)}")
