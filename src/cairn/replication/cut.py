"""Whether what the masters kept is one moment of the whole cluster.

All masters stop writing, each keeps the state of its rows, then the global tables are read at a
position that Raft had meanwhile, and only then the masters go on. So nothing that was acknowledged
before is missing, and nothing that began later is in it. What can spoil it is told by comparing:
a part counts only if its master, its buckets and its tables are those of the global tables.
A bucket has one owner there, and its rows are taken from that owner alone: exactly once.
"""

from __future__ import annotations

from collections.abc import Mapping

from cairn.model.backups import Held
from cairn.model.members.cluster import Cluster
from cairn.model.sharding.spans import merged
from cairn.model.tables.catalog import Catalog


def owners(cluster: Cluster) -> list[str]:
    """The replicasets that have rows to give."""
    return sorted(name for name in cluster.replicasets if cluster.owned(name))


def spoilt(
    cluster: Cluster, catalog: Catalog, held: Mapping[str, Held], *, is_changing: bool
) -> str | None:
    """Why these parts are not one moment; None: they are. `is_changing`: a schema change is."""
    if is_changing:
        return "a schema change is under way"
    for name in owners(cluster):
        part, replicaset = held.get(name), cluster.replicasets[name]
        if part is None:
            return f"{name} has buckets since a moment ago"
        if part.epoch != replicaset.epoch or part.instance != replicaset.current_master_name:
            return f"{name} got another master"
        if part.owned != merged((row.start, row.end) for row in cluster.owned(name)):
            return f"buckets of {name} moved"
        for table in catalog.tables.values():
            if not table.is_global and part.versions.get(table.id) != table.schema_version:
                return f"table {table.name} is being changed at {name}"
    return None
