"""From other machines: with a login, over TLS. In clear nobody is asked for a password."""

from __future__ import annotations

import shutil
import socket
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from tests.cluster.harness import PASSWORD, eventually
from tests.server.test_tls import files  # noqa: F401
from tests.web.browsing import Browser
from tests.web.conftest import Watched

pytestmark = pytest.mark.cluster


def address_of_this_machine() -> str:
    """One that is not loopback; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
            found = str(probe.getsockname()[0])
        except OSError:
            found = "127.0.0.1"
    if found.startswith("127."):
        pytest.skip("this machine has no address but loopback")
    return found


def test_in_clear_from_another_machine_there_is_nothing_but_probes_and_metrics(
    tmp_path: Path,
) -> None:
    host = address_of_this_machine()
    cluster = Watched(tmp_path, "remote").begin("i1", host="0.0.0.0")
    try:
        browser = Browser(cluster.http["i1"], host)
        assert browser.get("/api/v1/health/live")[0] == 200
        assert browser.get("/metrics")[0] == 200
        assert browser.get("/")[0] == 200
        assert browser.get("/api/v1/overview")[0] == 401
        assert browser.get("/api/v1/status")[0] == 401
        code, told = browser.log_in()
        assert (code, told["error"]["message"]) == (
            403,
            "passwords are taken over TLS only, or from this machine",
        )
        here = cluster.browser("i1")
        assert here.log_in()[0] == 200
        assert here.get("/api/v1/overview")[1]["consoles"] == {
            "i1": f"http://127.0.0.1:{cluster.http['i1']}"  # where its clients reach it
        }
    finally:
        cluster.close()


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
def test_an_instance_with_tls_serves_the_console_over_tls(tmp_path: Path, files: Path) -> None:  # noqa: F811
    host = address_of_this_machine()
    cluster = Watched(tmp_path, "remote")
    node = cluster.add("i1")
    cluster.peers = node.peer
    cluster.http["i1"] = node.pg_port + 1
    tls = ("--tls-cert", f"{files}/server.crt", "--tls-key", f"{files}/server.key")
    node.start("--http-listen", f"0.0.0.0:{cluster.http['i1']}", *tls)
    try:
        browser = Browser(cluster.http["i1"], host, cafile=f"{files}/ca.crt")
        eventually(lambda: browser.get("/api/v1/health/ready")[0] == 200, "HTTPS")
        assert browser.get("/api/v1/overview")[0] == 401
        assert browser.log_in("admin", "wrong")[0] == 401
        assert browser.log_in("admin", PASSWORD)[0] == 200
        assert "secure" in browser.headers["set-cookie"].lower()
        assert browser.query("SELECT current_user")[1]["rows"] == [["admin"]]
        with pytest.raises((urllib.error.URLError, ConnectionError)):
            urllib.request.urlopen(f"http://{host}:{cluster.http['i1']}/metrics", timeout=5)
    finally:
        cluster.close()
