"""The table of docs/reference/errors.md, from the classes and calls that name a SQLSTATE."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path

import psycopg

from cairn.model import errors

SOURCE = Path(errors.__file__).resolve().parents[1]
_BLOCK = re.compile(r"<!-- errors -->\n.*?<!-- end -->", re.DOTALL)
_CODE = re.compile(r"[0-9A-Z]{5}")
_HUMPS = re.compile(r"(?<!^)(?=[A-Z])")

#: Names that PostgreSQL does not have: our own codes, and one of Picodata's.
OUR_NAMES = {
    "42999": "statement invalidated",
    "PC001": "not owner",
    "PC002": "not leader",
    "PC003": "no master",
    "PC004": "schema in motion",
    "PC005": "position not here",
    "PC006": "partial write",
}


def codes() -> dict[str, list[str]]:
    """Every SQLSTATE that the source can say → what `model/errors.py` says of its classes.

    Classes of the layers below are not for people: what crosses to them is one of these.
    """
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                told = ast.get_docstring(node) if path == Path(errors.__file__).resolve() else ""
                for code in _of_class(node):
                    found[code] += filter(None, [_sentence(told)])
            elif isinstance(node, ast.keyword) and node.arg == "sqlstate":
                found.update((code, found[code]) for code in _texts(node.value))
    found["XX000"] = [_sentence(errors.InternalError.__doc__)]  # the root's own is for us
    return dict(sorted(found.items()))


def _of_class(node: ast.ClassDef) -> list[str]:
    given = [each for each in node.body if isinstance(each, ast.Assign)]
    return [
        code
        for each in given
        if any(isinstance(to, ast.Name) and to.id == "sqlstate" for to in each.targets)
        for code in _texts(each.value)
    ]


def _texts(node: ast.AST) -> list[str]:
    """Also of `"57014" if … else "57P01"`."""
    if isinstance(node, ast.IfExp):
        return _texts(node.body) + _texts(node.orelse)
    is_code = isinstance(node, ast.Constant) and _CODE.fullmatch(str(node.value))
    return [str(node.value)] if is_code and isinstance(node, ast.Constant) else []


def _sentence(text: str | None) -> str:
    return (text or "").partition("\n\n")[0].replace("\n", " ").replace("|", "\\|").strip()


def name_of(code: str) -> str:
    if code in OUR_NAMES:
        return OUR_NAMES[code]
    return _HUMPS.sub(" ", psycopg.errors.lookup(code).__name__.rstrip("_")).lower()


def page_of(text: str) -> str:
    lines = ["| SQLSTATE | Name | In Cairn |", "|---|---|---|"]
    for code, sentences in codes().items():
        lines.append(f"| `{code}` | {name_of(code)} | {' '.join(dict.fromkeys(sentences))} |")
    return _BLOCK.sub(lambda _: "\n".join(["<!-- errors -->", *lines, "<!-- end -->"]), text)
