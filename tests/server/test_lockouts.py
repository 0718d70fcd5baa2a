"""Guessing is slow for who guesses, and for nobody else."""

from __future__ import annotations

from pathlib import Path

import pytest

from cairn.cli.instance.unlock import run_unlock
from cairn.cli.talking import TalkProblem
from cairn.server.lockouts import KEY, LOCKED_S, Lockouts

LIMIT = 4


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def guessed(
    directory: Path, clock: Clock, user: str = "admin", address: str = "10.0.0.9"
) -> Lockouts:
    found = Lockouts(directory, clock)
    for _ in range(LIMIT):
        assert not found.locked_s(user, address, LIMIT)
        found.failed(user, address)
    assert found.locked_s(user, address, LIMIT)
    return found


def test_a_lock_out_is_of_one_address(tmp_path: Path) -> None:
    found = guessed(tmp_path, Clock())
    assert not found.locked_s("admin", "10.0.0.1", LIMIT)
    assert not found.locked_s("ann", "10.0.0.9", LIMIT)


def test_a_lock_out_ends_by_itself(tmp_path: Path) -> None:
    clock = Clock()
    found = guessed(tmp_path, clock)
    clock.now += LOCKED_S - 1
    assert found.locked_s("admin", "10.0.0.9", LIMIT) == 1
    clock.now += 1
    assert not found.locked_s("admin", "10.0.0.9", LIMIT)
    found.failed("admin", "10.0.0.9")
    assert not found.locked_s("admin", "10.0.0.9", LIMIT)


def test_the_operator_ends_all_lock_outs_on_the_machine_itself(tmp_path: Path) -> None:
    found = guessed(tmp_path, Clock())
    for _ in range(LIMIT):
        found.failed("ann", "10.0.0.9")
    (tmp_path / "instance_uuid").touch()
    with pytest.raises(TalkProblem, match="does not run"):
        run_unlock(tmp_path)
    (tmp_path / "cairn.pid").touch()
    assert run_unlock(tmp_path) == 0
    assert not found.locked_s("ann", "10.0.0.9", LIMIT)
    assert not found.locked_s("admin", "10.0.0.9", LIMIT)
    assert not (tmp_path / "unlock").exists()


def test_a_key_that_was_left_lets_nobody_guess_on_after_a_start(tmp_path: Path) -> None:
    (tmp_path / KEY).touch()
    guessed(tmp_path, Clock())


def test_where_no_instance_is_nothing_is_unlocked(tmp_path: Path) -> None:
    with pytest.raises(TalkProblem, match="no instance has its files there"):
        run_unlock(tmp_path)
    assert not list(tmp_path.iterdir())


def test_an_administrator_forgets_the_failures_of_a_user(tmp_path: Path) -> None:
    found = guessed(tmp_path, Clock())
    found.forget("admin")
    assert not found.locked_s("admin", "10.0.0.9", LIMIT)


def test_a_network_of_ipv6_is_locked_out_as_one(tmp_path: Path) -> None:
    """A host there has 2**64 addresses to guess from."""
    found = guessed(tmp_path, Clock(), address="2001:db8::1")
    assert found.locked_s("admin", "2001:db8::2", LIMIT)
    assert not found.locked_s("admin", "2001:db8:0:1::1", LIMIT)
    found.forget("admin", "2001:db8::3")
    assert not found.locked_s("admin", "2001:db8::1", LIMIT)


def test_unlocking_follows_no_link(tmp_path: Path) -> None:
    """Root may do it in the directory of another user."""
    (tmp_path / "instance_uuid").touch()
    (tmp_path / "cairn.pid").touch()
    (tmp_path / KEY).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(TalkProblem):
        run_unlock(tmp_path)
    assert not (tmp_path / "elsewhere").exists()
    (tmp_path / KEY).unlink()
    assert run_unlock(tmp_path) == 0
    assert (tmp_path / KEY).stat().st_uid == tmp_path.stat().st_uid
