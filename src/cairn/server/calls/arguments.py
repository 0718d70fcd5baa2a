"""The arguments of `CALL cairn_…(…)`, checked against what the procedure takes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from inspect import Parameter, signature
from typing import Any

from cairn.model.errors import CairnError, InvalidParameter, UndefinedFunction
from cairn.model.types.values import ColumnType, parse_text
from cairn.sql.plans import Placed

#: annotation of a parameter → what may be given for it, in Python and in words
_KINDS: dict[str, tuple[tuple[type, ...], str]] = {
    "str": ((str,), "'text'"),
    "int": ((int,), "a whole number"),
    "float": ((int, float), "a number"),
    "bool": ((bool,), "true or false"),
}
_TYPES = {"int": ColumnType.INTEGER, "float": ColumnType.DOUBLE, "bool": ColumnType.BOOLEAN}


def arguments(
    name: str, work: Callable[..., Any], given: Sequence[Any], values: Sequence[Any] = ()
) -> list[Any]:
    """What was given, with the values of parameters, if `work` takes it after the session."""
    found = [values[each.number - 1] if isinstance(each, Placed) else each for each in given]
    takes = list(signature(work).parameters.values())[1:]
    needed = sum(parameter.default is Parameter.empty for parameter in takes)
    form = f"write CALL {name}({_form(takes)})"
    if not needed <= len(found) <= len(takes):
        many = "1 argument" if len(found) == 1 else f"{len(found)} arguments"
        raise UndefinedFunction(f"procedure {name} does not take {many}", hint=form)
    for at, parameter in enumerate(takes[: len(found)]):
        types, words = _KINDS[str(parameter.annotation)]
        if isinstance(given[at], Placed) and isinstance(found[at], str):
            found[at] = _read(found[at], str(parameter.annotation))
        value = found[at]
        if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
            raise InvalidParameter(f"{parameter.name} of {name} must be {words}", hint=form)
    return found


def _read(text: str, kind: str) -> Any:
    """A parameter that came as text, because nobody had told its type, as what is wanted."""
    try:
        return text if kind == "str" else parse_text(_TYPES[kind], text)
    except CairnError:
        return text  # refused by the name of the argument


def _form(takes: list[Parameter]) -> str:
    """`name[, keep]`: what may be left out is in brackets."""
    shown = ""
    for parameter in takes:
        word = f"'{parameter.name}'" if parameter.annotation == "str" else parameter.name
        word = word if not shown else f", {word}"
        shown += word if parameter.default is Parameter.empty else f"[{word}]"
    return shown
