"""A factory of clusters whose processes never outlive their test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cluster.harness import Cluster


@pytest.fixture
def new_cluster(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Callable[..., Cluster]]:
    made: list[Cluster] = []

    def make(*flags: str, name: str = "test") -> Cluster:
        directory = tmp_path / f"{name}{len(made)}"
        directory.mkdir()
        cluster = Cluster(directory, name, *flags)
        made.append(cluster)
        return cluster

    yield make
    for cluster in made:
        cluster.close()
