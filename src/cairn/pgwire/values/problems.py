"""The sentences for values that are none, in one place so that every type says it alike."""

from __future__ import annotations

from cairn.model.errors import CairnError, InvalidBinary, InvalidText, OutOfRange
from cairn.pgwire.values.oids import type_name

_SHOWN_CHARS = 64  # a value of megabytes must not become an error message of megabytes


def shown(data: bytes | str) -> str:
    """`data` as people may read it in a message."""
    text = data if isinstance(data, str) else data[: 4 * _SHOWN_CHARS].decode("utf-8", "replace")
    return text if len(text) <= _SHOWN_CHARS else text[:_SHOWN_CHARS] + "…"


def bad_text(data: bytes | str, oid: int) -> InvalidText:
    return InvalidText(f"'{shown(data)}' is not a valid {type_name(oid)}")


def bad_binary(data: bytes, oid: int) -> InvalidBinary:
    return InvalidBinary(f"{len(data)} bytes that are not a valid binary {type_name(oid)}")


def out_of_range(data: bytes | str, oid: int, *, sqlstate: str | None = None) -> OutOfRange:
    text = f"value '{shown(data)}' is out of range for type {type_name(oid)}"
    return OutOfRange(text, sqlstate=sqlstate)


def bad_utf8(data: bytes, at: int) -> InvalidText:
    return InvalidText(
        f'invalid byte sequence for encoding "UTF8": 0x{data[at]:02x}', sqlstate="22021"
    )


def in_parameter(number: int, error: CairnError) -> CairnError:
    """The same error, saying which parameter it is about."""
    return type(error)(
        f"failed to bind parameter ${number}: decoding error: {error.message}",
        sqlstate=error.sqlstate,
    )
