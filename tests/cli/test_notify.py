"""systemd is told when an instance is Online, and that it stops."""

from __future__ import annotations

import socket
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from cairn.cli.instance.notifying import READY, notify, status
from tests.cluster.harness import WAIT_S, Cluster


def listening(address: str) -> socket.socket:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    made.bind(address)
    made.settimeout(WAIT_S)
    return made


@pytest.mark.parametrize("kind", ["file", "abstract"])
def test_a_datagram_reaches_both_kinds_of_sockets(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = str(tmp_path / "notify") if kind == "file" else f"@{uuid.uuid4()}"
    monkeypatch.setenv("NOTIFY_SOCKET", name)
    with listening(name.replace("@", "\0", 1)) as systemd:
        notify(READY, status("one\nline"))
        assert systemd.recv(1000) == b"READY=1\nSTATUS=one line"


@pytest.mark.parametrize("address", ["", "nonsense", "/no/such/socket", "@nobody"])
def test_nobody_to_tell_is_no_harm(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", address)
    notify(READY)


def test_a_socket_that_nobody_reads_does_not_hold_the_instance(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
    with listening(str(tmp_path / "notify")):
        for _ in range(1_000):
            notify(READY)


@pytest.mark.cluster
def test_an_instance_is_ready_when_it_is_online_and_says_when_it_stops(
    new_cluster: Callable[..., Cluster], tmp_path: Path
) -> None:
    cluster = new_cluster()
    node = cluster.add("i1")
    cluster.peers = node.peer
    with listening(str(tmp_path / "notify")) as systemd:
        node.start(NOTIFY_SOCKET=str(tmp_path / "notify"))
        assert systemd.recv(1000).decode().splitlines() == [
            "READY=1",
            "STATUS=i1 is Online in default_1",
        ]
        assert node.sql("SELECT name FROM _pico_instance") == [("i1",)]
        # It says so again after each start of its own, and never before.
        node.sql("CALL cairn_restart('i1')")
        assert systemd.recv(1000) == b"STATUS=starting anew"
        assert systemd.recv(1000).startswith(b"READY=1\n")
        assert node.stop() == 0
        assert systemd.recv(1000).startswith(b"STOPPING=1\n")
