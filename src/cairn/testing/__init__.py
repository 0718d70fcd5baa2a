"""A real cluster for the tests of an application: processes, files, failovers, on loopback.

    with cairn.testing.Cluster(instances=2, replication_factor=2) as cluster:
        application(cluster.dsn)
        cluster.kill(cluster.master("r1"))

With pytest, put `pytest_plugins = ["cairn.testing.fixtures"]` into `conftest.py` and take the
fixture `cairn`: the same cluster for all tests, and nothing left of one test for the next.
"""

from cairn.testing.cluster import Cluster

__all__ = ["Cluster"]
