"""COPY FROM STDIN: text and csv streams to rows of `str | None`, whatever the chunks."""

from __future__ import annotations

import re
from typing import Final, Literal, TypeAlias

from cairn.model.errors import CairnError, InvalidParameter
from cairn.pgwire.values.problems import bad_utf8

CopyFormat: TypeAlias = Literal["text", "csv"]
CopyRow: TypeAlias = list[str | None]
Columns: TypeAlias = list[list[str | None]]

_ESCAPES: Final = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_ESCAPE: Final = re.compile(r"\\(x[0-9A-Fa-f]{1,2}|[0-7]{1,3}|.)", re.DOTALL)
_MAX_ROW_BYTES: Final = 256 * 1024 * 1024


class BadCopy(CairnError):
    """The stream is not what COPY was told; the detail says where."""

    sqlstate = "22P04"


def check_options(fmt: str, delimiter: str, null: str, quote: str = '"', escape: str = '"') -> None:
    """What PostgreSQL refuses, we refuse: such streams could not be read back."""
    if fmt not in ("text", "csv"):
        raise InvalidParameter(f'COPY format "{fmt}" not recognized')
    for what, mark in (("delimiter", delimiter), ("quote", quote), ("escape", escape)):
        if len(mark) != 1 or ord(mark) > 127:
            raise InvalidParameter(f"COPY {what} must be a single one-byte character")
    if delimiter in "\r\n" or "\r" in null or "\n" in null:
        raise InvalidParameter("COPY delimiter and null cannot be newline or carriage return")
    if fmt == "text" and delimiter in "\\.abcdefghijklmnopqrstuvwxyz0123456789":
        raise InvalidParameter(f'COPY delimiter cannot be "{delimiter}"')
    if delimiter in null or (fmt == "csv" and (delimiter == quote or quote in null)):
        raise InvalidParameter("COPY delimiter, quote and null must not contain each other")


