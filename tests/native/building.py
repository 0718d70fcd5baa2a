"""The compiled part built once more, from a copy of the source: with a sanitizer, or with a bug."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NATIVE = Path("cairn/native")
FLAGS = (
    "-std=c11",
    "-fPIC",
    "-Wall",
    "-Wextra",
    "-Werror=implicit",
    "-fvisibility=hidden",
)  # those of `setup.py`


def copy_source(into: Path) -> Path:
    """What `PYTHONPATH` has to be for the copy to be used; the normal build is not in it."""
    source = into / "src"
    shutil.rmtree(source, ignore_errors=True)
    left_out = shutil.ignore_patterns("__pycache__", "*.so")
    shutil.copytree(ROOT / "src", source, ignore=left_out)
    return source


def build(source: Path, *flags: str, more: Sequence[Path] = ()) -> None:
    """Raises `CalledProcessError` for what is no C any more."""
    made = sorted(map(str, (source / NATIVE).glob("*.c")))
    library = str(source / NATIVE / "_rows.so")
    command = ["gcc", *FLAGS, *flags, "-shared", *made, *map(str, more), "-o", library, "-lm"]
    subprocess.run(command, check=True, capture_output=True)
