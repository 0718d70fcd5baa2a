"""Ctrl-C while a command is still being read and imported."""

from __future__ import annotations

import os
import sys

STOPPED = 130


def stop_at_once(*_: object) -> None:
    """Ctrl-C before a command has begun: there is nothing to put away yet."""
    sys.stderr.write("cairn: stopped by Ctrl-C\n")
    sys.stderr.flush()
    os._exit(STOPPED)
