"""Instances that encrypt what they tell each other, and let in nobody without a certificate."""

from __future__ import annotations

import shutil
import socket
import ssl
import subprocess
from pathlib import Path

import pytest

from cairn.model.errors import ConfigProblem
from cairn.net import frames
from cairn.net.handshake import DialSide, Identity, ListenSide
from cairn.node.boot.config import check_open, load
from tests.cluster.harness import PASSWORD, Cluster, Node, eventually

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed"),
]
SCRIPT = Path(__file__).parents[2] / "deploy" / "peer-certificates.sh"
HOST = "127.0.0.1"


def certificates(directory: Path, *hosts: str) -> Path:
    command = ["sh", str(SCRIPT), str(directory), *(hosts or (HOST,))]
    subprocess.run(command, check=True, capture_output=True)
    return directory


def flags(files: Path, host: str = HOST) -> list[str]:
    pair = ["--peer-tls-cert", str(files / f"{host}.crt"), "--peer-tls-key"]
    return [*pair, str(files / f"{host}.key"), "--peer-tls-ca", str(files / "ca.crt")]


def knock(node: Node, files: Path | None) -> bytes:
    """Say hello to an instance's peer port, with a certificate or without one; what it answers."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if files is not None:
        context.load_cert_chain(files / f"{HOST}.crt", files / f"{HOST}.key")
    hello = DialSide(Identity("test"), b"a guess", lambda n: b"n" * n).start()
    plain = socket.create_connection((HOST, node.peer_port), timeout=5)
    try:
        with context.wrap_socket(plain) as shaken:
            shaken.sendall(frames.pack(hello))
            return shaken.recv(100)
    except (ssl.SSLError, ConnectionResetError):
        return b""


def serial(node: Node) -> str:
    """Of the certificate that it shows."""
    return ssl.get_server_certificate((HOST, node.peer_port))


def test_instances_with_certificates_form_a_cluster_and_a_stranger_gets_no_word(
    tmp_path: Path,
) -> None:
    files = certificates(tmp_path / "certs")
    others = certificates(tmp_path / "others")
    cluster = Cluster(tmp_path, "test", *flags(files), "--init-replication-factor", "2")
    try:
        cluster.start("i1", "i2", "i3")
        cluster["i1"].sql("CREATE TABLE t (id INT PRIMARY KEY, s TEXT) DISTRIBUTED BY (id)")
        cluster["i1"].sql("INSERT INTO t VALUES (1, 'one'), (2, 'two'), (3, 'three')")
        rows = [(1, "one"), (2, "two"), (3, "three")]
        for node in cluster.nodes.values():
            assert node.sql("SELECT id, s FROM t ORDER BY id") == rows
        assert b"challenge" in knock(cluster["i1"], files)
        assert [knock(cluster["i1"], wrong) for wrong in (None, others)] == [b"", b""]
        cluster.add("i4").start(peers=cluster["i1"].peer)
        cluster.wait_online("i4", via="i1")
        fifth = cluster.add("i5")
        cluster.flags[:] = flags(others)
        fifth.start(peers=cluster["i1"].peer)
        eventually(lambda: "is not accepted" in fifth.log(), "the refusal to be told")
        sixth = cluster.add("i6")
        cluster.flags[:] = []
        sixth.start(peers=cluster["i1"].peer)
        eventually(lambda: "does it want TLS" in sixth.log(), "the refusal to be told")
        assert set(cluster.states("i1")) == {"i1", "i2", "i3", "i4"}
    finally:
        cluster.close()


def test_certificates_are_exchanged_while_instances_run(tmp_path: Path) -> None:
    files = certificates(tmp_path / "certs")
    cluster = Cluster(tmp_path, "test", *flags(files))
    try:
        cluster.start("i1", "i2")
        before = serial(cluster["i1"])
        certificates(files)
        eventually(lambda: serial(cluster["i1"]) != before, "the new certificate")
        newcomer = cluster.add("i3").start(peers=cluster["i1"].peer)
        cluster.wait_online("i3", via="i1")
        (files / f"{HOST}.crt").write_text("nonsense")
        eventually(lambda: "stay as they are" in newcomer.log(), "the complaint")
        cluster.add("i4")
        certificates(files)
        cluster["i4"].start(peers=cluster["i1"].peer)
        cluster.wait_online("i1", "i2", "i3", "i4")
    finally:
        cluster.close()


def test_a_certificate_is_good_for_its_own_host_only(tmp_path: Path) -> None:
    files = certificates(tmp_path / "certs", HOST, "127.0.0.2")
    cluster = Cluster(tmp_path, "test", *flags(files))
    try:
        cluster.start("i1")
        cluster.flags[:] = flags(files, "127.0.0.2")
        second = cluster.add("i2").start(peers=cluster["i1"].peer)
        eventually(lambda: "is not accepted" in cluster["i1"].log() + second.log(), "the refusal")
    finally:
        cluster.close()


def test_a_proof_for_one_channel_is_worth_nothing_on_another() -> None:
    def shake(dialled: bytes, listened: bytes) -> str:
        dial = DialSide(Identity("c"), b"secret", lambda n: b"d" * n)
        listen = ListenSide(lambda: Identity("c"), b"secret", lambda n: b"l" * n, lambda _: None)
        dial.binding, listen.binding = dialled, listened
        challenge, _ = listen.receive(dial.start())
        _, refused = listen.receive(dial.receive(challenge) or b"")
        return "" if refused is None else refused.message

    assert shake(b"the same", b"the same") == ""
    assert shake(b"", b"") == ""
    assert shake(b"his", b"mine") == "authentication failed: wrong service password"


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"peer-tls-cert": "x"}, "--peer-tls-cert x: there is no such file"),
        ({"peer-tls-ca": __file__}, "--peer-tls-cert is missing"),
        (
            {"peer-tls-cert": __file__, "peer-tls-key": __file__, "peer-tls-ca": __file__},
            "--peer-tls-key",
        ),
    ],
)
def test_files_that_do_not_fit_are_refused_by_the_name_of_their_flag(
    given: dict[str, str], problem: str
) -> None:
    from cairn.node.boot.config import peer_tls

    with pytest.raises(ConfigProblem, match=problem):
        peer_tls(load(given, {}))


def test_certificates_open_an_address_that_others_can_reach(tmp_path: Path) -> None:
    check_open(load({"listen": "0.0.0.0:3301", "peer-tls-cert": "c"}, {}))
    with pytest.raises(ConfigProblem, match="there is no service password"):
        check_open(load({"listen": "0.0.0.0:3301"}, {}))


def test_passwords_do_not_stay_in_the_environment_of_a_process(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    try:
        node = cluster.add("i1")
        cluster.peers = node.peer
        node.start(CAIRN_LOG_LEVEL="info")  # so it is not forked by a nursery
        cluster.wait_online("i1")
        assert node.process is not None
        for pid in (node.process.pid, node.child_pid):
            shown = Path(f"/proc/{pid}/environ").read_bytes()
            assert b"CAIRN_ADMIN_PASSWORD" in shown
            assert PASSWORD.encode() not in shown
            assert b"shared secret" not in shown
    finally:
        cluster.close()
