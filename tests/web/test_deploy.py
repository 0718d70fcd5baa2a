"""The dashboard and the alarms in `deploy/` ask for what an instance really tells."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cluster.conftest import new_cluster  # noqa: F401
from tests.cluster.harness import Cluster, eventually, free_ports
from tests.web.test_http import get

pytestmark = pytest.mark.cluster
DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
ALERTS = DEPLOY / "prometheus" / "cairn-alerts.yml"
_METRIC = re.compile(r"\b(?:cairn|process)_\w+")
_ENDS = {"histogram": ("_bucket", "_sum", "_count"), "counter": ("_total",)}


def rules() -> list[dict[str, Any]]:
    [group] = yaml.safe_load(ALERTS.read_text())["groups"]
    found: list[dict[str, Any]] = group["rules"]
    return found


def questions() -> Iterator[tuple[str, str]]:
    """(whose, the question) of every alarm, panel and variable."""
    for rule in rules():
        yield rule["alert"], rule["expr"]
    board = json.loads((DEPLOY / "grafana" / "cairn.json").read_text())
    for panel in board["panels"]:
        for target in panel["targets"]:
            yield panel["title"], target["expr"]
    for variable in board["templating"]["list"]:
        yield variable["name"], variable["query"]


def told(text: str) -> set[str]:
    """Names of all series that `/metrics` may have."""
    names = set()
    for name, kind in re.findall(r"^# TYPE (\w+) (\w+)$", text, re.MULTILINE):
        base = name.removesuffix("_total")
        names |= {name} if kind == "gauge" else {base + end for end in _ENDS.get(kind, ("",))}
    return names


def test_every_metric_that_is_asked_for_is_told(new_cluster: Callable[..., Cluster]) -> None:  # noqa: F811
    [port] = free_ports(1)
    new_cluster("--http-listen", f"127.0.0.1:{port}").start("i1")
    eventually(lambda: get(port, "/metrics")[0] == 200, "metrics")
    names = told(get(port, "/metrics")[1])
    asked = {(whose, name) for whose, ask in questions() for name in _METRIC.findall(ask)}
    assert len(asked) > 40
    assert {(whose, name) for whose, name in asked if name not in names} == set()


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: str(rule["alert"]))
def test_an_alarm_says_what_is_wrong_and_what_to_do(rule: dict[str, Any]) -> None:
    assert rule["labels"]["severity"] in ("warning", "critical")
    assert set(rule["annotations"]) == {"summary", "action"}


def test_promtool_understands_the_alarms() -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed")
    done = subprocess.run(
        [promtool, "check", "rules", str(ALERTS)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr
