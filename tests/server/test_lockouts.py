"""Guessing is slow for who guesses, and for nobody else."""

from __future__ import annotations

from pathlib import Path

from cairn.server.lockouts import LOCKED_S, Lockouts

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
        assert not found.is_locked(user, address, LIMIT)
        found.failed(user, address)
    assert found.is_locked(user, address, LIMIT)
    return found


def test_a_lock_out_is_of_one_address(tmp_path: Path) -> None:
    found = guessed(tmp_path, Clock())
    assert not found.is_locked("admin", "10.0.0.1", LIMIT)
    assert not found.is_locked("ann", "10.0.0.9", LIMIT)


def test_a_lock_out_ends_by_itself(tmp_path: Path) -> None:
    clock = Clock()
    found = guessed(tmp_path, clock)
    clock.now += LOCKED_S - 1
    assert found.is_locked("admin", "10.0.0.9", LIMIT)
    clock.now += 1
    assert not found.is_locked("admin", "10.0.0.9", LIMIT)
    found.failed("admin", "10.0.0.9")
    assert not found.is_locked("admin", "10.0.0.9", LIMIT)


def test_the_operator_ends_all_lock_outs_by_a_file(tmp_path: Path) -> None:
    found = guessed(tmp_path, Clock())
    for _ in range(LIMIT):
        found.failed("ann", "10.0.0.9")
    (tmp_path / "unlock").touch()
    assert not found.is_locked("ann", "10.0.0.9", LIMIT)
    assert not found.is_locked("admin", "10.0.0.9", LIMIT)
    assert not (tmp_path / "unlock").exists()


def test_an_administrator_forgets_the_failures_of_a_user(tmp_path: Path) -> None:
    found = guessed(tmp_path, Clock())
    found.forget("admin")
    assert not found.is_locked("admin", "10.0.0.9", LIMIT)
