"""An index that is filled while everybody writes: nobody reads it before it is whole.

SQLite makes an index in one transaction, and has one writer: of a large table that would hold up
all writes of this instance for minutes. So an empty index is made first, which SQLite itself keeps
up to date from then on, and the entries of older rows are added some at a time.

Invariant: an entry of the hidden index is always that of a row, and once all rows that were there
at the beginning have been added, it has an entry for each row.

1. `begin`: the empty index. Its condition is true for every row and follows from no question, so
   SQLite never reads it, not even to count rows.
2. A row that is written gets its entry by that. One that goes may have none yet: SQLite takes that
   for damage, unless `writable_schema` is on, as it is as long as an index is hidden (`rest`).
3. `add`: for some rows. For one transaction the index belongs to a small table of copies of these
   rows, and adding them there adds their entries. An entry that is there already stays.
4. `show`: it gets its name and loses the condition, inside the transaction of the schema change.

An index of an expression is filled another way. SQLite looks for an entry that is missing in the
whole of such an index (the expression may have given another value before), so a statement over
many rows would never end. No entry is missing of it: its condition also says up to which key rows
are in it, and `add_next` goes on from there, in the order of the rows. More pages are written.

Its entries are what `CREATE INDEX` would have made: the columns have the same types, and the same
key follows them. A crash leaves a hidden index that is not whole: `forget_left` at the next start.
"""

from __future__ import annotations

from typing import Any

import apsw

from cairn.model.log.packed_rows import Buffer, split_head, unpacked
from cairn.model.tables.schema import (
    BUCKET_COLUMN,
    Index,
    Table,
    create_index_sql,
    index_parts,
    physical_column,
)
from cairn.model.types.values import SQLITE_TYPES
from cairn.storage.files.reshaping import writable_schema

_ALL_ROWS = f"{BUCKET_COLUMN} IS NOT 'hidden'"  # a number never is


def hidden_name(table_id: int) -> str:
    return f"x{table_id}"


def _rows_name(table_id: int) -> str:
    return f"x{table_id}_rows"


def places_of(table: Table, index: Index) -> list[int]:
    """Columns that a row needs to have its entry made: its key, and what the index looks at."""
    keys = list(table.key_positions)
    asked = {*map(table.position, index.columns), *index.all_places}
    return keys + sorted(asked.difference(keys))


def _key_of(table: Table) -> list[str]:
    return [BUCKET_COLUMN, *map(physical_column, table.key_positions)]


def _text(name: str, owner: str, table: Table, index: Index, *also: str) -> str:
    parts = ", ".join(index_parts(table, index))
    rule = " AND ".join(f"({each})" for each in (index.rule, *also) if each)
    return f"CREATE INDEX {name} ON {owner} ({parts})" + (f" WHERE {rule}" if rule else "")


def _kind(table: Table, index: Index) -> str:
    """What two indexes have in common, whatever their names are."""
    return _text("", "", table, index) + str(index.unique)


