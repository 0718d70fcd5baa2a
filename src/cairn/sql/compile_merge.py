"""MERGE as a block: every WHEN is a query of the rows that it is for, and a change made of them.

All queries come first, so that each sees the tables as they were. Rows of the target that two
source rows would change are found between (`21000`). It is one transaction at the one owner of all
rows, like WITH whose parts write; what needs several replicasets is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cairn.model.errors import CairnError, SyntaxProblem, Unsupported
from cairn.model.quoting import identifier
from cairn.model.tables.catalog import Catalog
from cairn.model.tables.schema import Column, Table
from cairn.model.types.values import TYPE_OF_OID
from cairn.sql.bind.scope import GivenRows, no_column
from cairn.sql.compile_block import Planning, planned_twice
from cairn.sql.functions.function_list import KEPT_FIRST, told_anew
from cairn.sql.parse.lexer import Token, tokens
from cairn.sql.plans import BlockPlan, BlockStep, GlobalWrite, Prepared
from cairn.sql.statements.merge import Merge, When
from cairn.sql.typing_rules import POSTGRES_NAMES


def prepare_merge(
    merge: Merge,
    found: Sequence[Token],
    text: str,
    catalog: Catalog,
    param_oids: Sequence[int],
    user_name: str,
) -> Prepared:
    table = catalog.table(merge.target)
    if table is None or table.is_global:
        _refuse(merge, table, catalog)
    assert table is not None
    last = max([len(param_oids), *(int(w.value) for w in found if w.kind == "param")])
    types = {at: TYPE_OF_OID[oid] for at, oid in enumerate(param_oids, 1) if oid in TYPE_OF_OID}
    planning, steps, asked = planned_twice(
        lambda known: Planning(catalog, user_name, text, last, known),
        lambda begun: _Steps(merge, table, begun).all(),
        types,
        last,
    )
    return Prepared(
        text,
        "MERGE",
        BlockPlan(steps, last),
        asked,
        (),
        planning.tables,
        tuple(planning.rights),
        tier=None if table.sharding is None else table.sharding.tier,
        hidden=1,
        uses_now=True,
    )


def _refuse(merge: Merge, table: Table | None, catalog: Catalog) -> None:
    if table is not None:
        raise Unsupported(
            f"MERGE into global table {table.name} is not supported",
            hint="use INSERT … ON CONFLICT (key) DO UPDATE",
        )
    if merge.target in catalog.views:
        raise CairnError(f'cannot execute MERGE on relation "{merge.target}"', sqlstate="42809")
    raise CairnError(f'relation "{merge.target}" does not exist', sqlstate="42P01")


class _Steps:
    """The statements of one MERGE. `m1`, `m2` … are the rows that each WHEN is for."""

    def __init__(self, merge: Merge, table: Table, planning: Planning) -> None:
        self._merge, self._table, self._planning = merge, table, planning
        self._target = f"{identifier(merge.target)} AS {identifier(merge.alias)}"
        self._key = [identifier(name) for name in table.primary_key]

    def all(self) -> Iterator[BlockStep]:
        changes: list[tuple[int, When]] = []
        self._check_the_same_for_all()
        for number, when in enumerate(self._merge.whens, 1):
            if when.action == "nothing":
                self._compiled(self._query(number, when, []))  # refused when it makes no sense
                continue
            yield self._read(number, when)
            changes.append((number, when))
        for number, when in changes:
            prepared = self._compiled(self._change(number, when))
            if isinstance(prepared.plan, GlobalWrite):
                raise Unsupported("MERGE into a global table is not supported")
            yield BlockStep("merge", prepared, number)
        if not changes:
            yield BlockStep("merge", self._compiled("SELECT 1 WHERE false"))

    def _check_the_same_for_all(self) -> None:
        """Each WHEN asks for its rows itself."""
        whens = self._merge.whens
        for number, when in enumerate(whens, 1) if len(whens) > 1 else ():
            if told_anew(self._compiled(self._query(number, when, [])).bound):
                raise Unsupported(
                    "MERGE with several WHEN whose rows or conditions are other ones each time "
                    "they are asked for",
                    hint=KEPT_FIRST,
                )

    def _compiled(self, text: str) -> Prepared:
        words = tokens(text)
        try:
            return self._planning.compiled(words, text, words)
        except CairnError as error:
            error.position = None  # of a text that nobody has written
            raise

    # --- the rows of a WHEN ---

    def _read(self, number: int, when: When) -> BlockStep:
        given = [
            f"CAST({value} AS {_type_of(column)}) AS x{at}"
            for at, (column, value) in enumerate(self._given(when))
        ]
        if when.is_matched:
            alias = identifier(self._merge.alias)
            keys = [f"{alias}.{name} AS k{at}" for at, name in enumerate(self._key)]
            prepared = self._compiled(self._query(number, when, [*keys, *given]))
            width = len(keys)
        else:
            prepared = self._compiled(self._query(number, when, given or ["1 AS x0"]))
            width = 0
        columns = prepared.columns
        self._planning.given[f"m{number}"] = GivenRows(
            number,
            [each.name for each in columns],
            [each.type for each in columns],
            [each.known for each in columns],
        )
        return BlockStep("with", prepared, number, key_width=width)

    def _query(self, number: int, when: When, items: list[str]) -> str:
        """What a WHEN is for: its condition, and none of those before it."""
        earlier = [
            each
            for each in self._merge.whens[: number - 1]
            if each.is_matched is when.is_matched and each.condition
        ]
        holds = [f"(({each.condition}) IS NOT TRUE)" for each in earlier]
        holds += [f"({when.condition})"] if when.condition else []
        shown = ", ".join(items) or "1"
        if when.is_matched:
            where = " AND ".join(holds) or "true"
            return (
                f"{self._merge.before} SELECT {shown} FROM {self._target} "
                f"JOIN {self._merge.source} ON {self._merge.on} WHERE {where}"
            )
        lacks = f"NOT EXISTS (SELECT 1 FROM {self._target} WHERE {self._merge.on})"
        query = f"SELECT {shown} FROM {self._merge.source} WHERE {' AND '.join([lacks, *holds])}"
        return f"{self._merge.before} {query}"

    def _given(self, when: When) -> list[tuple[Column, str]]:
        """Columns and what they get, but for those that get their DEFAULT."""
        pairs = zip(self._columns(when), when.values, strict=True)
        return [(column, value) for column, value in pairs if value.upper() != "DEFAULT"]

    def _columns(self, when: When) -> list[Column]:
        table = self._table
        if when.is_default or when.action == "delete":
            return []
        if when.columns is None:
            if len(when.values) > len(table.shown_columns):
                raise SyntaxProblem("INSERT has more expressions than target columns")
            return list(table.shown_columns[: len(when.values)])
        found: list[Column] = []
        for name in when.columns:
            column = table.column(name)
            if column is None or column.is_hidden:
                raise no_column(name, [each.name for each in table.shown_columns], None, table)
            found.append(column)
        if len(found) != len(when.values):
            more = "expressions" if len(found) < len(when.values) else "target columns"
            less = "target columns" if len(found) < len(when.values) else "expressions"
            raise SyntaxProblem(f"INSERT has more {more} than {less}")
        return found

    # --- what is done with them ---

    def _change(self, number: int, when: When) -> str:
        rows, alias = f"m{number}", identifier(self._merge.alias)
        if when.action == "insert":
            given = self._given(when)
            target = identifier(self._merge.target)
            if not given:
                raise Unsupported(
                    "INSERT of nothing but defaults in MERGE is not supported",
                    hint="give at least one column a value",
                )
            names = ", ".join(identifier(column.name) for column, _ in given)
            values = ", ".join(f"x{at}" for at in range(len(given)))
            return f"INSERT INTO {target} ({names}) SELECT {values} FROM {rows}"
        same = " AND ".join(f"{alias}.{name} = {rows}.k{at}" for at, name in enumerate(self._key))
        if when.action == "delete":
            return f"DELETE FROM {self._target} USING {rows} WHERE {same}"
        sets, at = [], 0
        for column, value in zip(self._columns(when), when.values, strict=True):
            if value.upper() == "DEFAULT":
                sets.append(f"{identifier(column.name)} = DEFAULT")
            else:
                sets.append(f"{identifier(column.name)} = {rows}.x{at}")
                at += 1
        return f"UPDATE {self._target} SET {', '.join(sets)} FROM {rows} WHERE {same}"


def _type_of(column: Column) -> str:
    if column.enum is not None:
        return identifier(column.enum.name)
    return POSTGRES_NAMES[column.type]
