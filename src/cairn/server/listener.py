"""Accepting PostgreSQL clients."""

from __future__ import annotations

import asyncio
import logging

from cairn.model.errors import ConfigProblem
from cairn.net.peers import split_address
from cairn.node.boot.config import InstanceConfig
from cairn.node.instance import Instance
from cairn.server.face import PgFace
from cairn.server.scan.selects import WorkerScans
from cairn.server.session.session import Session
from cairn.server.tls import from_config

log = logging.getLogger("cairn.pg")


async def open_pgwire(instance: Instance, config: InstanceConfig) -> PgFace:
    face = PgFace(instance, config, from_config(config))
    instance.execution.reads.scans = WorkerScans(face)
    host, port = split_address(config.pg_listen, 4327)
    loop = asyncio.get_running_loop()
    try:
        server = await loop.create_server(lambda: Session(face), host, port, backlog=1024)
    except OSError as problem:
        raise ConfigProblem(
            f"--pg-listen {config.pg_listen}: {problem.strerror or problem}"
        ) from None

    async def goodbye() -> None:
        server.close()
        await face.say_goodbye()

    instance.on_goodbye.append(goodbye)
    instance.on_close.append(server.close)
    instance.on_close.append(face.close)
    log.info("PostgreSQL clients are welcome at %s", config.pg_advertise)
    return face
