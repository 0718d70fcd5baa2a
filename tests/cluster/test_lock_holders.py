"""Advisory locks of sessions whose instance dies or stands still, with real processes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from tests.cluster.harness import Cluster, Node, eventually

pytestmark = pytest.mark.cluster


class Waiter(threading.Thread):
    """Waits for the lock."""

    def __init__(self, node: Node) -> None:
        super().__init__(daemon=True)
        self.connection = node.connect()
        self.answer: Any = None
        self.start()

    def run(self) -> None:
        self.answer = self.connection.execute("SELECT pg_advisory_lock(1)").fetchall()


def test_a_lock_outlives_neither_its_instance_nor_its_standing_still(
    new_cluster: Callable[..., Cluster],
) -> None:
    cluster = new_cluster().start("i1", "i2", "i3")
    leader = cluster.leader("i1")
    here, there = (cluster[name] for name in ("i1", "i2", "i3") if name != leader)
    paused = here.connect()
    paused.execute("SELECT pg_advisory_lock(1)")
    waiter = Waiter(there)
    waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted"
    eventually(lambda: there.sql(waiting) == [(1,)], "the other to wait")

    here.pause()
    waiter.join(30.0)
    assert waiter.answer == [("",)]
    here.resume()
    with pytest.raises(psycopg.errors.AdminShutdown, match="advisory locks were lost"):
        paused.execute("SELECT 1")
    assert here.sql("SELECT pg_try_advisory_lock(1)") == [(False,)]

    last = Waiter(here)
    eventually(lambda: there.sql(waiting) == [(1,)], "the first one to wait")
    there.kill()
    last.join(30.0)
    assert last.answer == [("",)]
    assert last.connection.execute("SELECT pg_advisory_unlock(1)").fetchall() == [(True,)]
