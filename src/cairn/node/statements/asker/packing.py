"""Many rows of an INSERT … SELECT as COPY has them: packed, in the order of their buckets.

One by one they would take the event loop for seconds, at the asker and at their owners.
"""

from __future__ import annotations

from functools import partial

from cairn.model import stops
from cairn.model.log.packed_rows import PackedRows
from cairn.native.batches import RowBatch
from cairn.native.library import library
from cairn.node.statements.asker.keyed import made_of
from cairn.sql import plans
from cairn.sql.render.row_sql import insert_sql
from cairn.storage.files.pieces import Row

MANY_ROWS = 1_000  # that nothing is made of on the event loop


def may_pack(plan: plans.InsertSelect, found: list[Row]) -> bool:
    """Not with ON CONFLICT: packed rows are put in, and that is all."""
    is_plain = plan.sql == insert_sql(plan.table, "fail")
    return len(found) >= MANY_ROWS and is_plain and library() is not None


async def packed_rows(plan: plans.InsertSelect, found: list[Row], buckets: int) -> PackedRows:
    return await made_of(found, partial(_packed, plan, buckets))


def _packed(plan: plans.InsertSelect, buckets: int, found: list[Row]) -> PackedRows:
    """Piece by piece: nobody can come between one step of C."""
    batch = RowBatch()
    for at in range(0, len(found), MANY_ROWS):
        stops.check()
        batch.add([row for _, row in plan.rows(found[at : at + MANY_ROWS])])
    return batch.sorted(buckets)
