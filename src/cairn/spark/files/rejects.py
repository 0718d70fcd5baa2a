"""Rows that cannot be read: what is wrong with each of them, and where it stands."""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import msgspec


class BadRow(msgspec.Struct, frozen=True):
    file: str
    line: int | None
    column: str | None  # None: it is no row at all
    why: str
    record: str

    @property
    def place(self) -> str:
        return self.file if self.line is None else f"{self.file}:{self.line}"

    @property
    def reason(self) -> str:
        return f'column "{self.column}": {self.why}' if self.column else self.why


def blame(record: str, kind: str, fields: Sequence[Any]) -> tuple[str | None, str]:
    """(column, why) of a record that Spark could not read as a row."""
    if kind == "csv":
        values: list[Any] = next(csv.reader([record]), [])
        if len(values) != len(fields):
            return None, f"it has {len(values)} fields, the header has {len(fields)}"
        given = dict(zip([field.name for field in fields], values, strict=True))
    else:
        try:
            given = json.loads(record)
        except ValueError as problem:
            return None, f"it is not JSON: {problem}"
        if not isinstance(given, dict):
            return None, "it is not a JSON object"
    for field in fields:
        value, word = given.get(field.name), field.dataType.simpleString()
        if not _fits(value, word):
            return field.name, f"{json.dumps(value, ensure_ascii=False)[:60]} is not of type {word}"
    for field in fields:  # in quotes, else it would be NULL
        if given.get(field.name) == "" and field.dataType.simpleString() != "string":
            return field.name, f'"" is not of type {field.dataType.simpleString()}'
    return None, "it is not a row of the table"


def _fits(value: Any, word: str) -> bool:
    if value is None or value == "" or word == "string":
        return True
    try:
        match word.partition("(")[0]:
            case "bigint":
                return not isinstance(value, float | bool) and abs(int(value)) < 1 << 63
            case "double" | "decimal":
                return not isinstance(value, bool) and float(value) == float(value)
            case "boolean":
                return str(value).lower() in ("true", "false")
            case "timestamp" | "timestamp_ntz" | "date":
                datetime.fromisoformat(str(value))
    except (ValueError, TypeError):
        return False
    return True


def find_lines(
    rows: Sequence[Any], blamed: Callable[[str], tuple[str | None, str]]
) -> list[BadRow]:
    """Spark knows the text of a bad row but not its line: look it up where it came from."""
    by_file: dict[str, list[Any]] = {}
    for row in rows:
        by_file.setdefault(row["_file"], []).append(row)
    found: list[BadRow] = []
    for url, bad in by_file.items():
        path = Path(unquote(urlsplit(url).path))
        lines: dict[str, list[int]] = {}
        wanted = {row["record"] for row in bad}
        if path.suffix not in (".parquet", ".bz2", ".zst") and path.exists():
            opener = gzip.open if path.suffix == ".gz" else open
            with opener(path, "rt", encoding="utf-8", errors="replace") as text:
                for number, line in enumerate(text, 1):
                    if (bare := line.rstrip("\r\n")) in wanted:
                        lines.setdefault(bare, []).append(number)
        for row in bad:
            places = lines.get(row["record"])
            at = places.pop(0) if places else None
            column, why = row["column"], "a part of the key is missing"
            if column is None:
                column, why = blamed(row["record"])
            found.append(BadRow(str(path), at, column, why, row["record"]))
    return sorted(found, key=lambda each: (each.file, each.line or 0))


def put_aside(found: list[BadRow], path: str) -> str | None:
    if not found:
        return None
    with open(path, "w", encoding="utf-8") as out:
        for each in found:
            out.write(json.dumps(msgspec.to_builtins(each), ensure_ascii=False) + "\n")
    return path
