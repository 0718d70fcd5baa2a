"""One real cluster and one Spark session for all tests here; skipped where PySpark is missing."""

from __future__ import annotations

import importlib.util
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cairn.client.settings import parse_dsn
from cairn.client.sync_pool import SyncPool

IS_READY = all(importlib.util.find_spec(name) for name in ("pyspark", "pyarrow", "numpy"))
collect_ignore_glob = [] if IS_READY else ["test_*.py"]
CAIRN = [sys.executable, "-m", "cairn.cli.main"]
# No JVM here lives long enough for its second compiler, which took half of its CPU.
QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
os.environ["SPARK_SUBMIT_OPTS"] = os.environ["SPARK_LAUNCHER_OPTS"] = QUICK_JAVA


def pytest_collection_modifyitems(items: list[Any]) -> None:
    for item in items:
        if "tests/spark" in str(item.path):
            item.add_marker(pytest.mark.spark)


def free_base_port() -> int:
    """A port whose neighbours for HTTP and peers are free too."""
    for base in range(26_000 + os.getpid() % 500 * 4, 29_900, 4):
        if all(_is_free(base + far + near) for far in (0, 1000, 2000) for near in range(3)):
            return base
    raise RuntimeError("no free ports")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    from cairn.spark import cluster

    folder = tmp_path_factory.mktemp("demo")
    command = [*CAIRN, "demo", "--instances", "2", "--replication-factor", "1"]
    command += ["--base-port", str(free_base_port()), "--dir", str(folder), "--detach"]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    yield json.loads((folder / "demo.json").read_text())
    cluster.close_all()
    subprocess.run([*CAIRN, "demo", "--stop", "--dir", str(folder)], check=False, timeout=60)


@pytest.fixture(scope="session")
def dsn(demo: dict[str, Any]) -> str:
    return str(demo["dsns"])


@pytest.fixture(scope="session")
def pool(dsn: str) -> Iterator[SyncPool]:
    with SyncPool(parse_dsn(dsn)).open() as found:
        yield found


@pytest.fixture(scope="module")
def pairs(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Any]:
    """Replicasets of two whose instances may be killed; the module's NAMES says how many."""
    from cairn.spark import cluster
    from tests.cluster.harness import Cluster

    made = Cluster(tmp_path_factory.mktemp("pairs"), "pairs", "--init-replication-factor", "2")
    made.start(*request.module.NAMES)
    yield made
    cluster.close_all()
    made.close()


@pytest.fixture(scope="module")
def pairs_dsn(pairs: Any) -> str:
    from tests.cluster.harness import PASSWORD

    hosts = ",".join(f"127.0.0.1:{node.pg_port}" for node in pairs.nodes.values())
    return f"postgresql://admin:{PASSWORD}@{hosts}/cairn"


@pytest.fixture(scope="module")
def pairs_pool(pairs_dsn: str) -> Iterator[SyncPool]:
    with SyncPool(parse_dsn(pairs_dsn)).open() as found:
        yield found


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Any]:
    """A driver and two executors as processes; the module's SETTINGS are added to its own."""
    from tests.spark.real_spark import RealSpark

    settings = getattr(request.module, "SETTINGS", {})
    made = RealSpark(tmp_path_factory.mktemp("executors"), **settings)
    yield made
    made.close()


@pytest.fixture
def marks(tmp_path: Path) -> Path:
    folder = tmp_path / "marks"
    folder.mkdir()
    return folder


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    from cairn.spark import session

    settings = {
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
        "spark.log.level": "OFF",
        "spark.python.daemon.module": "tests.spark.warm_daemon",
    }
    found = session("local[2,4]", name="cairn tests", settings=settings)
    yield found
    found.stop()


@pytest.fixture
def table(pool: SyncPool, request: pytest.FixtureRequest) -> Iterator[Callable[[str], str]]:
    """Makes a table from its columns; it is dropped afterwards."""
    made: list[str] = []

    def make(columns: str) -> str:
        name = f"t{abs(hash(request.node.nodeid)) % 10**8}_{len(made)}"
        pool.execute(f"CREATE TABLE {name} ({columns})")
        made.append(name)
        return name

    yield make
    for name in made:
        pool.execute(f"DROP TABLE {name}")


@pytest.fixture
def reading(spark: Any, dsn: str) -> Callable[..., Any]:
    def read(table: str, **options: Any) -> Any:
        reader = spark.read.format("cairn").option("dsn", dsn).option("table", table)
        for name, value in options.items():
            reader = reader.option(name, str(value))
        return reader

    return read


@pytest.fixture
def writing(dsn: str) -> Callable[..., None]:
    def write(frame: Any, table: str, mode: str = "append", **options: Any) -> None:
        writer = frame.write.format("cairn").option("dsn", dsn).option("table", table)
        for name, value in options.items():
            writer = writer.option(name, str(value))
        writer.mode(mode).save()

    return write


@pytest.fixture
def run(spark: Any, dsn: str, tmp_path: Path) -> Callable[..., list[Any]]:
    """Runs a stream until it has told all there is; the rows told by this run."""

    def go(stream: str, name: str = "a", **options: Any) -> list[Any]:
        reader = spark.readStream.format("cairn").option("dsn", dsn).option("stream", stream)
        for option, value in options.items():
            reader = reader.option(option, str(value))
        told: list[Any] = []
        query = (
            reader.load()
            .writeStream.foreachBatch(lambda frame, _: told.append(frame.collect()))
            .option("checkpointLocation", str(tmp_path / name))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return [batch for batch in told if batch]

    return go


def folder_of(demo: dict[str, Any]) -> Path:
    return Path(demo["dir"])
