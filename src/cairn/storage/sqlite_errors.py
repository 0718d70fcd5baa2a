"""Errors of SQLite, and of functions that it called, as ours."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import apsw

from cairn.model.errors import CairnError, DivisionByZero, OutOfRange
from cairn.model.unexpected import of_value
from cairn.storage.files.checksums import is_damage, page_damaged


def translated(problem: Exception) -> CairnError:
    """An error of SQLite, or of a function that it called, as one of ours.

    What is left is a bug of ours: it gets a reference number, and its statement ends with it.
    """
    if is_damage(problem):
        return page_damaged()
    for kind, sqlstate in _TOLD.items():
        if isinstance(problem, kind):
            return CairnError(f"{type(problem).__name__}: {problem}", sqlstate=sqlstate)
    if isinstance(problem, apsw.SQLError):
        if (make := _CALCULATED.get(str(problem))) is not None:
            return make()
        for words, sqlstate in _SAID:
            if words in str(problem):
                return CairnError(str(problem), sqlstate=sqlstate)
    return of_value(problem, "a statement")


#: What arithmetic in C says (`native/functions.c`), as `sql/functions/numbers.py` would say it …
_CALCULATED: dict[str, Callable[[], CairnError]] = {
    "division by zero": DivisionByZero,
    "NaN is not a value here": lambda: OutOfRange(
        "NaN is not a value here", hint="DOUBLE has no NaN in Cairn"
    ),
    **{
        words: partial(OutOfRange, words)
        for words in (
            "integer out of range",
            "value out of range: overflow",
            "value out of range: underflow",
        )
    },
}
#: … what SQLite tells by a code of its own …
_TOLD: dict[type[apsw.Error], str] = {
    apsw.TooBigError: "54000",
    apsw.NoMemError: "53200",
    apsw.FullError: "53100",
    apsw.IOError: "58030",
    apsw.BusyError: "55P03",
    apsw.AuthError: "42501",
}
#: … and what it tells by words alone.
_SAID = (
    ("tables in a join", "54000"),
    ("not authorized", "42501"),
    ("integer overflow", "22003"),
    ("argument of ntile", "22014"),
    ("argument to nth_value", "22016"),
    ("frame starting offset", "22013"),
    ("frame ending offset", "22013"),
    ("no such index", "42704"),  # INDEXED BY one that was dropped meanwhile
    ("too complex", "54001"),
    ("too large", "54001"),
    ("too many", "54001"),
    ("overflow", "54001"),  # of the parser's stack
)
