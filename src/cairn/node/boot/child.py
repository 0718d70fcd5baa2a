"""The child process: one instance from boot to its exit code."""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import gc
import logging
import math
import os
import resource
import signal
import socket
import sys
from collections.abc import Awaitable, Callable
from typing import Any, NoReturn

import apsw

from cairn.model.errors import CairnError, ConfigProblem, Expelled, StorageDamaged
from cairn.model.members.topology import Grade
from cairn.model.unexpected import owned
from cairn.net.peers import split_address
from cairn.net.places import FEWEST
from cairn.node.boot import shutdown
from cairn.node.boot.config import InstanceConfig, peer_tls
from cairn.node.boot.spare_memory import give_back_for_ever
from cairn.node.boot.steps import Boot, Rebootstrap
from cairn.node.instance import Instance
from cairn.node.lifetime import AGAIN
from cairn.node.runtime import RealRuntime, spawn
from cairn.node.waiting import until
from cairn.storage.files.sqlite import explained, is_disk_full

log = logging.getLogger("cairn")
LAST_WORDS_S = 0.05  # until what was told to clients has left
BEAT_S = 1.0
SWITCH_S = 0.0005  # the longest that a thread in Python keeps the event loop waiting; 0.005 usually

Tell = Callable[[dict[str, Any]], None]
Beat = Callable[[float], None]  # tells the supervisor that the event loop turns; see its limit
#: Opens the listeners for clients. Given from above: an instance does not know its faces.
OpenFaces = Callable[[Instance, InstanceConfig], Awaitable[None]]


def run(
    config: InstanceConfig, tell: Tell, lifeline: int, beat: Beat, open_faces: OpenFaces
) -> int:
    """Run until told to stop; the return value is the process's exit code."""
    set_up_logging(config)
    # Whoever asks, the supervisor or a person, sees what all threads do, even if none of them runs.
    faulthandler.register(signal.SIGQUIT, file=sys.stderr, all_threads=True)
    import uvloop

    try:
        config.instance_dir.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        log.error("--instance-dir %s: %s", config.instance_dir, problem.strerror)
        return 2
    if (files := _allow_many_files()) < FEWEST:
        log.error("this process may open %s files, and needs at least %s: ulimit -n", files, FEWEST)
        return 2
    sys.setswitchinterval(SWITCH_S)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_live(config, tell, lifeline, beat, open_faces))


def _allow_many_files() -> int:
    """A connection is a file to the system, and its default would end at about a thousand."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return soft if soft > 0 else sys.maxsize


class OneLine(logging.Formatter):
    """What others have said cannot begin a line that seems to be ours, or speak to a terminal."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        if not record.message.isprintable():
            record.message = "".join(
                each if each.isprintable() else repr(each)[1:-1] for each in record.message
            )
        return super().formatMessage(record)


def set_up_logging(config: InstanceConfig) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(OneLine("%(asctime)s %(levelname).1s %(name)s: %(message)s"))
    logging.basicConfig(level=config.log_level.upper(), handlers=[handler], force=True)
    logging.getLogger("asyncio").setLevel(logging.WARNING)


async def _live(
    config: InstanceConfig, tell: Tell, lifeline: int, beat: Beat, open_faces: OpenFaces
) -> int:
    signals: asyncio.Queue[int] = asyncio.Queue()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, signals.put_nowait, number)
    loop.add_reader(lifeline, os._exit, 1)  # the supervisor is gone: never stay as an orphan
    runtime = RealRuntime(config.instance_dir, config.listen, peer_tls(config))
    boot = Boot(config, runtime)
    loop.set_exception_handler(_note)
    starting = asyncio.ensure_future(_start(boot, config, tell, open_faces))
    stop = asyncio.ensure_future(signals.get())
    await asyncio.wait({starting, stop}, return_when=asyncio.FIRST_COMPLETED)
    if not starting.done():
        starting.cancel()
        log.info("stopped before this instance had a place in the cluster")
        if boot.instance is not None:
            return await _stop(boot.instance, signals)
        return 0
    try:
        instance = starting.result()
    except Rebootstrap:
        tell({"rebootstrap": True})
        return 0
    except Expelled as problem:
        log.error("%s", problem)
        return 5
    except (CairnError, ConfigProblem, StorageDamaged) as problem:
        log.error("%s", problem)
        if problem.hint:
            log.error("hint: %s", problem.hint)
        boot.peers.close()
        return 2 if isinstance(problem, ConfigProblem) else 1
    except (OSError, apsw.FullError) as problem:
        if not is_disk_full(problem):
            raise
        log.error("--instance-dir %s: %s", config.instance_dir, explained(problem))
        boot.peers.close()
        return 1
    gc.collect()
    gc.freeze()  # what boot made stays: later collections need not look at it
    beating = spawn(_beat_for_ever(beat, config.hang_timeout_s), "beat")
    giving = spawn(give_back_for_ever(), "give memory back")
    restart = asyncio.ensure_future(instance.life.restart_asked.wait())
    ends: set[asyncio.Future[Any]] = {instance.life.exit_code, stop, restart}
    await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    beating.cancel()
    giving.cancel()
    beat(0.0)  # to close files may take its time
    if instance.life.exit_code.done():
        code = instance.life.exit_code.result()
        if code == AGAIN:
            tell({"again": True})
        if instance.life.is_broken:
            await _end_at_once(instance, code)
        await _end(instance)
        return code
    code = await _stop(instance, signals)
    if code == 0 and not stop.done():  # a signal that came later wins over the restart
        tell({"again": True, "asked": True})
    return code


