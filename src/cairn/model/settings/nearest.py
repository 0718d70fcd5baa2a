"""A word that nobody knows: what was meant, or what there is."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def nearest(word: str, known: Iterable[str]) -> str:
    """The hint for an unknown word, without a full stop."""
    words = sorted(known)
    near = get_close_matches(word, words, n=1)
    return f"did you mean {near[0]}?" if near else f"known: {', '.join(words)}"
