"""Accepting PostgreSQL clients."""

from __future__ import annotations

from cairn.node.config import InstanceConfig
from cairn.node.instance import Instance


async def open_pgwire(instance: Instance, config: InstanceConfig) -> None:
    pass
