"""An error that nobody foresaw: the asker gets a reference, the log the whole story."""

from __future__ import annotations

import logging

import pytest

from cairn.model.errors import InternalError, OutOfRange
from cairn.model.unexpected import of_value, owned


def test_a_mistake_of_ours_has_a_reference_in_the_answer_and_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.ERROR, "cairn.bug"):
        error = owned(KeyError("a secret"), "a test")
    assert isinstance(error, InternalError)
    assert error.sqlstate == "XX000"
    assert error.message == f"internal error (reference {error.reference})"
    assert f"reference {error.reference}: a test failed" in caplog.text
    assert "a secret" in caplog.text


@pytest.mark.parametrize(
    ("problem", "sqlstate"),
    [
        (OutOfRange("too far"), "22003"),
        (OverflowError("int too big"), "22003"),
        (RecursionError(), "54001"),
        (MemoryError(), "53200"),
        (UnicodeEncodeError("utf-8", "\ud800", 0, 1, "surrogate"), "22021"),
    ],
)
def test_what_values_do_wrong_has_a_sqlstate(problem: Exception, sqlstate: str) -> None:
    assert of_value(problem, "a test").sqlstate == sqlstate
