"""The catalogue as its rows say, each of them read once.

There may be thousands of tables, and every change of the schema is two entries of the log. When
all rows were read for each of them, CREATE TABLE took a second of every instance. So what was made
of a row is kept until that row changes; a `Catalog` is put together anew from parts that are there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from cairn.model.log.applied import Change
from cairn.model.tables import system_tables as system
from cairn.model.tables.catalog import Catalog
from cairn.model.tables.pictures import MAKERS, Content, Reader
from cairn.model.tables.schema import Index, Table
from cairn.model.types.enums import EnumType

_TABLE, _INDEX, _TYPE = system.PICO_TABLE.id, system.PICO_INDEX.id, system.CAIRN_TYPE.id
_SETTING = system.PICO_DB_CONFIG.id

#: What a catalogue is made of.
OF_CATALOGUE = {
    table.id: table
    for table in (
        system.PICO_TABLE,
        system.PICO_INDEX,
        system.PICO_TIER,
        system.PICO_USER,
        system.PICO_PRIVILEGE,
        system.PICO_DB_CONFIG,
        system.PICO_ROUTINE,
        system.CAIRN_VIEW,
        system.CAIRN_TYPE,
    )
}
_KEYS = {table.id: table.key_positions for table in OF_CATALOGUE.values()}

Key = tuple[Any, ...]
Row = Sequence[Any]


def _key(table: Table, row: Row | None) -> Key:
    return () if row is None else tuple(row[at] for at in _KEYS[table.id])


class CatalogRows:
    """`tables` is by id and has everything but what each instance has for itself; `key_positions`
    is by id, too, and changed in place."""

    def __init__(self, content: Content) -> None:
        self._made: dict[int, dict[Key, Any]] = {table: {} for table in OF_CATALOGUE}
        self._problems: dict[tuple[int, Key], list[str]] = {}
        self._indexes: dict[int, dict[int, Index]] = {}  # by table and index, 0: the primary key
        self._secondary: dict[int, tuple[Index, ...]] = {}
        self.tables: dict[int, Table] = {}
        self.key_positions = {table.id: table.key_positions for table in system.SYSTEM_TABLES}
        for table in OF_CATALOGUE.values():
            for row in content(table):
                self._put(table, row)
        self._complete({*(key[0] for key in self._made[_TABLE]), *self._indexes})

    def follow(self, changes: Iterable[Change]) -> bool:
        """Take over what entries changed. False: nothing of it is about the catalogue."""
        touched, incomplete = set[int](), set[int]()
        for change in changes:
            table = OF_CATALOGUE.get(change.table)
            if table is None:
                continue
            touched.add(table.id)
            if table.id in (_TABLE, _INDEX):
                incomplete.update(row[0] for row in (change.old, change.new) if row is not None)
            was, now = _key(table, change.old), _key(table, change.new)
            if change.old is not None and was != now:
                self._remove(table, change.old)
            if change.new is not None:
                last = next(reversed(self._made[table.id]), ())
                self._put(table, change.new)
                if next(reversed(self._made[table.id]), ()) < last:  # in order, as in a file
                    self._made[table.id] = dict(sorted(self._made[table.id].items()))
        if _TYPE in touched:  # any column may be of it
            incomplete.update(self.tables)
        self._complete(incomplete)
        return bool(touched)

    def _remove(self, table: Table, row: Row) -> None:
        key = _key(table, row)
        self._made[table.id].pop(key, None)
        self._problems.pop((table.id, key), None)
        if table.id == _INDEX:
            self._indexes.get(row[0], {}).pop(row[1], None)

    def _put(self, table: Table, row: Row) -> None:
        reader, key = Reader(), _key(table, row)
        made = reader.read(table, row, MAKERS[table.id])
        if made is None and table.id != _SETTING:  # a setting may be null
            self._remove(table, row)
        else:
            self._made[table.id][key] = made
            if isinstance(made, Index):
                self._indexes.setdefault(row[0], {})[row[1]] = made
        self._problems.pop((table.id, key), None)
        if reader.problems:
            self._problems[table.id, key] = reader.problems

    def _complete(self, tables: Iterable[int]) -> None:
        """What other rows say of these tables: keys, indexes, labels of enums."""
        labels = {each.id: each for each in self._made[_TYPE].values()}
        for table_id in tables:
            indexes = self._indexes.get(table_id, {})
            others = tuple(index for at, index in sorted(indexes.items()) if at != 0)
            _keep(self._secondary, table_id, others or None)
            table = self._made[_TABLE].get((table_id,))
            if table is not None:
                key = indexes[0].columns if 0 in indexes else ()
                table = with_labels(msgspec.structs.replace(table, primary_key=key), labels)
            _keep(self.tables, table_id, table)
            known = table or system.BY_ID.get(table_id)
            _keep(self.key_positions, table_id, None if known is None else known.key_positions)

    def indexes_of(self, table: int) -> list[Index]:
        """In the order of their ids, the primary key first."""
        return [index for _, index in sorted(self._indexes.get(table, {}).items())]

    def catalog(self, version: int) -> Catalog:
        made, secondary = self._made, self._secondary.get
        tables = [self.tables[key[0]] for key in made[_TABLE]]
        return Catalog(
            version=version,
            tables=_by_name([*tables, *system.LOCAL_TABLES]),
            indexes={key[0]: found for key in made[_TABLE] if (found := secondary(key[0]))},
            tiers=_by_name(made[system.PICO_TIER.id].values()),
            users=_by_name(made[system.PICO_USER.id].values()),
            routines=_by_name(made[system.PICO_ROUTINE.id].values()),
            views=_by_name(made[system.CAIRN_VIEW.id].values()),
            types=_by_name(made[_TYPE].values()),
            privileges=frozenset(made[system.PICO_PRIVILEGE.id].values()),
            settings=dict(made[_SETTING]),
            problems=tuple(each for _, found in sorted(self._problems.items()) for each in found),
        )


def catalog_of(content: Content, version: int) -> Catalog:
    """A picture of the schema, users and settings from the rows of their tables."""
    return CatalogRows(content).catalog(version)


def _by_name(all_of_them: Iterable[Any]) -> dict[str, Any]:
    return {each.name: each for each in all_of_them}


def _keep(known: dict[int, Any], key: int, value: Any) -> None:
    if value is None:
        known.pop(key, None)
    else:
        known[key] = value


def with_labels(table: Table, labels: Mapping[int, EnumType]) -> Table:
    """The table with the labels of its columns; its own row has only numbers of types."""
    if not any(column.enum for column in table.columns):
        return table
    columns = tuple(
        msgspec.structs.replace(column, enum=labels.get(column.enum.id, column.enum))
        if column.enum is not None
        else column
        for column in table.columns
    )
    return msgspec.structs.replace(table, columns=columns)
