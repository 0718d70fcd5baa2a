"""The statement cache: a text that was understood once is never parsed again.

Shared by all sessions of the instance. A cached plan is used while the tables it names are as
they were; rights are checked against the present catalogue each time it changes.
"""

from __future__ import annotations

import re
import weakref
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from time import monotonic
from typing import Any

from cairn.model import stops
from cairn.model.errors import CairnError, QueryCanceled, Unsupported
from cairn.model.tables.catalog import Catalog
from cairn.model.tables.temporary import touches
from cairn.model.types.values import OIDS
from cairn.node.statements.owner.encoding import Convert, converter
from cairn.node.statements.owner.fair_threads import FairThreads
from cairn.node.watching.kinds import kind_of
from cairn.node.watching.statistics import Seen, Statistics
from cairn.pgwire.messages import NO_ORIGIN
from cairn.pgwire.server.extended import Signature
from cairn.pgwire.values.decoders import decode_string
from cairn.server.catalog.pg_catalog import is_catalog_query
from cairn.server.catalog.pg_catalog import prepare as prepare_catalog_query
from cairn.server.plan_size import kept_bytes
from cairn.sql.api import prepare
from cairn.sql.parse.lexer import without_database
from cairn.sql.parse.literals import lifted
from cairn.sql.plans import CallPlan, DdlPlan, Prepared, RoutinePlan
from cairn.sql.statements.normalized import normalized

MAX_STATEMENTS = 5_000
MAX_CACHED_PLAN = 1024 * 1024  # bytes of one; larger ones are made anew
MAX_CACHED_BYTES = 64 * 1024 * 1024  # of all plans together, about
MAX_OWN_PLANS, MAX_OWN_PLAN = 100, 64 * 1024  # of temporary tables: of one session, bytes of one
QUICK_TEXT = 2_000  # bytes that are mostly understood within a few milliseconds
PARSERS, PARSERS_MOST = 2, 6  # threads for longer ones: of one user, and when several ask
AGAIN = 5  # times that a text is understood anew, because tables change while it is
TURN_S, EVERY_S = 0.05, 0.2  # so much of each such time texts are understood on the loop

Row = tuple[Any, ...]
Key = tuple[bytes, tuple[int, ...], int]
_CURRENT = re.compile(rb"\b(currval|lastval|setval)\b", re.IGNORECASE)
#: What they name may not have been there when they were planned, and has its own rights now.
_BY_NAME = (DdlPlan, RoutinePlan, CallPlan)


class Cached:
    """A prepared statement with everything that answering it needs, made once.

    It must not keep the catalogue that it was planned by: that one has every table, and there is
    another with each change of the schema.
    """

    __slots__ = (
        "__weakref__",
        "_allowed",
        "_catalog",
        "convert",
        "hides",
        "int_size",
        "normal",
        "oids",
        "prepared",
        "seen",
        "sharded",
        "signature",
        "size",
        "takes",
        "text",
    )

    def __init__(
        self,
        text: bytes,
        oids: tuple[int, ...],
        prepared: Prepared,
        catalog: weakref.ref[Catalog],
        sharded: dict[int, int],
    ) -> None:
        self.text, self.oids, self.prepared = text, oids, prepared
        told = prepared.param_oids or [OIDS[type_] for type_ in prepared.param_types]
        params = list(told)
        for at, declared in enumerate(oids[: len(params)]):
            if declared:
                params[at] = declared  # the client's own word stays in ParameterDescription
        columns = [(column.name, column.oid) for column in prepared.columns]
        origins = [column.origin or NO_ORIGIN for column in prepared.columns]
        self.signature = Signature(params, columns or None, origins)
        self.convert = _converter(prepared)
        self.sharded = sharded
        self.normal = normalized(text.decode(errors="replace"))
        self.size = kept_bytes(text, self.normal, prepared, self.signature)
        self.seen: Seen  # where its runs are counted: given when it comes into the cache
        self._catalog = catalog
        known = catalog()
        self.hides = frozenset[str]() if known is None else known.hides
        self.int_size = 8 if known is None else known.int_size
        self._allowed: set[int] = set()
        self.takes = known is not None and (
            _CURRENT.search(text) is not None or any(map(known.gives_numbers, prepared.tables))
        )

    def of(self, prepared: Prepared, oids: tuple[int, ...] | None = None) -> Cached:
        """Another statement that is counted as this one, of the same tables."""
        told = self.oids if oids is None else oids
        made = Cached(prepared.text.encode(), told, prepared, self._catalog, self.sharded)
        made.seen, made.hides, made.takes = self.seen, self.hides, self.takes
        return made

    def is_fresh(self, catalog: Catalog) -> bool:
        """Whether every table of the plan is as it was when it was planned."""
        if catalog is self._catalog():
            return True
        if isinstance(self.prepared.plan, _BY_NAME):
            return False
        known = catalog.versions
        if self.hides != catalog.hides:
            return False  # a name means another table in this session, or does so no more
        if self.int_size != catalog.int_size:
            return False  # INT in a cast means another type
        if any(known.get(table) != version for table, version in self.prepared.tables.items()):
            return False
        self._catalog = weakref.ref(catalog)
        self._allowed.clear()
        return True

    def check_rights(self, user: int, catalog: Catalog) -> None:
        if user in self._allowed:
            return
        self.prepared.check_rights(user, catalog)
        self._allowed.add(user)


