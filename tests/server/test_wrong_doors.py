"""Who comes to the wrong port is told which one it is, in their own protocol, and so is the log."""

from __future__ import annotations

import asyncio
import http.client
import random
import socket
import threading
from struct import pack

import psycopg
import pytest

from cairn.cli.talking import Talk, TalkProblem, Target
from cairn.model.errors import CairnError
from cairn.model.rpc import DiscoverRequest, DiscoverResponse
from cairn.net.handshake import Identity
from cairn.net.peers import Peers, SocketNetwork
from cairn.net.strangers import ENOUGH, who_answers, who_dials
from tests.cluster.harness import Cluster, eventually
from tests.server.raw import Raw, startup_packet

pytestmark = pytest.mark.cluster


def peer_port(cluster: Cluster) -> int:
    return int(cluster["i1"].peer.rpartition(":")[2])


@pytest.mark.parametrize("sslmode", ["disable", "prefer"])
def test_a_postgresql_client_at_the_port_of_instances(cluster: Cluster, sslmode: str) -> None:
    with pytest.raises(psycopg.OperationalError, match=r"for instances of the cluster .--listen"):
        psycopg.connect(
            f"host=127.0.0.1 port={peer_port(cluster)} user=admin password=x sslmode={sslmode}"
        )
    told = "refused a peer from 127.0.0.1: it is a PostgreSQL client"
    eventually(lambda: told in cluster["i1"].log(), "a line in the log")


def test_one_that_comes_byte_by_byte_is_recognised(cluster: Cluster) -> None:
    with Raw(peer_port(cluster)) as raw:
        for byte in startup_packet(user="admin")[:ENOUGH]:
            raw.send(bytes([byte]))
        assert "--pg-listen" in raw.error()["H"]
        assert raw.is_closed()


@pytest.mark.parametrize("port", ["pg", "peer"])
def test_a_browser_at_a_port_without_http(cluster: Cluster, port: str) -> None:
    number = cluster["i1"].pg_port if port == "pg" else peer_port(cluster)
    connection = http.client.HTTPConnection("127.0.0.1", number, timeout=10)
    connection.request("GET", "/")
    answer = connection.getresponse()
    assert answer.status == 400
    assert b"HTTP is at --http-listen" in answer.read()
    connection.close()


def test_tls_without_asking_first(cluster: Cluster) -> None:
    with Raw(cluster["i1"].pg_port) as raw:
        assert "sslnegotiation=direct" in raw.send(b"\x16\x03\x01\x02\x00\x01\x00").error()["M"]


def test_an_instance_at_the_port_of_clients(cluster: Cluster) -> None:
    address = f"127.0.0.1:{cluster['i1'].pg_port}"

    async def dial() -> None:
        network = SocketNetwork("127.0.0.1:0")
        peers = Peers(network, lambda: Identity("demo"), b"s", {}, random.Random(1))
        request = DiscoverRequest("guid", True, (), address)
        try:
            await peers.call(address, "discover", request, DiscoverResponse, 5.0)
        finally:
            peers.close()

    with pytest.raises(CairnError, match="port for PostgreSQL clients; --peer wants"):
        asyncio.run(dial())


@pytest.mark.parametrize(
    "start", [b"", b"\0", b"\0\0\0\x50\x84\xa4ty", b"\0\0\x0f\xff\x91\x91\x91\x91", pack("!Q", 0)]
)
def test_frames_are_taken_for_nothing_else(start: bytes) -> None:
    assert who_dials(start) is None
    assert who_answers(start) is None


def test_an_instance_that_dials_learns_what_it_has_found() -> None:
    for start, said in (
        (b"HTTP/1.1", "a port for HTTP"),
        (b"\x15\x03\x01\0\x02\x02\x28", "it wants TLS"),
    ):
        found = who_answers(start)
        assert found is not None
        assert said in found.problem.message


def test_a_command_at_a_port_that_says_nothing_asks_whether_it_is_the_right_one() -> None:
    def hang_up() -> None:
        connection, _ = silent.accept()
        connection.recv(100)
        connection.close()

    with socket.create_server(("127.0.0.1", 0)) as silent:
        threading.Thread(target=hang_up, daemon=True).start()
        dsn = f"postgresql://admin:x@127.0.0.1:{silent.getsockname()[1]}/cairn"
        with pytest.raises(TalkProblem, match=r"is this the port for PostgreSQL clients"):
            Talk(Target(dsn, None))
