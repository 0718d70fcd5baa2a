"""Arrow bytes of a client, looked at before they are believed.

Arrow's own reader takes lengths and offsets from the stream as they are: an offset past the end of
a buffer reads whatever the process has there. So a stream is read in three steps, and nothing is
taken from it before the last one is done: its messages (counts and sizes, also of what is packed),
its schema (plain types only), and each batch with every offset, length, index and text of it.
"""

from __future__ import annotations

from struct import error as StructError
from struct import unpack_from
from typing import Any

from cairn.model.errors import CairnError, InvalidText, LimitExceeded

MAX_BYTES = 256 * 1024 * 1024  # of the batches of one message of COPY, unpacked
MAX_COLUMNS = 2_000
MAX_BATCHES = 10_000

_DICTIONARY, _RECORDS = 2, 3  # kinds of a message that have a body


def read_table(pa: Any, data: bytes, columns: int) -> Any:
    """The rows of `data`, which may be several streams in a row, each of `columns` columns."""
    try:
        return _read(pa, data, columns)
    except CairnError:
        raise
    except (pa.ArrowException, OSError, ValueError, OverflowError, MemoryError) as problem:
        raise InvalidText(f"not an Arrow IPC stream: {problem}", sqlstate="22P03") from None


def _read(pa: Any, data: bytes, columns: int) -> Any:
    _check_messages(pa, data)
    source, found = pa.BufferReader(data), []
    rows = 0
    while source.tell() < len(data):
        with pa.ipc.open_stream(source) as stream:
            _check_schema(pa, stream.schema, columns)
            batches = []
            for batch in stream:
                batch.validate(full=True)
                rows += batch.num_rows
                if rows > len(data) and rows > MAX_BYTES // 8:
                    raise LimitExceeded("an Arrow stream has more rows than bytes")
                batches.append(batch)
            found.append(pa.Table.from_batches(batches, stream.schema))
    if not found:
        raise InvalidText("not an Arrow IPC stream: it is empty", sqlstate="22P03")
    return found[0] if len(found) == 1 else pa.concat_tables(found)


def _check_schema(pa: Any, schema: Any, columns: int) -> None:
    if len(schema) != columns:
        raise InvalidText(f"the stream has {len(schema)} columns, COPY names {columns}")
    for field in schema:
        name, type_ = field.name, field.type
        if pa.types.is_dictionary(type_):
            type_ = type_.value_type
        elif pa.types.is_list(type_):
            type_ = type_.value_type  # of one dimension: lists of lists are nested again
        if pa.types.is_nested(type_) or pa.types.is_null(type_) or not _is_plain(pa, type_):
            raise InvalidText(
                f'column "{name}" of the stream is {field.type}',
                hint="send numbers, text, bytes, times, lists or dictionaries of them",
                sqlstate="42804",
            )


def _is_plain(pa: Any, type_: Any) -> bool:
    kinds = pa.types
    return bool(
        kinds.is_primitive(type_)
        or kinds.is_decimal(type_)
        or kinds.is_string(type_)
        or kinds.is_large_string(type_)
        or kinds.is_binary(type_)
        or kinds.is_large_binary(type_)
        or kinds.is_fixed_size_binary(type_)
    )


# --- messages -------------------------------------------------------------------------------------


def _check_messages(pa: Any, data: bytes) -> None:
    """Sizes are added up before anything is unpacked."""
    source, total, count = pa.BufferReader(data), 0, 0
    while source.tell() < len(data):
        reader = pa.ipc.MessageReader.open_stream(source)
        while True:
            try:
                message = reader.read_next_message()
            except StopIteration:
                break
            count += 1
            try:
                total += _unpacked_bytes(bytes(message.metadata), message.body)
            except (StructError, IndexError) as problem:
                raise InvalidText(f"not an Arrow message: {problem}", sqlstate="22P03") from None
            if count > MAX_BATCHES or total > MAX_BYTES:
                raise LimitExceeded(
                    f"an Arrow stream has more than {MAX_BATCHES} messages or "
                    f"{MAX_BYTES >> 20} MiB",
                    hint="send smaller batches",
                )


def _unpacked_bytes(metadata: bytes, body: Any) -> int:
    """How large the buffers of a message are, or would be when unpacked."""
    message = _root(metadata)
    kind_at = _field(metadata, message, 1)
    kind = metadata[kind_at] if kind_at else 0
    if kind not in (_DICTIONARY, _RECORDS):
        return 0
    batch = _table(metadata, message, 2)
    if kind == _DICTIONARY:
        batch = _table(metadata, batch, 1)
    at = _field(metadata, batch, 2)
    if not at:
        return 0
    vector = at + unpack_from("<I", metadata, at)[0]
    (count,) = unpack_from("<I", metadata, vector)
    if count > 8 * MAX_COLUMNS:
        raise LimitExceeded(f"an Arrow batch of {count} buffers")
    is_packed = bool(_field(metadata, batch, 3))
    size = body.size if body is not None else 0
    total = 0
    for number in range(count):
        offset, length = unpack_from("<qq", metadata, vector + 4 + 16 * number)
        if offset < 0 or length < 0 or offset + length > size:
            raise InvalidText("a buffer of an Arrow batch is not inside of it", sqlstate="22P03")
        if is_packed and length >= 8:
            (unpacked,) = unpack_from("<q", body, offset)
            if unpacked < -1:
                raise InvalidText("an Arrow buffer of a negative length", sqlstate="22P03")
            length = max(length, unpacked)
        total += length
    return total


def _root(data: bytes) -> int:
    at: int = unpack_from("<I", data, 0)[0]
    return at


def _field(data: bytes, table: int, number: int) -> int:
    """Where a field of a flatbuffers table stands; 0 when it has none."""
    vtable = table - unpack_from("<i", data, table)[0]
    if vtable < 0:
        raise IndexError("a table before its beginning")
    (size,) = unpack_from("<H", data, vtable)
    place = 4 + 2 * number
    if place + 2 > size:
        return 0
    (offset,) = unpack_from("<H", data, vtable + place)
    return table + offset if offset else 0


def _table(data: bytes, table: int, number: int) -> int:
    at = _field(data, table, number)
    if not at:
        raise IndexError("a message without a batch")
    found: int = at + unpack_from("<I", data, at)[0]
    return found
