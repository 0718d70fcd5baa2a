"""Pictures of the cluster from rows, whatever the rows say; those of the catalogue are made
likewise (`catalog_rows`).

A row that cannot be understood never stops anybody: it is read as if the bad value were a harmless
one, and the picture says what is wrong (`problems`). While it does, the governor decides nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import msgspec

from cairn.model.errors import CheckViolation
from cairn.model.members.cluster import Cluster
from cairn.model.members.topology import Position
from cairn.model.tables import rows
from cairn.model.tables import system_tables as system
from cairn.model.tables.schema import Table
from cairn.model.tables.table_checks import mended

T = TypeVar("T")
Row = Sequence[Any]
Content = Callable[[Table], Iterable[Row]]

#: What a maker of `rows` raises for a value that it cannot read.
UNREADABLE = (ValueError, TypeError, LookupError, AttributeError, RecursionError)


def json_value(text: str | None) -> Any:
    return None if text is None else msgspec.json.decode(text)


#: How a row of each table is read by those who act on it.
MAKERS: dict[int, Callable[[Row], Any]] = {
    system.PICO_INSTANCE.id: rows.instance_of,
    system.PICO_REPLICASET.id: rows.replicaset_of,
    system.PICO_TIER.id: rows.tier_of,
    system.PICO_BUCKET.id: rows.bucket_of_row,
    system.CAIRN_MOVE.id: rows.move_of,
    system.PICO_PEER_ADDRESS.id: lambda row: row[1],
    system.PICO_PROPERTY.id: lambda row: json_value(row[1]),
    system.PICO_DB_CONFIG.id: lambda row: json_value(row[2]),
    system.PICO_USER.id: rows.user_of,
    system.PICO_PRIVILEGE.id: rows.privilege_of,
    system.PICO_ROUTINE.id: rows.routine_of,
    system.CAIRN_VIEW.id: rows.view_of,
    system.CAIRN_TYPE.id: rows.enum_of,
    system.PICO_TABLE.id: rows.table_of_row,
    system.PICO_INDEX.id: rows.index_of,
}


def check_readable(table: int, row: Row) -> None:
    """Refuse a row that nobody could act on. What an applied entry says is judged by this alone:
    all instances must come to the same end, so it changes only with the catalogue's version.
    """
    make = MAKERS.get(table)
    if make is None:
        return
    try:
        make(row)
    except UNREADABLE as problem:
        name = system.BY_ID[table].name
        raise CheckViolation(f"a row of {name} cannot be understood: {problem}") from None


class Reader:
    """Reads rows; what is wrong with them is gathered in `problems`."""

    def __init__(self) -> None:
        self.problems: list[str] = []

    def read(self, table: Table, row: Row, make: Callable[[Row], T]) -> T | None:
        """None only for a row that not even its description can mend."""
        try:
            return make(row)
        except UNREADABLE as problem:
            fixed, found = mended(table, row)
            self.problems += found or (f"{table.name}: a row cannot be read: {problem}",)
        try:
            return make(fixed)
        except UNREADABLE:
            return None

    def all(self, table: Table, content: Content) -> list[tuple[Row, Any]]:
        make = MAKERS[table.id]
        read = [(row, self.read(table, row, make)) for row in content(table)]
        return [(row, made) for row, made in read if made is not None]

    def by_name(self, table: Table, content: Content, at: int = 0) -> dict[str, Any]:
        return {row[at]: made for row, made in self.all(table, content)}


def readable(table: int, row: Row) -> Any:
    """One row as its picture; see the top of this file."""
    return Reader().read(system.BY_ID[table], row, MAKERS[table])


def cluster_of(content: Content, position: Position = rows.NOWHERE) -> Cluster:
    """A picture of the topology from the rows of its tables, however they are read."""
    reader = Reader()
    buckets = [bucket for _, bucket in reader.all(system.PICO_BUCKET, content)]
    properties = {
        row[0]: reader.read(system.PICO_PROPERTY, row, MAKERS[system.PICO_PROPERTY.id])
        for row in content(system.PICO_PROPERTY)
    }
    return Cluster(
        position=position,
        instances=reader.by_name(system.PICO_INSTANCE, content),
        replicasets=reader.by_name(system.PICO_REPLICASET, content),
        tiers=reader.by_name(system.PICO_TIER, content),
        addresses={(row[0], row[2]): row[1] for row in content(system.PICO_PEER_ADDRESS)},
        moves={move.id: move for _, move in reader.all(system.CAIRN_MOVE, content)},
        buckets=tuple(sorted(buckets, key=lambda bucket: (bucket.tier, bucket.start))),
        properties=properties,
        problems=tuple(reader.problems),
    )
