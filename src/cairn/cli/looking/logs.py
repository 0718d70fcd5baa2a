"""`cairn logs`: the logs of instances on this machine, in the order of time, and as they grow."""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec

from cairn.cli.talking import TalkProblem

LOOK_S = 0.25
FILES = {"log": "cairn.log", "audit": "audit.log", "slow": "slow.log"}
LEVELS = ("D", "I", "W", "E", "C")
_LINE = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}) ([DIWEC]) ([\w.]+): (.*)", re.DOTALL)
_AGO = re.compile(r"(\d+(?:\.\d+)?)([smhd])")
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}


class Line(msgspec.Struct, frozen=True):
    at: datetime
    instance: str
    which: str
    text: str  # as it is in the file
    level: str = ""
    part: str = ""
    facts: dict[str, Any] = {}

    def shown(self) -> str:
        return f"{self.instance:8} {self.text}"

    def as_json(self) -> str:
        head = {"time": self.at.isoformat(), "instance": self.instance, "log": self.which}
        if self.which != "log":
            return json.dumps({**self.facts, **head}, ensure_ascii=False)
        body = _LINE.fullmatch(self.text)
        message = body[4] if body else self.text
        rest = {"level": self.level, "part": self.part, "message": message}
        return json.dumps(head | rest, ensure_ascii=False)


def run_logs(
    directories: list[Path],
    *,
    which: str,
    since: str | None,
    level: str,
    count: int,
    follow: bool,
    as_json: bool,
) -> int:
    if which not in FILES:
        raise TalkProblem(f"--which {which}: one of {', '.join(FILES)}", 2)
    if level.upper()[:1] not in LEVELS:
        raise TalkProblem(f"--level {level}: one of debug, info, warning, error, critical", 2)
    least = LEVELS.index(level.upper()[:1])
    after = since_when(since, datetime.now(UTC)) if since else None
    found = instances_in(directories, FILES[which])
    tails = [Tail(path, which) for path in found]
    missing = [path.name for path in found if not (path / FILES[which]).exists()]
    if missing:
        hint = ": its log went to where it was started (systemd: journalctl -u cairn)"
        names = ", ".join(missing)
        print(f"{names}: no {FILES[which]}{hint if which == 'log' else ''}", file=sys.stderr)

    def is_wanted(line: Line) -> bool:
        is_late = after is None or line.at >= after
        return is_late and (not line.level or LEVELS.index(line.level) >= least)

    def show(lines: list[Line]) -> None:
        for line in sorted(lines, key=lambda line: line.at):
            print(line.as_json() if as_json else line.shown())
        sys.stdout.flush()

    try:
        wanted = [line for tail in tails for line in tail.read() if is_wanted(line)]
        wanted.sort(key=lambda line: line.at)
        show(wanted if since else wanted[-count:])
        while follow:
            time.sleep(LOOK_S)
            show([line for tail in tails for line in tail.read() if is_wanted(line)])
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # `| head` has enough
    return 0


def instances_in(directories: list[Path], name: str) -> list[Path]:
    """Each directory is of an instance, or has those of several in it."""
    found: list[Path] = []
    for each in directories:
        if not each.is_dir():
            raise TalkProblem(f"{each}: there is no such directory", 2)
        inside = [
            path
            for path in (each, *sorted(each.iterdir()))
            if (path / name).exists() or (path / "raft.db").exists()
        ]
        if not inside:
            raise TalkProblem(f"{each}: no instance is here, nor one directory below", 2)
        found += inside
    return list(dict.fromkeys(found))


def since_when(text: str, now: datetime) -> datetime:
    """`10m`, `2h`, `1d` ago, or a time; without a zone it is the machine's."""
    if (ago := _AGO.fullmatch(text.strip())) is not None:
        return now - timedelta(seconds=float(ago[1]) * _UNITS[ago[2]])
    try:
        found = datetime.fromisoformat(text.strip())
    except ValueError:
        raise TalkProblem(f"--since {text}: write 10m, 2h, 1d or 2026-11-16T12:00:00", 2) from None
    return found.astimezone(UTC)


class Tail:
    """Whole lines of one file, each once; a file that was exchanged or cut is begun anew."""

    def __init__(self, directory: Path, which: str) -> None:
        self._path, self._which = directory / FILES[which], which
        self._instance = directory.resolve().name
        self._at, self._inode, self._half = 0, 0, b""
        self._last = datetime.fromtimestamp(0, UTC)

    def read(self) -> list[Line]:
        try:
            with self._path.open("rb") as file:
                facts = os.fstat(file.fileno())
                if facts.st_ino != self._inode or facts.st_size < self._at:
                    self._at, self._inode, self._half = 0, facts.st_ino, b""
                file.seek(self._at)
                data = self._half + file.read()
                self._at = file.tell()
        except FileNotFoundError:
            return []  # between two files of a rotation
        *whole, self._half = data.split(b"\n")
        return list(self._parsed(whole))

    def _parsed(self, lines: list[bytes]) -> Iterator[Line]:
        for raw in lines:
            text = raw.decode(errors="replace")
            found = self._in_text(text) if self._which == "log" else self._in_json(text)
            if found is not None:
                self._last = found.at
                yield found

    def _in_text(self, text: str) -> Line:
        """A line without a time, of a traceback, belongs to the one before it."""
        match = _LINE.fullmatch(text)
        if match is None:
            return Line(self._last, self._instance, self._which, text)
        at = datetime.strptime(match[1], "%Y-%m-%d %H:%M:%S,%f").astimezone(UTC)
        return Line(at, self._instance, self._which, text, match[2], match[3])

    def _in_json(self, text: str) -> Line | None:
        try:
            facts = json.loads(text)
            at = datetime.fromisoformat(facts["time"])
        except (ValueError, KeyError, TypeError):
            return None if not text.strip() else Line(self._last, self._instance, self._which, text)
        return Line(at, self._instance, self._which, text, facts=facts)
