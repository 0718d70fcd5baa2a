"""Questions before work that somebody may regret."""

from __future__ import annotations

import sys

from cairn.cli.talking import TalkProblem


def agreed(question: str, *, yes: bool) -> bool:
    """Whether to go on; a script has nobody to ask and says --yes."""
    if yes:
        return True
    if not sys.stdin.isatty():
        raise TalkProblem(f"{question} A script says --yes", 2)
    try:
        return input(f"{question} [y/N] ").strip().lower() in ("y", "yes")
    except EOFError:
        return False
