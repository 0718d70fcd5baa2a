"""What an open block keeps and sends: marks, reads, writes, statements on their way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec

from cairn.model.errors import CairnError, LimitExceeded
from cairn.model.rpc import BlockResponse, ReadRequest
from cairn.model.settings import limits
from cairn.node.statements.asker.hops import Hop
from cairn.node.statements.blocks.asking import Blocks, Listed, Statement
from cairn.node.statements.context import Context
from cairn.node.statements.ending import Ticket
from cairn.storage.files.pieces import Row
from cairn.storage.readers import Cancelled

#: Told how to go on with a statement that was started: that has its outcome, or raises.
Done = Callable[[Callable[[], Any]], None]


class Mark(NamedTuple):
    """What a savepoint keeps: how long the list was, and from which read on it was strict."""

    listed: int
    strict_from: int | None


class Given(NamedTuple):
    """An INSERT for the owner, and the rows for it: each with its bucket."""

    statement: Statement
    rows: Sequence[tuple[int, Row]]


class Trial(Hop):
    """A statement of a block on its way through the writer of this instance."""

    def __init__(
        self,
        done: Done,
        finish: Callable[[BlockResponse | CairnError], Any],
        forget: Callable[[], None] = lambda: None,
    ) -> None:
        self._done, self._finish, self._forget = done, finish, forget
        self.is_over = False
        self.ticket = Ticket(Cancelled())

    def answered(self, answer: BlockResponse | CairnError) -> None:
        if not self.is_over:
            self.is_over = True
            self._done(lambda: self._finish(answer))

    def give_up(self) -> None:
        """Nobody waits for it any more. Nothing of it stays."""
        if not self.is_over:
            self.is_over = True
            self.ticket.give_up()
            self._forget()


class EarlyRead(msgspec.Struct, frozen=True):
    """What was read before the first write: it is looked at again only if there is one."""

    statement: Any
    params: tuple[Any, ...]
    context: Context
    mark: bytes


class Written:
    """The block's writes, under a read of the same rows."""

    def __init__(
        self, blocks: Blocks, before: list[Listed], first: Listed, context: Context
    ) -> None:
        self._blocks, self._before, self._first = blocks, before, first
        self._context = context

    def is_at(self, replicaset: str) -> bool:
        return self._blocks.is_at(self._first, replicaset)

    async def read(self, request: ReadRequest) -> list[Any]:
        answer = await self._blocks.send(
            self._before, self._context, is_commit=False, like=(self._first,), read=request
        )
        return list(answer.rows)


def as_told(listed: Listed, mark: bytes, tape: tuple[Any, ...], made: int = 0) -> Listed:
    item = msgspec.structs.replace(listed.item, told=mark, tape=tape, made=made)
    return msgspec.structs.replace(listed, item=item)


def _overlap(one: Listed, other: Listed) -> bool:
    if one.item.tables.keys().isdisjoint(other.item.tables):
        return False
    return one.buckets is None or other.buckets is None or not one.buckets.isdisjoint(other.buckets)


def before(kept: Sequence[Listed], listed: Listed) -> list[Listed]:
    """Writes of a block so far whose rows the statement, or another one of these, may touch."""
    found: list[Listed] = []
    wanted = [listed]
    for each in reversed(kept):
        if each.is_write and any(_overlap(each, other) for other in wanted):
            found.append(each)
            if each.buckets != listed.buckets or each.item.tables != listed.item.tables:
                wanted.append(each)
        if len(found) > limits.BLOCK_REPLAY:
            raise LimitExceeded(
                f"more than {limits.BLOCK_REPLAY} statements of this block touch the same bucket",
                hint="use INSERT with several rows, a DO block, or shorter blocks",
            )
    found.reverse()
    return found


def check_room(statements: int, size: int) -> None:
    """Before a block has one more of them, and so many bytes with it."""
    if statements >= limits.BLOCK_STATEMENTS:
        raise LimitExceeded(
            f"a block has at most {limits.BLOCK_STATEMENTS} statements",
            hint="COMMIT now and then, or use INSERT with several rows",
        )
    if size > limits.BLOCK_BYTES:
        raise LimitExceeded(
            f"the statements of a block have at most {limits.BLOCK_BYTES >> 20} MiB",
            hint="COMMIT now and then, or use COPY",
        )
