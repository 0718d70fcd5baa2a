"""Text to sqlglot's tree for queries and row changes, after the clauses that only Cairn has."""

from __future__ import annotations

import re
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING

from cairn.model import stops
from cairn.model.errors import (
    CairnError,
    InvalidParameter,
    SyntaxProblem,
    TooComplex,
    UndefinedFunction,
    Unsupported,
)
from cairn.sql.parse.lexer import OFTEN, Token, syntax_error

if TYPE_CHECKING:
    from sqlglot import exp

OPTION_NAMES = (
    *("sql_motion_row_max", "sql_vdbe_opcode_max", "read_preference", "read_concern", "forward"),
    "sql_repartition",
)
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


CHOICES = {
    "read_preference": ("leader", "replica", "any"),
    "read_concern": ("majority", "local"),
    "forward": ("on", "off", "ro_to_rw"),
    "sql_repartition": ("auto", "on", "off"),
}


def check_choice(name: str, value: str) -> None:
    """Refuse a value that is none of those that an option takes."""
    known = CHOICES.get(name)
    if known is not None and value not in known:
        raise InvalidParameter(
            f"unknown {name} value: '{value}', expected one of {', '.join(known)}"
        )


def _check_option(name: str, value: str | int) -> None:
    if name not in OPTION_NAMES:
        raise SyntaxProblem(f"unknown option {name}", hint=f"known: {', '.join(OPTION_NAMES)}")
    if name in CHOICES and isinstance(value, int):
        raise SyntaxProblem(f"option {name} cannot be a parameter")
    check_choice(name, str(value))
    is_count = isinstance(value, int) or (value.isascii() and value.isdigit())
    if name not in CHOICES and not is_count:
        raise CairnError(
            f"expected option {name} to be a non-negative integer, got: {value}",
            sqlstate="22023",
        )


def query_text(found: list[Token], text: str, starts: dict[int, int] | None = None) -> str:
    """The statement for sqlglot: same places, no comments, `?`, E'' and $$ in forms that it reads.

    A replaced token is padded or, when longer, moves what follows: positions stay near. `starts` is
    told where each token is.
    """
    parts, at, marks, numbered = [], 0, 0, False
    size = 0
    for index, token in enumerate(found):
        if index & OFTEN == 0:
            stops.check()
        following = found[index + 1] if index + 1 < len(found) else None
        _check_place(found, index, text)
        gap = text[at : token.start]
        # A comment may look like an optimizer's hint, which sqlglot would take for part of it.
        parts.append(gap if gap.isspace() else _NOT_NEWLINE.sub(" ", gap))
        size += len(parts[-1])
        if starts is not None:
            starts[size] = index
        shown = token.text
        if token.is_op("?") and not (
            _is_key_operator(found, index) or (index and found[index - 1].is_op("@"))
        ):
            marks += 1
            shown = f"${marks}"
        elif token.kind == "param":
            numbered = True
        elif token.kind == "string" and token.text[0] != "'":
            shown = "'" + token.value.replace("'", "''") + "'"
        elif token.value == "select" and _is_bare(found, index):
            shown = f"{token.text} 1"
        elif _in_hint(found, index) or _is_interval(token, following):
            shown = ""
        elif token.is_op("@") and not _is_containment(found, index):
            raise Unsupported(
                "the operator @ is not supported", hint="use abs()", position=token.start + 1
            )
        if index and _is_interval(found[index - 1], token):
            # sqlglot reads one number and one unit of it, and forgets the rest.
            shown += "::interval"
        parts.append(shown.ljust(len(token.text)))
        size += len(parts[-1])
        at = token.start + len(token.text)
    if marks and numbered:
        raise SyntaxProblem("invalid parameters usage. Got $n and ? parameters in one query!")
    return "".join(parts)


#: A `?` behind these is a parameter, whatever follows.
_BEFORE_VALUES = (
    "select distinct all where and or not like ilike to in between symmetric then else when "
    "case limit offset values set by from is on having any some first next escape interval "
    "using filter return returning default as date time timestamp timestamptz over"
)
_WANTS_VALUE = frozenset(_BEFORE_VALUES.split())


def _is_bare(found: list[Token], index: int) -> bool:
    """`EXISTS (SELECT FROM t …)`: of no columns, and nobody looks at them."""
    if not found[index].is_word("select") or index < 2 or index + 1 >= len(found):
        return False
    is_asked = found[index - 1].is_op("(") and found[index - 2].is_word("exists")
    return is_asked and found[index + 1].is_word("from")


def _is_containment(found: list[Token], index: int) -> bool:
    """`@>`, `<@`, `@?` or `@@`, whose signs the lexer tells one by one."""
    here = found[index].start
    for other, at in ((index - 1, here - 1), (index + 1, here + 1)):
        is_near = 0 <= other < len(found) and found[other].start == at
        if is_near and (found[other].is_op("@") or (other > index and found[other].is_op("?"))):
            return True
    before = index > 0 and found[index - 1].is_op("<") and found[index - 1].start == here - 1
    after = index + 1 < len(found) and found[index + 1].is_op(">")
    return before or (after and found[index + 1].start == here + 1)


