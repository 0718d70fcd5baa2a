"""Temporary tables on top of the catalogue that everybody sees: what one session means by names."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from cairn.model.errors import LimitExceeded
from cairn.model.tables.catalog import Catalog
from cairn.model.tables.schema import FIRST_TEMP_ID, TEMP_IDS, Index, Table
from cairn.model.types.enums import EnumType

MOST = 1_000  # temporary tables of one session

Tables = Mapping[str, Table]
Indexes = Mapping[int, tuple[Index, ...]]


def touches(tables: Iterable[int]) -> bool:
    """Whether temporary tables are among those that a plan was made of."""
    return any(FIRST_TEMP_ID <= table < FIRST_TEMP_ID + TEMP_IDS for table in tables)


def with_temps(
    base: Catalog, tables: Tables, indexes: Indexes, plans: Any, session: int
) -> Catalog:
    """As the session sees it: its own tables come first (pg_temp is searched before public)."""
    types = {each.id: each for each in base.types.values()}
    tables = {name: _with_types(table, types) for name, table in tables.items()}
    return msgspec.structs.replace(
        base,
        tables={**base.tables, **tables},
        views={name: view for name, view in base.views.items() if name not in tables},
        indexes={**indexes, **base.indexes},
        beneath=base,
        temps=dict(tables),
        hides=frozenset(name for name in tables if name in base.tables or name in base.views),
        plans=plans,
        session=session,
    )


def _with_types(table: Table, types: Mapping[int, EnumType]) -> Table:
    """With its enums as they are now. One that is gone left its labels, which are texts."""
    if all(column.enum is None for column in table.columns):
        return table
    columns = tuple(
        column
        if column.enum is None
        else msgspec.structs.replace(column, enum=types.get(column.enum.id))
        for column in table.columns
    )
    return msgspec.structs.replace(table, columns=columns)


def only_temps(catalog: Catalog) -> Catalog:
    """For what makes tables and indexes: names that others have are free in pg_temp."""
    return msgspec.structs.replace(
        catalog,
        tables=dict(catalog.temps),
        views={},
        indexes={id_: each for id_, each in catalog.indexes.items() if touches((id_,))},
    )


class TempIds:
    """Numbers of the temporary tables of an instance: no two that live have the same one, and no
    version comes twice, so that an old plan never meets another table."""

    def __init__(self) -> None:
        self._next = itertools.count(1)
        self._live: set[int] = set()

    def take(self) -> tuple[int, int]:
        """(id, schema version)."""
        if len(self._live) >= TEMP_IDS // 2:
            raise LimitExceeded("this instance has too many temporary tables", sqlstate="53400")
        while True:
            version = next(self._next)
            found = FIRST_TEMP_ID + version % TEMP_IDS
            if found not in self._live:
                self._live.add(found)
                return found, version

    def version(self) -> int:
        """Of a table that was changed."""
        return next(self._next)

    def give_back(self, ids: Iterable[int]) -> None:
        self._live.difference_update(ids)
