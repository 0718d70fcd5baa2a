"""Whether what a master has acknowledged would outlive it: `CALL cairn_settle()`.

In async mode an acknowledged row may be lost with its master. Whoever is about to forget how to
write it again asks first.
"""

from __future__ import annotations

import asyncio
from typing import Any

from cairn.model.errors import TimedOut
from cairn.model.members.topology import Grade
from cairn.server.caller import Caller

SETTLE_S = 30.0
LOOK_S = 0.02


async def settle(caller: Caller) -> Any:
    """Until every Online replica has all that this master has now; its epoch, which names it.

    If the epoch is the same as before the rows were written, they were written to this history.
    """
    instance, execution = caller.instance, caller.execution
    execution.guard.check_lease()
    epoch, lsn = instance.data.fence.epoch, instance.data.vclock.get(instance.data.store.origin, 0)
    loop = asyncio.get_running_loop()
    until = loop.time() + SETTLE_S
    while missing := _missing(caller, lsn):
        if loop.time() > until:
            raise TimedOut(
                f"{', '.join(missing)} has not got all rows of {instance.name}",
                hint="see `cairn status`; once it has them, or is stopped, ask again",
            )
        await asyncio.sleep(LOOK_S)
        execution.guard.check_lease(epoch)
    execution.guard.check_lease(epoch)
    return {"epoch": epoch}


def _missing(caller: Caller, lsn: int) -> list[str]:
    """Replicas that are there and lack something."""
    rows = caller.instance.state.cluster.instances
    return [
        name
        for name in caller.instance.replication.acks.missing_members(lsn)
        if name in rows and rows[name].current_state.grade is Grade.ONLINE
    ]
