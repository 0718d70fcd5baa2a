"""A simulated instance: the real `Boot` and `Instance`, started, killed, paused and stopped."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import traceback
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cairn.model.errors import CairnError, Expelled
from cairn.model.log.applied import Applied
from cairn.model.members.topology import Grade
from cairn.node.boot import shutdown
from cairn.node.boot.config import InstanceConfig
from cairn.node.boot.steps import Boot, Rebootstrap
from cairn.node.instance import Instance
from cairn.sim.cluster.loop import Process
from cairn.sim.cluster.runtime import SimRuntime

if TYPE_CHECKING:
    from cairn.sim.cluster.world import World

log = logging.getLogger("cairn.sim")

DATABASE_FILES = ("raft.db", "raft.db-wal", "raft.db-shm", "data.db", "data.db-wal", "data.db-shm")


class SimNode:
    """One directory and the processes that live in it one after another."""

    boot_class: type[Boot] = Boot

    def __init__(self, world: World, config: InstanceConfig, directory: Path) -> None:
        self.world, self.config, self.dir = world, config, directory
        self.name = config.listen.partition(":")[0]
        self.lives = 0
        self.process: Process | None = None
        self.runtime: SimRuntime | None = None
        self.boot: Boot | None = None
        self.instance: Instance | None = None
        self.exit_code: int | None = None  # of the last life; None while it lives or was killed
        self.problem: str = ""
        self.stop_asked: asyncio.Event | None = None

    # --- life -------------------------------------------------------------------------------------

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.is_alive

    @property
    def is_paused(self) -> bool:
        return self.process is not None and self.process.is_paused

    @property
    def is_leaving(self) -> bool:
        """It was told to stop, and takes its time."""
        return self.is_running and self.stop_asked is not None and self.stop_asked.is_set()

    def start(self) -> None:
        assert not self.is_running
        self.lives += 1
        self.dir.mkdir(exist_ok=True)
        process = self.process = Process(self.name, self.lives)
        seed = zlib.crc32(f"{self.world.seed}/{self.name}/{self.lives}".encode())
        checks = self.world.checks
        self.runtime = SimRuntime(
            process, self.world.wire, self.dir, seed, checks.observe, self._step
        )
        self.exit_code, self.problem, self.instance = None, "", None
        self.world.wire.power_on(self.name)
        self.stop_asked = asyncio.Event()
        life = self.world.loop.create_task(self._live(process), context=process.context)
        life.add_done_callback(self._ended)

    def _ended(self, life: asyncio.Task[None]) -> None:
        """A life ends with an exit code; anything else is a bug and fails the seed."""
        if not life.cancelled() and (problem := life.exception()) is not None:
            text = "".join(traceback.format_exception(problem)[-4:])
            self.world.checks.violation = f"{self.name} died of a bug: {text}"

    async def _live(self, process: Process) -> None:
        """Child and supervisor in one (`node/boot/child.py`, `cli/instance/supervisor.py`)."""
        try:
            code = await self._run_once()
        except Rebootstrap:
            self._close_boot()
            drop_database(self.dir)
            code = await self._run_once()
        self.exit_code = code
        self.instance = None
        process.crash()
        self.world.wire.host_died(process, silently=False)
        process.close_files()

    async def _run_once(self) -> int:
        assert self.runtime is not None and self.stop_asked is not None
        boot = self.boot = self.boot_class(self.config, self.runtime)
        starting: asyncio.Future[Any] = asyncio.ensure_future(self._start(boot))
        stop: asyncio.Future[Any] = asyncio.ensure_future(self.stop_asked.wait())
        await asyncio.wait({starting, stop}, return_when=asyncio.FIRST_COMPLETED)
        if not starting.done():
            starting.cancel()
            return await self._leave(boot.instance) if boot.instance is not None else 0
        try:
            instance: Instance = starting.result()
        except Expelled as problem:
            self.problem = str(problem)
            return 5
        except CairnError as problem:
            self.problem = str(problem)
            self._close_boot()
            return 1
        await asyncio.wait({instance.life.exit_code, stop}, return_when=asyncio.FIRST_COMPLETED)
        if instance.life.exit_code.done():
            instance.close()
            return instance.life.exit_code.result()
        return await self._leave(instance)

    async def _start(self, boot: Boot) -> Instance:
        joined_before = (self.dir / "raft.db").exists()
        instance = await boot.start()
        self._watch(instance)
        await boot.activate(instance, "wakeup" if joined_before else "join")
        return instance

    async def _leave(self, instance: Instance) -> int:
        leaving: asyncio.Future[int] = asyncio.ensure_future(shutdown.leave(instance))
        await asyncio.wait({leaving, instance.life.exit_code}, return_when=asyncio.FIRST_COMPLETED)
        code = leaving.result() if leaving.done() else instance.life.exit_code.result()
        instance.close()
        return code

    def _close_boot(self) -> None:
        if self.boot is not None:
            self.boot.peers.close()

    def _watch(self, instance: Instance) -> None:
        self.instance = instance
        checks, name = self.world.checks, self.name

        def applied(done: list[Applied]) -> None:
            checks.applied(name, done)
            checks.remembers(name, instance.runner.core.log.owed)

        instance.news.on_applied.append(applied)
        open_reads = instance.execution.reads.open_reads
        open_reads.later = lambda work: work()  # type: ignore[method-assign]  # no thread does it
        checks.founded(name, instance.identity)
        if self.world.equip is not None:
            self.world.equip(self, instance)

    # --- faults -----------------------------------------------------------------------------------

    def _step(self, what: str) -> None:
        self.world.on_step(self, what)

    def doom(self, *, silently: bool) -> None:
        """Die in the middle of a callback: nothing it still does reaches a disk or the network."""
        assert self.process is not None
        self.process.crash()
        nobody = contextvars.Context()
        self.world.loop.call_soon(lambda: self.crash(power=True, silently=silently), context=nobody)

    def crash(self, *, power: bool = False, silently: bool | None = None) -> None:
        """kill -9, or a power cut: then nobody is told and what was not synced is lost."""
        silently = power if silently is None else silently
        process = self.process
        assert process is not None and self.runtime is not None
        process.crash()
        left: dict[Path, bytes] = {}
        if silently:
            self.world.wire.dark.add(self.name)
        if power:
            for disk in self.runtime.disks:
                left.update(disk.survivors())
        self.world.wire.host_died(process, silently=silently)
        process.close_files()
        if power:
            drop_database(self.dir, only=left)
            for path, content in left.items():
                path.write_bytes(content)
        self.instance = None

    def pause(self) -> None:
        assert self.process is not None
        self.world.loop.pause(self.process)

    def resume(self) -> None:
        if self.process is not None and self.process.is_paused:
            self.world.loop.resume(self.process)

    def stop(self) -> None:
        """SIGTERM."""
        if self.stop_asked is not None:
            self.stop_asked.set()

    # --- what it says -----------------------------------------------------------------------------

    @property
    def is_leader(self) -> bool:
        return self.instance is not None and self.instance.runner.committed_in_term

    @property
    def grade(self) -> Grade | None:
        row = None if self.instance is None else self.instance.row
        return None if row is None else row.current_state.grade

    def __repr__(self) -> str:
        return self.name


def drop_database(directory: Path, only: Any = None) -> None:
    """The supervisor's part of a rebootstrap."""
    for name in DATABASE_FILES:
        if only is None or any(path.name.startswith(name.partition("-")[0]) for path in only):
            (directory / name).unlink(missing_ok=True)
