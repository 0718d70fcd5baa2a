"""Giving a connection of SQLite what the compiled part has for it."""

from __future__ import annotations

from typing import Any

from cairn.native.library import library

PACKED_ROWS = "cairn_packed_rows"  # a table function, for the writer alone
POINTS = "cairn_points"  # rows by their keys, for the event loop's reader and for the writer
FUNCTIONS = "cairn_functions"  # arithmetic, in the place of Python's


def load(connection: Any, entry: str) -> bool:
    """Whether it has it now. No text can load anything, neither before nor after."""
    found = library()
    if found is None:
        return False
    connection.enable_load_extension(True)
    try:
        connection.load_extension(found._name, entry)
    except Exception:  # of the binding, which is not known here: Python does the work
        return False
    finally:
        connection.enable_load_extension(False)
    return True
