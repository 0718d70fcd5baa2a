"""Migration files, checked as far as they can be without a cluster.

What does not parse, or could never be an operation of the queue, is refused here with its file,
line and column, before anything of any file is queued. Names are looked up when the turn comes.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from cairn.cli.talking import TalkProblem
from cairn.model.errors import CairnError, SyntaxProblem, TooComplex, Unsupported
from cairn.model.tables.catalog import Catalog
from cairn.pgwire.scram import make_verifier, parse_verifier
from cairn.sql.api import prepare
from cairn.sql.parse.lexer import Token, split, tokens
from cairn.sql.parse.parse import parse_query, take_options
from cairn.sql.statements.passwords import is_verifier, password_in, with_password_hidden

#: Statements that leave nothing behind, or that belong to a session.
_NOT_QUEUED = (
    *("select", "values", "table", "explain", "copy", "show", "set", "reset", "begin", "start"),
    *("commit", "end", "rollback", "abort", "prepare", "deallocate", "discard", "call"),
)
#: What no catalogue could make right.
_FINAL = (SyntaxProblem, Unsupported, TooComplex)


class Operation(msgspec.Struct, frozen=True):
    """One statement of a file."""

    batch: str
    text: str
    description: str


def read_files(files: list[str], batch: str | None) -> dict[str, list[Operation]]:
    """Statements by batch, in the order of the files' names. Nothing comes of it if one is bad."""
    found: dict[str, list[Operation]] = {}
    names: dict[str, str] = {}
    for path in sorted(files, key=lambda path: Path(path).name):
        name = Path(path).name
        if name in names:
            raise TalkProblem(f"{names[name]} and {path} have the same name {name}", 2)
        names[name] = path
        key = batch or name
        found.setdefault(key, []).extend(
            Operation(key, text, f"{name}, statement {number}")
            for number, text in enumerate(_statements(path), 1)
        )
    return found


def is_same(one: str, other: str) -> bool:
    """The same statement, comments and blanks aside; `one` is what the queue has kept of it."""
    kept, clear = password_in(one), password_in(other)
    if kept is not None and clear is not None and is_verifier(kept.value):
        known = parse_verifier(kept.value)
        mine = make_verifier(clear.value, salt=known.salt, iterations=known.iterations)
        other = with_password_hidden(other, lambda _: str(mine))
    return [each.text for each in tokens(one)] == [each.text for each in tokens(other)]


def _statements(path: str) -> list[str]:
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as problem:
        raise TalkProblem(f"{path}: {problem.strerror}", 2) from None
    except UnicodeDecodeError:
        raise TalkProblem(f"{path}: not UTF-8 text", 2) from None
    try:
        found = split(text)
    except CairnError as problem:
        raise _refused(path, text, 0, problem) from None
    if not found:
        raise TalkProblem(f"{path}: holds no statement", 2)
    at = 0
    for statement in found:
        at = text.index(statement, at)
        try:
            check(statement)
        except CairnError as problem:
            raise _refused(path, text, at, problem) from None
        at += len(statement)
    return found


def check(statement: str) -> None:
    """Raise if no cluster, whatever its tables, could run this from the queue."""
    words = tokens(statement)
    first = words[0]
    for token in words:
        if token.kind == "param":
            raise Unsupported(
                "an operation of the queue cannot have parameters", position=token.start + 1
            )
    try:
        prepare(statement, Catalog())
    except _FINAL as problem:
        if problem.position is None:
            problem.position = first.start + 1
        raise
    except CairnError:
        pass  # a table that is not there yet: that is known when its turn comes
    if first.is_word(*_NOT_QUEUED) or first.is_op("(") or not _changes_rows(words, statement):
        raise Unsupported(
            f"{first.text.upper()} cannot be queued: only what changes the cluster can",
            position=first.start + 1,
        )


def _changes_rows(words: list[Token], statement: str) -> bool:
    """WITH … may lead to a change or to nothing but rows."""
    if not words[0].is_word("with", "update"):
        return True
    rest, _ = take_options(words, statement)
    tree = parse_query(rest, statement)
    if tree.key == "update" and not tree.expressions:
        raise SyntaxProblem("syntax error: UPDATE needs SET", position=len(statement) + 1)
    return tree.key in ("insert", "update", "delete")


def _refused(path: str, text: str, start: int, problem: CairnError) -> TalkProblem:
    at = start + (problem.position or 1) - 1
    line = text.count("\n", 0, at) + 1
    column = at - (text.rfind("\n", 0, at) + 1) + 1
    return TalkProblem(f"{path}:{line}:{column}: {problem.message}", 2)
