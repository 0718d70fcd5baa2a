"""Two instances for whoever attacks them; a test that kills one makes its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster.harness import Cluster, eventually


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    made = Cluster(tmp_path_factory.mktemp("server"), "server")
    made.has_pages = True
    made.start("i1", "i2")
    try:
        query = "SELECT DISTINCT current_replicaset_name FROM _pico_bucket"
        eventually(lambda: len(made["i1"].sql(query)) == 2, "buckets on both instances")
        yield made
    finally:
        made.close()


@pytest.fixture
def port(cluster: Cluster) -> Iterator[int]:
    """The first instance; whatever was done to it, it still answers afterwards."""
    yield cluster["i1"].pg_port
    assert cluster["i1"].sql("SELECT 1") == [(1,)]
