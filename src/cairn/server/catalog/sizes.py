"""`pg_total_relation_size` and its like: what the owners of a table say of it, added up."""

from __future__ import annotations

#: What is added up of `_cairn_table_stats` for the table that a function is asked of.
SIZES = {
    "pg_relation_size": "bytes",
    "pg_table_size": "bytes",
    "pg_indexes_size": "index_bytes",
    "pg_total_relation_size": "bytes + index_bytes",
}
OF_ALL = "pg_database_size"
STATS = "_cairn_table_stats"
_UNITS = ("kB", "MB", "GB", "TB", "PB")
_LAST_BYTES, _LAST_HALVES = 10 * 1024, 20 * 1024 - 1  # up to which a unit is used


def pretty(size: int | float | str | None) -> str | None:
    """As PostgreSQL writes it: a unit is used up to ten thousand of it, and halves are rounded."""
    if size is None:
        return None
    count = int(size)
    if abs(count) < _LAST_BYTES:
        return f"{count} bytes"
    halves, unit = _shifted(count, 9), 0
    while abs(halves) >= _LAST_HALVES and unit + 1 < len(_UNITS):
        halves, unit = _shifted(halves, 10), unit + 1
    return f"{_shifted(halves + (1 if halves > 0 else -1), 1)} {_UNITS[unit]}"


def _shifted(count: int, bits: int) -> int:
    """Divided towards zero."""
    return count >> bits if count >= 0 else -(-count >> bits)
