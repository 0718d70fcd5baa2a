"""Disks that change bytes by themselves."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from cairn.storage.files.log_frames import UNSYNCED_MAX
from cairn.storage.files.sqlite import log_of

HEAD, FRAME = 32, 24 + 4096  # of a write-ahead log

_FLIP = """
import sys
with open(sys.argv[1], "r+b") as file:
    data = file.read()
    at = data.index(bytes.fromhex(sys.argv[2]))
    file.seek(at)
    file.write(bytes([data[at] ^ 1]))
print(at // 4096 + 1)
"""
_FLIP_AT = """
import sys
with open(sys.argv[1], "r+b") as file:
    file.seek(int(sys.argv[2]))
    byte = file.read(1)[0]
    file.seek(int(sys.argv[2]))
    file.write(bytes([byte ^ 1]))
"""


def flip(path: Path, near: bytes) -> int:
    """Change one bit of a page that has `near` in it; the page's number.

    Another process does it: to close a file in this one would give up the locks of SQLite.
    """
    command = [sys.executable, "-I", "-S", "-c", _FLIP, str(path), near.hex()]
    return int(subprocess.run(command, capture_output=True, check=True).stdout)


def flip_page(path: Path, page: int) -> None:
    """Change one bit in the middle of a page."""
    flip_at(path, (page - 1) * 4096 + 2000)


def flip_at(path: Path, at: int) -> None:
    command = [sys.executable, "-I", "-S", "-c", _FLIP_AT, str(path), str(at)]
    subprocess.run(command, capture_output=True, check=True)


def ends(log: Path) -> list[int]:
    """The frames of a write-ahead log that end a commit, of its newest generation."""
    content = log.read_bytes()
    salts = content[16:24]
    heads = [content[at : at + 24] for at in range(HEAD, len(content) - FRAME + 1, FRAME)]
    return [
        number
        for number, head in enumerate(heads, 1)
        if head[8:16] == salts and head[4:8] != bytes(4)
    ]


def start_of(frame: int) -> int:
    return HEAD + (frame - 1) * FRAME


def flip_log(path: Path) -> None:
    """A bit of the newest commit in the log of a file that is surely on disk. SQLite would forget
    all that lies behind."""
    log = log_of(path)
    flip_at(log, start_of(ends(log)[-UNSYNCED_MAX - 3]) + 500)