class HiddenIndexes:
    """Of `data.db`; on the writer. One for a table at a time: `node/rows/upkeep/filling.py`."""

    def __init__(self, connection: apsw.Connection, *, takes_packed: bool) -> None:
        self._connection, self._takes_packed = connection, takes_packed
        self.whole: dict[int, str] = {}  # table → what its hidden index is, once it has all rows
        self._upto: dict[int, str] = {}  # table → key of the last row that is in it; none: all are

    def begin(self, table: Table, index: Index) -> None:
        self.drop(table.id)
        name, rows = hidden_name(table.id), _rows_name(table.id)
        columns = [
            f"{BUCKET_COLUMN} INTEGER NOT NULL",
            *(
                f"{physical_column(at)} {SQLITE_TYPES[table.columns[at].type]}"
                for at in places_of(table, index)
            ),
        ]
        key = ", ".join(_key_of(table))
        self._connection.execute(
            f"CREATE TABLE {rows} ({', '.join(columns)}, PRIMARY KEY ({key})) STRICT, WITHOUT ROWID"
        )
        self._connection.execute(_text(name, rows, table, index))
        if index.computed:
            self._upto[table.id] = f"({', '.join(('-1', *('NULL' for _ in table.key_positions)))})"
        self._hide(table, index)
        if not index.computed:
            self._connection.execute("PRAGMA writable_schema = ON")

    def _hide(self, table: Table, index: Index) -> None:
        name, owner, also = hidden_name(table.id), table.physical_name, [_ALL_ROWS]
        if (upto := self._upto.get(table.id)) is not None:
            also.append(f"({', '.join(_key_of(table))}) <= {upto}")
        self._give(name, name, owner, _text(name, owner, table, index, *also))

    def add(self, table: Table, index: Index, packed: Buffer) -> bool:
        """Entries for the rows with these keys, those that are still there. False: the index is
        not, as its table was dropped or made anew."""
        name, rows = hidden_name(table.id), _rows_name(table.id)
        if not self.has(table.id):
            return False
        self._give(name, name, rows, _text(name, rows, table, index))
        self._copy(table, index, packed)
        self._hide(table, index)
        self._connection.execute(f"DELETE FROM {rows}")
        return True

    def add_next(self, table: Table, index: Index, most: int) -> int | None:
        """Entries for the next rows of the table; how many these are, 0: all have theirs. None: the
        index is not, as its table was dropped or made anew."""
        name, rows = hidden_name(table.id), _rows_name(table.id)
        if not self.has(table.id):
            return None
        self._give(name, name, rows, _text(name, rows, table, index))
        key = ", ".join(_key_of(table))
        shown = ", ".join((BUCKET_COLUMN, *map(physical_column, places_of(table, index))))
        execute = self._connection.execute
        execute(
            f"INSERT INTO {rows} SELECT {shown} FROM {table.physical_name} "
            f"WHERE ({key}) > {self._upto[table.id]} ORDER BY {key} LIMIT ?",
            (most,),
        )
        count = self._connection.changes()
        latest = ", ".join(f"{each} DESC" for each in _key_of(table))
        last: Any = execute(f"SELECT {key} FROM {rows} ORDER BY {latest} LIMIT 1").fetchone()
        if last is None:
            del self._upto[table.id]
        else:
            self._upto[table.id] = f"({', '.join(map(apsw.format_sql_value, last))})"
        self._hide(table, index)
        execute(f"DELETE FROM {rows}")
        return count

    def _copy(self, table: Table, index: Index, packed: Buffer) -> None:
        shown = ", ".join(f"t.{physical_column(at)}" for at in places_of(table, index))
        key = _key_of(table)
        text = f"INSERT INTO {_rows_name(table.id)} SELECT t.{BUCKET_COLUMN}, {shown} FROM "
        if self._takes_packed:
            same = " AND ".join(f"t.{column} = came.c{at}" for at, column in enumerate(key))
            text += f"packed_rows(?, {len(key)}) AS came CROSS JOIN {table.physical_name} AS t "
            self._connection.execute(f"{text} WHERE {same}", (split_head(packed)[0],))
        else:
            same = " AND ".join(f"t.{column} = ?" for column in key)
            text += f"{table.physical_name} AS t WHERE {same}"
            self._connection.executemany(text, unpacked(packed))

    def is_filled(self, table: Table, index: Index) -> bool:
        """All rows of the beginning have been added. False: the index is gone."""
        if not self.has(table.id):
            return False
        self.whole[table.id] = _kind(table, index)
        return True

    def show(self, table: Table, index: Index) -> bool:
        """Part of a schema change: the whole index appears under its name. False: there is none
        like it, and it has to be made. Raises like SQLite where rows forbid a UNIQUE one."""
        if self.whole.get(table.id) != _kind(table, index) or not self.has(table.id):
            return False
        if index.unique:
            self._check_unique(table, index)
        text = create_index_sql(table, index)
        self._give(hidden_name(table.id), index.physical_name, table.physical_name, text)
        self.drop(table.id)
        return True

    def _check_unique(self, table: Table, index: Index) -> None:
        """Read in the order of the index: equal ones follow each other."""
        parts = index_parts(table, index)
        given = " AND ".join(f"{part} IS NOT NULL" for part in parts)
        rule = f"({index.rule}) AND " if index.rule else ""
        found = self._connection.execute(
            f"SELECT 1 FROM {table.physical_name} INDEXED BY {hidden_name(table.id)} "
            f"WHERE {rule}({_ALL_ROWS}) AND {given} GROUP BY {', '.join(parts)} "
            "HAVING count(*) > 1 LIMIT 1"
        ).fetchone()
        if found is not None:
            raise apsw.ConstraintError("UNIQUE constraint failed")

    def has(self, table_id: int) -> bool:
        query = "SELECT 1 FROM sqlite_schema WHERE type = 'index' AND name = ?"
        return self._connection.execute(query, (hidden_name(table_id),)).fetchone() is not None

    def drop(self, table_id: int) -> None:
        """What is left of one, if anything is."""
        self.whole.pop(table_id, None)
        self._upto.pop(table_id, None)
        self._connection.execute(f"DROP INDEX IF EXISTS {hidden_name(table_id)}")
        self._connection.execute(f"DROP TABLE IF EXISTS {_rows_name(table_id)}")

    def rest(self) -> None:
        """SQLite judges entries again if nothing is hidden. Not in the transaction of `drop`: if
        that is taken back, an index is there again, and rows without an entry could not go."""
        if not self._names():
            self._connection.execute("PRAGMA writable_schema = OFF")

    def forget_left(self) -> None:
        """Before anything is written: what a process that ended has left."""
        for name in self._names():
            self.drop(int(name[1:].partition("_")[0]))
        self.rest()

    def _names(self) -> list[str]:
        query = "SELECT name FROM sqlite_schema WHERE name GLOB 'x[0-9]*'"
        found: list[Any] = self._connection.execute(query).fetchall()
        return [name for (name,) in found]

    def _give(self, name: str, now: str, owner: str, text: str) -> None:
        """The index belongs to another table, or has another name. Its line comes last: an index is
        read after its table."""
        execute = self._connection.execute
        with writable_schema(self._connection):
            where = "WHERE type = 'index' AND name = ?"
            query = f"SELECT rootpage FROM sqlite_schema {where}"
            root: Any = execute(query, (name,)).fetchone()
            execute(f"DELETE FROM sqlite_schema {where}", (name,))
            line = "INSERT INTO sqlite_schema VALUES ('index', ?, ?, ?, ?)"
            execute(line, (now, owner, root[0], text))
