"""Backups on disk that somebody has changed."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from cairn.cli.copies import files
from cairn.cli.talking import TalkProblem
from cairn.model.backups import MANIFEST, FileFacts, Manifest, Previous


def test_a_backup_that_continues_itself_is_told(tmp_path: Path) -> None:
    """It was read for ever."""
    for name, before in (("a", "b"), ("b", "a")):
        manifest = Manifest(
            format=1,
            id=f"id-{name}",
            version="0.1.0",
            cluster_name="demo",
            cluster_uuid="",
            term=1,
            index=1,
            schema_version=1,
            taken_at="",
            parts=(),
            globals=FileFacts("x.db", 0, ""),
            previous=Previous(f"id-{before}", before),
        )
        (tmp_path / name).mkdir()
        (tmp_path / name / MANIFEST).write_bytes(msgspec.json.encode(manifest))
    with pytest.raises(TalkProblem, match="continues itself"):
        files.chain(tmp_path / "a")
