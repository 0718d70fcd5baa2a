"""`CALL cairn_tier(…)`: tiers that are added, changed and removed while the cluster runs."""

from __future__ import annotations

from typing import Any

import msgspec

from cairn.model.errors import InvalidParameter
from cairn.model.log import ops
from cairn.model.log.ranges import KeyRange, one_key
from cairn.model.members.cluster import Cluster
from cairn.model.members.topology import Tier
from cairn.model.tables import rows
from cairn.model.tables.system_tables import PICO_TIER
from cairn.node.consensus.changing import propose_row
from cairn.server.caller import Caller
from cairn.topology.tier_guard import CHANGEABLE

ACTIONS = ("list", "add", "set", "drop")
_NUMBERS = ("replication_factor", "bucket_count", "hash_version")
MOST_DIGITS = 10  # what is too large for a tier is told by the checks of its table
_FLAGS = {"true": True, "false": False}
_NEW = (*CHANGEABLE, "bucket_count", "can_vote", "hash_version")


async def tier(caller: Caller, action: str = "list", name: str = "", options: str = "") -> Any:
    """`options` is "replication_factor=2 replication_mode=sync". Answers with all tiers."""
    instance = caller.instance
    if action not in ACTIONS:
        raise InvalidParameter(
            f"cairn_tier does not know '{action}'", hint=f"one of {', '.join(ACTIONS)}"
        )

    def change() -> tuple[ops.Dml, KeyRange]:
        return planned(instance.state.cluster, action, name, options)

    if action != "list":
        await propose_row(instance.proposer, change)
    return told(instance.state.cluster)


def planned(cluster: Cluster, action: str, name: str, options: str) -> tuple[ops.Dml, KeyRange]:
    known, key = cluster.tiers.get(name), one_key(PICO_TIER.id, (name,))
    if action == "add":
        if known is not None:
            raise InvalidParameter(f"there is a tier '{name}' already")
        made = Tier(name, **{"replication_factor": 1, **_parsed(options, _NEW)})
        return ops.Insert(PICO_TIER.id, rows.tier_row(made)), key
    if known is None:
        raise InvalidParameter(
            f"there is no tier '{name}'", hint=f"known: {', '.join(sorted(cluster.tiers))}"
        )
    if action == "drop":
        return ops.Delete(PICO_TIER.id, (name,)), key
    new = msgspec.structs.replace(known, **_parsed(options, CHANGEABLE))
    return ops.Replace(PICO_TIER.id, rows.tier_row(new)), key


def _parsed(options: str, known: tuple[str, ...]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for word in options.split():
        name, _, text = word.partition("=")
        if name not in known:
            raise InvalidParameter(f"'{name}' cannot be given here", hint=f"{', '.join(known)}")
        if name in found:
            raise InvalidParameter(f"'{name}' is given twice")
        try:
            found[name] = _value(name, text)
        except (ValueError, KeyError):
            raise InvalidParameter(f"{name} of a tier cannot be '{text}'") from None
    return found


def _value(name: str, text: str) -> Any:
    if name in _NUMBERS:
        if not (text.isascii() and text.isdigit() and len(text) < MOST_DIGITS):
            raise ValueError(text)
        return int(text)
    return _FLAGS[text] if name == "can_vote" else text


def told(cluster: Cluster) -> list[dict[str, Any]]:
    return [
        {
            **msgspec.to_builtins(cluster.tiers[name]),
            "replicasets": {
                each.name: [member.name for member in cluster.members(each.name)]
                for each in sorted(cluster.replicasets.values(), key=lambda each: each.name)
                if each.tier == name
            },
        }
        for name in sorted(cluster.tiers)
    ]
