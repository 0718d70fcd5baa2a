"""What `make dist` makes, installed where there is nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest
from packages.build import HOME, build_all

import cairn
from tests.cluster.harness import free_ports

CLIENT_AT_WORK = """
import importlib, os, pkgutil
import cairn
from cairn.client import sync

for module in pkgutil.walk_packages(cairn.__path__, "cairn."):
    importlib.import_module(module.name)
with sync.connect(os.environ["CAIRN_DSN"]) as connection:
    cursor = connection.cursor()
    cursor.execute("CREATE TABLE notes (id INT PRIMARY KEY) DISTRIBUTED BY (id)")
    cursor.execute("INSERT INTO notes VALUES (1), (2)")
    cursor.execute("SELECT sum(id) FROM notes")
    print("the sum is", cursor.fetchone()[0])
"""


def project(path: str) -> dict[str, object]:
    found: dict[str, object] = tomllib.loads((HOME / path).read_text())["project"]
    return found


def test_both_packages_have_the_version_of_the_code_and_the_same_needs() -> None:
    server, client = project("pyproject.toml"), project("packages/client/pyproject.toml")
    assert server["version"] == client["version"] == cairn.__version__
    assert server["requires-python"] == client["requires-python"]
    wanted, ours = client["dependencies"], server["dependencies"]
    assert isinstance(wanted, list) and isinstance(ours, list)
    assert set(wanted) <= set(ours)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    paths = build_all(tmp_path_factory.mktemp("dist"))
    return {path.name.partition("-")[0] + path.suffix: path for path in paths}


def environment(at: Path, package: Path) -> Path:
    """The bin directory of an environment that has this package and what it asks for."""
    venv.create(at, with_pip=False)
    pip = (sys.executable, "-m", "pip", "--python", str(at / "bin" / "python"))
    subprocess.run([*pip, "install", "-qq", str(package)], check=True, timeout=280, cwd=at)
    return at / "bin"


def installed(bin_directory: Path) -> set[str]:
    ask = "from importlib.metadata import distributions as d; print(*(e.name for e in d()))"
    command = [str(bin_directory / "python"), "-c", ask]
    told = subprocess.run(command, capture_output=True, text=True, check=True, cwd="/")
    return {name.lower() for name in told.stdout.split()}


@pytest.mark.slow
def test_the_wheel_has_every_file_of_the_source(made: dict[str, Path]) -> None:
    listed = ("git", "ls-files", "src")
    told = subprocess.run(listed, capture_output=True, text=True, check=True, cwd=HOME).stdout
    assert len(told.split()) > 100
    packed = set(zipfile.ZipFile(made["cairn_db.whl"]).namelist())
    assert {path.removeprefix("src/") for path in told.split()} <= packed


@pytest.mark.slow
@pytest.mark.cluster
def test_a_cluster_runs_and_the_driver_alone_works_in_empty_environments(
    made: dict[str, Path], tmp_path: Path
) -> None:
    server = environment(tmp_path / "server", made["cairn_db.whl"])
    client = environment(tmp_path / "client", made["cairn_client.gz"])
    assert installed(client) == {"cairn-client", "msgspec", "mmh3"}
    assert not list(client.glob("cairn*"))
    (tmp_path / "work.py").write_text(CLIENT_AT_WORK)
    port = free_ports(1)[0]
    work = f"{server}/cairn status && {client}/python {tmp_path}/work.py"
    demo = [str(server / "cairn"), "demo", "--base-port", str(port), "--exec", work]
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    ended = subprocess.run(
        demo, capture_output=True, text=True, timeout=120, cwd=tmp_path, env=clean, check=False
    )
    assert ended.returncode == 0, ended.stderr
    assert "i4        r2          Online" in ended.stdout
    assert ended.stdout.rstrip().endswith("the sum is 3")
