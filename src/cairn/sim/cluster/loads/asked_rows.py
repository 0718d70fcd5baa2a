"""New rows as a lane brings them: a request's bytes, which C reads inside the writer."""

from __future__ import annotations

from struct import pack

from cairn.model.log.records import head_of_insert
from cairn.model.rpc import WriteResponse
from cairn.model.tables.schema import Table
from cairn.native.library import library
from cairn.native.point_inserts import NewRow, PointInsert
from cairn.native.points import BUCKET, TEXT_WHOLE, TEXTS, Asked
from cairn.node.statements.owner.writes import Insert, OwnerWrites
from cairn.node.waiting import as_future

_END = b"\0\0"  # of a Bind: no formats are asked for
_REST = b"E\0\0\0\x09\0\0\0\0\0S\0\0\0\4"  # Execute and Sync
_AT = 5


def has_lane(key: int) -> bool:
    """Whether this row comes by one; the others do not."""
    return library() is not None and key % 2 == 0


async def insert_asked(
    writes: OwnerWrites, table: Table, sql: str, bucket_count: int, key: int, text: str
) -> WriteResponse:
    """Of a table with a number, which is the key, and a text. Raises `NotPlain` if C refuses it."""
    values = (str(key).encode(), text.encode())
    body = b"".join(pack("!i", len(value)) + value for value in values) + _END
    data = b"B" + pack("!I", len(body) + 4) + body + _REST
    asked = Asked(((TEXT_WHOLE, 8), (TEXTS, 0)), (BUCKET, 1, 2), (1,), bucket_count, _END)
    version = table.schema_version
    what = PointInsert(NewRow(asked, sql, head_of_insert(table.id, version, 2), (1, 2)))
    bucket = what.bucket(data, _AT)
    insert = Insert(what, data, _AT, bucket, table.id, version)
    found: WriteResponse = await as_future(lambda done: writes.start_insert(insert, done))
    return found