def _is_key_operator(found: list[Token], index: int) -> bool:
    """`j ? 'key'`, `j ?| array[…]`, `j ?& …`, and no mark of a parameter: no value follows one."""
    at = index + 1
    following = found[at] if at < len(found) else None
    if following is not None and following.is_op("|", "&"):
        if following.start != found[index].start + 1:
            return False
        following = found[at + 1] if at + 1 < len(found) else None
        return following is not None and not following.is_op(")", ",")
    if following is None:
        return False
    if following.kind in ("word", "quoted"):  # `j ? name`: a value stands before it, and no keyword
        before = found[index - 1] if index else None
        return before is not None and (
            before.kind in ("quoted", "string", "param")
            or before.is_op(")", "]")
            or (before.kind == "word" and before.value not in _WANTS_VALUE)
        )
    return following.kind in ("string", "param") or following.is_op("(")


def _check_place(found: list[Token], index: int, text: str) -> None:
    """What sqlglot would let pass: a comma too many, `IN ()`, `==`."""
    token = found[index]
    following = found[index + 1] if index + 1 < len(found) else None
    if token.is_op(",") and _ends_list(following):
        raise syntax_error(following, text)
    if token.is_word("as") and (following is None or following.is_op(",", ")")):
        raise syntax_error(following, text)
    if following is None:
        return
    if following.text == "&" and token.is_word("u") and following.start == token.start + 1:
        raise Unsupported(
            "U&'…' is not supported", hint="write E'\\u0441'", position=token.start + 1
        )
    if token.is_op("(") and following.is_op(")") and index and found[index - 1].is_word("in"):
        raise syntax_error(following, text)
    if token.is_op("=") and following.is_op("=") and following.start == token.start + 1:
        raise UndefinedFunction(
            "operator does not exist: ==", hint="write =", position=token.start + 1
        )


def _is_interval(token: Token, following: Token | None) -> bool:
    """`INTERVAL '1 day'`, with its unit inside the quotes."""
    if not token.is_word("interval") or following is None or following.kind != "string":
        return False
    return not following.value.strip().lstrip("+-").replace(".", "", 1).isdigit()


def _ends_list(following: Token | None) -> bool:
    """Whether a comma before this token has nothing to separate; sqlglot would let it pass."""
    if following is None or following.is_op(")", ","):
        return True
    return following.is_word(*_NO_COMMA_BEFORE)


def _in_hint(found: list[Token], index: int) -> bool:
    """Whether the token is part of `INDEXED BY name`, which sqlglot takes only before an alias."""
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

    from cairn.sql.parse.dialect import Cairn

    _check_depth(found)
    starts: dict[int, int] = {}
    source = query_text(found, text, starts)
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
    _set_indexes(tree, found, starts, text)
    return tree


def _set_indexes(tree: exp.Expr, found: list[Token], starts: dict[int, int], text: str) -> None:
    """`t AS x INDEXED BY i`: tell the table in the tree."""
    from sqlglot import exp

    hints = {at - 1: at for at, token in enumerate(found) if _is_hint(found, at)}
    if not hints:
        return
    for node in tree.find_all(exp.Table):
        alias = node.args.get("alias")
        last = alias.this if alias is not None and alias.this else node.this
        place = starts.get((last._meta or {}).get("start", -1), -1)
        if (at := hints.pop(place, None)) is not None:
            name = found[at + 2]
            node.set("indexed", exp.Identifier(this=name.value, quoted=True))
            node.args["indexed"].update_positions(start=name.start)
    for at in hints.values():
        raise syntax_error(found[at], text)


def _is_hint(found: list[Token], at: int) -> bool:
    return found[at].is_word("indexed") and _in_hint(found, at)


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
    is_last = not any(token.start >= offset + len(word) for token in found)
    if is_last and _lacks(str(first.get("description") or "")):
        return SyntaxProblem("syntax error at end of input", position=len(source) + 1)
    slip, hint = _slip(found, offset), None
    if slip is not None:
        at, hint = slip[0], f'Perhaps you meant "{slip[1]}".'
        if at and found[at - 1].is_op("*"):  # anywhere else it could be an alias
            word, offset = found[at].text, found[at].start
    return SyntaxProblem(
        f'syntax error at or near "{word}"', hint=hint, position=max(offset, 0) + 1
    )


def _lacks(description: str) -> bool:
    """Whether sqlglot misses something behind the token that it names."""
    return description.startswith(("Required keyword", "Expecting")) or "SENTINEL" in description


_KEYWORDS = ("FROM", "WHERE", "GROUP", "ORDER", "HAVING", "LIMIT", "OFFSET", "VALUES", "UNION")


def _slip(found: list[Token], offset: int) -> tuple[int, str] | None:
    """A keyword with a slip in it, shortly before the place where reading failed: `FORM t`."""
    before = [at for at, token in enumerate(found) if token.start <= offset][-3:]
    for at in reversed(before):
        word = found[at].value.upper()
        if found[at].kind == "word" and word not in _KEYWORDS:
            near = get_close_matches(word, _KEYWORDS, n=1, cutoff=0.74)
            if near:
                return at, near[0]
    return None
