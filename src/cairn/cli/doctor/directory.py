"""The directory of a stopped instance: is it whole, is it ours, does it fit this program?"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from stat import S_IMODE

import apsw

import cairn
from cairn.cli.doctor.findings import BAD, GOOD, REMARK, WARNING, Finding
from cairn.cli.instance.supervisor import lock_directory
from cairn.model.errors import CairnError
from cairn.model.tables.system_tables import PICO_PROPERTY
from cairn.node.boot import restoring
from cairn.storage.files import setting_aside
from cairn.storage.files.checksums import has_checksums
from cairn.storage.files.scrub import is_whole, trees_of
from cairn.storage.files.sqlite import open_reader, quick_check

FREE_SHARE, FREE_BYTES = 0.1, 256 * 1024 * 1024
FILES = ("raft.db", "data.db")
ANEW = "Restore it from a copy; or expel this instance, empty its directory and let it join anew."


def _below(directory: Path) -> list[Path]:
    """Directories of instances in one that is none itself, as `cairn demo` makes it."""
    if (directory / "data.db").exists():
        return []
    return [each for each in sorted(directory.iterdir()) if (each / "raft.db").exists()]


def look_at(directory: Path) -> list[Finding]:
    where = str(directory)
    if not directory.is_dir():
        return [Finding(BAD, where, "there is no such directory", "Look at --instance-dir.")]
    if not (directory / "raft.db").exists():
        if below := _below(directory):
            return [finding for each in below for finding in look_at(each)]
        return [
            Finding(
                BAD,
                where,
                "no instance has lived here: raft.db is missing",
                "Name the directory of an instance, or one that has such directories in it.",
            )
        ]
    found = [*_rights(directory), *_space(directory), *_notes(directory)]
    try:
        lock = lock_directory(directory)
    except OSError as problem:
        how = "Run it as the user of the instance."
        return [*found, Finding(BAD, where, f"it cannot be read: {problem.strerror}", how)]
    if lock is None:
        text = "an instance runs here: its files are not read"
        return [*found, Finding(REMARK, where, text, "It reads them itself, see scrub_interval.")]
    try:
        return [*found, *_contents(directory)]
    finally:
        os.close(lock)


def _rights(directory: Path) -> list[Finding]:
    found = []
    open_to = [
        each.name
        for each in (directory, *sorted(directory.iterdir()))
        if each.name != "cairn.log" and S_IMODE(each.stat().st_mode) & 0o077
    ]
    if open_to:
        text = f"others may read {', '.join(open_to)}: rows are in clear there"
        found.append(Finding(WARNING, str(directory), text, f"chmod -R go= {directory}"))
    owners = {each.stat().st_uid for each in (directory, *directory.iterdir())}
    if len(owners) > 1:
        text = f"its files belong to several users: {', '.join(map(str, sorted(owners)))}"
        found.append(Finding(BAD, str(directory), text, "chown -R to the user of the instance."))
    return found


def _space(directory: Path) -> list[Finding]:
    usage = shutil.disk_usage(directory)
    if usage.free < FREE_BYTES or usage.free < FREE_SHARE * usage.total:
        text = f"the disk is nearly full: {usage.free / 1e9:.1f} of {usage.total / 1e9:.1f} GB left"
        return [Finding(BAD, str(directory), text, "Give it more: a full disk stops an instance.")]
    return []


def _notes(directory: Path) -> list[Finding]:
    found = []
    if (directory / restoring.NOTE).exists():
        text = "a restore was begun and not finished"
        how = "Run `cairn restore` with all directories again."
        found.append(Finding(BAD, str(directory), text, how))
    if (directory / setting_aside.NOTE).exists():
        text = "data.db was damaged; the next start takes a full copy of the rows"
        found.append(Finding(WARNING, str(directory), text, "Start it, and look at the disk."))
    return found


def _contents(directory: Path) -> list[Finding]:
    found: list[Finding] = []
    for name in FILES:
        path = directory / name
        where = str(path)
        if not path.exists():
            found.append(Finding(BAD, where, "the file is missing", ANEW))
            continue
        try:
            found += _file(path)
        except (CairnError, apsw.Error) as problem:
            found.append(Finding(BAD, where, f"it cannot be read: {problem}", ANEW))
    if not any(each.level == BAD for each in found):
        found += _version(directory)
    return found


def _file(path: Path) -> list[Finding]:
    where = str(path)
    if not has_checksums(path):
        how = "Start it once with this version."
        return [Finding(WARNING, where, "its pages have no checksums", how)]
    torn = [tree for tree in trees_of(path) if not is_whole(path, tree)]
    if torn:
        return [Finding(BAD, where, f"pages are damaged, of: {', '.join(torn)}", ANEW)]
    connection = open_reader(path)
    try:
        verdict = quick_check(connection)
    finally:
        connection.close()
    if verdict != [("ok",)]:  # pages that only the end of a long value is in are met here
        where_exactly = str(verdict[0][0]).splitlines()[-1]
        return [Finding(BAD, where, f"pages are damaged: {where_exactly}", ANEW)]
    size = path.stat().st_size / 1e6
    return [Finding(GOOD, where, f"all pages are whole, {size:.1f} MB")]


def _version(directory: Path) -> list[Finding]:
    connection = open_reader(directory / "raft.db")
    try:
        query = f"SELECT c0, c1 FROM {PICO_PROPERTY.physical_name}"
        facts = {key: str(value).strip('"') for key, value in connection.execute(query)}
    finally:
        connection.close()
    cluster, version = facts.get("cluster_name", "?"), facts.get("cluster_version", "?")
    where = str(directory)
    if _number(version) > _number(cairn.__version__):
        text = f"it was last used by Cairn {version}, this is {cairn.__version__}"
        return [Finding(BAD, where, text, f"Install Cairn {version} or newer.")]
    return [Finding(GOOD, where, f"an instance of cluster {cluster}, version {version}")]


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdecimal())
