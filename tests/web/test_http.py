"""Probes, metrics and status over HTTP, from a real instance."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Callable

import pytest

from tests.cluster.conftest import new_cluster  # noqa: F401
from tests.cluster.harness import Cluster, eventually, free_ports

pytestmark = pytest.mark.cluster


def get(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as problem:
        return problem.code, problem.read().decode()


def test_an_instance_says_how_it_is(new_cluster: Callable[..., Cluster]) -> None:  # noqa: F811
    [port] = free_ports(1)
    cluster = new_cluster("--http-listen", f"127.0.0.1:{port}")
    cluster.start("i1")
    eventually(lambda: get(port, "/api/v1/health/ready") == (200, '{"status":"ok"}'), "ready")
    assert get(port, "/api/v1/health/live")[0] == 200
    assert get(port, "/api/v1/health/startup")[0] == 200
    code, text = get(port, "/metrics")
    assert code == 200
    assert "cairn_raft_is_leader 1" in text
    assert 'cairn_moves_open{phase="copying"} 0' in text
    assert 'cairn_move_freeze_seconds_bucket{le="+Inf"} 0.0\n' in text
    assert "cairn_move_freeze_seconds_count 0.0\n" in text
    status = json.loads(get(port, "/api/v1/status")[1])
    assert [row["name"] for row in status["instances"]] == ["i1"]
    assert "<title>Cairn</title>" in get(port, "/")[1]
    assert get(port, "/nowhere")[0] == 404
    assert f"the console is at http://127.0.0.1:{port}" in cluster["i1"].log()


def test_without_a_quorum_a_probe_says_whom_to_start(
    new_cluster: Callable[..., Cluster],  # noqa: F811
) -> None:
    [port] = free_ports(1)
    cluster = new_cluster("--init-replication-factor", "1")
    cluster.start("i1").add("i2").start("--http-listen", f"127.0.0.1:{port}")
    eventually(lambda: get(port, "/api/v1/health/ready")[0] == 200, "ready")
    rows = cluster["i1"].status
    eventually(lambda: [row["voter"] for row in rows()["instances"]] == [True] * 2, "two votes")
    cluster["i1"].kill()
    told = (
        "there is no Raft leader: i1 cannot be reached "
        "(start what is missing: 2 of the voters i1, i2 must run)"
    )
    answer = {"status": "not_ready", "reason": told}
    eventually(lambda: json.loads(get(port, "/api/v1/health/ready")[1]) == answer, "the reason")
