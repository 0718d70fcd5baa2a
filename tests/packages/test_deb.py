"""The Debian package has all that it needs, and works where it is unpacked."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from packages.deb import PARTS, PYTHON, SCRIPTS, package, version

from tests.cluster.harness import free_ports

needs_debian = pytest.mark.skipif(
    not (shutil.which("dpkg-deb") and Path(PYTHON).exists()), reason="no Debian 12"
)


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_scripts_of_the_package_are_scripts(name: str) -> None:
    assert (PARTS / name).read_text().startswith("#!/bin/sh\n")
    assert subprocess.run(["sh", "-n", PARTS / name], check=False).returncode == 0


@needs_debian
@pytest.mark.slow
@pytest.mark.cluster
def test_the_package_runs_a_cluster_from_where_it_is_unpacked(tmp_path: Path) -> None:
    made = package(tmp_path)
    said = subprocess.check_output(["dpkg-deb", "-f", made, "Version", "Depends"], text=True)
    assert said == f"Version: {version()}\nDepends: python3.11, adduser\n"
    subprocess.check_call(["dpkg-deb", "-x", made, tmp_path / "x"])
    cairn = tmp_path / "x" / "usr" / "bin" / "cairn"
    port = free_ports(1)[0] % 10_000 + 20_000
    told = subprocess.check_output(
        [
            *(cairn, "demo", "--instances", "1", "--replication-factor", "1"),
            *("--base-port", str(port), "--exec", f"{cairn} sql --own -c 'SELECT 1 + 1'"),
        ],
        cwd=tmp_path,
        text=True,
    )
    assert "(1 row)" in told
    for each in (tmp_path / "x").rglob("*"):
        if each.is_file() and not each.is_symlink():
            assert b"cairn-deb-" not in each.read_bytes(), each  # where it was made
    modes = {
        path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "x/etc/cairn").iterdir()
    }
    assert modes == {"cairn.env": 0o640}
    about = tmp_path / "x/usr/share/doc/cairn-db"  # what cairn.env and the pages speak of is there
    for name in ("docs/reference/configuration.md", "docs/how-to-install.md", "SECURITY.md"):
        assert (about / name).is_file()
    assert (about / "examples" / "peer-certificates.sh").is_file()
