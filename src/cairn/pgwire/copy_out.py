"""COPY TO STDOUT: rows to lines of text or csv, by functions made once for the columns."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from cairn.pgwire.copy import CopyFormat, check_options
from cairn.pgwire.messages import HEADER
from cairn.pgwire.values import oids
from cairn.pgwire.values.encoders import float_text
from cairn.pgwire.values.formats import text_encoder

LinesEncoder: TypeAlias = Callable[[Iterable[Sequence[Any]]], bytes]

_TEXT_ESCAPES: Final = {
    "\\": "\\\\",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\v": "\\v",
}
_NULL: Final = "\0"  # stands for NULL until the end: no text value can have it
_COPY_DATA: Final = HEADER.pack  # of kind 100, which is `d`
_HEADS: Final = tuple(_COPY_DATA(100, length + 5) for length in range(512))
_INTEGERS: Final = frozenset((oids.INT2, oids.INT4, oids.INT8, oids.OID))
_TEXTS: Final = frozenset((oids.TEXT, oids.VARCHAR, oids.NAME, oids.BPCHAR, oids.UNKNOWN))


def _may_have_null(lines: str, delimiter: str, null: str) -> bool:
    """Whether `null` is anywhere in whole lines; as nothing at all, between two marks."""
    if null:
        return null in lines
    return (
        lines.startswith((delimiter, "\n"))
        or delimiter * 2 in lines
        or "\n" + delimiter in lines
        or delimiter + "\n" in lines
        or "\n\n" in lines
    )


class LineStyle(NamedTuple):
    """What stands between and in place of values, and what a value needs care for."""

    delimiter: str
    null: str
    marks: tuple[str, ...]  # besides the delimiter and the end of a line
    care: Callable[[str], str]


def line_style(
    columns: int,
    fmt: CopyFormat,
    delimiter: str | None = None,
    null: str | None = None,
    quote: str = '"',
    escape: str | None = None,
) -> LineStyle:
    delimiter = delimiter or ("," if fmt == "csv" else "\t")
    null = null if null is not None else ("" if fmt == "csv" else "\\N")
    escape = escape or quote
    check_options(fmt, delimiter, null, quote, escape)
    if fmt == "csv":
        care = _csv_quoter(delimiter, null, quote, escape, alone=columns == 1)
        return LineStyle(delimiter, null, (quote, "\r", "\\"), care)
    marks = ("\\", "\r", "\b", "\f", "\v", *(() if delimiter == "\t" else ("\t",)))
    return LineStyle(delimiter, null, marks, _text_escaper(delimiter))


def copy_encoder(
    column_oids: Sequence[int],
    fmt: CopyFormat = "text",
    *,
    delimiter: str | None = None,
    null: str | None = None,
    quote: str = '"',
    escape: str | None = None,
    framed: bool = True,
) -> LinesEncoder:
    """A function from rows to their CopyData messages, or bare lines if not `framed`.

    One message per row: clients count on it, though the messages of COPY FROM have no such rule.
    It writes all values as they are and then looks whether any would have needed care: in most
    batches none does, and that is found by counting, without a look at each value.
    """
    columns = len(column_oids)
    delimiter, null, marks, care = line_style(columns, fmt, delimiter, null, quote, escape)
    plain = _line_maker(column_oids, delimiter, None)
    careful = _line_maker(column_oids, delimiter, care)

    def encode(rows: Iterable[Sequence[Any]]) -> bytes:
        batch = rows if isinstance(rows, list) else list(rows)
        text = "".join(map(plain, batch))
        needs_care = (
            any(mark in text for mark in marks)
            or text.count("\n") != len(batch)
            or text.count(delimiter) != len(batch) * (columns - 1)
            or (fmt == "csv" and _may_have_null(text, delimiter, null))
        )
        if not needs_care:
            data = text.replace(_NULL, null).encode()
            return _framed(data) if framed else data
        lines = [careful(row).replace(_NULL, null).encode() for row in batch]
        return b"".join(
            [_COPY_DATA(100, len(line) + 4) + line for line in lines] if framed else lines
        )

    return encode


def _framed(lines: bytes) -> bytes:
    """Put a message header before each line. Their newlines are the joints."""
    rows = lines.split(b"\n")
    rows.pop()
    if not rows:
        return b""
    heads = _HEADS
    framed = [heads[len(row)] + row if len(row) < 512 else _head(row) + row for row in rows]
    return b"\n".join(framed) + b"\n"


def _head(row: bytes) -> bytes:
    return _COPY_DATA(100, len(row) + 5)


def header_line(
    names: Sequence[str], fmt: CopyFormat, delimiter: str | None = None, quote: str = '"'
) -> bytes:
    """The first line under HEADER, as a CopyData message."""
    encode = copy_encoder([oids.TEXT] * len(names), fmt, delimiter=delimiter, quote=quote)
    return encode([tuple(names)])


def _line_maker(
    column_oids: Sequence[int], delimiter: str, care: Callable[[str], str] | None
) -> Callable[[Sequence[Any]], str]:
    """A function from a row to its line, with `care` taken of each value that has any text."""
    scope: dict[str, Any] = {"NULL": _NULL, "care": care}
    fields = []
    for number, oid in enumerate(column_oids):
        scope[f"e{number}"] = to_str(oid)
        name = f"v{number}"
        if oid in _INTEGERS or oid in _TEXTS:
            value = f"'%d' % {name}" if oid in _INTEGERS else name
        else:
            value = f"e{number}({name})"
        if care is not None:
            value = f"care({value})"
        elif oid in _INTEGERS:
            value = name  # the f-string writes it as it is
        fields.append(f"{{NULL if {name} is None else {value}}}")
    names = "".join(f"v{number}, " for number in range(len(column_oids)))
    scope["DELIMITER"] = delimiter
    line = "{DELIMITER}".join(fields) if delimiter in "{}\"'\\" else delimiter.join(fields)
    head = f"    {names}= row\n" if names else ""
    exec(f'def line(row):\n{head}    return f"""{line}\\n"""', scope)
    made: Callable[[Sequence[Any]], str] = scope["line"]
    return made


def to_str(oid: int) -> Callable[[Any], str]:
    if oid == oids.FLOAT8:
        return float_text
    encode = text_encoder(oid)
    return lambda value: encode(value).decode()


def _text_escaper(delimiter: str) -> Callable[[str], str]:
    table = str.maketrans(
        _TEXT_ESCAPES | ({} if delimiter == "\t" else {delimiter: "\\" + delimiter})
    )
    return lambda value: value.translate(table)


def _csv_quoter(
    delimiter: str, null: str, quote: str, escape: str, *, alone: bool
) -> Callable[[str], str]:
    """`alone`: the only column, where `\\.` would be taken for the end of the data."""
    special = re.compile(f"[{re.escape(delimiter + quote)}\r\n]")
    to_escape = re.compile(f"[{re.escape(quote + escape)}]")

    def care(value: str) -> str:
        is_end = alone and value == "\\."
        if value != null and not is_end and special.search(value) is None:
            return value
        return quote + to_escape.sub(lambda found: escape + found[0], value) + quote

    return care
