"""Passwords from files: one line of text each. What is in them is never repeated in an error."""

from __future__ import annotations

from pathlib import Path

from cairn.model.errors import ConfigProblem

MOST_BYTES = 4096  # a wrong file (a disk, an archive) is noticed before it fills the memory


def read_secret(flag: str, path: str) -> str:
    try:
        with Path(path).open("rb") as file:
            data = file.read(MOST_BYTES + 1)
    except OSError as problem:
        raise ConfigProblem(f"{flag} {path}: {problem.strerror}") from None
    if len(data) > MOST_BYTES:
        raise ConfigProblem(f"{flag} {path}: a password has at most {MOST_BYTES} bytes")
    try:
        found = data.decode().strip()
    except UnicodeDecodeError:
        raise ConfigProblem(f"{flag} {path}: it is not text in UTF-8") from None
    if not found:
        raise ConfigProblem(f"{flag} {path}: the file is empty")
    return found
