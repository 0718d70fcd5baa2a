"""A process that has imported everything once, and forks instances on demand.

More than half of what the start of an instance costs is the import of its modules. Several
instances that start on one machine pay for it once this way: `cairn demo`, `cairn.testing`. What is
forked is a supervisor of its own (`cairn run`), in a session of its own; it outlives the nursery.

Orders come as lines of JSON on standard input, answers and the ends of instances go to standard
output: `many.py` is the other side. The nursery ends when its input does.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import select
import signal
import sys
from pathlib import Path
from typing import Any, NoReturn

#: What an instance imports on its way, directly or by these. None of them may start a thread:
#: a fork takes only one along.
MODULES = (
    "cairn.cli.instance.run",
    "cairn.node.boot.child",
    "cairn.node.boot.config_file",
    "cairn.server.listener",
    "cairn.web.opening",
    "cairn.web.app",
    "encodings.idna",
    "uvicorn.lifespan.off",
    "uvicorn.protocols.http.h11_impl",
    "uvicorn.protocols.websockets.auto",
    "uvloop",
)
_ARGS_START, _ARGS_END = 48 - 3, 49 - 3  # fields of /proc/self/stat, behind the program's name


def main() -> int:
    from cairn.cli.instance.hiding import hide_passwords

    hide_passwords()
    gc.disable()  # all that is made here stays
    for name in MODULES:
        importlib.import_module(name)
    gc.freeze()  # a collection would write to pages that all instances share
    gc.enable()
    born: dict[int, int] = {}  # by the descriptor that tells the end of a process: its pid
    rest = b""
    while True:
        ready, _, _ = select.select([0, *born], [], [])
        for handle in ready:
            if handle:
                _tell_end(born.pop(handle), handle)
                continue
            data = os.read(0, 1 << 16)
            if not data:
                return 0
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                pid = _fork(json.loads(line))
                born[os.pidfd_open(pid)] = pid
                _say({"born": pid})


def _tell_end(pid: int, handle: int) -> None:
    os.close(handle)
    status = os.waitpid(pid, 0)[1]
    _say({"ended": pid, "code": os.waitstatus_to_exitcode(status)})


def _say(message: dict[str, Any]) -> None:
    """Whoever ordered may be gone: the instances do not end for that."""
    with contextlib.suppress(BrokenPipeError):
        os.write(1, json.dumps(message).encode() + b"\n")


def _fork(order: dict[str, Any]) -> int:
    pid = os.fork()
    if pid == 0:
        _become_instance(order)
    return pid


def _become_instance(order: dict[str, Any]) -> NoReturn:
    code = 1
    try:
        os.setsid()
        log = os.open(order["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        os.dup2(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC), 0)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.closerange(3, 256)  # the ends of its brothers are not for it to wait for
        os.chdir(order["directory"])
        os.environ.clear()
        os.environ.update(order["environment"])
        _show_command(order["command"])
        from cairn.cli.instance.run import main as run

        code = run(order["command"][order["command"].index("run") + 1 :])
    except SystemExit as request:
        code = request.code if isinstance(request.code, int) else 1
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        with contextlib.suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _show_command(words: list[str]) -> None:
    """`ps` shall show what this process is. It reads the memory that our own arguments are in."""
    with contextlib.suppress(OSError, ValueError, IndexError):  # not every system has /proc
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        start, end = int(fields[_ARGS_START]), int(fields[_ARGS_END])
        line = b"\0".join(os.fsencode(word) for word in words)[: end - start - 1]
        with open("/proc/self/mem", "r+b", buffering=0) as memory:
            memory.seek(start)
            memory.write(line.ljust(end - start, b"\0"))


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    sys.exit(main())
