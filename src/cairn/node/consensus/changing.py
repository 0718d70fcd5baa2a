"""Rows of system tables: a change is planned, proposed, and again if somebody was quicker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from cairn.model.errors import CasRetry, NotLeader
from cairn.model.log import ops
from cairn.model.log.ranges import KeyRange
from cairn.node.consensus.proposals import Proposer

ANSWER_S = 5.0
AGAIN_S = 0.02


async def propose_row(proposer: Proposer, change: Callable[[], tuple[ops.Dml, KeyRange]]) -> None:
    """`change` plans from the picture of now; it is asked again if somebody was quicker."""

    def one() -> tuple[tuple[ops.Dml, ...], tuple[KeyRange, ...]]:
        op, key = change()
        return (op,), (key,)

    await propose_rows(proposer, one)


async def propose_rows(
    proposer: Proposer, change: Callable[[], tuple[tuple[ops.Dml, ...], tuple[KeyRange, ...]]]
) -> None:
    """The same for several rows, in one entry."""
    deadline = asyncio.get_running_loop().time() + ANSWER_S
    while True:
        predicate = proposer.predicate(())
        found, ranges = change()
        predicate = msgspec.structs.replace(predicate, ranges=ranges)
        try:
            await proposer.cas(ops.Batch(found), predicate)
            return
        except NotLeader:
            if asyncio.get_running_loop().time() > deadline:
                raise  # it says who is missing
        except CasRetry:
            if asyncio.get_running_loop().time() > deadline:
                # One whose disk hangs hears of no change, and plans from an old picture each time.
                raise CasRetry(
                    f"others were quicker for {ANSWER_S:g} s, or this instance lags behind them",
                    hint="nothing was done: try again, or at another instance",
                ) from None
        await asyncio.sleep(AGAIN_S)
