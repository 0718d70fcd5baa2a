"""Run-time parameters of a session: what drivers SET and SHOW, and what ParameterStatus tells."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from cairn.model.catalog import Catalog
from cairn.model.errors import CairnError, InvalidParameter
from cairn.model.values import INT64_MAX
from cairn.sql.parse import check_choice

if TYPE_CHECKING:
    from cairn.server.connection import Connection

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
#: Settings of the cluster that a session may have otherwise, with what they are by themselves.
_COUNTS = ("sql_motion_row_max", "sql_vdbe_opcode_max")
_FIXED = {"server_version", "server_encoding", "integer_datetimes", "server_version_num"}


def show(session: Connection, name: str) -> str:
    key = name.lower()
    if key in session.parameters:
        return session.parameters[key]
    if key in DEFAULTS:
        return DEFAULTS[key]
    if key == "read_preference":
        return session.preference  # the cluster's when it connected
    value = session.service.catalog.setting(key)
    if value is None:
        raise CairnError(f'unrecognized configuration parameter "{name}"', sqlstate="42704")
    return _told(value)


def default(catalog: Catalog, name: str) -> str | None:
    """`current_setting(name)` where no session is at hand; None for what nobody knows."""
    key = name.lower()
    value = DEFAULTS.get(key, catalog.setting(key))
    return None if value is None else _told(value)


def show_all(session: Connection) -> list[tuple[str, str]]:
    """Every parameter and its value in this session, by name."""
    known = {
        key: _told(value)
        for (key, scope), value in session.service.catalog.settings.items()
        if not scope
    }
    known["read_preference"] = session.preference
    return sorted((known | DEFAULTS | session.parameters).items())


def _told(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return str(value)


def check(name: str, value: str) -> str:
    """`value` as it is kept, or a refusal."""
    key = name.lower()
    if key in _FIXED:
        raise CairnError(f'parameter "{name}" cannot be changed', sqlstate="55P02")
    if key == "client_encoding" and value.strip("'\"").upper().replace("-", "") not in (
        "UTF8",
        "UNICODE",
        "SQL_ASCII",
    ):
        raise InvalidParameter(
            f'invalid value for parameter "client_encoding": "{value}"', hint="UTF8 is spoken"
        )
    if key in _COUNTS:
        value = value.strip("'")
        if not (value.isascii() and value.isdigit()):
            raise InvalidParameter(f"value for option {key} should be positive")
        if int(value) > INT64_MAX:
            raise InvalidParameter(f"value for option {key} is too large: {value}")
    check_choice(key, value)
    return value


_DURATION = re.compile(r"\s*(\d{1,12})\s*(us|ms|s|min|h|d|)\s*")
_UNITS_S = {"us": 1e-6, "": 1e-3, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


def read_duration_s(name: str, value: str) -> float:
    """`1500`, `1500ms` or `2min`, as PostgreSQL reads them."""
    found = _DURATION.fullmatch(value.strip("'"))
    if found is None:
        raise InvalidParameter(
            f'invalid value for parameter "{name}": "{value}"',
            hint="a number of milliseconds, or with a unit: us, ms, s, min, h, d",
        )
    return int(found[1]) * _UNITS_S[found[2]]
