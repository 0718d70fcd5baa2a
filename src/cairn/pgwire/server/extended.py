"""Prepared statements and portals of one connection, with the protocol's rules about them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from sys import getsizeof
from typing import Any, Final, Generic, TypeVar

import msgspec

from cairn.model.errors import (
    CairnError,
    DuplicateCursor,
    DuplicateStatement,
    InvalidParameter,
    LimitExceeded,
    ProtocolViolation,
    UndefinedCursor,
    UndefinedStatement,
)
from cairn.model.tracing import Parent
from cairn.pgwire import messages as m
from cairn.pgwire.server.requests import Bind
from cairn.pgwire.values.decoders import Decoder
from cairn.pgwire.values.formats import decode_params, decoder
from cairn.pgwire.values.rows import RowEncoder, row_encoder

Plan = TypeVar("Plan")

OPEN_BYTES: Final = 4 << 20  # of a longer answer that is half told, with what reads it
STATEMENT_BYTES: Final = 300  # of a statement's place in the book, beside its plan and name
PORTAL_BYTES: Final = 400
_MAX_SHAPES: Final = 64  # combinations of format codes remembered per statement


class Shape:
    """A signature under given format codes: ready-made decoders, encoder and description."""

    __slots__ = ("bound", "decoders", "description", "encode_row", "lane", "result_formats")

    def __init__(
        self,
        decoders: list[Decoder],
        result_formats: tuple[int, ...],
        encode_row: RowEncoder,
        description: bytes,
    ) -> None:
        self.decoders, self.result_formats = decoders, result_formats
        self.encode_row, self.description = encode_row, description
        self.bound = m.BIND_COMPLETE + description  # the answer to Bind and Describe
        self.lane: Any = None  # what the server keeps for it

    def told_first(self, is_described: object) -> bytes:
        """The answer to Bind, and to Describe when that is asked."""
        return self.bound if is_described else m.BIND_COMPLETE


class Signature:
    """What a statement takes and gives. Belongs to the plan: connections share it.

    `columns` is None for a statement without rows.
    """

    __slots__ = (
        *("_origins", "_shapes", "columns", "param_oids", "parameter_description"),
        "statement_rows",
    )

    def __init__(
        self,
        param_oids: Sequence[int],
        columns: Sequence[tuple[str, int]] | None,
        origins: Sequence[m.Origin] = (),
    ) -> None:
        self._origins = origins
        self.param_oids = tuple(param_oids)
        self.columns = None if columns is None else tuple(columns)
        self.parameter_description = m.parameter_description(self.param_oids)
        self.statement_rows = self._description((0,) * len(columns or ()))
        self._shapes: dict[tuple[tuple[int, ...], tuple[int, ...]], Shape] = {}

    def shape(self, param_formats: tuple[int, ...], result_formats: tuple[int, ...]) -> Shape:
        """Codes as Bind has them: none, one for all, or one each."""
        shape = self._shapes.get((param_formats, result_formats))
        if shape is None:
            shape = self._make(param_formats, result_formats)
            if len(self._shapes) < _MAX_SHAPES:
                self._shapes[param_formats, result_formats] = shape
        return shape

    def decoded(self, request: Bind) -> list[Any]:
        """The parameters of a Bind, for who does that elsewhere."""
        shape = self.shape(request.param_formats, request.result_formats)
        return decode_params(shape.decoders, request.params)

    def _make(self, param_formats: tuple[int, ...], result_formats: tuple[int, ...]) -> Shape:
        inputs = _one_each(param_formats, len(self.param_oids))
        decoders = [decoder(oid, fmt) for oid, fmt in zip(self.param_oids, inputs, strict=True)]
        columns = self.columns or ()
        outputs = _one_each(result_formats, len(columns)) if columns else ()
        encode = row_encoder([oid for _, oid in columns], outputs)
        return Shape(decoders, outputs, encode, self._description(outputs))

    def _description(self, formats: tuple[int, ...]) -> bytes:
        """RowDescription, or NoData."""
        if self.columns is None:
            return m.NO_DATA
        described = zip(self.columns, formats, strict=True)
        shown = [(name, oid, fmt) for (name, oid), fmt in described]
        return m.row_description(shown, self._origins)


def _one_each(codes: tuple[int, ...], count: int) -> tuple[int, ...]:
    if any(code not in (0, 1) for code in codes):
        bad = next(code for code in codes if code not in (0, 1))
        raise InvalidParameter(f"unsupported format code: {bad}")
    if len(codes) == count:
        return codes
    if not codes:
        return (0,) * count
    if len(codes) == 1:
        return codes * count
    raise ProtocolViolation(f"got {len(codes)} format codes for {count} items")


class Statement(Generic[Plan]):
    """A prepared statement: `plan` is the server's, we only keep it."""

    __slots__ = ("held", "key", "lane", "name", "parent", "plan", "signature")

    def __init__(self, name: bytes, plan: Plan, signature: Signature) -> None:
        self.name, self.plan, self.signature = name, plan, signature
        self.held = 0  # bytes of the plan that were counted, with the key of what it is
        self.key: Hashable = None
        self.parent: Parent | None = None  # the trace that its text named
        self.lane: Any = None  # a shorter way to its answer, if the server found one


