"""What an application's own tests get from us."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from cairn.model.errors import CairnError
from cairn.testing import Cluster

pytestmark = pytest.mark.cluster
EXAMPLE = Path(__file__).parents[2] / "examples" / "orders_service"


def test_nothing_of_one_test_is_left_for_the_next() -> None:
    with Cluster() as cluster:
        cluster.sql("CREATE TABLE stays (id INT PRIMARY KEY)")
        cluster.sql("INSERT INTO stays VALUES (1)")
        before = cluster.names()
        cluster.sql('CREATE TABLE "a table" (id INT PRIMARY KEY)')
        cluster.sql('CREATE VIEW seen AS SELECT id FROM "a table"')
        cluster.sql("CREATE USER ann WITH PASSWORD 'Gr4nitestone'")
        cluster.sql("CREATE ROLE readers")
        assert cluster.names() != before
        cluster.drop_others(before)
        assert cluster.names() == before
        assert cluster.sql("SELECT count(*) FROM stays") == [(1,)]
        cluster.empty()
        assert cluster.sql("SELECT count(*) FROM stays") == [(0,)]
        directory = cluster.directory
    assert not directory.exists()


def test_rows_that_a_killed_master_acknowledged_stay_if_the_test_asks_for_that() -> None:
    with Cluster(3, 3, "sync") as cluster:
        cluster.sql("CREATE TABLE sales (id INT PRIMARY KEY)")
        put = "INSERT INTO sales VALUES ($1)"
        for known in (-2, -1):  # the driver knows the way to the row from then on
            cluster.sql(put, known)
        for replica in set(cluster.instances) - {cluster.master()}:
            cluster.pause(replica)
        # Which instance a driver asks is its own choice: what counts is that nobody says done.
        with pytest.raises(CairnError):
            cluster.sql(put, 1)
        for name in cluster.instances:
            cluster.resume(name)


def test_the_example_application_passes_its_own_tests() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(
        command, cwd=EXAMPLE, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:]
    assert "3 passed" in done.stdout
