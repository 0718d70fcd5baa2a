"""Small programs of ours in front of Java and Python, in a directory that nobody else can write to.

Spark starts both by their paths alone. What has to be different about a start is done here.
"""

from __future__ import annotations

import hashlib
import os
import stat
import sys
import tempfile
from pathlib import Path

from cairn.model.errors import CairnError

#: Spark puts zip files of its own Python modules first on the path of workers, and Python compiles
#: what it finds in a zip file anew in each process: half a second, four times for one write. The
#: package that those files belong to has the same modules, compiled.
_PYTHON = """#!/bin/sh
# Made by cairn.spark: workers take PySpark as it is installed, not from its zip files.
kept=
IFS=:
for each in $PYTHONPATH; do
    case "$each" in
        "{zips}"/*.zip) ;;
        *) kept="${kept:+$kept:}$each" ;;
    esac
done
PYTHONPATH=$kept exec "{python}" "$@"
"""


class UnsafeDirectory(CairnError):
    """Somebody else could put a program there that we would start."""


def launcher(name: str, text: str) -> Path:
    """The path of a program with this text; written if it is not there yet."""
    digest = hashlib.sha256(text.encode()).hexdigest()[:12]
    path = _own_directory() / digest / "bin" / name
    if not path.exists() or path.read_text() != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = path.with_suffix(f".{os.getpid()}")
        fresh.write_text(text)
        fresh.chmod(0o755)
        fresh.replace(path)
    return path


def python_for_workers() -> Path:
    """What PYSPARK_PYTHON shall be on this machine."""
    import pyspark

    python = Path(sys.executable)
    package = Path(str(pyspark.__file__)).parent
    zips = package / "python" / "lib"
    if not zips.is_dir() or not (package.parent / "py4j").is_dir():
        return python  # another kind of installation, which needs its zip files
    if _has_quotes(zips, python):
        return python
    text = _PYTHON.replace("{zips}", str(zips)).replace("{python}", str(python))
    made = launcher("python", text)
    return made if os.access(made, os.X_OK) else python  # where temporary files cannot be run


def _has_quotes(*paths: Path) -> bool:
    """A path that a shell would read as something else."""
    return any(sign in str(path) for path in paths for sign in '"$`\\:')


def is_ours(path: Path) -> bool:
    """Nobody but this user and root can have written it."""
    found = path.lstat()
    others = stat.S_IWGRP | stat.S_IWOTH
    return found.st_uid in (0, os.getuid()) and not (
        stat.S_ISLNK(found.st_mode) or found.st_mode & others
    )


def _own_directory() -> Path:
    path = Path(tempfile.gettempdir()) / f"cairn-spark-{os.getuid()}"
    path.mkdir(mode=0o700, exist_ok=True)
    if not is_ours(path):
        raise UnsafeDirectory(
            f"{path} is not ours alone",
            hint="remove it, or set TMPDIR to a directory of your own",
        )
    return path
