"""`make dist`: the sdists and wheels of cairn-db and of cairn-client, into a directory.

    python packages/build.py dist

Each is built from a clean copy of what it needs, and each wheel from its sdist: what the sdist
lacks, the wheel lacks too. cairn-client is the driver alone, the same files under another name:
extras can only add dependencies, and a cairn-db that comes without its server would surprise.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HOME = Path(__file__).resolve().parent.parent
SERVER = (
    "src",
    "docs",
    "deploy",
    "examples",
    "pyproject.toml",
    "README.md",
    "MANIFEST.in",
    "setup.py",
)
CLIENT = ("__init__.py", "py.typed", "client", "model", "pgwire", "topology")
ALL = ("LICENSE", "CHANGELOG.md")
LEFT = shutil.ignore_patterns("__pycache__", "*.egg-info", "*.pyc", "*.so")
BACKEND = """
import sys
from setuptools import build_meta
print(getattr(build_meta, sys.argv[1])(sys.argv[2]))
"""


def copy(name: str, to: Path, source: Path = HOME) -> None:
    target = to / name
    target.parent.mkdir(parents=True, exist_ok=True)
    if (source / name).is_dir():
        shutil.copytree(source / name, target, ignore=LEFT)
    else:
        shutil.copy(source / name, target)


def server_tree(to: Path) -> None:
    for name in (*SERVER, *ALL):
        copy(name, to)


def client_tree(to: Path) -> None:
    for name in ALL:
        copy(name, to)
    for name in ("pyproject.toml", "README.md"):
        copy(name, to, HOME / "packages" / "client")
    for name in CLIENT:
        copy(f"src/cairn/{name}", to)
    (
        to / "src/cairn/model/sharding/bucket_columns.py"
    ).unlink()  # for scans and Spark: it needs numpy


def build(kind: str, tree: Path, into: Path) -> Path:
    """One of `build_sdist` and `build_wheel`, in a process of its own: they leave traces."""
    command = [sys.executable, "-c", BACKEND, kind, str(into)]
    ended = subprocess.run(command, cwd=tree, capture_output=True, text=True, check=False)
    if ended.returncode:
        raise SystemExit(f"{kind} failed:\n{ended.stdout}{ended.stderr}")
    return into / ended.stdout.split()[-1]


def build_all(into: Path) -> list[Path]:
    into.mkdir(parents=True, exist_ok=True)
    made = []
    with tempfile.TemporaryDirectory() as room:
        for name, tree in (("server", server_tree), ("client", client_tree)):
            tree(Path(room, name))
            sdist = build("build_sdist", Path(room, name), into)
            shutil.unpack_archive(sdist, Path(room, f"{name}-sdist"))
            unpacked = next(Path(room, f"{name}-sdist").iterdir())
            made += [sdist, build("build_wheel", unpacked, into)]
    return made


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        raise SystemExit("usage: python packages/build.py DIRECTORY")
    for path in build_all(Path(sys.argv[1]).absolute()):
        sys.stdout.write(f"{path.name}\n")
