"""What an administrator is given by somebody else: backups, migrations. Nothing is believed."""

from __future__ import annotations

import hashlib
import json
import random
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

from cairn.cli.copies import files
from cairn.cli.copies.rows import Rows, pictures, rows_of
from cairn.cli.copies.rows import global_rows as read_globals
from cairn.cli.migrations.files import read_files
from cairn.cli.talking import TalkProblem
from cairn.model.errors import CairnError
from tests.cluster.backups import backed_up
from tests.fuzz.mutate import any_number, any_text, mutated
from tests.fuzz.sql import Grammar
from tests.fuzz.target import Broken, Target

REFUSALS = (TalkProblem, CairnError)
MOST_ROWS = 5_000
_TAKEN: dict[str, tuple[Path, str]] = {}


def taken(target: Target) -> tuple[Path, str]:
    """A folder with a whole backup and one that continues it, and the name of the last."""
    key = str(target.cluster.dir)
    if key not in _TAKEN:
        folder = target.cluster.dir / "backups"
        backed_up(target.node, folder)
        # A table of its own: what was sent before may have dropped any other.
        target.node.sql("CREATE TABLE IF NOT EXISTS backed_up (id INT PRIMARY KEY)")
        target.node.sql("INSERT INTO backed_up VALUES (900001) ON CONFLICT DO NOTHING")
        _TAKEN[key] = folder, backed_up(target.node, folder, "--from", "latest").name
    return _TAKEN[key]


def backups(target: Target, chance: random.Random) -> None:
    """Changed by somebody who makes the checksums right again: refused, or read; and no file is
    written anywhere but in the place for it."""
    folder, name = taken(target)
    with tempfile.TemporaryDirectory(prefix="fuzz-backups-") as place:
        copied, scratch = Path(place) / "deep" / "backups", Path(place) / "deep" / "scratch"
        shutil.copytree(folder, copied)
        scratch.mkdir()
        if chance.random() < 0.2:
            rename(copied, chance.choice(("../../elsewhere", "/nowhere/x", "a/b", "..", "")))
        for each in sorted(copied.iterdir()):
            if (each / "manifest.json").exists() and chance.random() < 0.7:
                _change(each, chance)
        before = _files(Path(place), scratch)
        with suppress(*REFUSALS):
            to = chance.choice((None, None, "2026-11-18", any_text(chance)))
            restored(copied / name, scratch, to)
        if (now := _files(Path(place), scratch)) != before:
            raise Broken(f"files were written elsewhere: {sorted(now ^ before)}")


def _files(place: Path, scratch: Path) -> set[str]:
    found = {str(path) for path in place.rglob("*") if scratch not in path.parents}
    return {path for path in found if not path.endswith(("-wal", "-shm"))}


def restored(directory: Path, scratch: Path, to: str | None) -> None:
    """All that `cairn restore` reads of it."""
    files.verify(directory)
    rows = Rows(directory, to, scratch)
    catalog, _ = pictures(read_globals(rows.directory, rows.manifest))
    rows.numbers()
    for table in catalog.tables.values():
        if table.is_system or table.sharding is None:
            continue
        for part in rows.manifest.parts:
            count = 0
            for block in rows_of(rows.file(part), table, part, 100):
                count += len(block)
                if count > MOST_ROWS:
                    break


def _change(directory: Path, chance: random.Random) -> None:
    """One file, or a value of the manifest, as a hostile hand would."""
    path = directory / "manifest.json"
    manifest = json.loads(path.read_bytes())
    if chance.random() < 0.5:
        facts = chance.choice([manifest["globals"], *(part["file"] for part in manifest["parts"])])
        victim = directory / facts["name"]
        victim.write_bytes(mutated(chance, victim.read_bytes()))
        data = victim.read_bytes()
        facts |= {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    else:
        _poke(manifest, chance)
    path.write_bytes(json.dumps(manifest).encode())


def rename(folder: Path, name: str) -> None:
    """The replicaset of all of them: a name that leads elsewhere."""
    for path in folder.glob("*/manifest.json"):
        manifest = json.loads(path.read_bytes())
        for part in manifest["parts"]:
            part["replicaset"] = name
        path.write_bytes(json.dumps(manifest).encode())


def _poke(value: Any, chance: random.Random) -> None:
    """Another value somewhere in it; names become ways to elsewhere."""
    while isinstance(value, dict | list) and value:
        key: Any = chance.choice(list(value) if isinstance(value, dict) else range(len(value)))
        if chance.random() < 0.4 or not isinstance(value[key], dict | list):
            value[key] = chance.choice(
                (any_number(chance), any_text(chance), "../../elsewhere", "..", None, [], 1.5, {})
            )
            return
        value = value[key]


def migrations(target: Target, chance: random.Random) -> None:
    """Files of `cairn migrate`, nearly right: queued as they are, or refused with a place."""
    grammar = Grammar(chance)
    with tempfile.TemporaryDirectory(prefix="fuzz-migrations-") as place:
        names = []
        for number in range(chance.randrange(1, 4)):
            path = Path(place) / f"{number}.sql"
            text = ";\n".join(grammar.statement() for _ in range(chance.randrange(1, 5)))
            path.write_bytes(mutated(chance, text.encode()))
            names.append(str(path))
        with suppress(*REFUSALS):
            read_files(names, chance.choice((None, any_text(chance))))
