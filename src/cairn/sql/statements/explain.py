"""The options of EXPLAIN, read as PostgreSQL 15 reads its own; Picodata's stand beside them."""

from __future__ import annotations

from cairn.model.errors import InvalidParameter, SyntaxProblem, Unsupported
from cairn.sql.parse.lexer import Token
from cairn.sql.plans import ExplainOptions
from cairn.sql.statements.cursor import Cursor

_FACETS = ("logical", "buckets", "raw", "forward", "context", "fmt")
_NOTHING_TO_SHOW = {
    "costs": "nothing here estimates costs",
    "buffers": "pages are not counted",
    "wal": "the row log is not counted",
    "settings": "settings of a plan are shown as execution options",
}
_SWITCHES = ("analyze", "verbose", "timing", "summary", *_NOTHING_TO_SHOW)
_STATEMENTS = ("select", "with", "values", "table", "insert", "update", "delete")


def parse_explain(cursor: Cursor) -> ExplainOptions:
    """What stands between EXPLAIN and its statement."""
    following = cursor.peek(1)
    is_list = (
        cursor.looking_at_op("(")
        and following is not None
        and not following.is_op("(")
        and not following.is_word(*_STATEMENTS)
    )
    if is_list:
        return _listed(cursor)
    is_run = cursor.accept_one("analyze", "analyse") is not None
    return ExplainOptions(is_run=is_run, is_verbose=cursor.accept("verbose"))


def _listed(cursor: Cursor) -> ExplainOptions:
    facets: list[str] = []
    switches: dict[str, bool] = {}
    shape = "text"
    cursor.expect_op("(")
    while True:
        token = cursor.take()
        name = "analyze" if token.value == "analyse" else token.value
        if token.kind not in ("word", "quoted"):
            cursor.at -= 1
            raise cursor.error()
        value = None if _is_end(cursor.peek()) else cursor.take()
        if name in _FACETS and value is None:
            facets.append(name)
        elif name == "format":
            shape = _format(value)
        elif name in _SWITCHES:
            switches[name] = _is_on(name, value)
        else:
            raise SyntaxProblem(
                f'unrecognized EXPLAIN option "{token.value}"', position=token.start + 1
            )
        if not cursor.accept_op(","):
            break
    cursor.expect_op(")")
    return _judged(facets, switches, shape)


def _is_end(token: Token | None) -> bool:
    return token is None or token.is_op(",") or token.is_op(")")


def _is_on(name: str, value: Token | None) -> bool:
    if value is None or value.value.lower() in ("true", "on", "1"):
        return True
    if value.value.lower() in ("false", "off", "0"):
        return False
    raise SyntaxProblem(f"{name} requires a Boolean value", position=value.start + 1)


def _format(value: Token | None) -> str:
    if value is None:
        raise SyntaxProblem("format requires a parameter")
    shape = value.value.lower()
    if shape in ("text", "json"):
        return shape
    if shape in ("xml", "yaml"):
        raise Unsupported(f"EXPLAIN (FORMAT {shape.upper()}) is not supported", hint="use JSON")
    raise InvalidParameter(f'unrecognized value for EXPLAIN option "format": "{value.value}"')


def _judged(facets: list[str], switches: dict[str, bool], shape: str) -> ExplainOptions:
    is_run = switches.get("analyze", False)
    for name in ("wal", "timing"):
        if switches.get(name) and not is_run:
            raise InvalidParameter(f"EXPLAIN option {name.upper()} requires ANALYZE")
    if facets and (is_run or shape == "json"):
        other = "ANALYZE" if is_run else "FORMAT JSON"
        raise Unsupported(
            f"EXPLAIN ({facets[0].upper()}) and {other} do not go together",
            hint=f"EXPLAIN ({other}, VERBOSE) shows all of it",
        )
    notices = tuple(
        f"EXPLAIN ({name.upper()}) shows nothing: {why}"
        for name, why in _NOTHING_TO_SHOW.items()
        if switches.get(name)
    )
    if switches.get("summary") and not is_run:
        notices += ("EXPLAIN (SUMMARY) shows nothing without ANALYZE: planning is not measured",)
    return ExplainOptions(
        tuple(facets),
        is_run,
        switches.get("verbose", False),
        switches.get("timing", True),
        switches.get("summary", is_run),
        shape == "json",
        notices,
    )
