"""The page of metrics says what an instance says.

`python -m tests.web.test_metric_page` writes it anew.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from tests.web.conftest import Watched
from tests.web.metric_pages import page_of

pytestmark = pytest.mark.cluster
PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "metrics.md"


def test_the_page_has_every_metric(watched: Watched) -> None:
    told = watched.browser("i1").get("/metrics")[1]
    assert page_of(PAGE.read_text(), told) == PAGE.read_text(), (
        "run python -m tests.web.test_metric_page"
    )


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        cluster = Watched(Path(place), "page").begin("i1")
        try:
            told = cluster.browser("i1").get("/metrics")[1]
            PAGE.write_text(page_of(PAGE.read_text(), told))
        finally:
            cluster.close()
