"""What a user sees of an error: one sentence, at the end of whatever Spark puts around it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from cairn.model.errors import CairnError


class CairnSparkError(Exception):
    """One sentence for the user instead of a page."""


def plain(problem: CairnError) -> CairnSparkError:
    words = [problem.message, problem.detail, problem.hint and f"({problem.hint})"]
    return CairnSparkError(f"[{problem.sqlstate}] " + " ".join(word for word in words if word))


@contextmanager
def plainly() -> Iterator[None]:
    """Errors of ours leave as one sentence, without the stack that led to them."""
    try:
        yield
    except CairnError as problem:
        raise plain(problem) from None
