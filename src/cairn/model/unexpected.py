"""What nobody foresaw, turned into an error that somebody owns.

An exception ends a statement or a connection, never an instance. Whoever owns a statement, a
connection or a task catches what it did not expect and asks here for the error to give instead.
The asker gets a reference number and nothing else; the log has the number and the whole story.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable
from decimal import DecimalException

from cairn.model.errors import (
    CairnError,
    InternalError,
    InvalidText,
    LimitExceeded,
    OutOfRange,
    TooComplex,
)

log = logging.getLogger("cairn.bug")

#: Errors of libraries that mean something to us are turned into ours by whoever knows the library.
translators: list[Callable[[BaseException], CairnError | None]] = []


def owned(problem: BaseException, where: str) -> CairnError:
    """`problem` as an error of ours; one that is no such error yet is logged with a reference."""
    if isinstance(problem, CairnError):
        return problem
    if isinstance(problem, RecursionError):
        return TooComplex(f"{where}: nested too deeply", hint="use fewer levels")
    if isinstance(problem, MemoryError):
        return LimitExceeded(f"{where}: not enough memory", sqlstate="53200")
    for translate in translators:
        if (found := translate(problem)) is not None:
            return found
    reference = secrets.token_hex(4)
    log.error("reference %s: %s failed", reference, where, exc_info=problem)
    return InternalError(reference)


def of_value(problem: BaseException, where: str) -> CairnError:
    """What an SQL function stumbled over: nearly always a value that its type cannot hold."""
    if isinstance(problem, UnicodeError):
        return InvalidText(
            "invalid byte sequence or code point for encoding UTF8", sqlstate="22021"
        )
    if isinstance(problem, OverflowError | DecimalException):
        return OutOfRange("value out of range")
    return owned(problem, where)
