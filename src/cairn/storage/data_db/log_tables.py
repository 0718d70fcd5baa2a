"""The row log as tables of `data.db`, and how to ask for its records.

A record's place is one number, its origin's and its lsn, and the key of the table: a record
costs one page of a commit. Where an origin stands is that of its newest record, so it is
written nowhere else, except for what is not in the log any more (`base`).
"""

from __future__ import annotations

import apsw

_BITS = 44  # of an lsn
_FIRST, _LAST = f"(id << {_BITS})", f"((id + 1) << {_BITS})"
#: There are few origins, and a log whose index alone is damaged can be read all the same.
_ID = "(SELECT id FROM origin NOT INDEXED WHERE uuid = ?1)"

#: With rowids: in a table without, each comparison of keys reads whole bodies.
SCHEMA = f"""
CREATE TABLE IF NOT EXISTS origin (
    id INTEGER PRIMARY KEY, uuid TEXT NOT NULL UNIQUE, base INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE TABLE IF NOT EXISTS row_log (
    place INTEGER PRIMARY KEY, epoch INTEGER NOT NULL, body BLOB NOT NULL,
    origin INTEGER AS (place >> {_BITS}), lsn INTEGER AS (place & {(1 << _BITS) - 1})
) STRICT;
CREATE VIEW IF NOT EXISTS vclock AS SELECT * FROM (
    SELECT uuid AS origin, max(base, ifnull((
        SELECT lsn FROM row_log WHERE place > {_FIRST} AND place < {_LAST}
        ORDER BY place DESC LIMIT 1), 0)) AS lsn FROM origin
) WHERE lsn > 0;
"""
#: Of the origin `?1`.
OF_ORIGIN = f"FROM row_log WHERE place > {_ID} << {_BITS} AND place < ({_ID} + 1) << {_BITS}"
AFTER = f"FROM row_log WHERE place > ({_ID} << {_BITS}) + ?2 AND place < ({_ID} + 1) << {_BITS}"
AT = f"FROM row_log WHERE place = ({_ID} << {_BITS}) + ?2"
PUT_BASE = (
    "INSERT INTO origin(uuid, base) VALUES (?, ?) ON CONFLICT (uuid) DO UPDATE SET base = "
    "excluded.base"
)
PUT_RECORD = "INSERT INTO row_log(place, epoch, body) VALUES (?, ?, ?)"


def by_number(query: str) -> str:
    """The same of the origin that has the number `?1`: who knows it need not read the list."""
    return query.replace(_ID, "?1")


def place(origin: int, lsn: int) -> int:
    return (origin << _BITS) + lsn


def open_log(connection: apsw.Connection) -> None:
    """Its tables, also from the layout of before, in which they had more pages."""
    kinds: dict[str, str] = dict(connection.execute("SELECT name, type FROM main.sqlite_schema"))
    if kinds.get("vclock") != "table":
        connection.execute(SCHEMA)
        return
    connection.execute(
        f"""
        BEGIN IMMEDIATE;
        ALTER TABLE row_log RENAME TO old_log;
        ALTER TABLE vclock RENAME TO old_vclock;
        ALTER TABLE origin ADD COLUMN base INTEGER NOT NULL DEFAULT 0;
        {SCHEMA}
        INSERT INTO row_log(place, epoch, body)
            SELECT (origin << {_BITS}) + lsn, epoch, body FROM old_log ORDER BY origin, lsn;
        INSERT INTO origin(uuid, base) SELECT origin, lsn FROM old_vclock WHERE true
            ON CONFLICT (uuid) DO UPDATE SET base = excluded.base;
        DROP TABLE old_log;
        DROP TABLE old_vclock;
        COMMIT;
        """
    )
