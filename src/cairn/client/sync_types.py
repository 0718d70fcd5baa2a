"""What PEP 249 wants beside connections: exceptions, type objects, constructors."""

from __future__ import annotations

from datetime import UTC, date, datetime, time
from typing import Final

from cairn.model.errors import CairnError
from cairn.pgwire.values import oids


class Warning(Exception):  # noqa: A001
    pass


class Error(Exception):
    """`sqlstate` and `detail` are the server's, when it was the server that said no."""

    sqlstate: str | None = None
    detail: str | None = None


class InterfaceError(Error):
    pass


class DatabaseError(Error):
    pass


class DataError(DatabaseError):
    pass


class OperationalError(DatabaseError):
    pass


class IntegrityError(DatabaseError):
    pass


class InternalError(DatabaseError):
    pass


class ProgrammingError(DatabaseError):
    pass


class NotSupportedError(DatabaseError):
    pass


#: By SQLSTATE, the longest prefix first.
_CLASSES: Final[tuple[tuple[str, type[Error]], ...]] = (
    ("42999", OperationalError),
    ("0A", NotSupportedError),
    ("21", ProgrammingError),
    ("22", DataError),
    ("23", IntegrityError),
    ("26", ProgrammingError),
    ("34", ProgrammingError),
    ("42", ProgrammingError),
    ("XX", InternalError),
)


def translated(error: CairnError) -> Error:
    """The DB-API exception for an error of ours or of the server."""
    kind = next((cls for start, cls in _CLASSES if error.sqlstate.startswith(start)), None)
    made = (kind or OperationalError)(error.message)
    made.sqlstate, made.detail = error.sqlstate, error.detail
    for note in (error.detail, error.hint):
        if note:
            made.add_note(note)
    return made


class TypeObject:
    """Equal to the OIDs in `cursor.description` that it stands for."""

    def __init__(self, *values: int) -> None:
        self._values = frozenset(values)

    def __eq__(self, other: object) -> bool:
        return other in self._values if isinstance(other, int) else self is other

    def __hash__(self) -> int:
        return hash(self._values)


STRING: Final = TypeObject(
    oids.TEXT, oids.VARCHAR, oids.BPCHAR, oids.NAME, oids.UUID, oids.JSON, oids.JSONB
)
BINARY: Final = TypeObject(oids.BYTEA)
NUMBER: Final = TypeObject(
    oids.INT2, oids.INT4, oids.INT8, oids.FLOAT4, oids.FLOAT8, oids.NUMERIC, oids.BOOL
)
DATETIME: Final = TypeObject(oids.DATE, oids.TIME, oids.TIMESTAMP, oids.TIMESTAMPTZ)
ROWID: Final = TypeObject(oids.OID)

Date = date
Time = time
Timestamp = datetime
Binary = bytes


def DateFromTicks(ticks: float) -> date:
    return datetime.fromtimestamp(ticks, UTC).date()


def TimeFromTicks(ticks: float) -> time:
    return datetime.fromtimestamp(ticks, UTC).time()


def TimestampFromTicks(ticks: float) -> datetime:
    return datetime.fromtimestamp(ticks, UTC)
