"""A password by a prompt: neither in the history of the shell nor in the environment."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

import pytest

from tests.cluster.harness import PASSWORD, Cluster
from tests.server.conftest import cluster  # noqa: F401

pytestmark = pytest.mark.cluster


def test_a_person_at_a_terminal_is_asked_for_the_password(cluster: Cluster) -> None:  # noqa: F811
    ours, theirs = pty.openpty()
    dsn = f"postgresql://admin@127.0.0.1:{cluster['i1'].pg_port}/cairn"
    environment = {key: value for key, value in os.environ.items() if key != "PGPASSWORD"}
    command = [sys.executable, "-m", "cairn.cli.main", "status", "--dsn", dsn]
    with subprocess.Popen(
        command,
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=theirs,
        env=environment,
        start_new_session=True,
    ) as status:
        os.close(theirs)
        try:
            assert os.read(ours, 100) == b"password: "
            os.write(ours, PASSWORD.encode() + b"\n")
            told, _ = status.communicate(timeout=30)
        finally:
            status.kill()
            os.close(ours)
    assert status.returncode == 0
    assert b"i1" in told
