"""`make deb`: a Debian package with the program and all that it needs, for the Python of Debian 12.

    python packages/deb.py dist

It has an environment of Python in /opt/cairn: the versions of `requirements/base.txt`, compared by
their hashes. The command works wherever the package is unpacked.
"""

from __future__ import annotations

import gzip
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HOME = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(HOME))

from packages.build import build, server_tree  # noqa: E402

PARTS = HOME / "packages" / "debian"
PYTHON = "/usr/bin/python3.11"
SCRIPTS = ("postinst", "prerm", "postrm")


def version() -> str:
    found = re.search(r'__version__ = "(.+)"', (HOME / "src/cairn/__init__.py").read_text())
    assert found is not None
    return found[1]


def run(*words: str | Path) -> str:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, words))}:\n{done.stdout}{done.stderr}")
    return done.stdout.strip()


def wheel(into: Path) -> Path:
    tree = into / "tree"
    tree.mkdir()
    server_tree(tree)
    os.environ["CFLAGS"] = "-g0"  # or the library tells where it was made
    return build("build_wheel", tree, into)


def environment(opt: Path, made: Path) -> None:
    """Python's own directories, without what only builders need. No path of this machine stays."""
    run(PYTHON, "-m", "venv", opt)
    pip = (opt / "bin" / "pip", "install", "-q", "--no-compile", "--disable-pip-version-check")
    run(*pip, "--require-hashes", "-r", HOME / "requirements" / "base.txt")
    run(*pip, "--no-deps", made)
    run(opt / "bin" / "pip", "uninstall", "-q", "-y", "setuptools", "pip")
    for script in (opt / "bin").iterdir():
        if not script.name.startswith("python"):
            script.unlink()
    shutil.copy(PARTS / "cairn", opt / "bin" / "cairn")
    (opt / "bin" / "cairn").chmod(0o755)
    settings = opt / "pyvenv.cfg"
    kept = [line for line in settings.read_text().splitlines() if not line.startswith("command")]
    settings.write_text("\n".join(kept) + "\n")
    for record in opt.rglob("direct_url.json"):  # where the wheel was
        record.unlink()
    run(PYTHON, "-m", "compileall", "-q", "-s", opt.parent.parent, "-p", "/", opt / "lib")


def place(source: Path, target: Path, mode: int = 0o644) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(source, target)
    target.chmod(mode)


def package(into: Path) -> Path:
    """The path of the package."""
    if not Path(PYTHON).exists():
        sys.exit(f"{PYTHON} is not there: the package is made on Debian 12")
    with tempfile.TemporaryDirectory(prefix="cairn-deb-") as room:
        root = Path(room) / "root"
        root.mkdir(mode=0o755)
        (root / "opt").mkdir()
        environment(root / "opt" / "cairn", wheel(Path(room)))
        deploy = HOME / "deploy" / "systemd"
        place(deploy / "cairn.service", root / "lib/systemd/system/cairn.service")
        place(deploy / "cairn.env", root / "etc/cairn/cairn.env", 0o640)
        about = root / "usr/share/doc/cairn-db"
        place(PARTS / "copyright", about / "copyright")
        place(HOME / "deploy" / "peer-certificates.sh", about / "examples/peer-certificates.sh")
        for page in (HOME / "docs").rglob("*.md"):
            place(page, about / page.relative_to(HOME))
        for name in ("README.md", "SECURITY.md"):
            place(HOME / name, about / name)
        with (about / "changelog.gz").open("wb") as raw, gzip.GzipFile("", "wb", 9, raw, 0) as file:
            file.write((HOME / "CHANGELOG.md").read_bytes())
        (root / "usr/bin").mkdir()
        (root / "usr/bin/cairn").symlink_to("../../opt/cairn/bin/cairn")
        architecture = run("dpkg", "--print-architecture")
        _control(root, architecture)
        for each in [root, *root.rglob("*")]:
            if each.is_dir():
                each.chmod(0o755)
        into.mkdir(parents=True, exist_ok=True)
        made = into / f"cairn-db_{version()}_{architecture}.deb"
        run("dpkg-deb", "-z1", "--build", "--root-owner-group", root, made)
        return made


def _control(root: Path, architecture: str) -> None:
    size = sum(each.lstat().st_size for each in root.rglob("*") if not each.is_dir())
    facts = {"VERSION": version(), "ARCHITECTURE": architecture, "SIZE": str(size // 1024)}
    text = re.sub(r"@(\w+)@", lambda found: facts[found[1]], (PARTS / "control").read_text())
    debian = root / "DEBIAN"
    debian.mkdir()
    (debian / "control").write_text(text)
    place(PARTS / "conffiles", debian / "conffiles")
    for name in SCRIPTS:
        place(PARTS / name, debian / name, 0o755)


if __name__ == "__main__":
    sys.stdout.write(f"{package(Path(sys.argv[1]).resolve()).name}\n")
