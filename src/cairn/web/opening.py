"""Taking the HTTP port at once, and the libraries that serve it only when there is time.

Starlette and uvicorn cost a tenth of a second to import: an instance first gets its place.
"""

from __future__ import annotations

import socket

from cairn.model.errors import ConfigProblem
from cairn.model.members.topology import Grade
from cairn.net.peers import split_address
from cairn.node.boot.config import HTTP_PORT, InstanceConfig
from cairn.node.runtime import spawn
from cairn.node.waiting import until
from cairn.server.face import PgFace

LATEST_S = 2.0  # probes of an instance that does not come up are answered by then, too


def open_http(face: PgFace, config: InstanceConfig) -> None:
    host, port = split_address(config.http_listen, HTTP_PORT)
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(128)
    except OSError as trouble:
        listener.close()
        raise ConfigProblem(f"--http-listen {config.http_listen}: {trouble.strerror}") from None
    serving = spawn(_serve_soon(face, config, listener), "http")

    def close() -> None:
        """If nobody serves it yet; a door closes its listener itself."""
        if not serving.done():
            serving.cancel()
            listener.close()

    face.instance.on_close.append(close)


async def _serve_soon(face: PgFace, config: InstanceConfig, listener: socket.socket) -> None:
    def is_online() -> bool:
        row = face.instance.row
        return row is not None and row.current_state.grade is Grade.ONLINE

    await until(is_online, LATEST_S, 0.05)
    from cairn.web.app import serve

    serve(face, config, listener)
