"""Deliberate bugs in planning must be noticed by generated queries, or these prove little."""

from __future__ import annotations

import random
from typing import Any

import pytest

from cairn.sql.plan import buckets, locality, merging
from cairn.sql.plan import read as plan_read

from .generate import Generator
from .test_distribution import _answers, _sorted, cluster

pytestmark = pytest.mark.slow
__all__ = ["cluster"]


def _first_branch(catalog: Any, scan: Any, node: Any, classes: Any) -> Any:
    part = node.args[0]
    return buckets._and(catalog, scan, [part], buckets.equal_classes([part]))


MUTANTS = {
    "all tables are co-located": (locality, "colocated", lambda *_: True),
    "groups never cross replicasets": (plan_read, "covers", lambda *_: True),
    "every sub-query is pushed down": (plan_read, "remote_ok", lambda *_: True),
    "DISTINCT aggregates are merged": (merging, "covers", lambda *_: True),
    "OR takes the buckets of its first branch": (buckets, "_or", _first_branch),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_generated_queries_notice_a_deliberate_bug(
    cluster: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, attribute, bug = MUTANTS[name]
    monkeypatch.setattr(module, attribute, bug)
    generator = Generator(random.Random(11))
    for _ in range(1500):
        text, ordered = generator.query()
        ours, whole = _answers(cluster, text)
        if not ordered and isinstance(ours, list) and isinstance(whole, list):
            ours, whole = _sorted(ours), _sorted(whole)
        if ours != whole:
            return
    pytest.fail("nobody noticed")
