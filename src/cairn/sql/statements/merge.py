"""MERGE, read from its tokens into texts: `compile_merge` makes statements of them."""

from __future__ import annotations

from dataclasses import dataclass

from cairn.model.errors import SyntaxProblem, Unsupported
from cairn.sql.parse.lexer import Token
from cairn.sql.statements.cursor import Cursor

MOST_CLAUSES = 20


@dataclass(frozen=True)
class When:
    """`WHEN [NOT] MATCHED [AND condition] THEN action`."""

    is_matched: bool
    condition: str  # "" for none
    action: str  # update delete insert nothing
    columns: tuple[str, ...] | None = None  # None: all
    values: tuple[str, ...] = ()  # one for each; DEFAULT may be among them
    is_default: bool = False  # INSERT DEFAULT VALUES
    position: int = 0


@dataclass(frozen=True)
class Merge:
    target: str
    alias: str
    source: str  # with its alias
    on: str
    whens: tuple[When, ...]
    before: str = ""  # WITH and its parts, which the source and the conditions may name


def read_merge(cursor: Cursor, before: str = "") -> Merge:
    """After the word MERGE; `before` it stands WITH."""
    cursor.expect("into")
    cursor.accept("only")
    target = cursor.name()
    if target == "public" and cursor.accept_op("."):
        target = cursor.name()
    alias = target
    if cursor.accept("as") or not cursor.looking_at("using"):
        alias = cursor.name()
    cursor.expect("using")
    source = _until(cursor, "on")
    cursor.expect("on")
    on = _until(cursor, "when")
    whens: list[When] = []
    while cursor.peek() is not None:
        whens.append(_when(cursor))
    if not whens:
        raise cursor.error()
    if len(whens) > MOST_CLAUSES:
        raise Unsupported(f"MERGE with more than {MOST_CLAUSES} WHEN clauses is not supported")
    for kind in (True, False):
        same = [each for each in whens if each.is_matched is kind]
        if any(not each.condition for each in same[:-1]):
            raise SyntaxProblem("unreachable WHEN clause specified after unconditional WHEN clause")
    return Merge(target, alias, source, on, tuple(whens), before)


def _when(cursor: Cursor) -> When:
    begun = cursor.peek()
    cursor.expect("when")
    is_matched = not cursor.accept("not")
    cursor.expect("matched")
    condition = _until(cursor, "then") if cursor.accept("and") else ""
    cursor.expect("then")
    position = begun.start + 1 if begun is not None else 0
    if cursor.accept("do", "nothing"):
        return When(is_matched, condition, "nothing", position=position)
    if is_matched and cursor.accept("delete"):
        return When(True, condition, "delete", position=position)
    if is_matched and cursor.accept("update", "set"):
        names, values = _sets(cursor)
        return When(True, condition, "update", names, values, position=position)
    if not is_matched and cursor.accept("insert"):
        return _insert(cursor, condition, position)
    raise cursor.error()


def _insert(cursor: Cursor, condition: str, position: int) -> When:
    columns = tuple(cursor.names()) if cursor.looking_at_op("(") else None
    if cursor.accept("overriding"):
        raise Unsupported("OVERRIDING in MERGE is not supported")
    if cursor.accept("default", "values"):
        return When(False, condition, "insert", (), (), is_default=True, position=position)
    cursor.expect("values")
    values = _listed(cursor)
    return When(False, condition, "insert", columns, values, position=position)


def _sets(cursor: Cursor) -> tuple[tuple[str, ...], tuple[str, ...]]:
    names: list[str] = []
    values: list[str] = []
    while True:
        if cursor.looking_at_op("("):
            several = cursor.names()
            cursor.expect_op("=")
            cursor.accept("row")
            given = _listed(cursor)
            if len(given) != len(several):
                raise SyntaxProblem(
                    "number of columns does not match number of values", position=None
                )
            names += several
            values += given
        else:
            names.append(cursor.name())
            cursor.expect_op("=")
            values.append(_until(cursor, "when", comma=True))
        if not cursor.accept_op(","):
            break
    for at, name in enumerate(names):
        if name in names[:at]:
            raise SyntaxProblem(f'multiple assignments to same column "{name}"')
    return tuple(names), tuple(values)


def _listed(cursor: Cursor) -> tuple[str, ...]:
    """`(value, …)`"""
    cursor.expect_op("(")
    found = [_until(cursor, comma=True)]
    while cursor.accept_op(","):
        found.append(_until(cursor, comma=True))
    cursor.expect_op(")")
    return tuple(found)


def _until(cursor: Cursor, *words: str, comma: bool = False) -> str:
    """The text up to one of these words, or a comma, outside of parentheses and of CASE … END."""
    first = last = cursor.peek()
    depth = cases = 0
    while (token := cursor.peek()) is not None:
        if depth == 0 and cases == 0 and (token.is_word(*words) or (comma and token.is_op(","))):
            break
        if token.is_op("(") or token.is_op("["):
            depth += 1
        elif token.is_op(")") or token.is_op("]"):
            if depth == 0:
                break
            depth -= 1
        elif token.is_word("case"):
            cases += 1
        elif token.is_word("end") and cases:
            cases -= 1
        last = token
        cursor.at += 1
    if first is None or first is cursor.peek():
        raise cursor.error()
    return _text(cursor, first, last)


def _text(cursor: Cursor, first: Token, last: Token | None) -> str:
    assert last is not None
    return cursor.text[first.start : last.start + len(last.text)]
