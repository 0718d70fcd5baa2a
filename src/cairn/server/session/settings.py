"""Run-time parameters of a session: what drivers SET and SHOW, and what ParameterStatus tells."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches

import msgspec

from cairn.model.errors import AccessDenied, CairnError, InvalidParameter, Unsupported
from cairn.model.settings import fixed
from cairn.model.settings.parameters import DEFAULTS, PRESETS, PRIVATE, SETTINGS, shown
from cairn.model.settings.postgres_parameters import NAMES
from cairn.model.tables.catalog import Catalog
from cairn.model.tracing import Parent, read_parent
from cairn.model.types.values import INT64_MAX
from cairn.model.types.zone_names import zone_named
from cairn.node.consensus.global_state import GlobalState
from cairn.node.statements.context import OF_CLUSTER, Context
from cairn.server.session.blocks import Modes
from cairn.server.session.set_values import SetValues
from cairn.sql.parse.parse import CHOICES, check_choice

#: Settings of the cluster that a session may have otherwise, with what they are by themselves.
_COUNTS = ("sql_motion_row_max", "sql_vdbe_opcode_max")
_OF_CLIENTS = ("smart_connector_hints", "pico_query_metadata", "pico_stmt_invalidation")
_TRUTHS = ("atomic_blocks", "default_transaction_read_only")
NAME_BYTES = 63
#: Settings of the cluster that are the same for everybody: a session's own would do nothing.
_OF_ALL = SETTINGS.keys() - {*_COUNTS, *_TRUTHS, *CHOICES}


def without_effect(name: str, value: str) -> tuple[str, ...]:
    """A notice for who sets what is shown again and nothing else, though it matters."""
    if name.lower() != "timezone":
        told = fixed.without_effect(name, value)
        return (told,) if told else ()
    zone = zone_named(value.strip("'"))
    if zone is not None and zone.utcoffset(datetime.now(UTC)) == timedelta():
        return ()
    return (
        "the time zone of every session is UTC: moments are shown in it, and read so where they "
        "name no zone; AT TIME ZONE tells what the clocks of a place show",
    )


class Parameters:
    """Those of one session, and the context that they make for its statements."""

    def __init__(self, state: GlobalState, hold: Callable[[int], None]) -> None:
        self._state = state
        self._values = SetValues(hold)
        self._given = self._of_cluster()  # what the cluster preferred when it connected
        self._base = Context()
        self.is_read_only = False  # blocks, and statements outside of one
        self.parent: Parent | None = None  # the trace that statements belong to by themselves
        self.context = Context(preference=self._given)  # of the next statement

    def logged_in(self, base: Context) -> None:
        """What of the context does not depend on parameters."""
        self._base = base
        self._renew()

    def _of_cluster(self) -> str:
        return str(self._state.setting("read_preference", "leader"))

    def _has_atomic_blocks(self) -> bool:
        told = self._values.now.get("atomic_blocks")
        if told is None:
            return bool(self._state.setting("atomic_blocks", True))
        return is_on(told)

    def _renew(self) -> None:
        """Whenever a parameter changes: statements only look at the context."""
        told = self._values.now.get
        self.parent = read_parent(told("traceparent", "").strip("'"))
        self.is_read_only = is_on(told("default_transaction_read_only", "off"))
        self.context = msgspec.structs.replace(
            self._base,
            preference=told("read_preference", self._given),
            is_local=told("read_concern") == "local",
            row_max=int(told("sql_motion_row_max", OF_CLUSTER)),
            opcode_max=int(told("sql_vdbe_opcode_max", OF_CLUSTER)),
            forward=told("forward", "on"),
            repartition=told("sql_repartition", "auto"),
            is_unsafe=is_on(told("unsafe_system_writes", "off")),
            has_atomic_blocks=self._has_atomic_blocks(),
            timeout_s=read_duration_s("statement_timeout", told("statement_timeout", "0")),
            lock_timeout_s=read_duration_s("lock_timeout", told("lock_timeout", "0")),
        )

    def set(self, name: str, value: str, *, is_local: bool = False) -> tuple[str, ...]:
        """The notices for who has set it."""
        key = name.lower()
        given, value = value, check(name, value)
        if key in ("statement_timeout", "lock_timeout"):
            read_duration_s(name, value)
        if is_local and not self._values.is_open:
            return ("SET LOCAL can only be used in transaction blocks: nothing is set",)
        self._values.put(key, _cut(key, value), is_local=is_local)
        self._renew()
        return without_effect(name, given)

    def note(self, name: str, value: str) -> None:
        """What is shown and nothing else; no block takes it back."""
        self._values.tell(name, _cut(name, value))

    def reset(self, name: str) -> None:
        key = name.lower()
        for each in list(self._values.now) if key == "all" else [key]:
            self._values.put(each, None)
        if key in ("all", "read_preference"):
            self._given = self._of_cluster()
        self._renew()

    def block_changed(self, action: str, depth: int) -> None:
        """A block has begun, or has now so many savepoints."""
        if self._values.block_changed(action, depth):
            self._renew()

    def block_ended(self, *, is_committed: bool) -> None:
        if self._values.ended(is_committed=is_committed):
            self._renew()

    def transaction_modes(self) -> Modes:
        """What a block is that does not say otherwise."""
        told = self._values.now.get
        level = told("default_transaction_isolation", "")
        return Modes(f"isolation level {level} {'read only' if self.is_read_only else ''}")

    def set_transaction_modes(self, modes: Modes) -> None:
        if modes.level is not None:
            self.set("default_transaction_isolation", modes.level)
        if modes.is_read_only is not None:
            shown = "on" if modes.is_read_only else "off"
            self.set("default_transaction_read_only", shown)

    def show(self, name: str) -> str:
        key = name.lower()
        if key in self._values.now:
            return self._values.now[key]
        if key in DEFAULTS:
            return DEFAULTS[key]
        if key == "read_preference":
            return self._given
        if key in PRIVATE and not self._is_admin():
            raise AccessDenied(f"parameter '{key}' is shown to administrators only")
        value = self._state.catalog.setting(key)
        if value is None:
            raise CairnError(f'unrecognized configuration parameter "{name}"', sqlstate="42704")
        return shown(value)

    def show_all(self) -> list[tuple[str, str]]:
        """Every parameter and its value in this session, by name."""
        known = {
            key: shown(value)
            for (key, scope), value in self._state.catalog.settings.items()
            if not scope and (key not in PRIVATE or self._is_admin())
        }
        known["read_preference"] = self._given
        return sorted((known | DEFAULTS | dict(self._values.now)).items())

    def _is_admin(self) -> bool:
        return self._state.catalog.is_super(self._base.user_id)


def _cut(name: str, value: str) -> str:
    """As PostgreSQL cuts the name of an application."""
    if name != "application_name":
        return value
    return value.encode()[:NAME_BYTES].decode(errors="ignore")


#: A session is always that of its user: what asks for another one must not believe it has it.
_ROLES = {"role": ("none", ""), "session_authorization": ("default", "")}
_ON, _OFF = ("on", "true", "1", "yes"), ("off", "false", "0", "no")


def is_on(value: str) -> bool:
    return value.strip("'").lower() in _ON


def check_known(name: str, catalog: Catalog, also: Sequence[str] = ()) -> None:
    """Refuse what neither PostgreSQL nor Cairn has; `mine.something` is anybody's own."""
    key = name.lower()
    if "." in key or key in DEFAULTS or key in NAMES or key in _COUNTS or key in CHOICES:
        return
    if catalog.setting(key) is None and key not in _OF_CLIENTS:
        names = [*DEFAULTS, *NAMES, *CHOICES, *SETTINGS, *also]
        near = get_close_matches(key, names, n=1, cutoff=0.7)
        raise CairnError(
            f'unrecognized configuration parameter "{name}"',
            sqlstate="42704",
            hint=f'Perhaps you meant "{near[0]}".' if near else "SHOW ALL lists what there is",
        )


def check(name: str, value: str) -> str:
    """`value` as it is kept, or a refusal."""
    key = name.lower()
    if key in PRESETS or key == "is_superuser":
        raise CairnError(f'parameter "{name}" cannot be changed', sqlstate="55P02")
    if key in _OF_ALL:
        raise CairnError(
            f'parameter "{name}" cannot be changed now',
            sqlstate="55P02",
            hint=f"it is one for the whole cluster: ALTER SYSTEM SET {key} = …",
        )
    if key in _ROLES and value.strip("'\"").lower() not in _ROLES[key]:
        raise Unsupported(f'parameter "{name}" cannot be set', hint="log in as that user")
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
    if key == "traceparent" and value.strip("'") and read_parent(value.strip("'")) is None:
        raise InvalidParameter(
            f'invalid value for parameter "{name}": "{value}"',
            hint="00-<32 hex digits>-<16 hex digits>-01, as W3C's traceparent",
        )
    if key in _TRUTHS and value.strip("'").lower() not in (*_ON, *_OFF):
        raise InvalidParameter(f'parameter "{name}" requires a Boolean value')
    check_choice(key, value)
    return fixed.in_force(name, value)


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