class Portal(msgspec.Struct, Generic[Plan]):
    """A bound statement. `rows` is whatever the server needs to go on after PortalSuspended."""

    name: bytes
    statement: Statement[Plan]
    values: list[Any]
    shape: Shape
    rows: Any = None
    sent: int = 0
    is_raw: bool = False  # whether `rows` still have to be converted
    is_run: bool = False  # a statement runs once: what it gave may be fetched later, in parts
    more: Any = None  # what follows `rows`; closed with the portal
    is_held: bool = False  # it stays when its transaction is committed
    is_kept: bool = False  # and has been
    held: int = 0  # bytes of it that were counted
    plan_bytes: int = 0  # of a statement that no other has

    def weight(self) -> int:
        """Bytes that it keeps in memory, about."""
        size = PORTAL_BYTES + len(self.name) + self.plan_bytes
        size += sum(map(getsizeof, self.values)) + (OPEN_BYTES if self.more is not None else 0)
        if self.rows:
            some = self.rows[:: max(len(self.rows) // 64, 1)]
            of_some = sum(getsizeof(row) + sum(map(getsizeof, row)) for row in some)
            size += of_some * len(self.rows) // len(some)
        return size

    def close(self) -> None:
        if self.more is not None:
            self.more.close()
            self.more = None


class StatementBook(Generic[Plan]):
    """Statements and portals by name; b"" is the unnamed one, which the next replaces."""

    __slots__ = ("_hold", "_limits", "_portals", "_statements")

    def __init__(
        self,
        limits: Callable[[], tuple[int, int]] = lambda: (1024, 1024),
        hold: Callable[[int, Hashable], None] = lambda more, plan: None,
    ) -> None:
        self._limits = limits  # most statements and portals at this moment; 0 is no limit
        # Told of bytes that are kept or (below zero) freed, and may refuse. A plan comes with a
        # key: others may keep the same one.
        self._hold = hold
        self._statements: dict[bytes, Statement[Plan]] = {}
        self._portals: dict[bytes, Portal[Plan]] = {}

    @property
    def statements(self) -> list[Statement[Plan]]:
        return list(self._statements.values())

    def check_name(self, name: bytes) -> None:
        """Parse may use `name`. Asked before planning, so that a duplicate costs nothing."""
        if not name:
            return
        if name in self._statements:
            raise DuplicateStatement(f'prepared statement "{_shown(name)}" already exists')
        most = self._limits()[0]
        if 0 < most <= len(self._statements):
            raise _full("Statement", most, "pg_statement_max")

    def parse(
        self, name: bytes, plan: Plan, signature: Signature, size: int = 0, key: Hashable = None
    ) -> Statement[Plan]:
        """`size`, of the plan, is counted for those with a name, which stay."""
        self.check_name(name)
        statement = Statement(name, plan, signature)
        if name:
            self._hold(STATEMENT_BYTES + len(name), None)
            try:
                self._hold(size, key)
            except CairnError:
                self._hold(-STATEMENT_BYTES - len(name), None)
                raise
            statement.held, statement.key = size, key
        self._statements[name] = statement
        return statement

    def _forget(self, statement: Statement[Plan]) -> None:
        if statement.name:
            self._hold(-statement.held, statement.key)
            self._hold(-STATEMENT_BYTES - len(statement.name), None)

    def known(self, name: bytes) -> Statement[Plan] | None:
        return self._statements.get(name)

    def statement(self, name: bytes) -> Statement[Plan]:
        statement = self._statements.get(name)
        if statement is None:
            if not name:
                raise UndefinedStatement("unnamed prepared statement does not exist")
            raise UndefinedStatement(f'prepared statement "{_shown(name)}" does not exist')
        return statement

    def bind(self, request: Bind, values: list[Any] | None = None) -> Portal[Plan]:
        """A portal with its parameters decoded; `values`: they are long, and were elsewhere."""
        is_long = values is not None
        statement = self._statements.get(request.statement) or self.statement(request.statement)
        signature, params = statement.signature, request.params
        if len(params) != len(signature.param_oids):
            raise ProtocolViolation(
                f"bind message supplies {len(params)} parameters, but prepared statement "
                f'"{_shown(statement.name)}" requires {len(signature.param_oids)}',
                sqlstate="42P02",  # bad requests are never class 08: pools would drop the server
            )
        shape = signature.shape(request.param_formats, request.result_formats)
        if values is None:
            values = decode_params(shape.decoders, params) if params else []
        name = request.portal
        if name:
            self.check_portal(name)
        elif self._portals:
            self._end_portal(b"")
        portal = Portal(name, statement, values, shape)
        if name or is_long:
            self.weigh(portal)
        self._portals[name] = portal
        return portal

    def weigh(self, portal: Portal[Plan]) -> None:
        """It has become larger: may it?"""
        more = portal.weight() - portal.held
        self._hold(more, None)
        portal.held += more

    def check_portal(self, name: bytes) -> None:
        if name in self._portals:
            raise DuplicateCursor(f'cursor "{_shown(name)}" already exists')
        most = self._limits()[1]
        if 0 < most <= len(self._portals):
            raise _full("Portal", most, "pg_portal_max")

    def keep(self, portal: Portal[Plan]) -> None:
        """A portal that a statement made."""
        self.check_portal(portal.name)
        self.weigh(portal)
        self._portals[portal.name] = portal

    def cursor(self, name: bytes) -> Portal[Plan]:
        """The same as a portal, in the words of SQL."""
        portal = self._portals.get(name)
        if portal is None or not name:
            raise UndefinedCursor(f'cursor "{_shown(name)}" does not exist')
        return portal

    def portal(self, name: bytes) -> Portal[Plan]:
        portal = self._portals.get(name)
        if portal is None:
            raise UndefinedCursor(f'portal "{_shown(name)}" does not exist')
        return portal

    def close(self, kind: str, name: bytes) -> None:
        """Closing what does not exist is fine. A statement takes its portals with it."""
        if kind == "P":
            self._end_portal(name)
            return
        statement = self._statements.pop(name, None)
        if statement is not None:
            self._forget(statement)
        for each in [p for p in self._portals.values() if p.statement is statement]:
            self._end_portal(each.name)

    def _end_portal(self, name: bytes) -> None:
        portal = self._portals.pop(name, None)
        if portal is not None:
            self._drop(portal)

    def _drop(self, portal: Portal[Plan]) -> None:
        portal.close()
        if portal.held:
            self._hold(-portal.held, None)
            portal.held = 0

    def deallocate(self, name: bytes) -> None:
        """SQL's DEALLOCATE, which wants the statement to exist."""
        self.statement(name)
        self.close("S", name)

    def deallocate_all(self) -> None:
        for statement in self._statements.values():
            self._forget(statement)
        self._statements.clear()
        self.close_portals()

    def begin_simple_query(self) -> None:
        """A simple query replaces the unnamed statement and portal."""
        self._statements.pop(b"", None)
        if self._portals:
            self._end_portal(b"")

    def sync(self, *, in_transaction: bool) -> None:
        """Portals live as long as their transaction; outside of one that is until Sync."""
        if not in_transaction and self._portals:
            self.end_transaction(is_committed=True)

    def end_transaction(self, *, is_committed: bool) -> None:
        portals, self._portals = self._portals, {}
        for name, portal in portals.items():
            if portal.is_held and (is_committed or portal.is_kept):
                portal.is_kept = True
                self._portals[name] = portal
            else:
                self._drop(portal)

    def close_portals(self) -> None:
        for portal in self._portals.values():
            self._drop(portal)
        self._portals.clear()


def _full(what: str, limit: int, option: str) -> CairnError:
    return LimitExceeded(
        f"{what} storage is full. Current size limit: {limit}. Please, increase storage limit "
        f'using: ALTER SYSTEM SET "{option}" TO <new-limit>'
    )


def _shown(name: bytes) -> str:
    return name[:200].decode("utf-8", "replace")
