"""The notice after Parse: which parameters form the distribution key."""

from __future__ import annotations

import json

from cairn.model.catalog import Catalog
from cairn.server.statements import Cached


def metadata_notice(cached: Cached, catalog: Catalog) -> str:
    prepared = cached.prepared
    tier = catalog.tiers.get(prepared.tier) if prepared.tier is not None else None
    return json.dumps(
        {
            "type": "PreparedStatementMetadata",
            "query": cached.text.decode(),  # byte for byte: it is the client's cache key
            "tier": prepared.tier,
            "dk_cols": [number - 1 for number, _ in prepared.metadata],
            "dk_meta": [[number, oid] for number, oid in prepared.metadata],
            "hash_version": 2 if tier is None else tier.hash_version,
        },
        ensure_ascii=False,
    )