async def _beat_for_ever(beat: Beat, limit_s: float) -> None:
    """Not before the start is over: files that a crash left take as long as they take."""
    while True:
        beat(limit_s)
        await asyncio.sleep(BEAT_S)


def _note(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """An error that nobody caught ends what it happened in; the instance goes on.

    What may stop an instance is listed at `node/instance.Ending`.
    """
    problem = context.get("exception")
    where = str(context.get("message"))
    if problem is None or isinstance(problem, OSError | CairnError):
        log.error("%s", where, exc_info=problem)
    else:
        owned(problem, where)


async def _start(boot: Boot, config: InstanceConfig, tell: Tell, open_faces: OpenFaces) -> Instance:
    joined_before = (config.instance_dir / "raft.db").exists()
    _check_port(config.pg_listen, "--pg-listen")  # before anything is founded or joined
    if config.http_listen:
        _check_port(config.http_listen, "--http-listen")
    instance = await boot.start()
    await open_faces(instance, config)
    spawn(_say_when_online(instance, tell), "say when online")
    await boot.activate(instance, "wakeup" if joined_before else "join")
    return instance


def _check_port(address: str, flag: str) -> None:
    host, port = split_address(address)
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as problem:
            raise ConfigProblem(f"{flag} {address}: {problem.strerror or problem}") from None


async def _say_when_online(instance: Instance, tell: Tell) -> None:
    """However long it takes: whoever started us (systemd) may wait for it."""
    row = instance.row
    before = 0 if row is None else row.target_state.incarnation  # an old Online is not ours

    def is_online() -> bool:
        now = None if instance.row is None else instance.row.current_state
        return now is not None and now.grade is Grade.ONLINE and now.incarnation > before

    await until(is_online, math.inf, 0.05)
    if instance.row is not None:
        said = f"{instance.name} is Online in {instance.row.replicaset_name}"
        log.info("%s", said)
        tell({"online": said})


async def _stop(instance: Instance, signals: asyncio.Queue[int]) -> int:
    """A first signal asks the cluster, a second one ends at once."""
    log.info("stopping: asking the cluster to let %s go", instance.name)
    leaving = asyncio.ensure_future(shutdown.leave(instance))
    again = asyncio.ensure_future(signals.get())
    done, _ = await asyncio.wait(
        {leaving, again, instance.life.exit_code}, return_when=asyncio.FIRST_COMPLETED
    )
    if leaving in done:
        code = leaving.result()
    elif instance.life.exit_code in done:
        code = instance.life.exit_code.result()
    else:
        log.warning("a second signal: ending now")
        code = 1
    if instance.life.is_broken:
        await _end_at_once(instance, code)
    await _end(instance)
    return code


async def _end_at_once(instance: Instance, code: int) -> NoReturn:
    """What is on disk counts, as after a crash. To close the files may wait for the lost disk."""
    instance.shut_doors()
    await asyncio.sleep(LAST_WORDS_S)
    logging.shutdown()
    os._exit(code)


async def _end(instance: Instance) -> None:
    await instance.say_goodbye()
    try:
        instance.close()
    except Exception:  # the exit code is decided; nothing here may change it
        log.exception("while closing")
