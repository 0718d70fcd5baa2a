"""The table that a COPY fills: a schema change waits for the rows at hand, not for the end.

A COPY may last for hours, and is stored chunk by chunk anyway. So it counts as a write under way
(`node/statements/changes/under_way.py`) only while it holds rows for the table as it is. When a
change is prepared, it stores these, lets go, waits until the change is over, and goes on with the
new table, by the columns that it was begun with.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from dataclasses import replace

from cairn.model.errors import UndefinedTable
from cairn.model.quoting import identifier
from cairn.server.caller import Caller
from cairn.server.statements import Cached
from cairn.sql import plans


class CopyPlace:
    """`plan` is for the table as it is, as long as `is_wanted` says no.

    `nudge` is called when a change waits for the rows at hand.
    """

    def __init__(self, caller: Caller, nudge: Callable[[], None]) -> None:
        self._caller, self._nudge = caller, nudge
        self._owners = caller.executor.reads.owners
        self._under_way = ExitStack()
        self.plan: plans.CopyPlan

    async def begin(self, planned: Callable[[], Awaitable[Cached]]) -> None:
        """When nobody changes the table; from then on changes wait for us."""

        async def attempt() -> None:
            self._enter(await planned())

        await self._owners.following(attempt, self._caller.context)

    def is_wanted(self) -> bool:
        """Whether somebody waits to change the table, or has not waited."""
        table = self.plan.table
        assert table is not None
        known = self._caller.catalog.table_by_id(table.id)
        return known is not table and (
            known is None or not known.operable or known.schema_version != table.schema_version
        )

    async def give_way(self) -> None:
        """Returns when the table may be written again, whatever it is called by then."""
        self.leave()
        options = self.plan.options

        async def attempt() -> None:
            self._enter(self._caller.allowed(self._anew()))

        await self._owners.following(attempt, self._caller.context)
        self.plan = replace(self.plan, options=options)

    def leave(self) -> None:
        self._under_way.close()

    def _enter(self, found: Cached) -> None:
        plan = found.prepared.plan
        assert isinstance(plan, plans.CopyPlan) and plan.table is not None
        if not plan.table.is_system:
            self._owners.check_operable(plan.table)
        self._under_way.enter_context(self._owners.under_way.write(plan.table.id, self._nudge))
        self.plan = plan

    def _anew(self) -> str:
        """The same columns of the same table, as a statement of now."""
        table = self.plan.table
        assert table is not None
        known = self._caller.catalog.table_by_id(table.id)
        if known is None:
            raise UndefinedTable(f'table "{table.name}" was dropped while rows were copied into it')
        names = ", ".join(map(identifier, self.plan.columns))
        return f"COPY {identifier(known.name)} ({names}) FROM STDIN"