class CopyParser:
    """Feed chunks in order, then call `finish`. Rows come out as soon as they are whole."""

    def __init__(
        self,
        fmt: CopyFormat = "text",
        *,
        ncols: int,
        delimiter: str | None = None,
        null: str | None = None,
        header: bool = False,
        quote: str = '"',
        escape: str | None = None,
    ) -> None:
        self.fmt, self.ncols = fmt, ncols
        self.delimiter = delimiter or ("," if fmt == "csv" else "\t")
        self.null = null if null is not None else ("" if fmt == "csv" else "\\N")
        self.quote, self.escape = quote, escape or quote
        check_options(fmt, self.delimiter, self.null, self.quote, self.escape)
        self.line = 0  # of the last row given out, from 1
        self.ended = False  # by `\.`: what comes after it is ignored
        self._rest: list[bytes] = []  # the parts of a line that has not ended yet
        self._rest_bytes = 0
        self._open: list[str] = []  # lines of a row that goes on in the next line
        self._open_chars = 0
        self._in_quotes = False
        q, e, d = map(re.escape, (self.quote, self.escape, self.delimiter))
        lone_escape = "" if self.quote == self.escape else rf"|{e}(?![{q}{e}])"
        self._quoted = re.compile(rf"((?:[^{q}{e}]+|{e}[{q}{e}]{lone_escape})*+){q}")
        self._unescape = re.compile(rf"{e}([{q}{e}])")
        self._unquoted = re.compile(rf"[^{q}{d}]*")
        self._header = header
        self._crlf: bool | None = None  # found at the first line end

    def feed(self, chunk: bytes) -> list[CopyRow]:
        """The rows that `chunk` completes."""
        return _turned(self.feed_columns(chunk))

    def finish(self) -> list[CopyRow]:
        """The stream ended: the last line may lack its newline."""
        return _turned(self.finish_columns())

    def feed_columns(self, chunk: bytes) -> Columns:
        """The same column by column, which is how a bulk is read quickly; `[]` for no rows."""
        if self.ended:
            return []
        lines = self._whole(chunk)
        return self.columns(lines) if lines else []

    @property
    def is_amid(self) -> bool:
        """Whether the next line does not begin a row: one has begun, or there are no more."""
        return self.ended or bool(self._open) or self._header

    def whole_lines(self, chunk: bytes) -> bytes | None:
        """The lines that `chunk` completes, unread: for who can read them in another way.

        Who does counts them in `line`, and gives `columns` the rest. None: they cannot be.
        """
        return None if self.is_amid else self._whole(chunk)

    def _whole(self, chunk: bytes) -> bytes:
        """A long line is put together once, when its end has come."""
        border = chunk.rfind(b"\n") + 1
        if not border:
            self._keep(chunk)
            return b""
        if not self._rest:
            lines = chunk[:border]
        else:
            lines = b"".join((*self._rest, chunk[:border]))
            self._rest, self._rest_bytes = [], 0
        self._keep(chunk[border:])
        return lines

    def _keep(self, part: bytes) -> None:
        if part:
            self._rest.append(part)
            self._rest_bytes += len(part)
        if self._rest_bytes > _MAX_ROW_BYTES:
            raise self._bad("a line is longer than 256 MiB")

    def finish_columns(self) -> Columns:
        if self.ended:
            return []
        rest, self._rest = b"".join(self._rest), []
        columns = self.columns(rest + b"\n") if rest else []
        if self._open and self.fmt == "csv":
            raise self._bad("unterminated CSV quoted field", self.line)
        if not self._open:
            return columns
        # A backslash was the last thing: before a newline, it keeps it.
        whole = "\n".join(self._open)[:-1] if rest else "\n".join([*self._open, ""])
        row = self._checked(self._text_row(whole), self.line)
        self._open = []
        return _turned([*_turned(columns), row])

    def columns(self, data: bytes) -> Columns:
        """Of whole lines."""
        text = self._decoded(data)
        if self._header:
            _, _, text = text.partition("\n")
            self._header = False
            self.line += 1
        mark = self.quote if self.fmt == "csv" else "\\"
        if mark in text or "\\." in text or self._open:
            return _turned(self._careful_rows(text.split("\n")[:-1], mark))
        if "\r" in text:
            numbered = enumerate(text.split("\n")[:-1], self.line + 1)
            text = "\n".join([*(self._without_cr(line, number) for number, line in numbered), ""])
        return self._plain_columns(text)

    def _decoded(self, data: bytes) -> str:
        try:
            text = data.decode()
        except UnicodeDecodeError as problem:
            raise bad_utf8(data, problem.start) from None
        if "\0" in text:
            raise bad_utf8(data, data.index(0))
        return text

    def _without_cr(self, line: str, number: int) -> str:
        """Lines end alike throughout; a bare carriage return in text must be written `\\r`."""
        if self._crlf is None:
            self._crlf = line.endswith("\r")
        if self._crlf:
            line = line.removesuffix("\r")
        if "\r" in line and self.fmt == "text":
            raise self._bad('literal carriage return found in data: use "\\r"', number)
        return line

    def _plain_columns(self, text: str) -> Columns:
        """No quote and no backslash anywhere: one split is enough.

        A field of its own for each line end shows that every line has as many fields as it should.
        """
        count, width, delimiter = text.count("\n"), self.ncols + 1, self.delimiter
        fields: list[str | None] = text.replace("\n", f"{delimiter}\n{delimiter}").split(delimiter)  # type: ignore[assignment]
        fields.pop()  # what is behind the last newline: nothing
        if len(fields) != count * width or fields[self.ncols :: width].count("\n") != count:
            for number, line in enumerate(text.split("\n"), self.line + 1):
                self._checked(line.split(delimiter), number)  # type: ignore[arg-type]
        self.line += count
        columns = [fields[at::width] for at in range(self.ncols)] if count else []
        null = self.null
        return [
            [None if value == null else value for value in column] if null in column else column
            for column in columns
        ]

    def _careful_rows(self, lines: list[str], mark: str) -> list[CopyRow]:
        rows: list[CopyRow] = []
        for line in lines:
            if not self._open and line.removesuffix("\r") == "\\.":
                self.ended = True
                break
            self.line += 1
            if self._goes_on(line, mark):
                self._open.append(line)
                continue
            whole = self._without_cr(line, self.line)
            if self._open:
                whole, self._open = "\n".join([*self._open, whole]), []
            values = self._csv_row(whole) if self.fmt == "csv" else self._text_row(whole)
            rows.append(self._checked(values, self.line))
        return rows

    def _goes_on(self, line: str, mark: str) -> bool:
        """Whether the row has more lines: an open quote, or a backslash before the newline."""
        self._open_chars = self._open_chars + len(line) if self._open else 0
        if self._open_chars > _MAX_ROW_BYTES:
            raise self._bad("a row is longer than 256 MiB")
        if mark not in line:
            return self._in_quotes
        if self.fmt == "text":
            return (len(line) - len(line.rstrip("\\"))) % 2 == 1
        if self.quote == self.escape:
            self._in_quotes ^= line.count(self.quote) % 2 == 1
        else:
            self._follow_quotes(line)
        return self._in_quotes

    def _follow_quotes(self, line: str) -> None:
        at = 0
        while True:
            if self._in_quotes:
                closing = self._quoted.match(line, at)
                if closing is None:
                    return
                self._in_quotes, at = False, closing.end()
            at = line.find(self.quote, at) + 1
            if not at:
                return
            self._in_quotes = True

    def _text_row(self, line: str) -> CopyRow:
        if "\\" not in line:
            return [None if v == self.null else v for v in line.split(self.delimiter)]
        values: CopyRow = []
        field = ""
        for piece in line.split(self.delimiter):
            field += piece
            if (len(field) - len(field.rstrip("\\"))) % 2:
                field += self.delimiter  # an escaped delimiter: part of the value
                continue
            values.append(None if field == self.null else self._unescaped(field))
            field = ""
        return values

    def _unescaped(self, field: str) -> str:
        """Bytes written as `\\303\\251` are put together before they are read as UTF-8."""
        if "\\." in field and "." in _ESCAPE.findall(field):
            raise self._bad("end-of-copy marker corrupt", self.line)
        value = _ESCAPE.sub(_unescaped, field)
        return value if value.isprintable() else self._decoded(_as_bytes(value))

    def _csv_row(self, line: str) -> CopyRow:
        """Only an unquoted value can be NULL. Quotes may open in the middle of a value."""
        if self.quote not in line:
            return [None if v == self.null else v for v in line.split(self.delimiter)]
        values: CopyRow = []
        at = 0
        while at <= len(line):
            pieces: list[str] = []
            was_quoted = False
            while True:
                plain = self._unquoted.match(line, at)
                assert plain is not None  # it may match nothing
                pieces.append(plain[0])
                at = plain.end()
                if not line.startswith(self.quote, at):
                    break
                quoted = self._quoted.match(line, at + 1)
                assert quoted is not None  # `_goes_on` has seen the end
                pieces.append(self._unescape.sub(r"\1", quoted[1]))
                was_quoted, at = True, quoted.end()
            value = "".join(pieces)
            values.append(None if value == self.null and not was_quoted else value)
            at += 1  # the delimiter, or past the end
        return values

    def _checked(self, row: CopyRow, line: int) -> CopyRow:
        if len(row) < self.ncols:
            raise self._bad(f"missing data for column {len(row) + 1} of {self.ncols}", line)
        if len(row) > self.ncols:
            raise self._bad("extra data after last expected column", line)
        return row

    def _bad(self, what: str, line: int | None = None) -> BadCopy:
        return BadCopy(what, detail=f"COPY, line {line or self.line + 1}")


def _turned(lines: list[list[str | None]]) -> list[list[str | None]]:
    """Rows to columns, and back."""
    return [list(line) for line in zip(*lines, strict=True)]


def _unescaped(match: re.Match[str]) -> str:
    code = match[1]
    if code[0] == "x" and len(code) > 1:
        return _byte(int(code[1:], 16))
    if code[0] in "01234567":
        return _byte(int(code, 8) & 0xFF)
    return _ESCAPES.get(code, code)


def _byte(number: int) -> str:
    return chr(number) if number < 128 else chr(0xDC00 + number)  # as `surrogateescape` has it


def _as_bytes(value: str) -> bytes:
    return value.encode("utf-8", "surrogateescape")
