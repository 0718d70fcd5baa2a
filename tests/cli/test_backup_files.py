"""Backups on disk that somebody has changed."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from cairn.cli.copies import files
from cairn.cli.talking import TalkProblem
from cairn.model.backups import MANIFEST, FileFacts, Manifest, Previous


def write(folder: Path, name: str, before: str) -> None:
    """A backup that says which one it continues."""
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
    (folder / name).mkdir()
    (folder / name / MANIFEST).write_bytes(msgspec.json.encode(manifest))


def test_a_backup_that_continues_itself_is_told(tmp_path: Path) -> None:
    """It was read for ever."""
    write(tmp_path, "a", "b")
    write(tmp_path, "b", "a")
    with pytest.raises(TalkProblem, match="continues itself"):
        files.chain(tmp_path / "a")


@pytest.mark.parametrize("name", ["nowhere", "x" * 4000, "a\0b"])
def test_a_backup_that_continues_what_is_not_there_is_told(tmp_path: Path, name: str) -> None:
    write(tmp_path, "a", name)
    with pytest.raises(TalkProblem, match="is not there"):
        files.chain(tmp_path / "a")
