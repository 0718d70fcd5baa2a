"""Fixtures of pytest: `pytest_plugins = ["cairn.testing.fixtures"]` in `conftest.py`.

`cairn_instances` and `cairn_replication_factor` in the configuration of pytest say how large the
cluster is, `cairn_replication_mode` whether a killed master may take what it acknowledged with it.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cairn.testing.cluster import Cluster


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini("cairn_instances", "instances of the cluster (default: 1)", default="1")
    parser.addini("cairn_replication_factor", "copies of each row (default: 1)", default="1")
    parser.addini("cairn_replication_mode", "async (the default) or sync", default="async")


@pytest.fixture(scope="session")
def cairn_cluster(pytestconfig: pytest.Config) -> Iterator[Cluster]:
    """One for all tests of the session."""
    instances = int(pytestconfig.getini("cairn_instances"))
    factor = int(pytestconfig.getini("cairn_replication_factor"))
    mode = str(pytestconfig.getini("cairn_replication_mode"))
    with Cluster(instances, factor, mode) as cluster:
        yield cluster


@pytest.fixture
def cairn(cairn_cluster: Cluster) -> Iterator[Cluster]:
    """The cluster; tables, views, procedures, users and roles that a test makes go with it."""
    before = cairn_cluster.names()
    yield cairn_cluster
    cairn_cluster.drop_others(before)
