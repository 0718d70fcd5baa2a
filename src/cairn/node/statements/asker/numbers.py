"""Numbers for identity columns: taken from the cluster in blocks, given out here one by one.

A number is never given twice. Blocks that are not used up are lost with the process, so there are
gaps; and instances have blocks of their own, so numbers do not follow the order of time. `setval`
takes their blocks away from all of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import defaultdict
from collections.abc import Sequence

from cairn.model.errors import CairnError, NumbersNeeded, OutOfRange, Unsupported
from cairn.model.log import ops
from cairn.model.log.ranges import KeyRange, one_key
from cairn.model.members.topology import Grade
from cairn.model.rpc import Empty, ForgetNumbers
from cairn.model.tables.schema import FIRST_TEMP_ID, TEMP_IDS
from cairn.model.tables.sequences import all_numbers_of, are_hidden, numbers_of, table_of
from cairn.model.tables.system_tables import CAIRN_SEQUENCE
from cairn.model.types.values import INT64_MAX
from cairn.net.peers import Peers
from cairn.node.consensus.changing import propose_row
from cairn.node.consensus.global_state import GlobalState
from cairn.node.consensus.proposals import Proposer
from cairn.node.statements.context import TAKEN

FIRST, MOST = 1_000, 1 << 20
USED_UP = -1  # kept as the next number when there is none
SOON_S = 1.0  # who asks again so soon needs more at a time
FORGET_S = 2.0


Block = tuple[int, int, int]  # the next, the end, and when its table was emptied before it
NONE: Block = (0, 0, 0)


class Numbers:
    def __init__(self, raft_id: int, state: GlobalState, proposer: Proposer, peers: Peers) -> None:
        self._raft_id, self._state, self._proposer, self._peers = raft_id, state, proposer, peers
        self._guard = threading.Lock()  # statements are evaluated on threads
        self._blocks: dict[int, Block] = {}  # by table
        self._taking: dict[int, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._sizes: dict[int, tuple[int, float]] = {}
        self._of_temps: dict[int, int] = {}  # the next ones of temporary tables, which are here

    def next(self, table: int, start: int, step: int = 1) -> int:
        with self._guard:
            if FIRST_TEMP_ID <= table_of(table) < FIRST_TEMP_ID + TEMP_IDS:
                number = self._of_temps.get(table, start)
                self._of_temps[table] = number + 1
                return _noted(table, number)
            number, end, since = self._blocks.get(table, NONE)
            if number >= end or since != self._emptied_at(table):
                raise NumbersNeeded(table, start)
            if (given := start + (number - start) * step) > INT64_MAX:
                raise self._ended(table)
            self._blocks[table] = number + 1, end, since
            return _noted(table, given)

    def _ended(self, table: int) -> CairnError:
        found = self._state.catalog.table_by_id(table_of(table))
        name = str(table) if found is None else found.name
        return CairnError(
            f'nextval: reached maximum value of sequence "{name}" ({INT64_MAX})', sqlstate="2200H"
        )

    def begin_anew(self, table: int) -> None:
        """A temporary table is gone, or was emptied with RESTART IDENTITY."""
        with self._guard:
            for each in all_numbers_of(table):
                self._of_temps.pop(each, None)

    async def more(self, need: NumbersNeeded) -> None:
        """Whoever comes again takes all of its numbers anew, so those that come next are here then,
        too: rows of a table without a key need two."""
        number = table_of(need.table)
        table = self._state.catalog.table_by_id(number)
        wanted = {need.table: need.start}
        for column in () if table is None else table.columns:
            if column.identity is not None:
                wanted[numbers_of(number, column)] = column.identity.start
        for numbers, start in wanted.items():
            await self._more(numbers, start)

    async def _more(self, table: int, start: int) -> None:
        """Another block, larger if the last one did not last."""
        async with self._taking[table]:
            since = self._emptied_at(table)
            with self._guard:
                number, end, at = self._blocks.get(table, NONE)
                if number < end and at == since:
                    return  # somebody else has brought some meanwhile
            now = asyncio.get_running_loop().time()
            size, when = self._sizes.get(table, (FIRST // 2, now))
            size = min(2 * size, MOST) if now - when < SOON_S else FIRST
            first, end = await self._taken(table, start, size)
            self._sizes[table] = size, asyncio.get_running_loop().time()
            with self._guard:
                self._blocks[table] = first, end, since

    def _emptied_at(self, table: int) -> int:
        """TRUNCATE … RESTART IDENTITY: what is left of a block of before is not given out."""
        found = None if are_hidden(table) else self._state.catalog.table_by_id(table)
        return 0 if found is None else found.truncated_at

    async def go_on(self, table: int, asked: Sequence[tuple[int, int]]) -> None:
        """`setval(…, number)` for each row: what the last one says stays. Whoever cannot be asked
        now (it is dead, or stands still) may have a block of before."""
        for number, kept in asked:
            if number < 1 or kept < 1:
                raise OutOfRange(f"setval: value {number} is out of bounds: numbers begin with 1")
        if not asked:
            return
        kept = asked[-1][1]
        row = (table, kept if kept <= INT64_MAX else USED_UP)

        def change() -> tuple[ops.Dml, KeyRange]:
            return ops.Replace(CAIRN_SEQUENCE.id, row), one_key(CAIRN_SEQUENCE.id, (table,))

        async with self._taking[table]:
            await propose_row(self._proposer, change)
            with self._guard:
                self._blocks.pop(table, None)
        others = [
            row.raft_id
            for row in self._state.cluster.instances.values()
            if row.raft_id != self._raft_id and row.current_state.grade is Grade.ONLINE
        ]
        await asyncio.gather(*(self._forgotten(raft_id, table) for raft_id in others))

    async def _forgotten(self, raft_id: int, table: int) -> None:
        with contextlib.suppress(CairnError):
            await self._peers.call(raft_id, "forget_numbers", ForgetNumbers(table), Empty, FORGET_S)

    async def forget(self, request: ForgetNumbers) -> Empty:
        """Asked by the instance of a `setval`. One that is being taken may be of before, too."""
        async with self._taking[request.table]:
            with self._guard:
                self._blocks.pop(request.table, None)
        return Empty()

    async def _taken(self, table: int, start: int, size: int) -> tuple[int, int]:
        """A block: its first number, and the one behind its last."""
        first = end = start

        def change() -> tuple[ops.Dml, KeyRange]:
            nonlocal first, end
            known = self._state.next_number(table)
            if known is None and are_hidden(table):  # a table of when there was one for both
                known = self._state.next_number(table_of(table))
            if known == USED_UP:
                raise self._ended(table)
            first = start if known is None else known
            end = min(first + size, INT64_MAX + 1)
            row = (table, end if end <= INT64_MAX else USED_UP)
            return ops.Replace(CAIRN_SEQUENCE.id, row), one_key(CAIRN_SEQUENCE.id, (table,))

        await propose_row(self._proposer, change)
        return first, end


def _noted(table: int, number: int) -> int:
    """For `currval` and `lastval` of the session that asks."""
    if (taken := TAKEN.get()) is not None and not are_hidden(table):
        taken.note(table, number)
    return number


def current_number(table: int, name: str) -> int:
    """`currval`; with table 0 it is `lastval`."""
    taken = TAKEN.get()
    if taken is None:
        raise Unsupported(
            "currval and lastval are known to their session alone",
            hint="in a block, use them in SELECT and INSERT … VALUES",
        )
    found = taken.latest() if table == 0 else taken.last.get(table)
    if found is None:
        what = "lastval" if table == 0 else f'currval of sequence "{name}"'
        raise CairnError(f"{what} is not yet defined in this session", sqlstate="55000")
    return found
