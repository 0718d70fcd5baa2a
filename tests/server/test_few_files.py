"""Strangers hold every door of an instance that may open few files, and everybody else gets in."""

from __future__ import annotations

import socket
import ssl
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from cairn.net.places import FEWEST
from tests.cluster.harness import Cluster, Node, eventually
from tests.server.test_tls import connected, files

__all__ = ["files"]
pytestmark = [pytest.mark.cluster, pytest.mark.slow]

FILES = 200
HALF = b"\x16\x03\x01\x02\x00\x01\x00"
SSL_REQUEST = b"\x00\x00\x00\x08\x04\xd2\x16\x2f"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory, files: Path) -> Iterator[Node]:
    pair = ("--tls-cert", f"{files}/server.crt", "--tls-key", f"{files}/server.key")
    cluster = Cluster(tmp_path_factory.mktemp("few"), "few", *pair)
    cluster.has_pages = True
    made = cluster.add("i1")
    cluster.peers = made.peer
    try:
        made.start(files_max=FILES)
        eventually(lambda: connected(made, sslmode="require"), "a login over TLS")
        yield made
    finally:
        cluster.close()


@pytest.mark.parametrize("said", [b"", HALF, SSL_REQUEST], ids=["nothing", "half", "a request"])
@pytest.mark.parametrize("port", ["pg_port", "http_port", "peer_port"])
def test_who_holds_a_door_locks_nobody_out(node: Node, port: str, said: bytes) -> None:
    trusting = ssl.create_default_context()
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    with ExitStack() as stack:
        for _ in range(FILES * 3 // 2):
            held = socket.create_connection(("127.0.0.1", getattr(node, port)), 10)
            stack.enter_context(held)
            try:
                held.sendall(said)
            except OSError:
                continue  # it has given way already
        assert connected(node, sslmode="require")
        page = f"https://127.0.0.1:{node.http_port}/api/v1/health/live"
        with urllib.request.urlopen(page, timeout=10, context=trusting) as answer:
            assert answer.status == 200
        with socket.create_connection(("127.0.0.1", node.peer_port), 10) as peer:
            peer.sendall(b"GET / HTTP/1.1\r\n\r\n")
            assert b"for instances of the cluster" in peer.recv(1000)


def test_too_few_files_are_told_and_no_instance_starts(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "cairn.cli.main", "run", "--instance-dir", str(tmp_path)]
    limited = ["sh", "-c", f'ulimit -n {FEWEST - 1}; exec "$@"', "sh", *command]
    ended = subprocess.run(limited, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 2
    assert "needs at least" in ended.stderr
