"""Constants of the product that a trial sets to other values, and what they were before."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any


@contextmanager
def changed(values: Sequence[tuple[Any, str, Any]]) -> Iterator[None]:
    """Each is a module or a class, a name in it, and its value meanwhile."""
    before = [getattr(where, name) for where, name, _ in values]
    for where, name, value in values:
        setattr(where, name, value)
    try:
        yield
    finally:
        for (where, name, _), value in zip(values, before, strict=True):
            setattr(where, name, value)
