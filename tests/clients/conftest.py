"""One real cluster for all clients: three instances, three replicasets, a table of each kind."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cluster.harness import PASSWORD, Cluster, eventually

NAMES = ("i1", "i2", "i3")


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    made = Cluster(tmp_path_factory.mktemp("clients"), "clients").start(*NAMES)
    try:
        eventually(lambda: every_instance_has_buckets(made), "buckets on every instance")
        yield made
    finally:
        made.close()


def every_instance_has_buckets(cluster: Cluster) -> bool:
    owners = cluster["i1"].sql("SELECT DISTINCT current_replicaset_name FROM _pico_bucket")
    return len(owners) == len(NAMES)


@pytest.fixture(scope="session")
def dsn(cluster: Cluster) -> str:
    return f"postgresql://admin:{PASSWORD}@127.0.0.1:{cluster['i1'].pg_port}/cairn"


@pytest.fixture
def fresh(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[str]:
    """The name of a table that is new: id, name, price, with rows on every instance."""
    name = "t_" + request.node.name.partition("[")[0].removeprefix("test_")[:50]
    node = cluster["i1"]
    node.sql(f"DROP TABLE IF EXISTS {name}")
    node.sql(
        f"CREATE TABLE {name} (id INTEGER PRIMARY KEY, name TEXT, price DECIMAL) "
        "DISTRIBUTED BY (id) WAIT APPLIED GLOBALLY"
    )
    yield name
    node.sql(f"DROP TABLE IF EXISTS {name}")


@pytest.fixture
def everywhere(cluster: Cluster, fresh: str) -> Iterator[str]:
    """The same columns in a global table: one copy of each row on every instance."""
    name = f"{fresh[:50]}_global"
    node = cluster["i1"]
    node.sql(f"DROP TABLE IF EXISTS {name}")
    node.sql(
        f"CREATE TABLE {name} (id INTEGER PRIMARY KEY, name TEXT, price DECIMAL) "
        "DISTRIBUTED GLOBALLY"
    )
    yield name
    node.sql(f"DROP TABLE IF EXISTS {name}")


@pytest.fixture(scope="session")
def run(dsn: str) -> Callable[..., str]:
    """A program of the machine; what it printed on both channels."""

    def call(*command: str, text: str = "", cwd: Path | None = None) -> str:
        if shutil.which(command[0]) is None:
            pytest.skip(f"{command[0]} is not installed")
        done = subprocess.run(
            command,
            input=text,
            capture_output=True,
            text=True,
            timeout=60,
            cwd=cwd,
            env={**os.environ, "CAIRN_DSN": dsn, "PGPASSWORD": PASSWORD},
        )
        return done.stdout + done.stderr

    return call
