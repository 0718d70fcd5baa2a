"""Columns that come and go under the rows of others: their defaults, and the NULLs in them.

A column `d…` was added with a DEFAULT and nobody writes it: every row has that value, wherever it
was when the column came. A column `m…` has one too, and clients write NULL and the value into it,
while NOT NULL is set and dropped: a row must never be NULL where the catalogue says NOT NULL.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

import apsw
import msgspec

from cairn.model.errors import CairnError
from cairn.model.tables.schema import (
    BUCKET_COLUMN,
    Column,
    Index,
    Table,
    missing_value,
    physical_column,
)
from cairn.node.statements.context import Context
from cairn.sim.cluster.checks import Violation
from cairn.sim.cluster.loads.heard import heard
from cairn.sim.cluster.loads.load import TABLE, Load
from cairn.sim.cluster.loads.registers import PATIENCE_S, Group, table_at
from cairn.sim.cluster.node import SimNode
from cairn.sql import plans

PAUSE_S = 0.15
_decode_shape = msgspec.msgpack.Decoder(tuple[Table, tuple[Index, ...]]).decode
UNWRITTEN, WRITTEN = "d", "m"  # how names of such columns begin


def is_of(kind: str, column: Column) -> bool:
    return column.name.startswith(kind) and bool(column.missing) and not column.is_dropped


class Marks:
    def __init__(
        self, load: Load, drawn: random.Random, groups: list[Group], may: Callable[[SimNode], bool]
    ) -> None:
        self._load, self._world, self._drawn = load, load.world, drawn
        self._groups, self._may = groups, may
        self.is_strict = True
        self.done = self.refused = self.looks = 0

    async def run(self, seconds: float) -> None:
        until = self._world.loop.time() + seconds
        while self._world.loop.time() < until:
            await asyncio.sleep(self._drawn.uniform(0.5, 1.5) * PAUSE_S)
            nodes = [node for node in self._world.running() if node.instance is not None]
            if nodes:
                await self._mark(self._drawn.choice(nodes), self._drawn.choice(self._groups))
            for node in self._load.masters() if self.is_strict else ():
                self._look(node)

    def _look(self, node: SimNode) -> None:
        """While it happens, since rows are written anew: where a master's own file says NOT NULL,
        no row of its buckets is NULL."""
        assert node.instance is not None
        owned = node.instance.data.fence.owned
        data = apsw.Connection(str(node.dir / "data.db"), flags=apsw.SQLITE_OPEN_READONLY)
        try:
            data.execute("BEGIN")
            for at, column in _required(data):
                for span in owned:
                    self.looks += 1
                    text = (
                        f"SELECT * FROM {TABLE.physical_name} WHERE {BUCKET_COLUMN} BETWEEN ? "
                        f"AND ? AND {physical_column(at)} IS NULL LIMIT 1"
                    )
                    wrong = data.execute(text, span).fetchone()
                    if wrong is not None:
                        raise Violation(f"{node} has {wrong}, and {column.name} is not null")
        except apsw.IOError:
            return  # a page has rotted: others look for that
        finally:
            data.close()

    async def _mark(self, node: SimNode, group: Group) -> None:
        table = table_at(node)
        is_null = self._drawn.random() < 0.3
        if table is None or not self._may(node):
            return
        found = [at for at, column in enumerate(table.columns) if is_of(WRITTEN, column)]
        if not found:
            return
        at = found[-1]
        value = None if is_null else missing_value(table.columns[at])
        text = (
            f"UPDATE {TABLE.physical_name} SET {physical_column(at)} = ?4 "
            "WHERE bucket_id = ?1 AND c0 BETWEEN ?2 AND ?3"
        )
        plan = plans.PointWrite(text, tuple, lambda row: row[0], "default", table)
        params: tuple[Any, ...] = (group.bucket, group.first, group.last, value)
        writes = self._load.ways(node).writes
        task = await heard(
            self._world, node, lambda: writes.run(plan, params, {}, Context()), PATIENCE_S
        )
        if task is None or task.cancelled():
            return
        problem = task.exception()
        if problem is not None and not isinstance(problem, CairnError):
            raise problem
        self.done, self.refused = self.done + (not problem), self.refused + bool(problem)

    # --- the end ----------------------------------------------------------------------------------

    def check(self) -> None:
        """After calm. What is lost with a master may have been what made a NOT NULL true."""
        for node in self._world.running():
            table = table_at(node)
            assert table is not None
            for at, column in enumerate(table.columns):
                if is_of(UNWRITTEN, column):
                    self._none(node, f"{physical_column(at)} IS NOT {column.missing}", column)
                if self.is_strict and not column.nullable:
                    self._none(node, f"{physical_column(at)} IS NULL", column)

    def _none(self, node: SimNode, condition: str, column: Column) -> None:
        connection = apsw.Connection(str(node.dir / "data.db"), flags=apsw.SQLITE_OPEN_READONLY)
        try:
            text = f"SELECT * FROM {TABLE.physical_name} WHERE {condition} LIMIT 1"
            row = connection.execute(text).fetchone()
        finally:
            connection.close()
        if row is not None:
            raise Violation(f"{node} has {row}, and the column {column.name} is {column}")


def _required(data: apsw.Connection) -> list[tuple[int, Column]]:
    """Columns that clients write and that must not be NULL, as the file says."""
    query = "SELECT body FROM local_table WHERE id = ?"
    row: Any = data.execute(query, (TABLE.id,)).fetchone()
    columns = () if row is None else _decode_shape(row[0])[0].columns
    return [
        (at, column)
        for at, column in enumerate(columns)
        if not column.nullable and is_of(WRITTEN, column)
    ]
