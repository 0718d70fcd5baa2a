"""The arguments of `CALL cairn_…(…)`: literals, checked against what the procedure takes."""

from __future__ import annotations

import re
from collections.abc import Callable
from inspect import Parameter, signature
from typing import Any

from cairn.model.errors import InvalidParameter, SyntaxProblem, UndefinedFunction

_ARGUMENT = re.compile(
    r"\s*(?:'([^']*(?:''[^']*)*)'|(-?\d+(?:\.\d+)?)|(true|false|null))\s*(,|$)", re.I
)
MAX_ARGUMENTS = 30
#: annotation of a parameter → what may be given for it, in Python and in words
_KINDS: dict[str, tuple[tuple[type, ...], str]] = {
    "str": ((str,), "'text'"),
    "int": ((int,), "a whole number"),
    "float": ((int, float), "a number"),
    "bool": ((bool,), "true or false"),
}


def arguments(name: str, work: Callable[..., Any], text: str) -> list[Any]:
    """The literals in `text`, if `work` takes them after the session."""
    found = _literals(text)
    takes = list(signature(work).parameters.values())[1:]
    needed = sum(parameter.default is Parameter.empty for parameter in takes)
    form = f"write CALL {name}({_form(takes)})"
    if not needed <= len(found) <= len(takes):
        many = "1 argument" if len(found) == 1 else f"{len(found)} arguments"
        raise UndefinedFunction(f"procedure {name} does not take {many}", hint=form)
    for parameter, value in zip(takes, found, strict=False):
        types, words = _KINDS[str(parameter.annotation)]
        if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
            raise InvalidParameter(f"{parameter.name} of {name} must be {words}", hint=form)
    return found


def _form(takes: list[Parameter]) -> str:
    """`name[, keep]`: what may be left out is in brackets."""
    shown = ""
    for parameter in takes:
        word = f"'{parameter.name}'" if parameter.annotation == "str" else parameter.name
        word = word if not shown else f", {word}"
        shown += word if parameter.default is Parameter.empty else f"[{word}]"
    return shown


def _literals(text: str) -> list[Any]:
    found: list[Any] = []
    at = 0
    end = len(text.rstrip())
    while at < end:
        match = _ARGUMENT.match(text, at)
        if match is None:
            raise SyntaxProblem(f"not an argument: {text[at : at + 100]}")
        if len(found) >= MAX_ARGUMENTS:
            raise UndefinedFunction(f"no procedure takes more than {MAX_ARGUMENTS} arguments")
        string, number, word, _ = match.groups()
        if string is not None:
            found.append(string.replace("''", "'"))
        elif number is not None:
            found.append(float(number) if "." in number else int(number))
        else:
            found.append({"true": True, "false": False, "null": None}[word.lower()])
        at = match.end()
    return found
