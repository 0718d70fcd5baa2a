"""The tutorial is run as it is written."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from cairn.client.sync_pool import SyncPool

TEXT = Path(__file__).parents[2] / "docs" / "tutorial-spark.md"


def test_the_tutorial_runs(
    spark: Any, dsn: str, pool: SyncPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CAIRN_DSN", dsn)
    blocks = re.findall(r"```python\n(.*?)```", TEXT.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) >= 6
    names: dict[str, Any] = {}
    try:
        for block in blocks:
            exec(compile(block, str(TEXT), "exec"), names)
    finally:
        pool.execute("DROP TABLE IF EXISTS orders")
