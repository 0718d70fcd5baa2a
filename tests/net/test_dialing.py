"""From where an instance dials."""

from __future__ import annotations

import asyncio
from unittest.mock import Mock

import pytest

from cairn.net.peers import SocketNetwork


@pytest.mark.parametrize(
    ("own", "theirs"),
    [("[::1]", "127.0.0.1"), ("127.0.0.1", "::1"), ("127.0.0.1", "127.0.0.1"), ("[::1]", "::1")],
)
def test_an_instance_reaches_addresses_of_the_other_family(own: str, theirs: str) -> None:
    """It said that it waited for an answer, and could not even ask."""

    async def script() -> None:
        came = asyncio.get_running_loop().create_future()

        async def entered(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            came.set_result(writer.get_extra_info("peername")[0])
            writer.close()

        try:
            server = await asyncio.start_server(entered, theirs, 0)
        except OSError:
            pytest.skip("this machine has no IPv6")
        port = server.sockets[0].getsockname()[1]
        address = f"[{theirs}]:{port}" if ":" in theirs else f"{theirs}:{port}"
        await SocketNetwork(f"{own}:1").dial(address, lambda: Mock(spec=asyncio.Protocol))
        assert await asyncio.wait_for(came, 30) == theirs
        server.close()

    asyncio.run(script())
