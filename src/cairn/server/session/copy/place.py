"""The table that a COPY fills: a schema change waits for the rows at hand, not for the end.

A COPY may last for hours, and is stored chunk by chunk anyway. So it counts as a write under way
(`node/statements/changes/under_way.py`) only while it holds rows for the table as it is. When a
change is prepared, it stores these, lets go, waits until the change is over, and goes on with the
new table, by the columns that it was begun with: they keep their places, not their names.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

from cairn.model.errors import UndefinedColumn, UndefinedTable
from cairn.model.quoting import identifier
from cairn.server.statements import Cached
from cairn.sql import plans

if TYPE_CHECKING:
    from cairn.server.session.session import Session


class CopyPlace:
    """`plan` is for the table as it is, as long as `is_wanted` says no."""

    def __init__(self, session: Session, cached: Cached) -> None:
        self._session, self._cached = session, cached
        self._owners = session.face.executor.reads.owners
        self._under_way = ExitStack()
        self.plan: plans.CopyPlan

    async def begin(self) -> None:
        """When nobody changes the table; from then on changes wait for us."""
        running = self._session.running

        async def attempt() -> None:
            found = await running.understood(self._cached.text)
            if found is not self._cached:
                running.check(found)
            self._enter(found)

        await self._owners.following(attempt, running.context())

    @property
    def is_temp(self) -> bool:
        return self.plan.table is not None and self.plan.table.is_temp

    def is_wanted(self) -> bool:
        """Whether somebody waits to change the table, or has not waited."""
        table = self.plan.table
        assert table is not None
        if table.is_temp:
            return False  # nobody else can
        known = self._session.face.catalog.table_by_id(table.id)
        return known is not table and (
            known is None or not known.operable or known.schema_version != table.schema_version
        )

    async def give_way(self) -> None:
        """Returns when the table may be written again, whatever it is called by then."""
        self.leave()
        running, options = self._session.running, self.plan.options

        async def attempt() -> None:
            found = await running.understood(self._anew())
            context = running.context()
            found.check_rights(context.user_id, self._session.face.catalog)
            self._enter(found)
            self.plan = replace(self.plan, options=options)

        await self._owners.following(attempt, running.context())

    def leave(self) -> None:
        self._under_way.close()

    def _enter(self, found: Cached) -> None:
        plan = found.prepared.plan
        assert isinstance(plan, plans.CopyPlan) and plan.table is not None
        if not plan.table.is_system and not plan.table.is_temp:
            self._owners.check_operable(plan.table)
        if not plan.table.is_temp:
            self._under_way.enter_context(self._owners.under_way.write(plan.table.id, self._nudge))
        self.plan = plan

    def _nudge(self) -> None:
        if self._session.copy_in is not None:
            self._session.copy_in.wake.set()

    def _anew(self) -> bytes:
        """The same columns of the same table, as a statement of now."""
        table = self.plan.table
        assert table is not None
        known = self._session.face.catalog.table_by_id(table.id)
        if known is None:
            raise UndefinedTable(f'table "{table.name}" was dropped while rows were copied into it')
        places = [table.position(name) for name in self.plan.columns]
        for place in places:
            if known.columns[place].is_dropped:
                raise UndefinedColumn(f'column "{table.columns[place].name}" was dropped')
        names = ", ".join(identifier(known.columns[place].name) for place in places)
        return f"COPY {identifier(known.name)} ({names}) FROM STDIN".encode()
