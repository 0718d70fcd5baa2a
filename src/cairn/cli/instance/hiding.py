"""Passwords of the environment are not left where others can read them.

`/proc/PID/environ` shows the memory that the process was started with, however long ago. Taking a
variable out of `os.environ` does not change it, so its bytes are overwritten in place. What
`os.environ` knows is a copy: the program itself still finds the password there.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

_SECRETS = (b"CAIRN_SERVICE_PASSWORD=", b"CAIRN_ADMIN_PASSWORD=")
_START, _END = 50 - 3, 51 - 3  # fields of /proc/self/stat, counted behind the program's name


def hide_passwords() -> None:
    """Before anything is forked: children have the same memory."""
    with contextlib.suppress(OSError, ValueError, IndexError):  # not every system has /proc
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        start, end = int(fields[_START]), int(fields[_END])
        with open("/proc/self/mem", "r+b", buffering=0) as memory:
            memory.seek(start)
            at = start
            for entry in memory.read(end - start).split(b"\0"):
                for name in _SECRETS:
                    if entry.startswith(name):
                        memory.seek(at + len(name))
                        memory.write(bytes(len(entry) - len(name)))
                at += len(entry) + 1
