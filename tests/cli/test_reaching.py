"""Commands find an instance that answers, whatever the others of the DSN do."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from cairn.cli import talking
from cairn.cli.talking import Talk, TalkProblem, Target
from tests.cluster.harness import PASSWORD, Cluster, free_ports


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """The port of somebody who lets us in and then stands still, as a paused instance does."""
    monkeypatch.setattr(talking, "CONNECT_S", 0.3)
    [port] = free_ports(1)
    with socket.create_server(("127.0.0.1", port)):
        yield port


@pytest.mark.cluster
def test_a_host_that_stands_still_is_passed_over(small: Cluster, silent: int) -> None:
    hosts = f"127.0.0.1:{silent},127.0.0.1:{small['i2'].pg_port}"
    talk = Talk(Target(f"postgresql://admin:{PASSWORD}@{hosts}/cairn", None))
    try:
        assert talk.call("CALL cairn_status()")["raft"]["leader"]
    finally:
        talk.close()


def test_when_nobody_answers_each_says_why_and_nothing_is_unknown(silent: int) -> None:
    [closed] = free_ports(1)
    target = Target(f"postgresql://admin:x@127.0.0.1:{closed},127.0.0.1:{silent}/cairn", None)
    with pytest.raises(TalkProblem) as refused:
        Talk(target)
    assert refused.value.exit_code == 3
    first, second = str(refused.value).split("; ")
    assert first.startswith(f"cannot reach 127.0.0.1:{closed}: ")
    assert second == f"127.0.0.1:{silent} did not answer within 0.3 s"


@pytest.mark.cluster
def test_a_wrong_password_is_told_at_once_and_not_tried_elsewhere(
    small: Cluster, silent: int
) -> None:
    hosts = f"127.0.0.1:{small['i1'].pg_port},127.0.0.1:{silent}"
    with pytest.raises(TalkProblem, match="authentication failed") as refused:
        Talk(Target(f"postgresql://nobody:wrong@{hosts}/cairn", None))
    assert refused.value.exit_code == 1
