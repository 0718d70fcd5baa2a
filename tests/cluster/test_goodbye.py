"""An instance that leaves ends what its clients have asked, and says goodbye."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from tests.cluster.harness import Cluster, Node, eventually

pytestmark = pytest.mark.cluster
Make = Callable[..., Cluster]
LONG = (
    "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < 400000) "
    "SELECT count(*) FROM c"
)


class Asker(threading.Thread):
    """Sends one long statement."""

    def __init__(self, node: Node) -> None:
        super().__init__(daemon=True)
        self.connection = node.connect()
        self.answer: Any = None
        self.start()

    def run(self) -> None:
        try:
            self.answer = self.connection.execute(LONG).fetchall()
        except psycopg.Error as problem:
            self.answer = problem


def runs(node: Node, what: str) -> bool:
    sql = "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND query LIKE %s"
    return bool(node.sql(sql, (f"{what}%",))[0][0])


@pytest.mark.parametrize("way", ["SIGTERM", "expel"])
def test_a_statement_in_flight_is_answered_and_then_the_client_is_told(
    new_cluster: Make, way: str
) -> None:
    cluster = new_cluster("--init-replication-factor", "2").start("i1", "i2")
    asker = Asker(cluster["i2"])
    idle = cluster["i2"].connect()
    eventually(lambda: runs(cluster["i2"], "WITH RECURSIVE"), "the statement to run")
    if way == "SIGTERM":
        assert cluster["i2"].stop() == 0
    else:
        cluster["i1"].sql("CALL cairn_expel('i2')")
        assert cluster["i2"].wait_exit() == 5
    asker.join(20)
    assert asker.answer == [(400000,)]
    with pytest.raises(psycopg.errors.AdminShutdown):
        idle.execute("SELECT 1")
