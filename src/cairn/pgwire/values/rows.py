"""Rows to and from DataRow messages, by functions made once for the columns of a statement."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import Struct
from typing import Any, Final, TypeAlias

from cairn.model.errors import ProtocolViolation
from cairn.pgwire.messages import DATA_ROW, TEXT_FORMAT
from cairn.pgwire.values import oids
from cairn.pgwire.values.decoders import Decoder, decode_whole_json
from cairn.pgwire.values.formats import decoder, encoder

RowEncoder: TypeAlias = Callable[[Sequence[Any]], bytes]
RowDecoder: TypeAlias = Callable[[bytes, int, int], tuple[Any, ...]]

_HEAD: Final = Struct("!BIH")  # 'D', length, number of fields
_INT32: Final = Struct("!i")
_NULL: Final = b"\xff\xff\xff\xff"
_PREFIXES: Final = tuple(_INT32.pack(length) for length in range(256))
_TEXTS: Final = frozenset((oids.TEXT, oids.VARCHAR, oids.NAME, oids.BPCHAR, oids.UNKNOWN))
_INTEGERS: Final = frozenset((oids.INT2, oids.INT4, oids.INT8, oids.OID))


def row_encoder(
    column_oids: Sequence[int], formats: Sequence[int], label: int = DATA_ROW
) -> RowEncoder:
    """A function from a row's values to its whole DataRow message, or CopyData in binary.

    Its source is written for these columns: the loop over columns and the look-up of each
    encoder would cost more than the encoding itself.
    """
    count = len(column_oids)
    names = [f"v{i}" for i in range(count)]
    lines = ["def encode(row):"]
    if names:
        lines.append(f"    {', '.join(names)}, = row")
    scope: dict[str, Any] = {"null": _NULL, "prefixes": _PREFIXES, "i32": _INT32.pack}
    for name, oid, fmt in zip(names, column_oids, formats, strict=True):
        scope[f"enc_{name}"] = encoder(oid, fmt)
        lines += _column_lines(name, oid, fmt)
    lines.append(f"    body = {' + '.join(names) or repr(b'')}")
    lines.append(f"    return head({label}, len(body) + 6, {count}) + body")
    scope["head"] = _HEAD.pack
    exec("\n".join(lines), scope)
    made: RowEncoder = scope["encode"]
    return made


def _column_lines(name: str, oid: int, fmt: int) -> list[str]:
    """Replace variable `name` by its field: length and bytes."""
    if oid in _INTEGERS and fmt == TEXT_FORMAT:
        encode = f'b"%d" % {name}'  # never longer than the prepared prefixes
        put = f"{name} = prefixes[len({name})] + {name}"
    else:
        encode = f"{name}.encode()" if oid in _TEXTS else f"enc_{name}({name})"
        size = f"len({name})"
        put = f"{name} = (prefixes[{size}] if {size} < 256 else i32({size})) + {name}"
    return [
        f"    if {name} is None:",
        f"        {name} = null",
        "    else:",
        f"        {name} = {encode}",
        f"        {put}",
    ]


def row_decoder(column_oids: Sequence[int], formats: Sequence[int]) -> RowDecoder:
    """A function from a buffer with a DataRow's body at [start, end) to the row's values."""
    decoders = [_reader(oid, fmt) for oid, fmt in zip(column_oids, formats, strict=True)]
    count, unpack = len(decoders), _INT32.unpack_from

    def decode(data: bytes, start: int, end: int) -> tuple[Any, ...]:
        if end - start < 2 or int.from_bytes(data[start : start + 2]) != count:
            raise ProtocolViolation(f"a row does not have the {count} fields that were described")
        at = start + 2
        values: list[Any] = []
        for read in decoders:
            if at + 4 > end:
                raise ProtocolViolation("a row ends before its last field")
            (length,) = unpack(data, at)
            at += 4
            if length < 0:
                values.append(None)
                continue
            if at + length > end:
                raise ProtocolViolation("a row ends before its last field")
            values.append(read(data[at : at + length]))
            at += length
        if at != end:
            raise ProtocolViolation("a row has bytes after its last field")
        return tuple(values)

    return decode


def _reader(oid: int, fmt: int) -> Decoder:
    """A client meets types that it does not know: their text is shown, their binary kept."""
    if fmt == TEXT_FORMAT and not _is_known(oid):
        return decoder(oids.TEXT, TEXT_FORMAT)
    if oid == oids.JSONB and fmt != TEXT_FORMAT:
        return lambda data: decode_whole_json(data[1:])
    if oid in (oids.JSON, oids.JSONB):
        return decode_whole_json
    return decoder(oid, fmt) if _is_known(oid) else bytes


def _is_known(oid: int) -> bool:
    return oid in oids.TYPE_NAMES or oid in oids.ARRAY_ELEMENTS