ByValues = tuple[Cached, list[Any]]


def _converter(prepared: Prepared) -> Convert | None:
    """Stored values to Python ones, column by column; None when all are the same already."""
    if isinstance(prepared.plan, CallPlan):
        return None  # its answer was never stored
    columns = prepared.columns
    return converter([each.type for each in columns], [each.scale for each in columns])


def _understood(text: bytes, oids: tuple[int, ...], user: int, catalog: Catalog) -> Cached:
    plain = without_database(decode_string(text))
    if is_catalog_query(plain.encode()):
        prepared = prepare_catalog_query(plain, oids)
    else:
        prepared = prepare(plain, catalog, param_oids=oids, user_id=user)
    return as_cached(text, oids, prepared, catalog)


def as_cached(text: bytes, oids: tuple[int, ...], prepared: Prepared, catalog: Catalog) -> Cached:
    return Cached(text, oids, prepared, weakref.ref(catalog), catalog.sharded(prepared.tables))


class _Turn:
    """How long the loop may understand texts: many short ones are as long as a long one."""

    def __init__(self) -> None:
        self._since = self._spent = 0.0

    def is_over(self) -> bool:
        now = monotonic()
        if now - self._since >= EVERY_S:
            self._since, self._spent = now, 0.0
        return self._spent >= TURN_S

    def understood(
        self, text: bytes, oids: tuple[int, ...], user: int, catalog: Catalog
    ) -> Cached | None:
        """None: the turn ended meanwhile. A short text can join sixty tables, or name a view that
        does: its length says nothing about the work."""
        begun = monotonic()
        until = begun + TURN_S - self._spent
        try:
            with stops.working_until(lambda: monotonic() > until):
                return _understood(text, oids, user, catalog)
        except QueryCanceled:
            return None
        finally:
            self._spent += monotonic() - begun


