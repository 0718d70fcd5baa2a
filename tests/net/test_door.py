"""A door is not shut by those who only stand in it: places, and files of the process."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from cairn.net import door as doors
from cairn.net.door import Door, Visit, listeners
from cairn.net.places import FEWEST, OWN, Places, origin, shares
from tests.server.test_tls import openssl

HALF = b"\x16\x03\x01\x02\x00\x01\x00"  # the head of a TLS record, and nothing behind it


class Port:
    """Places as a door counts them."""

    def __init__(self, most: int) -> None:
        self.places, self.ended = Places(most), list[object]()

    def opens(self, who: object, address: str) -> bool:
        return self.places.opened(address, who, lambda: self.ended.append(who))


def test_the_oldest_of_the_address_that_has_most_gives_way() -> None:
    port = Port(4)
    for who, address in ((1, "b"), (2, "a"), (3, "a"), (4, "c")):
        assert port.opens(who, address)
    assert port.opens(5, "d")
    assert port.ended == [2]
    assert port.opens(6, "a") and port.opens(7, "a")  # one address has half of the places at most
    assert port.ended == [2, 1, 3] and len(port.places) == 4


def test_who_is_busy_stays_and_who_is_idle_again_is_the_youngest() -> None:
    port = Port(2)
    assert port.opens(1, "a") and port.opens(2, "b")
    port.places.busy(1)
    port.places.busy(2)
    assert not port.opens(3, "c") and port.ended == []
    port.places.idle(2)
    port.places.idle(1)
    assert port.opens(3, "c")
    assert port.ended == [2]


def test_who_has_left_or_proven_itself_needs_no_place() -> None:
    port = Port(2)
    for who in range(10):
        assert port.opens(who, "a")
        port.places.closed(who)
        port.places.closed(who)
        port.places.idle(who)
    assert port.ended == [] and len(port.places) == 0


@pytest.mark.parametrize("files", [FEWEST, 256, 1024, 20_000, 2**63 - 1])
def test_all_ports_together_leave_what_an_instance_needs_itself(files: int) -> None:
    found = shares(files)
    assert sum(found) <= files - OWN
    assert min(found) >= 1
    assert found.clients >= 4 * (found.pages + found.strangers) or found.clients == 15_000


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("10.1.2.3", "10.1.2.3"),
        ("::1", "::1"),
        ("::ffff:10.1.2.3", "10.1.2.3"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("", ""),
    ],
)
def test_what_counts_as_one_address(address: str, expected: str) -> None:
    assert origin(address) == expected


class Echo(asyncio.Protocol):
    def __init__(self, visit: Visit) -> None:
        self._visit = visit

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._transport.write(data)

    def connection_lost(self, problem: Exception | None) -> None:
        self._visit.over()


@contextlib.asynccontextmanager
async def opened(most: int, tls: ssl.SSLContext | None) -> AsyncIterator[tuple[Any, Places]]:
    places = Places(most)
    door = Door(places, Echo, lambda: tls)
    [listener] = await listeners("127.0.0.1", 0)
    door.open(listener)
    try:
        yield listener.getsockname(), places
    finally:
        door.close()


@pytest.fixture
def contexts(tmp_path: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    cert, key = str(tmp_path / "crt"), str(tmp_path / "key")
    made = ("-keyout", key, "-out", cert, "-subj", "/CN=localhost")
    openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", *made)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(cert, key)
    client = ssl.create_default_context(cafile=cert)
    client.check_hostname = False
    return server, client


@pytest.mark.parametrize("uses_uvloop", [False, True], ids=["asyncio", "uvloop"])
def test_handshakes_that_never_end_give_way_and_are_ended(
    contexts: tuple[ssl.SSLContext, ssl.SSLContext],
    monkeypatch: pytest.MonkeyPatch,
    uses_uvloop: bool,
) -> None:
    """They were not counted before they were over, and took every file of the process."""
    server, client = contexts

    async def scene() -> None:
        async with opened(6, server) as (address, places), asyncio.timeout(20):
            loop = asyncio.get_running_loop()
            held = []
            for _ in range(10):
                sock = socket.create_connection(address)
                sock.setblocking(False)
                await loop.sock_sendall(sock, HALF)
                held.append(sock)
                await asyncio.sleep(0)
            for sock in held[:7]:  # one address has half of the places
                assert await loop.sock_recv(sock, 100) == b""
            reader, writer = await asyncio.open_connection(*address, ssl=client)
            writer.write(b"hello")
            assert await reader.read(5) == b"hello"
            assert len(places) == 3
            monkeypatch.setattr(doors, "HANDSHAKE_S", 0.05)
            late = socket.create_connection(address)
            late.setblocking(False)
            assert await loop.sock_recv(late, 100) == b""
            writer.close()
            for sock in (*held, late):
                sock.close()
            while len(places):
                await asyncio.sleep(0.01)

    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop if uses_uvloop else None) as runner:
        runner.run(scene())


def test_a_process_without_files_accepts_again_when_it_has_some(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Short(socket.socket):
        left = 2

        def accept(self) -> Any:
            if Short.left:
                Short.left -= 1
                raise OSError(24, "Too many open files")
            return super().accept()

    monkeypatch.setattr(doors, "AGAIN_S", 0.01)

    async def scene() -> None:
        door = Door(Places(4), Echo, lambda: None)
        listener = Short()
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        door.open(listener)
        async with asyncio.timeout(10):
            reader, writer = await asyncio.open_connection(*listener.getsockname())
            writer.write(b"hello")
            assert await reader.read(5) == b"hello"
            writer.close()
        door.close()

    asyncio.run(scene())


def test_a_door_is_closed_once_and_for_all() -> None:
    async def scene() -> None:
        door = Door(Places(4), Echo, lambda: None)
        first, second = [*await listeners("127.0.0.1", 0), *await listeners("127.0.0.1", 0)]
        address = second.getsockname()
        door.open(first)
        door.open(second)
        asyncio.get_running_loop().remove_reader(first)
        first.close()  # by whoever made it
        door.close()
        door.close()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection(*address)

    asyncio.run(scene())
