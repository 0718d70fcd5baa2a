"""`CALL cairn_rebalance(…)`: what moves, what will, and what a person may say about it."""

from __future__ import annotations

import math
from typing import Any

import msgspec

from cairn.model.errors import CairnError, InvalidParameter
from cairn.model.log import ops
from cairn.model.log.ranges import one_key
from cairn.model.members.topology import Replicaset
from cairn.model.rpc import Empty, StatusResponse
from cairn.model.tables import rows
from cairn.model.tables.system_tables import PICO_PROPERTY, PICO_REPLICASET
from cairn.moves import outlook, shares
from cairn.moves.steps import PAUSED
from cairn.node.consensus.changing import propose_row
from cairn.node.instance import Instance
from cairn.server.caller import Caller

ANSWER_S = 5.0
ACTIONS = ("status", "plan", "pause", "resume", "weight", "drain")


async def rebalance(
    caller: Caller, action: str = "status", name: str = "", weight: float = 1.0
) -> Any:
    """`status` and `plan` change nothing; the others answer with the status that follows."""
    instance = caller.instance
    match action:
        case "status" | "plan":
            pass
        case "pause" | "resume":
            await _put_paused(instance, action == "pause")
        case "weight":
            await _put_weight(instance, name, weight)
        case "drain":
            await _put_weight(instance, name, 0.0)
        case _:
            raise InvalidParameter(
                f"cairn_rebalance does not know '{action}'", hint=f"one of {', '.join(ACTIONS)}"
            )
    return await status(instance)


async def status(instance: Instance) -> dict[str, Any]:
    """What every instance knows of moves, and what the leader has heard of them."""
    cluster = instance.state.cluster
    chief = await _chief(instance)
    moves = chief.moves if chief is not None else instance.move_driver.seen()
    tiers = []
    for tier in sorted(cluster.tiers):
        weights = outlook.weights(cluster, tier)
        share = shares.shares(weights, cluster.tiers[tier].bucket_count)
        have = shares.held(cluster.tier_buckets(tier))
        tiers.append(
            {
                "tier": tier,
                "replicasets": [
                    {
                        "name": each,
                        "weight": weights[each],
                        "buckets": sum(r.end - r.start + 1 for r in cluster.owned(each)),
                        "share": share[each],
                        "will_have": have.get(each, 0),
                    }
                    for each in sorted(weights)
                ],
                "wanted": [
                    msgspec.to_builtins(each)
                    for each in outlook.Outlook(cluster, frozenset({tier})).wanted(tier)
                    if tier in instance.state.catalog.sharded_tiers
                ],
            }
        )
    lost = instance.voters.no_quorum()
    away = lost.sentence if lost is not None else "the leader does not answer"
    return {
        "paused": bool(cluster.properties.get(PAUSED)),
        "moves": [msgspec.to_builtins(each) for each in moves if each.id is not None],
        "waits": list(chief.move_waits) if chief is not None else [away],
        "freezes_ms": [round(1000 * each, 1) for each in chief.freezes_s] if chief else [],
        "tiers": tiers,
    }


async def _chief(instance: Instance) -> StatusResponse | None:
    try:
        return await instance.leader.ask("status", Empty(), StatusResponse, ANSWER_S)
    except CairnError:
        return None


async def _put_paused(instance: Instance, is_paused: bool) -> None:
    change = ops.Replace(PICO_PROPERTY.id, (PAUSED, "true" if is_paused else "false"))
    await propose_row(instance.proposer, lambda: (change, one_key(PICO_PROPERTY.id, (PAUSED,))))


async def _put_weight(instance: Instance, name: str, weight: float) -> None:
    if not math.isfinite(weight) or weight < 0:
        raise InvalidParameter(
            f"a weight cannot be {weight}", hint="0 drains the replicaset; else a positive number"
        )

    def change() -> tuple[ops.Dml, Any]:
        found = instance.state.cluster.replicasets.get(name)
        if found is None:
            known = ", ".join(sorted(instance.state.cluster.replicasets))
            raise InvalidParameter(f"there is no replicaset '{name}'", hint=f"known: {known}")
        _check_somebody_takes(instance, found, weight)
        new = msgspec.structs.replace(found, weight=weight, weight_origin="user")
        row = ops.Replace(PICO_REPLICASET.id, rows.replicaset_row(new))
        return row, one_key(PICO_REPLICASET.id, (name,))

    await propose_row(instance.proposer, change)


def _check_somebody_takes(instance: Instance, found: Replicaset, weight: float) -> None:
    """All weights of a tier at zero would leave nobody to give its buckets to."""
    others = outlook.weights(instance.state.cluster, found.tier)
    others.pop(found.name, None)
    if weight == 0 and not any(others.values()):
        raise InvalidParameter(
            f"{found.name} cannot be drained: no other replicaset of tier {found.tier} takes "
            "buckets",
            hint="add one, or raise the weight of another first",
        )
