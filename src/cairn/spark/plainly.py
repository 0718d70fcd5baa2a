"""What a user sees of an error: one sentence, before whatever Spark puts around it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from cairn.model.errors import CairnError


class CairnSparkError(Exception):
    """One sentence for the user instead of a page."""


CairnSparkError.__module__ = "cairn.spark"  # as people see and import it


def plain(problem: CairnError) -> CairnSparkError:
    words = [problem.message, problem.detail, problem.hint and f"({problem.hint})"]
    return CairnSparkError(f"[{problem.sqlstate}] " + " ".join(word for word in words if word))


@contextmanager
def plainly() -> Iterator[None]:
    """Errors of ours leave as one sentence, without the stack that led to them.

    Spark's worker asks the environment whether to print the stack first. It ends after an error,
    so this hides nobody else's.
    """
    try:
        yield
    except CairnError as problem:
        if os.environ.get("SPARK_PYTHON_RUNTIME") == "PYTHON_WORKER":
            os.environ["SPARK_HIDE_TRACEBACK"] = "1"
        raise plain(problem) from None
