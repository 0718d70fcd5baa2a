"""COPY … FROM STDIN split by owner: one COPY at each, fed side by side.

A text line's key is read here, its bytes go on as they are; tuples are hashed and then written as
text. What cannot be read here goes along with the rest: the server finds the owner, or says what is
wrong. An instance writes COPY data in pieces of `CHUNK_ROWS` rows, each of them atomic.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any, Final

import msgspec

from cairn.client.logic import flows
from cairn.client.logic.core import Attempt, Core
from cairn.client.logic.effects import Operation, Pull, Send, Talk, Wire, always
from cairn.client.logic.metadata import Metadata
from cairn.client.logic.shares import Share, failed_share, owner_name, raise_failed
from cairn.model.errors import AccessDenied, CairnError, InvalidParameter
from cairn.model.quoting import identifier
from cairn.model.types.values import TYPE_OF_OID, ColumnType, parse_text
from cairn.pgwire.client.backend import Result
from cairn.pgwire.copy import CopyParser
from cairn.pgwire.copy_out import copy_encoder

CHUNK_ROWS: Final = 10_000  # of the server
PULL_ITEMS, PULL_BYTES = 500, 64 * 1024  # taken from a source at once
_COPY: Final = re.compile(
    r"\s*copy\s+(?P<table>\w+|\"[^\"]+\")\s*(?:\((?P<columns>[^()]*)\))?\s+from\s+stdin"
    r"(?:\s+(?:with\s*)?\(\s*format\s+text\s*\))?\s*;?\s*",
    re.IGNORECASE,
)


class Target(msgspec.Struct):
    """A sharded table as COPY sees it: which columns come, and which of them form the key."""

    metadata: Metadata
    oids: tuple[int, ...]


class _Share(msgspec.Struct):
    """The COPY at one owner."""

    wire: Wire
    rows: int = 0  # sent to it


class Splitter:
    """Pieces of text lines, or rows, to what each owner gets. Sans-IO."""

    def __init__(self, core: Core, target: Target) -> None:
        self._core, self._metadata = core, target.metadata
        tier = target.metadata.tier or ""
        self._count = core.table.bucket_count(tier)
        self._encode = copy_encoder(target.oids, framed=False)
        self._key = [
            (at, _reader(TYPE_OF_OID[oid]))
            for at, oid in zip(target.metadata.positions, target.metadata.oids, strict=True)
        ]
        self._last = max(target.metadata.positions) + 1
        self._width = len(target.oids)
        self._rest = b""
        self._ended = False
        self._anywhere: str | None = None  # for rows whose owner cannot be told or reached

    def take(self, items: Sequence[Any]) -> dict[str, tuple[bytes, int]]:
        """By address: the lines for it, and how many. Items are all pieces of text, or all rows."""
        if isinstance(items[0], bytes | bytearray | memoryview):
            return self._joined(self._lines(b"".join(items)), self._bucket_of_line, b"\n".join)
        if isinstance(items[0], str):
            return self.take(["".join(items).encode()])
        return self._joined(items, self._bucket_of_row, lambda rows: self._encode(rows)[:-1])

    def finish(self) -> dict[str, tuple[bytes, int]]:
        """The last line, if it did not end."""
        rest, self._rest = self._rest, b""
        if not rest or self._ended:
            return {}
        return self._joined([rest], self._bucket_of_line, b"\n".join)

    def _lines(self, data: bytes) -> list[bytes]:
        if self._ended:
            return []
        data = self._rest + data
        lines = data.split(b"\n")
        self._rest = lines.pop()
        return self._with_care(lines) if b"\\\n" in data or b"\\." in data else lines

    def _with_care(self, lines: list[bytes]) -> list[bytes]:
        r"""A line that ends in a lone backslash goes on in the next; `\.` ends the data."""
        found: list[bytes] = []
        open_: list[bytes] = []
        for line in lines:
            open_.append(line)
            if (len(line) - len(line.rstrip(b"\\"))) % 2 == 0:
                found.append(b"\n".join(open_))
                open_ = []
        if open_:
            self._rest = b"\n".join([*open_, self._rest])
        for at, line in enumerate(found):
            if line.rstrip(b"\r") == b"\\.":
                self._ended, self._rest = True, b""
                return found[:at]
        return found

    def _joined(
        self,
        items: Iterable[Any],
        bucket_of: Callable[[Any], int | None],
        join: Callable[..., bytes],
    ) -> dict[str, tuple[bytes, int]]:
        by_bucket: dict[int | None, list[Any]] = {}  # the same list for all buckets of an owner
        by_address: dict[str, list[Any]] = {}
        for item in items:
            bucket = bucket_of(item)
            part = by_bucket.get(bucket)
            if part is None:
                part = by_bucket[bucket] = by_address.setdefault(self._address(bucket), [])
            part.append(item)
        return {at: (join(part) + b"\n", len(part)) for at, part in by_address.items()}

    def _address(self, bucket: int | None) -> str:
        router, tier = self._core.router, self._metadata.tier or ""
        address = None if bucket is None else self._core.table.master_address(tier, bucket)
        if address is not None and router.is_good(address):
            return address
        if self._anywhere is None or not router.is_good(self._anywhere):
            self._anywhere = router.any_instance()[0]
        return self._anywhere

    def _bucket_of_line(self, line: bytes) -> int | None:
        try:
            if b"\\" in line:
                fields: Sequence[Any] = CopyParser(ncols=self._width).feed(line + b"\n")[0]
            else:
                fields = line.rstrip(b"\r").decode().split("\t", self._last)
            values = [
                value if value is None else read(value)
                for value, read in ((fields[at], read) for at, read in self._key)
            ]
        except (ValueError, IndexError, CairnError):
            return None  # the server will say what is wrong
        return self._metadata.bucket_of(values, self._count)

    def _bucket_of_row(self, row: Sequence[Any]) -> int | None:
        return self._metadata.bucket(row, self._count)


def _reader(type_: ColumnType) -> Callable[[str], Any]:
    if type_ is ColumnType.STRING:
        return str
    return lambda text: parse_text(type_, text)


def pulled(source: Iterator[Any]) -> list[Any] | None:
    """Some items at once: an effect for each would cost more than the item."""
    found: list[Any] = []
    for item in source:
        found.append(item)
        if len(found) >= PULL_ITEMS or len(item) >= PULL_BYTES:
            break
    return found or None


def copy_in(core: Core, sql: str, source: Any) -> Operation[str]:
    """The tag. `source` is an iterator of text in pieces, or of rows; if it fails, so does this."""
    target = yield from _target(core, sql)
    first = yield Pull(source)
    if target is None:
        if first is not None and not isinstance(first[0], bytes | bytearray | memoryview | str):
            raise InvalidParameter("rows are taken only for COPY of a sharded table as text")
        return (yield from _unsplit(core, sql, source, first))
    copy = _Copy(core, sql, Splitter(core, target))
    return (yield from copy.run(source, first))


def _target(core: Core, sql: str) -> Operation[Target | None]:
    """None when the whole COPY goes to one instance: other formats, global tables, no right to
    read the table and so to know its columns."""
    found = _COPY.fullmatch(sql)
    if found is None or '"' in (found["columns"] or ""):
        return None
    table, columns = found["table"], found["columns"]
    try:
        if columns is None:
            described = yield from core.describe(f"SELECT * FROM {table}")
            names = [identifier(name) for name, _, _ in described.columns]
            columns, width = ", ".join(names), len(names)
        else:
            width = columns.count(",") + 1
        marks = ", ".join(f"${at + 1}" for at in range(width))
        insert = f"INSERT INTO {table} ({columns}) VALUES ({marks})"
        metadata = yield from core.learn(insert)
        described = yield from core.describe(insert)
    except CairnError as error:
        if error.sqlstate != AccessDenied.sqlstate:
            raise
        return None
    return Target(metadata, described.param_oids) if metadata.is_bound else None


def _unsplit(core: Core, sql: str, source: Any, items: Any) -> Operation[str]:
    """One COPY through any instance, which splits it itself."""
    attempt = Attempt(core, sql, core.settings.timeout_s)
    wire = yield from _begin(core, sql, core.router.any_instance()[0], attempt)
    try:
        failure: Exception | None = None
        try:
            while items is not None and wire.pg.wants_copy_data:
                yield Send(wire, wire.pg.copy_data(_bytes(items)), core.if_missed(wire))
                items = yield Pull(source)
        except Exception as problem:
            failure = problem
        why = None if failure is None else f"the source failed: {failure}"
        try:
            flow = flows.copy_end(wire.pg, why)
            result: Result = yield Talk(wire, flow, attempt.timeout_s, None, core.if_missed(wire))
        except CairnError as error:
            raise (failure or error) from error
        return result.tag or ""
    finally:
        core.done(wire)


def _bytes(items: Sequence[Any]) -> bytes:
    return b"".join(each.encode() if isinstance(each, str) else bytes(each) for each in items)


def _begin(core: Core, sql: str, address: str, attempt: Attempt) -> Operation[Wire]:
    """A COPY that waits for data; through another instance if this one cannot be had."""
    while True:
        wire: Wire | None = None
        try:
            wire = yield from core.acquire(address)
            flow = flows.copy_begin(wire.pg, sql)
            yield Talk(wire, flow, attempt.timeout_s, None, always)
            return wire
        except CairnError as error:
            attempt.sent = False  # no row has left
            yield from core.after_failure(error, wire, attempt)
            address = core.router.any_instance(but=frozenset((address,)))[0]


class _Copy:
    """The COPYs of one call, by the address whose rows they carry."""

    def __init__(self, core: Core, sql: str, splitter: Splitter) -> None:
        self._core, self._sql, self._splitter = core, sql, splitter
        self._shares: dict[str, _Share] = {}
        self._attempt = Attempt(core, sql, core.settings.timeout_s)

    def run(self, source: Any, items: Any) -> Operation[str]:
        failure: Exception | None = None  # of the source
        broken: list[BaseException] = []  # of an owner, while it was sent to
        try:
            while items is not None and not failure:
                if not (yield from self._send(self._splitter.take(items))):
                    break
                items, failure = yield from _pull(source)
            if items is None and not failure:
                yield from self._send(self._splitter.finish())
        except CairnError as problem:
            broken.append(problem)
        except BaseException:
            for share in self._shares.values():
                self._core.wires.discard(share.wire)
            raise
        return (yield from self._end(failure, broken))

    def _send(self, parts: dict[str, tuple[bytes, int]]) -> Operation[bool]:
        """False when an owner has refused: its reason comes with the end."""
        for address, (data, rows) in parts.items():
            share = self._shares.get(address)
            if share is None:
                wire = yield from _begin(self._core, self._sql, address, self._attempt)
                share = self._shares[address] = _Share(wire)
            if not share.wire.pg.wants_copy_data:
                return False
            share.rows += rows
            may_leave = self._core.if_missed(share.wire)
            yield Send(share.wire, share.wire.pg.copy_data(data), may_leave)
        return all(share.wire.pg.wants_copy_data for share in self._shares.values())

    def _end(self, failure: Exception | None, errors: list[BaseException]) -> Operation[str]:
        """End them all; if one has failed, the others forget what they have not written."""
        open_ = [each.wire for each in self._shares.values() if each.wire.pg.wants_copy_data]
        why = None if failure is None else f"the source failed: {failure}"
        if errors or len(open_) < len(self._shares):
            why = "another replicaset has failed"
        for wire in open_:  # all at once: each then writes its last rows while the others do
            data = wire.pg.copy_done() if why is None else wire.pg.copy_fail(why)
            with suppress(CairnError):
                yield Send(wire, data, self._core.if_missed(wire))
        shares: list[Share] = []
        total = 0
        for address, share in self._shares.items():
            outcome = yield from self._answer(share)
            name = owner_name(self._core.table, address)
            if isinstance(outcome, Result):
                total += outcome.row_count
                shares.append(Share(name, "done", outcome.tag or ""))
            else:
                shares.append(self._failed(name, share, outcome))
                errors.insert(len(errors) if share.wire in open_ else 0, outcome)
            self._core.done(share.wire)
        if failure is not None:
            failure.add_note("; ".join(map(str, shares)))
            raise failure
        if errors:
            raise_failed(shares, errors)
        return f"COPY {total}"

    def _answer(self, share: _Share) -> Operation[Result | CairnError]:
        flow = flows.copy_end(share.wire.pg)
        try:
            may_leave = self._core.if_missed(share.wire)
            result: Result = yield Talk(share.wire, flow, self._attempt.timeout_s, None, may_leave)
        except CairnError as error:
            return error
        return result

    def _failed(self, name: str, share: _Share, error: CairnError) -> Share:
        if not share.wire.pg.is_idle:
            self._core.stats.outcome_unknown += 1
            return failed_share(name, error, "unknown")
        return failed_share(name, error, "in part" if share.rows > CHUNK_ROWS else None)


def _pull(source: Any) -> Operation[tuple[Any, Exception | None]]:
    try:
        return (yield Pull(source)), None
    except Exception as problem:
        return None, problem
