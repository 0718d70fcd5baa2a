"""Run-time parameters by name, as drivers know them from PostgreSQL, and what they are at first."""

from __future__ import annotations

from typing import Any

from cairn.model.catalog import Catalog

#: Told to every client after login, in this order.
REPORTED: dict[str, str] = {
    "server_version": "15.0",
    "server_encoding": "UTF8",
    "client_encoding": "UTF8",
    "DateStyle": "ISO, MDY",
    "integer_datetimes": "on",
    "IntervalStyle": "postgres",
    "TimeZone": "UTC",
    "standard_conforming_strings": "on",
}

DEFAULTS: dict[str, str] = {
    **{name.lower(): value for name, value in REPORTED.items()},
    "application_name": "",
    "search_path": '"$user", public',
    "transaction_isolation": "read committed",
    "default_transaction_isolation": "read committed",
    "default_transaction_read_only": "off",
    "transaction_read_only": "off",
    "extra_float_digits": "1",
    "bytea_output": "hex",
    "max_identifier_length": "63",
    "server_version_num": "150000",
    "is_superuser": "off",
    "session_authorization": "",
    "statement_timeout": "0",
    "lock_timeout": "0",
    "idle_in_transaction_session_timeout": "0",
    "in_hot_standby": "off",
    "client_min_messages": "notice",
    "forward": "on",
    "read_concern": "majority",
    "jit": "off",
    "unsafe_system_writes": "off",
}


def default(catalog: Catalog, name: str) -> str | None:
    """`current_setting(name)` where no session is at hand; None for what nobody knows."""
    key = name.lower()
    value = DEFAULTS.get(key, catalog.setting(key))
    return None if value is None else shown(value)


def shown(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return str(value)
