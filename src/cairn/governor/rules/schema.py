"""After the topology: the pending schema change, carried out at every replicaset's master."""

from __future__ import annotations

from collections.abc import Iterator

from cairn.governor.actions import Action, ApplySchemaChange
from cairn.governor.view import ClusterView


def apply_schema_change(view: ClusterView) -> Iterator[Action]:
    pending = view.pending_ddl
    if pending is not None:
        yield ApplySchemaChange(
            step="apply clusterwide schema change",
            subject=f"schema version {pending.schema_version}",
            schema_version=pending.schema_version,
            replicasets=tuple(replicaset.name for replicaset in view.replicasets()),
        )
