"""One small cluster for the commands that look at it and leave it as it was."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster.conftest import new_cluster
from tests.cluster.harness import Cluster

__all__ = ["new_cluster"]


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two replicasets: i1 and i2, and i3 alone."""
    flags = ("--init-replication-factor", "2")
    cluster = Cluster(tmp_path_factory.mktemp("small"), "small", *flags).start("i1", "i2")
    try:
        cluster.add("i3").start()
        cluster.wait_online("i3", via="i1")
        yield cluster
    finally:
        cluster.close()