class StatementCache:
    """Plans by text. What takes long to understand is understood on a thread."""

    def __init__(self, statistics: Statistics) -> None:
        self._statistics = statistics
        self._known: OrderedDict[tuple[bytes, tuple[int, ...], int], Cached] = OrderedDict()
        self._bytes = 0  # of all that are known
        self._literal: dict[
            bytes, weakref.ref[Catalog]
        ] = {}  # texts that need their literals, as of then
        self._pool = FairThreads(PARSERS, PARSERS_MOST, "parse")
        self._turn = _Turn()
        self.hits = 0
        self.misses = 0

    def close(self) -> None:
        self._pool.close()

    def get(self, text: bytes, oids: tuple[int, ...], user: int, catalog: Catalog) -> Cached:
        """The plan, however long it takes to make: of texts that are ours."""
        found = self.known(text, oids, user, catalog)
        return found or self._keep(_understood(text, oids, user, catalog), user, catalog)

    def known(
        self, text: bytes, oids: tuple[int, ...], user: int, catalog: Catalog
    ) -> Cached | None:
        found = self._found((text, oids, user), catalog)
        if found is not None and found.is_fresh(catalog):
            self.hits += 1
            return found
        self.misses += 1
        return None

    def _found(self, key: Key, catalog: Catalog) -> Cached | None:
        if catalog.plans is not None and (own := catalog.plans.get(key)) is not None:
            found: Cached = own
            return found
        return self._known.get(key)

    def at_once(
        self, text: bytes, oids: tuple[int, ...], user: int, catalog: Catalog
    ) -> Cached | None:
        """The plan if it is known or soon made; None: ask `later`."""
        found = self.known(text, oids, user, catalog)
        return found or self.soon_made(text, oids, user, catalog)

    def soon_made(
        self, text: bytes, oids: tuple[int, ...], user: int, catalog: Catalog
    ) -> Cached | None:
        """Of a text that is not known; None: ask `later`."""
        if len(text) > QUICK_TEXT or self._turn.is_over():
            return None
        made = self._turn.understood(text, oids, user, catalog)
        return None if made is None else self._keep(made, user, catalog)

    def by_values(self, text: bytes, user: int, catalog: Catalog) -> ByValues | None:
        """A text as one that was understood with other values, and its own values.

        None: read it as it is. So does every text that would be refused, for the words of the
        error and its place.
        """
        found = lifted(text) if len(text) <= QUICK_TEXT else None
        if found is None or is_catalog_query(text):
            return None
        as_of = self._literal.get(found.text)
        if as_of is not None and as_of() is catalog:
            return None
        cached = self._found((found.text, found.oids, user), catalog)
        if cached is None or not cached.is_fresh(catalog):
            if self._turn.is_over():
                return None
            try:
                cached = self._turn.understood(found.text, found.oids, user, catalog)
            except CairnError:
                if len(self._literal) >= MAX_STATEMENTS:
                    self._literal.clear()
                self._literal[found.text] = weakref.ref(catalog)
                return None
            if cached is None:
                return None
            cached.normal = normalized(text.decode(errors="replace"))
            self._keep(cached, user, catalog)
            self.misses += 1
        else:
            self.hits += 1
        decoders = cached.signature.shape((), ()).decoders
        try:
            values = [decode(value) for decode, value in zip(decoders, found.values, strict=True)]
        except CairnError:
            return None
        return cached, values

    async def later(
        self,
        text: bytes,
        oids: tuple[int, ...],
        user: int,
        now: Callable[[], Catalog],
        is_stopped: stops.Asked = lambda: False,
    ) -> Cached:
        """Understood on a thread; anew if the tables have changed meanwhile. `now`: as they are."""

        def work(catalog: Catalog) -> Cached:
            with stops.working_until(is_stopped):
                return _understood(text, oids, user, catalog)

        made = await self._pool.run(user, partial(work, now()))
        for _ in range(AGAIN):
            if made.is_fresh(now()):
                break
            made = await self._pool.run(user, partial(work, now()))
        return self._keep(made, user, now())

    def _keep(self, made: Cached, user: int, catalog: Catalog) -> Cached:
        made.seen = self._statistics.statement(user, made.normal, kind_of(made.prepared))
        made.seen.plans += 1
        made.seen.plan = weakref.ref(made)
        if made.size > MAX_CACHED_PLAN or made.prepared.tag in ("CREATE ROLE", "ALTER ROLE"):
            return made  # statements that carry passwords are not kept
        key = (made.text, made.oids, user)
        if made.hides or touches(made.prepared.tables):
            # Of this session alone: in another one the same names mean something else.
            if catalog.plans is not None and made.size <= MAX_OWN_PLAN:
                catalog.plans[key] = made
                while len(catalog.plans) > MAX_OWN_PLANS:
                    catalog.plans.popitem(last=False)
            return made
        if (old := self._known.pop(key, None)) is not None:
            self._bytes -= old.size
        self._known[key] = made
        self._bytes += made.size
        while len(self._known) > MAX_STATEMENTS or self._bytes > MAX_CACHED_BYTES:
            _, oldest = self._known.popitem(last=False)
            self._bytes -= oldest.size
        return made

    def forget(self) -> None:
        """Users have changed: plans may know them by their names."""
        self._known.clear()
        self._literal.clear()
        self._bytes = 0

    def replanned_at_once(self, stale: Cached, user: int, catalog: Catalog) -> Cached | None:
        """The same text against the present tables; None: ask `replanned`."""
        fresh = self.at_once(stale.text, stale.oids, user, catalog)
        return None if fresh is None else _same_shape(stale, fresh)

    async def replanned(self, stale: Cached, user: int, now: Callable[[], Catalog]) -> Cached:
        return _same_shape(stale, await self.fresh(stale, user, now))

    async def fresh(self, stale: Cached, user: int, now: Callable[[], Catalog]) -> Cached:
        """The same text, whatever it tells now."""
        found = self.at_once(stale.text, stale.oids, user, now())
        return found or await self.later(stale.text, stale.oids, user, now)


class ResultChanged(Unsupported):
    """A prepared statement tells other columns than when it was prepared."""


def _same_shape(stale: Cached, fresh: Cached) -> Cached:
    """Refused when its result has changed."""
    if (
        fresh.signature.columns != stale.signature.columns
        or fresh.signature.param_oids != stale.signature.param_oids
    ):
        # PostgreSQL's words and code: drivers know them and prepare again by themselves.
        raise ResultChanged("cached plan must not change result type")
    return fresh
