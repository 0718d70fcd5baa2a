"""`cairn pause` and `cairn resume`, and who tells of it."""

from __future__ import annotations

import json

from tests.cluster.backups import cairn
from tests.cluster.harness import Cluster


def test_paused_failover_is_told_by_every_command_that_looks(small: Cluster) -> None:
    node = small["i1"]
    assert cairn(node, "pause") == (
        0,
        "automatic failover is paused; cairn resume when the work is done\n",
    )
    assert cairn(node, "pause")[1].startswith("automatic failover is paused already")
    assert "automatic failover is paused: cairn resume goes on\n" in cairn(node, "status")[1]
    assert small["i3"].status()["automatic_failover"] is False
    code, told = cairn(node, "resume", "--json")
    assert (code, json.loads(told)) == (0, {"automatic_failover": True, "was": False})
    assert cairn(node, "resume") == (0, "automatic failover is on already\n")
    assert "paused" not in cairn(node, "status")[1]


def test_only_those_who_may_change_settings_pause(small: Cluster) -> None:
    node = small["i1"]
    node.sql("CREATE USER ann WITH PASSWORD 'T0psecret1'")
    code, told = cairn(node, "pause", user="ann")
    assert (code, told.count("\n"), "denied" in told) == (1, 1, True), told
    assert node.status()["automatic_failover"] is True
