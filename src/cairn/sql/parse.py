"""Text to sqlglot's tree for queries and row changes, after the clauses that only Cairn has."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cairn.model.errors import CairnError, SyntaxProblem, TooComplex, Unsupported
from cairn.sql.lexer import Token, syntax_error

if TYPE_CHECKING:
    from sqlglot import exp

OPTION_NAMES = ("sql_motion_row_max", "sql_vdbe_opcode_max", "read_preference", "forward")
_NO_COMMA_BEFORE = frozenset(
    (
        *("from", "where", "group", "having", "order", "limit", "offset"),
        *("union", "except", "intersect", "on", "set", "values"),
    )
)
_MAX_PAREN_DEPTH = 400
_NOT_NEWLINE = re.compile(r"[^\n]")


@dataclass(frozen=True)
class Options:
    """`OPTION (…)` at the end of a statement; a value is text or the number of a parameter."""

    values: dict[str, str | int]


def take_options(found: list[Token], text: str) -> tuple[list[Token], Options]:
    """Split a trailing `OPTION (name = value, …)` off. The last of equal names wins."""
    at = len(found) - 1
    if at < 3 or not found[at].is_op(")"):
        return found, Options({})
    while at > 0 and not found[at].is_op("("):
        at -= 1
    if at < 1 or not found[at - 1].is_word("option"):
        return found, Options({})
    values: dict[str, str | int] = {}
    inner = found[at + 1 : -1]
    while inner:
        if len(inner) < 3 or inner[0].kind != "word" or not inner[1].is_op("="):
            raise syntax_error(inner[0], text)
        name, value, size = inner[0].value, inner[2], 3
        if value.is_op("-") and len(inner) > 3:
            value, size = inner[3]._replace(value="-" + inner[3].value), 4
        values[name] = int(value.value) if value.kind == "param" else value.value
        inner = inner[size:]
        if inner:
            if not inner[0].is_op(","):
                raise syntax_error(inner[0], text)
            inner = inner[1:]
    for name, option in values.items():
        _check_option(name, option)
    return found[: at - 1], Options(values)


def _check_option(name: str, value: str | int) -> None:
    if name not in OPTION_NAMES:
        raise SyntaxProblem(f"unknown option {name}", hint=f"known: {', '.join(OPTION_NAMES)}")
    if name.startswith("sql_") and isinstance(value, str) and not value.isdigit():
        raise CairnError(
            f"expected option {name} to be a non-negative integer, got: {value}",
            sqlstate="22023",
        )


def query_text(found: list[Token], text: str) -> str:
    """The statement for sqlglot: same places, no comments, `?`, E'' and $$ in forms that it reads.

    A replaced token is padded or, when longer, moves what follows: positions stay near.
    """
    parts, at, marks, numbered = [], 0, 0, False
    for index, token in enumerate(found):
        following = found[index + 1] if index + 1 < len(found) else None
        if token.is_op(",") and _ends_list(following):
            raise syntax_error(following, text)
        gap = text[at : token.start]
        # A comment may look like an optimizer's hint, which sqlglot would take for part of it.
        parts.append(gap if gap.isspace() else _NOT_NEWLINE.sub(" ", gap))
        shown = token.text
        if token.is_op("?"):
            marks += 1
            shown = f"${marks}"
        elif token.kind == "param":
            numbered = True
        elif token.kind == "string" and token.text[0] != "'":
            shown = "'" + token.value.replace("'", "''") + "'"
        elif _in_hint(found, index):
            shown = ""
        parts.append(shown.ljust(len(token.text)))
        at = token.start + len(token.text)
    if marks and numbered:
        raise SyntaxProblem("invalid parameters usage. Got $n and ? parameters in one query!")
    return "".join(parts)


def _ends_list(following: Token | None) -> bool:
    """Whether a comma before this token has nothing to separate; sqlglot would let it pass."""
    if following is None or following.is_op(")", ","):
        return True
    return following.is_word(*_NO_COMMA_BEFORE)


def _in_hint(found: list[Token], index: int) -> bool:
    """Whether the token is part of `INDEXED BY name`; SQLite chooses indexes by itself."""
    for start in range(max(index - 2, 0), index + 1):
        if found[start].is_word("indexed"):
            return start + 2 < len(found) and found[start + 1].is_word("by")
    return False


def _check_depth(found: list[Token]) -> None:
    depth = 0
    for token in found:
        if token.kind == "op":
            if token.text in "([":
                depth += 1
                if depth > _MAX_PAREN_DEPTH:
                    raise TooComplex("the statement is nested too deeply")
            elif token.text in ")]":
                depth -= 1


def parse_query(found: list[Token], text: str) -> exp.Expr:
    """SELECT, VALUES, INSERT, UPDATE or DELETE as sqlglot's tree."""
    from sqlglot import exp
    from sqlglot.errors import ErrorLevel, SqlglotError
    from sqlglot.errors import ParseError as SqlglotParseError

    from cairn.sql.dialect import Cairn

    _check_depth(found)
    source = query_text(found, text)
    try:
        dialect = Cairn()
        trees = dialect.parser(error_level=ErrorLevel.IMMEDIATE).parse(
            dialect.tokenize(source), source
        )
    except SqlglotParseError as problem:
        raise _syntax(problem.errors, source, found) from None
    except SqlglotError as problem:
        raise SyntaxProblem(f"syntax error: {problem}") from None
    except RecursionError:
        raise TooComplex("the statement is nested too deeply") from None
    except (ValueError, TypeError, AttributeError, KeyError, IndexError) as problem:
        # Some mangled statements are past sqlglot's own error handling.
        raise SyntaxProblem("syntax error") from problem
    if len(trees) != 1 or trees[0] is None:
        raise SyntaxProblem("cannot insert multiple commands into a prepared statement")
    tree = trees[0]
    if isinstance(tree, exp.Command):
        raise Unsupported(f"{str(tree.this).upper()} is not supported")
    return tree


def _syntax(errors: list[dict[str, object]], source: str, found: list[Token]) -> SyntaxProblem:
    if not errors:
        return SyntaxProblem("syntax error")
    first = errors[0]
    line, col = int(str(first.get("line") or 1)), int(str(first.get("col") or 1))
    word = str(first.get("highlight") or "")
    lines = source.split("\n")
    # sqlglot tells the last character of the token it stopped at.
    offset = sum(len(each) + 1 for each in lines[: line - 1]) + col - len(word)
    if not word:
        return SyntaxProblem("syntax error at end of input", position=len(source) + 1)
    if _is_behind(str(first.get("description") or "")):
        after = [token for token in found if token.start >= offset + len(word)]
        if not after:
            return SyntaxProblem("syntax error at end of input", position=len(source) + 1)
        word, offset = after[0].text, after[0].start
    return SyntaxProblem(f'syntax error at or near "{word}"', position=max(offset, 0) + 1)


def _is_behind(description: str) -> bool:
    """Whether sqlglot names the last token that was right, because something lacks behind it."""
    return description.startswith(("Required keyword", "Expecting")) or "SENTINEL" in description
