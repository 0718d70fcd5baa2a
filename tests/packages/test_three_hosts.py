"""The page on installation works as it stands."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from packages.build import HOME

ISOLATED = ("unshare", "--mount", "--net", "true")


def may_make_hosts() -> bool:
    return os.geteuid() == 0 and subprocess.run(ISOLATED, check=False).returncode == 0


@pytest.mark.slow
@pytest.mark.cluster
@pytest.mark.timeout(900)
@pytest.mark.skipif(not may_make_hosts(), reason="needs root and namespaces")
def test_every_block_of_the_page_works_on_three_hosts() -> None:
    command = [sys.executable, "-m", "tests.packages.three_hosts"]
    ended = subprocess.run(
        command, cwd=HOME, capture_output=True, text=True, timeout=850, check=False
    )
    assert ended.returncode == 0, ended.stdout[-5000:] + ended.stderr[-2000:]
    assert "certificate verify failed" in ended.stdout  # of the last block
