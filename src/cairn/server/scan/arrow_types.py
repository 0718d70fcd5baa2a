"""Columns as Arrow: which type each travels as, and rows to the bytes of an IPC stream.

Used by the instance and by its scan workers. pyarrow is imported when it is first needed, never
before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from cairn.model.errors import Unsupported
from cairn.model.types.decimals import decode_decimal
from cairn.model.types.intervals import decode_interval
from cairn.model.types.time_text import clock_text, micros_to_clock
from cairn.model.types.values import ELEMENTS, ColumnType, list_values, micros_to_date

BATCH_ROWS = 16_384  # what fits a processor's cache goes through five processes faster
PIECE_BYTES = 4 * 1024 * 1024  # of one message: wide rows make smaller batches
Row = tuple[Any, ...]


def load_pyarrow() -> Any:
    """The library, or a refusal that says how to get it."""
    try:
        import pyarrow
    except ImportError:
        raise Unsupported(
            "COPY format arrow needs pyarrow on this instance",
            hint='pip install ".[spark]" where the instance runs, or use FORMAT csv',
        ) from None
    return pyarrow


def arrow_type(pa: Any, type_: ColumnType) -> Any:
    """How a column travels. DECIMAL has no fixed scale here, so it goes as exact text."""
    match type_:
        case ColumnType.BOOLEAN:
            return pa.bool_()
        case ColumnType.INTEGER | ColumnType.UNSIGNED:
            return pa.int64()
        case ColumnType.DOUBLE:
            return pa.float64()
        case ColumnType.DATETIME:
            return pa.timestamp("us", tz="UTC")
        case ColumnType.TIMESTAMP:
            return pa.timestamp("us")
        case ColumnType.DATE:
            return pa.date32()
        case ColumnType.VARBINARY:
            return pa.binary()
        case _ if type_ in ELEMENTS:
            return pa.list_(arrow_type(pa, ELEMENTS[type_]))
        case _:
            return pa.string()


def _decimal_text(data: bytes) -> str:
    return format(decode_decimal(data), "f")


def _uuid_text(data: bytes) -> str:
    word = data.hex()
    return f"{word[:8]}-{word[8:12]}-{word[12:16]}-{word[16:20]}-{word[20:]}"


_OUT: dict[ColumnType, Callable[[Any], Any]] = {
    ColumnType.BOOLEAN: bool,
    ColumnType.DECIMAL: _decimal_text,
    ColumnType.UUID: _uuid_text,
    ColumnType.DATE: micros_to_date,
    ColumnType.TIME: lambda micros: clock_text(micros_to_clock(micros)),
    ColumnType.INTERVAL: lambda data: str(decode_interval(data)),
}


def _list_out(of: ColumnType) -> Callable[[str], list[Any]]:
    read = _OUT.get(of)
    return lambda text: list(_read(list_values(of, text), read))


for _list, _of in ELEMENTS.items():
    _OUT[_list] = _list_out(_of)


class BatchEncoder:
    """Columns to the bytes of IPC streams, one for each batch."""

    def __init__(self, names: Sequence[str], types: Sequence[ColumnType]) -> None:
        pa = self._pa = load_pyarrow()
        self._arrow_types = [arrow_type(pa, type_) for type_ in types]
        self._readers = [_OUT.get(type_) for type_ in types]
        self.schema = pa.schema(list(zip(names, self._arrow_types, strict=True)))
        self._head_bytes = self.schema.serialize().size + 64  # and the mark of the end
        self._room = pa.allocate_buffer(0)

    def encode(self, rows: Sequence[Row]) -> bytes:
        """Physical rows as one stream."""
        columns = list(zip(*rows, strict=True)) if rows else [()] * len(self._arrow_types)
        arrays = [
            self._pa.array(_read(stored, read), type=type_)
            for stored, type_, read in zip(columns, self._arrow_types, self._readers, strict=True)
        ]
        return bytes(self._stream(self._pa.record_batch(arrays, schema=self.schema)))

    def encode_batch(self, batch: Any) -> Iterator[tuple[int, memoryview]]:
        """A batch of columns as SQLite stores them: (rows, stream) of pieces that are not huge.

        A piece is good until the next one is asked for: they share their memory.
        """
        pa = self._pa
        arrays = []
        for stored, type_, read in zip(
            batch.columns, self._arrow_types, self._readers, strict=True
        ):
            if pa.types.is_boolean(type_) or pa.types.is_timestamp(type_):
                arrays.append(stored.cast(pa.int64()).cast(type_))
            elif read is not None:
                arrays.append(pa.array(_read(stored.to_pylist(), read), type=type_))
            else:
                arrays.append(stored.cast(type_))
        whole = pa.RecordBatch.from_arrays(arrays, schema=self.schema)
        step = max(1, whole.num_rows * PIECE_BYTES // max(whole.nbytes, PIECE_BYTES))
        for start in range(0, whole.num_rows, step):
            piece = whole.slice(start, step)
            yield piece.num_rows, self._stream(piece)

    def _stream(self, batch: Any) -> memoryview:
        """Written into memory that is used again and again: fresh pages cost more than the copy."""
        pa = self._pa
        size = self._head_bytes + pa.ipc.get_record_batch_size(batch)
        if self._room.size < size:
            self._room = pa.allocate_buffer(size + size // 4)
        sink = pa.FixedSizeBufferWriter(self._room)
        with pa.ipc.new_stream(sink, self.schema) as writer:
            writer.write_batch(batch)
        return memoryview(self._room)[: sink.tell()]


def _read(stored: Sequence[Any], read: Callable[[Any], Any] | None) -> Sequence[Any]:
    if read is None:
        return stored
    return [None if value is None else read(value) for value in stored]
