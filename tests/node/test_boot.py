"""What the founder of a cluster does and says."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
from pathlib import Path

import apsw
import pytest

from cairn.model.errors import ConfigProblem, PeerRefused, WrongCluster
from cairn.node.boot import child
from cairn.node.boot.config import InstanceConfig
from cairn.node.boot.steps import Boot
from cairn.node.runtime import RealRuntime
from tests.cluster.harness import free_ports


def founded(directory: Path, config: InstanceConfig) -> None:
    boot = Boot(config, RealRuntime(directory, "127.0.0.1:1"))
    boot.start_boot(directory / "raft.db").close()


def test_a_cluster_that_nobody_can_log_in_to_is_warned_about_at_its_founding(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "cairn.boot")
    with_one, without = tmp_path / "a", tmp_path / "b"
    with_one.mkdir()
    without.mkdir()
    founded(with_one, InstanceConfig(instance_name="i1", admin_password="T0psecret1"))
    assert "admin password" not in caplog.text
    founded(without, InstanceConfig(instance_name="i1"))
    [told] = [record for record in caplog.records if "admin password" in record.getMessage()]
    assert told.levelno == logging.WARNING
    for way in ("CAIRN_ADMIN_PASSWORD", "--admin-password-file"):
        assert way in told.getMessage()


@pytest.mark.parametrize("password", ["Q9z", "alllowercase1", "NODIGITshere"])
def test_the_first_admin_has_a_password_by_the_rules_for_all(tmp_path: Path, password: str) -> None:
    config = InstanceConfig(admin_password=password)
    boot = Boot(config, RealRuntime(tmp_path, "127.0.0.1:1"))
    with pytest.raises(ConfigProblem, match="the admin's first password: invalid password") as told:
        asyncio.run(boot.start_discover())
    assert password not in told.value.message


def test_whoever_is_refused_for_good_by_all_is_told_so_and_ends(tmp_path: Path) -> None:
    """One that is silent, or refuses for another reason, may still let it in."""
    config = InstanceConfig(advertise="127.0.0.1:1", peers=("127.0.0.1:1", "a:2", "b:3"))
    boot = Boot(config, RealRuntime(tmp_path, "127.0.0.1:1"))
    boot._check_hope(("127.0.0.1:1",))  # a cluster of one has nobody to ask
    boot._refused("a:2", WrongCluster("wrong service password"))
    boot._check_hope(config.peers)
    boot._refused("b:3", WrongCluster("cluster_name mismatch"))
    with pytest.raises(ConfigProblem, match=r"a:2: wrong service password; b:3: cluster_name"):
        boot._check_hope(config.peers)
    boot._refused("b:3", PeerRefused("instance i1 was declared Offline"))
    boot._check_hope(config.peers)


@pytest.mark.parametrize(
    "problem",
    [OSError(errno.ENOSPC, "No space left on device"), apsw.FullError("database or disk is full")],
    ids=["file", "database"],
)
def test_a_start_on_a_full_disk_ends_with_a_sentence(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    problem: Exception,
) -> None:
    async def full(*_: object) -> None:
        raise problem

    monkeypatch.setattr(Boot, "start", full)
    told: list[str] = []
    monkeypatch.setattr(child.log, "error", lambda text, *of: told.append(text % of))
    [port] = free_ports(1)
    config = InstanceConfig(instance_dir=tmp_path, pg_listen=f"127.0.0.1:{port}")
    life, other_end = os.pipe()
    try:
        code = asyncio.run(child._live(config, print, life, lambda _: None, lambda *_: full()))
    finally:
        os.close(life)
        os.close(other_end)
    assert (code, told) == (
        1,
        [
            f"--instance-dir {tmp_path}: no space left for the database "
            f"({getattr(problem, 'strerror', problem)}): free space and restart"
        ],
    )
