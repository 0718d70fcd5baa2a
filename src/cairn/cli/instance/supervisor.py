"""The parent process of an instance: forks it, passes signals on, starts it anew when asked.

Standard library only, and the fork comes before anything heavy is imported: the parent stays a
few megabytes small. A child that crashed (a signal that nobody here sent, an exception that nobody
caught) is started again after a pause, and so is one that hangs (`hanging.py`). One that ended by
itself is not: it has said why, and what to do is the administrator's decision.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cairn.cli.instance.hanging import LOOK_S as LOOK_AT_CHILD_S
from cairn.cli.instance.hanging import Pulse, Watchman
from cairn.cli.instance.notifying import READY, STOPPING, notify, status

#: Runs the instance; gets `tell(message)`, the file descriptor of the lifeline, and `beat(limit_s)`
#: by which its event loop says that it lives, and may be silent for so long.
Child = Callable[[Callable[[dict[str, Any]], None], int, Callable[[float], None]], int]

DATABASE_FILES = ("raft.db", "raft.db-wal", "raft.db-shm", "data.db", "data.db-wal", "data.db-shm")
MAX_IN_VAIN = 5  # starts one after the other, each soon followed by the wish for another
STEADY_S = 3600.0  # an instance that lived so long was not started in vain
CRASHED = 70  # the code of a child that ended by an exception
MAX_CRASHES = 10  # one soon after the other: it would not help to go on
CALM_S = 60.0  # a child that lived so long did not crash soon
PAUSES_S = (0.5, 30.0)  # before it is started again: the first, and the longest
LOOK_S = 0.1  # whether somebody wants us to end


def drop_db(directory: Path) -> None:
    """Remove the database files; the instance's uuid and what discovery learnt stay."""
    for name in DATABASE_FILES:
        with contextlib.suppress(FileNotFoundError):
            (directory / name).unlink()


