"""Statements of a block on the writer's connection, one after the other, inside its transaction.

All of a plan is carried out here, also what other statements do at the asker: its rows are all in
this replicaset. Each step asks the guard before it touches a bucket.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from hashlib import blake2b
from typing import Any, Protocol

import apsw
import msgspec

from cairn.model.errors import CairnError, CardinalityViolation, QueryCanceled
from cairn.model.settings import limits
from cairn.model.tables.catalog import Catalog
from cairn.model.types.values import from_physical
from cairn.node.statements.asker.short.merges import PLAIN_MERGE
from cairn.node.statements.context import ASKED
from cairn.sql import plans
from cairn.sql.plans import Prepared
from cairn.sql.render.constraints import row_query, translate
from cairn.storage.data_db.shapes import TooLongHere
from cairn.storage.files.pieces import Row
from cairn.storage.merging import Merger
from cairn.storage.raft_db.state_machine import constraint_error
from cairn.storage.readers import Cancelled, taken
from cairn.storage.sqlite_errors import translated

LOOK_EVERY = 5_000  # steps of SQLite's machine between two looks at the clock
Given = Sequence[tuple[int, Row]] | None
_encode = msgspec.msgpack.Encoder().encode


class Told(msgspec.Struct, frozen=True):
    """What a statement gave. `rows` None: it has none to give."""

    count: int
    rows: list[Row] | None = None


class Tape:
    """What functions of chance, time and place gave: the same again when they are asked again."""

    def __init__(self) -> None:
        self._values: list[Any] = []
        self._at = 0

    def begin(self, values: Sequence[Any]) -> None:
        self._values, self._at = list(values), 0

    def values(self) -> tuple[Any, ...]:
        return tuple(self._values)

    def through(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            if self._at == len(self._values):
                self._values.append(function(*args))
            self._at += 1
            return self._values[self._at - 1]

        return call


class TooLong(CairnError):
    """A block that has to run elsewhere than on the event loop."""


class Clock:
    """Ends what takes too long, or nobody wants: everybody else who writes is waiting."""

    def __init__(
        self, now: Callable[[], float], seconds: float, is_quick: bool, stopped: Cancelled
    ) -> None:
        self._now, self._until, self.is_quick = now, now() + seconds, is_quick
        self._is_stopped = stopped.is_set

    def __call__(self) -> bool:
        return self._now() > self._until or self._is_stopped()

    def problem(self) -> CairnError:
        if self._is_stopped():
            return QueryCanceled(ASKED)
        if self.is_quick:
            return TooLong("not on the event loop")
        return QueryCanceled(
            "canceling statement: the block took too long",
            hint=f"a block holds up other writes, at most {limits.BLOCK_S:g} s: "
            "let it touch fewer rows",
        )


#: Raises unless these buckets of a tier are here; None: all of the tier.
Guard = Callable[[str, frozenset[int] | None], Sequence[tuple[int, int]]]


class Store(Protocol):
    """Whose rows are changed: those of the instance, or of a session."""

    connection: apsw.Connection

    def enforce(self, *, is_rekeying: bool = False) -> None: ...

    def pending_changes(self) -> int: ...

    def count_rows(self, since: int = 0) -> int: ...


class BlockRun:
    """One run of one block's statements."""

    def __init__(
        self, store: Store, merger: Merger, guard: Guard, catalog: Catalog, clock: Clock
    ) -> None:
        self._store, self._merger, self._guard = store, merger, guard
        self._catalog, self._clock = catalog, clock
        self._connection = store.connection
        self._given: dict[
            int, tuple[int, list[Row]]
        ] = {}  # rows that parts of WITH told, by number

    def statement(self, prepared: Prepared, values: list[Any], given: Given = None) -> Told:
        """`values` with room for hidden ones; `given` are the rows of an INSERT made elsewhere.

        Foreign keys are looked at behind each statement, and behind all parts of a WITH.
        """
        told = self._part(prepared, values, given)
        self._keep_kin(is_rekeying=False)
        return told

    def _keep_kin(self, *, is_rekeying: bool) -> None:
        try:
            self._store.enforce(is_rekeying=is_rekeying)
        except apsw.ConstraintError as problem:  # of a row that another one's end changes
            verdict = translate(str(problem), self._catalog)
            raise verdict or constraint_error(problem) from None
        except Exception as problem:
            raise self._told(problem) from None

    def _part(self, prepared: Prepared, values: list[Any], given: Given = None) -> Told:
        plan = prepared.plan
        if isinstance(plan, plans.BlockPlan):
            return self._block(plan, values)
        if isinstance(plan, plans.PointRead | plans.ScatterRead):
            rows = self._read(plan, values)
            return Told(len(rows), rows)
        if isinstance(plan, plans.Returning):
            told: list[Row] = []
            inserted = self.write(plan.write, values, given, (plan, plan.clause(values), told))
            rows = plan.arranged(told, inserted)
            self._after(plan.write)
            return Told(len(rows), rows)
        assert isinstance(plan, plans.ROW_WRITES)
        before = self._store.pending_changes()
        self.write(plan, values, given, None)
        count = self._store.count_rows(before)
        self._after(plan)
        return Told(count)

    def _after(self, plan: plans.Plan) -> None:
        """Rows that got other keys are deleted and inserted: known as such here alone."""
        if isinstance(plan, plans.KeyedWrite) and plan.insert_sql is not None:
            self._keep_kin(is_rekeying=True)

    def rows(self, sql: str, args: Sequence[Any]) -> list[Row]:
        """Of a text that only reads, as whoever gave it has made sure."""
        return self._asked(self._connection, sql, args)

    def _block(self, plan: plans.BlockPlan, values: list[Any]) -> Told:
        known, now = values[: plan.params], values[plan.params]
        if plan.steps[-1:] and plan.steps[-1].kind == "tell":
            return self._with(plan.steps, known, now)
        if plan.steps[-1:] and plan.steps[-1].kind == "merge":
            return self._merge(plan.steps, known, now)
        found: list[Row] = []
        has_rows = self._steps(plan.steps, known, now, found)
        return Told(len(found), found if has_rows else None)

    def _steps(
        self, steps: Sequence[plans.BlockStep], known: list[Any], now: datetime, found: list[Row]
    ) -> bool:
        """Whether any of them gives rows. `known` grows by the values of LET."""
        has_rows = False
        for step in steps:
            prepared = step.prepared
            told = self.statement(prepared, _values(prepared, known, now))
            rows = told.rows or []
            match step.kind:
                case "return":
                    has_rows = True
                    found += rows
                case "let":
                    known += [None] * (step.number - len(known))
                    known[step.number - 1] = _value(prepared, rows)
                case "if":
                    if _value(prepared, rows):
                        self._steps(step.body, known, now, found)
        return has_rows

    def _with(self, steps: Sequence[plans.BlockStep], known: list[Any], now: datetime) -> Told:
        """Parts of WITH that write, and the statement after them."""
        *parts, last = steps
        values = _values(last.prepared, known, now)
        finish: Callable[[], Told] = partial(self._part, last.prepared, values)
        if last.reads_ahead:
            finish = self._read_ahead(last.prepared.plan, values)
        try:
            for part in parts:
                prepared = part.prepared
                told = self._part(prepared, _values(prepared, known, now))
                self._given[part.number] = (len(prepared.columns), told.rows or [])
            return finish()
        finally:
            self._given.clear()

    def _merge(self, steps: Sequence[plans.BlockStep], known: list[Any], now: datetime) -> Told:
        """MERGE: all that is read, then all that is changed."""
        count, keys = 0, set[Row]()
        try:
            for step in steps:
                prepared = step.prepared
                told = self._part(prepared, _values(prepared, known, now))
                if step.kind == "merge":
                    count += told.count
                    continue
                self._given[step.number] = (len(prepared.columns), told.rows or [])
                for row in told.rows or () if step.key_width else ():
                    if row[: step.key_width] in keys:
                        raise CardinalityViolation(
                            "MERGE command cannot affect row a second time",
                            hint="Ensure that not more than one source row matches any one target "
                            "row.",
                        )
                    keys.add(row[: step.key_width])
            return Told(count)
        finally:
            self._given.clear()

    def _read_ahead(self, plan: plans.Plan, values: list[Any]) -> Callable[[], Told]:
        """All tables are read now; what is left is to put their rows together."""
        if isinstance(plan, plans.PointRead):
            rows = self._read(plan, values)
            return lambda: Told(len(rows), rows)
        assert isinstance(plan, plans.ScatterRead)
        gathered = self._gathered(plan, values)

        def finish() -> Told:
            rows = self._merged(plan, values, gathered)
            return Told(len(rows), rows)

        return finish

    # --- reading ----------------------------------------------------------------------------------

    def _read(self, plan: plans.ReadPlan, values: list[Any]) -> list[Row]:
        if isinstance(plan, plans.PointRead):
            if plan.bucket is None:  # global tables: functions of chance are there as well
                return self._asked(self._merger.connection, plan.sql, plan.bind(values))
            self._guard(str(plan.tier), frozenset((plan.bucket(values),)))
            return self._asked(self._connection, plan.sql, plan.bind(values))
        return self._merged(plan, values, self._gathered(plan, values))

    def _gathered(self, plan: plans.ScatterRead, values: list[Any]) -> list[list[Row]]:
        self._take_steps(plan.steps, values)
        return [self._fragment(fragment, values) for fragment in plan.fragments]

    def _merged(
        self, plan: plans.ScatterRead, values: list[Any], gathered: list[list[Row]]
    ) -> list[Row]:
        if len(gathered) == 1 and PLAIN_MERGE.fullmatch(plan.sql):
            return gathered[0]
        merger = self._merger
        merger.begin(Cancelled(), 0, 0)
        merger.connection.set_progress_handler(self._clock, LOOK_EVERY)
        try:
            for fragment, rows in zip(plan.fragments, gathered, strict=True):
                merger.table(fragment.storage, rows)
            for table, columns in plan.indexes:
                merger.index(table, columns)
            for number, (width, rows) in self._given.items():
                if width:
                    merger.given(number, width, rows)
            return self._asked(merger.connection, plan.sql, plan.bind(values))
        finally:
            merger.end()

    def _take_steps(self, steps: Sequence[plans.Step], values: list[Any]) -> None:
        for step in steps:
            found = self._read(step.plan, values)
            values += [None] * (step.number - len(values))
            values[step.number - 1] = step.value(found)

    def _fragment(self, fragment: plans.Fragment, values: list[Any]) -> list[Row]:
        ranges = self._guard(fragment.tier, fragment.bucket_set(values))
        return self._asked(self._connection, *fragment.asked(values, ranges))

    def _asked(self, connection: apsw.Connection, sql: str, args: Sequence[Any]) -> list[Row]:
        try:
            return taken(connection.execute(sql, args), 0, limits.BLOCK_ANSWER_BYTES)
        except Exception as problem:
            raise self._told(problem) from None

    # --- writing ----------------------------------------------------------------------------------

    def write(
        self,
        plan: plans.RowWrite,
        values: list[Any],
        given: Given,
        back: tuple[plans.Returning, str, list[Row]] | None,
    ) -> Sequence[tuple[int, Row]]:
        """Rows that were to be inserted, in order."""
        match plan:
            case plans.PointWrite():
                args = plan.bind(values)
                self._guard(plan.tier, frozenset((plan.bucket(values),)))
                self._change(plan.sql, args, back)
            case plans.ShardedInsert() | plans.InsertSelect():
                rows = given
                if rows is None and isinstance(plan, plans.InsertSelect):
                    rows = plan.rows(self._read(plan.read, values))
                elif rows is None:
                    assert isinstance(plan, plans.ShardedInsert)
                    rows = plan.rows(values)
                self._guard(plan.tier, frozenset(bucket for bucket, _ in rows))
                for _, row in rows:
                    self._change(plan.sql, row, back)
                return rows
            case plans.ScatterWrite():
                self._take_steps(plan.steps, values)
                fragment = plan.fragment
                ranges = self._guard(fragment.tier, fragment.bucket_set(values))
                self._change(fragment.with_ranges(list(ranges)), fragment.bind(values), back)
            case plans.KeyedWrite():
                self.keyed(plan, plan.changes(self._read(plan.read, values)), back)
        return ()

    def keyed(
        self,
        plan: plans.KeyedWrite,
        changes: Sequence[plans.Change],
        back: tuple[plans.Returning, str, list[Row]] | None,
    ) -> None:
        """Delete by key, insert what comes, update what stays."""
        touched = {each.old_bucket for each in changes}
        touched |= {each.new_bucket for each in changes if each.new_bucket is not None}
        self._guard(plan.tier, frozenset(touched))
        for each in changes:
            if each.update is None:
                self._change(plan.delete_sql, (each.old_bucket, *each.key), back)
        for each in changes:
            if each.update is None and each.new is not None:
                assert plan.insert_sql is not None
                self._change(plan.insert_sql, each.new, back)
        for each in changes:
            if each.update is not None:
                assert plan.update_sql is not None
                self._change(plan.update_sql, each.update, back)

    def _change(
        self,
        sql: str,
        args: Sequence[Any],
        back: tuple[plans.Returning, str, list[Row]] | None,
    ) -> None:
        try:
            if back is not None and back[0].is_told(sql):
                back[2].extend(self._connection.execute(sql + back[1], args).fetchall())
            else:
                self._connection.execute(sql, args)
        except apsw.ConstraintError as problem:
            query = row_query(sql)
            row = None if query is None else self._connection.execute(query, args).fetchone()
            verdict = translate(str(problem), self._catalog, row)
            raise verdict or constraint_error(problem) from None
        except Exception as problem:
            raise self._told(problem) from None

    def _told(self, problem: Exception) -> CairnError:
        if isinstance(problem, CairnError):
            return problem
        if isinstance(problem, TooLongHere):
            return TooLong("a long row")
        if isinstance(problem, apsw.TooBigError) and self._clock.is_quick:
            return TooLong("a long value")
        if isinstance(problem, apsw.InterruptError):
            return self._clock.problem()
        return translated(problem)


def _values(prepared: Prepared, known: list[Any], now: datetime) -> list[Any]:
    room = len(prepared.param_types)
    return prepared.start([*known[:room], *[None] * (room - len(known))], now)


def _value(prepared: Prepared, rows: Sequence[Row]) -> Any:
    if len(rows) > 1:
        raise CardinalityViolation("more than one row returned by a query used as a value")
    return from_physical(prepared.columns[0].type, rows[0][0]) if rows else None


def digest(told: Told, is_ordered: bool) -> bytes:
    """What a client was told, in few bytes. Without ORDER BY any order of rows is the same."""
    found = blake2b(str(told.count).encode(), digest_size=16)
    packed = map(_encode, told.rows or ())
    for row in packed if is_ordered else sorted(packed):
        found.update(len(row).to_bytes(4, "big"))
        found.update(row)
    return found.digest()


def is_ordered(prepared: Prepared) -> bool:
    return bool(getattr(prepared.bound, "order", ()))
