"""Disks that change bytes by themselves."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

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
    at = (page - 1) * 4096 + 2000
    command = [sys.executable, "-I", "-S", "-c", _FLIP_AT, str(path), str(at)]
    subprocess.run(command, capture_output=True, check=True)