def lock_directory(directory: Path) -> int | None:
    """A lock held as long as this process lives; None when another instance has it."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        return None
    return handle


_PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def supervise(child: Child, directory: Path) -> int:
    """Run the child until it ends; the exit code is its own."""
    try:
        made = _missing(directory)
        lock = lock_directory(directory)
    except OSError as problem:
        sys.stderr.write(f"cairn run: --instance-dir {directory}: {problem.strerror}\n")
        return 2
    if lock is None:
        sys.stderr.write(
            f"cairn run: --instance-dir {directory}: another instance runs in this directory\n"
        )
        return 2
    code = 1
    os.umask(0o077)  # the files have rows and password verifiers: ours alone, the child's too
    try:
        code = _supervise(child, directory)
    finally:
        with contextlib.suppress(OSError):
            (directory / "cairn.pid").unlink()
        if code and made:
            _remove_unused(made)
    return code


def _missing(directory: Path) -> list[Path]:
    """The directories that are not there yet, the innermost first."""
    return [each for each in (directory, *directory.parents) if not each.exists()]


def _remove_unused(made: list[Path]) -> None:
    """After a failed start: directories we made, if the instance put nothing into them."""
    with contextlib.suppress(OSError):
        if [each.name for each in made[0].iterdir()] != ["lock"]:
            return
        (made[0] / "lock").unlink()
        for each in made:
            each.rmdir()


def _supervise(child: Child, directory: Path) -> int:
    signals: list[int] = []  # that told us to end
    in_vain = crashes = 0
    while in_vain < MAX_IN_VAIN:
        begun = time.monotonic()
        code, messages = _run_once(child, directory, signals)
        lived_s = time.monotonic() - begun
        if any(message.get("rebootstrap") for message in messages):
            drop_db(directory)
        elif _has_crashed(code) and not signals:
            crashes = 1 if lived_s >= CALM_S else crashes + 1
            if crashes > MAX_CRASHES or not _paused(code, crashes, signals):
                return code
            continue
        elif not any(message.get("again") for message in messages) or signals:
            return code
        notify(status("starting anew"))
        is_asked = any(message.get("asked") for message in messages)
        in_vain = 0 if is_asked or lived_s >= STEADY_S else in_vain + 1
    sys.stderr.write("cairn: the instance asked to be started anew too often\n")
    return 1


def _has_crashed(code: int) -> bool:
    return code == CRASHED or (code > 128 and code - 128 not in _PASSED_ON)


def _paused(code: int, crashes: int, signals: list[int]) -> bool:
    """False: somebody wants us to end meanwhile."""
    first, longest = PAUSES_S
    pause_s = min(first * 2 ** (crashes - 1), longest)
    why = "an exception" if code == CRASHED else f"signal {code - 128}"
    told = f"the instance crashed ({why}); it is started again in {pause_s:g} s"
    notify(status(told))
    sys.stderr.write(f"cairn: {told}\n")
    sys.stderr.flush()
    until = time.monotonic() + pause_s
    while not signals and time.monotonic() < until:
        time.sleep(LOOK_S)
    return not signals


def _run_once(child: Child, directory: Path, heard: list[int]) -> tuple[int, list[dict[str, Any]]]:
    ipc_read, ipc_write = os.pipe()
    life_read, life_write = os.pipe()
    pulse = Pulse()
    child_pid: list[int] = []  # filled after the fork; a signal before it ends us both
    for number in _PASSED_ON:
        signal.signal(number, lambda received, frame: _pass_on(child_pid, received, heard))
    # A signal that reached the child before Python has tidied up after the fork would be forgotten.
    signal.pthread_sigmask(signal.SIG_BLOCK, _PASSED_ON)
    pid = os.fork()
    if pid == 0:
        os.close(ipc_read)
        os.close(life_write)
        _become_child(child, ipc_write, life_read, pulse)
    os.close(ipc_write)
    os.close(life_read)
    child_pid.append(pid)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _PASSED_ON)
    _write_pids(directory, pid)
    messages = _read_messages(ipc_read, Watchman(pid, pulse))
    status = _wait(pid)
    os.close(life_write)
    return _exit_code(status), messages


def _become_child(child: Child, ipc: int, lifeline: int, pulse: Pulse) -> None:
    """Never returns. A new process group, so that Ctrl-C reaches the child only through us."""
    code = CRASHED
    try:
        # Until the instance handles signals itself, one of them simply ends it.
        signal.signal(signal.SIGINT, lambda *_: os._exit(130))
        signal.signal(signal.SIGTERM, lambda *_: os._exit(143))
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _PASSED_ON)
        os.setpgid(0, 0)
        _die_with_parent()

        def tell(message: dict[str, Any]) -> None:
            os.write(ipc, json.dumps(message).encode() + b"\n")

        code = child(tell, lifeline, pulse.beat)
    except SystemExit as request:
        code = request.code if isinstance(request.code, int) else 1
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stderr.flush()
        sys.stdout.flush()
        os._exit(code)


def _die_with_parent() -> None:
    """On Linux the kernel ends the child with its parent, even if the child hangs."""
    with contextlib.suppress(Exception):
        import ctypes

        ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)


def _pass_on(child: list[int], number: int, heard: list[int]) -> None:
    if not child:
        os._exit(128 + number)
    notify(STOPPING, status("stopping: asking the cluster to let this instance go"))
    heard.append(number)
    with contextlib.suppress(ProcessLookupError):  # it has just ended
        os.kill(child[0], signal.SIGTERM if number == signal.SIGHUP else number)


def _write_pids(directory: Path, child: int) -> None:
    with contextlib.suppress(OSError):
        directory.mkdir(parents=True, exist_ok=True)
        made = directory / "cairn.pid.new"
        made.write_text(f"{os.getpid()}\n{child}\n")
        made.replace(directory / "cairn.pid")  # whoever reads it sees both lines


def _read_messages(ipc: int, watchman: Watchman) -> list[dict[str, Any]]:
    """Until the child closes its end, which it does when it ends."""
    messages = []
    rest = b""
    while True:
        if select.select([ipc], [], [], LOOK_AT_CHILD_S)[0]:
            data = os.read(ipc, 65536)
            if not data:
                break
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                messages.append(json.loads(line))
                if "online" in messages[-1]:
                    notify(READY, status(messages[-1]["online"]))
        watchman.look()
    os.close(ipc)
    return messages


def _wait(pid: int) -> int:
    while True:
        try:
            return os.waitpid(pid, 0)[1]
        except InterruptedError:
            continue


def _exit_code(status: int) -> int:
    if os.WIFEXITED(status):
        return os.WEXITSTATUS(status)
    return 128 + os.WTERMSIG(status)
