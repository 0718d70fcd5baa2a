"""One instance for all of these: nothing that is sent ends it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.fuzz.target import Target

DEAF_S = 5.0  # this machine is shared by other tests


@pytest.fixture(scope="session")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    made = Target(tmp_path_factory.mktemp("fuzz"), DEAF_S)
    try:
        yield made
    finally:
        made.close()
