"""Configuration files: what is wrong is one sentence that names its place."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from cairn.cli.instance import run
from cairn.model.errors import ConfigProblem
from cairn.model.members.topology import Tier
from cairn.node.boot.config import check_open, default_file, load

CAIRN = [sys.executable, "-m", "cairn.cli.main"]


def problem(tmp_path: Path, text: str) -> str:
    path = tmp_path / "c.yaml"
    path.write_text(text)
    with pytest.raises(ConfigProblem) as caught:
        load({"config": str(path)}, {})
    return str(caught.value).replace(f"--config {path}: ", "")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("cluster: {name: c, tier: [default]}", "cluster.tier: a mapping is expected"),
        ("cluster: {name: c, tier: {default: [1]}}", "cluster.tier.default: a mapping is expected"),
        (
            "cluster: {name: c, default_bucket_count: many}",
            "cluster.default_bucket_count 'many': a number from 0 on",
        ),
        (
            "cluster: {name: c, tier: {default: {bucket_count: []}}}",
            "cluster.tier.default.bucket_count []: a number from 0 on",
        ),
        (
            "cluster: {name: c, tier: {default: {replication_factor: [2]}}}",
            "cluster.tier.default.replication_factor [2]: a number from 1 to 31",
        ),
        (
            "cluster: {name: c, tier: {default: {can_vote: 'no'}}}",
            "cluster.tier.default.can_vote: true or false, not no",
        ),
        ("cluster: [c]", "cluster: a mapping is expected"),
        ("cluster: {name: {a: b}}", "cluster.name: a single value is expected"),
        ("- a", "a mapping is expected at the top"),
        ("cluster: {name: 'c", "line 1: found unexpected end of stream"),
    ],
)
def test_a_value_of_a_wrong_kind_is_refused_in_one_sentence(
    tmp_path: Path, text: str, said: str
) -> None:
    told = problem(tmp_path, text)
    assert told.startswith(said) and "\n" not in told


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "{cluster: {name: c}, instance: {pg: {listn: 'h:1'}}}",
            "unknown key instance.pg.listn: did you mean listen?",
        ),
        (
            "cluster: {name: c, default_bucket_cnt: 2}",
            "unknown key cluster.default_bucket_cnt: did you mean default_bucket_count?",
        ),
        (
            "cluster: {name: c, tier: {default: {bucket_cuont: 2}}}",
            "unknown key cluster.tier.default.bucket_cuont: did you mean bucket_count?",
        ),
        ("{cluster: {name: c}, instnce: {}}", "unknown key instnce: did you mean instance?"),
        (
            "{cluster: {name: c}, instance: {log: {x1: 2}}}",
            "unknown key instance.log.x1: known: level",
        ),
    ],
)
def test_a_misspelt_key_is_refused_with_the_nearest_known(
    tmp_path: Path, text: str, said: str
) -> None:
    assert problem(tmp_path, text) == said


def test_the_default_file_and_all_that_is_documented_are_understood(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(default_file())
    assert load({"config": str(path)}, {}).tiers == (Tier("default", 1, is_default=True),)
    path.write_text(
        "cluster: {name: c, default_bucket_count: 100, tier: {hot: {replication_factor: 2}, "
        "cold: {can_vote: false, bucket_count: 0, hash_version: 1, replication_mode: sync}}}\n"
        "instance: {admin_password_file: null, failure_domain: {dc: msk}, peer: [a, b], "
        "iproto: {advertise: 'h:1'}, pg: {advertise: 'h:2', tls: {ca_file: x}}}\n"
    )
    found = load({"config": str(path)}, {})
    assert found.tiers == (
        Tier("hot", 2, bucket_count=100, is_default=True),
        Tier("cold", 1, can_vote=False, bucket_count=0, hash_version=1, replication_mode="sync"),
    )
    assert (found.advertise, found.pg_advertise, found.tls_ca) == ("h:1", "h:2", "x")
    assert (found.peers, found.failure_domain) == (("a:3301", "b:3301"), {"DC": "MSK"})


def test_a_default_file_that_cannot_be_written_is_one_sentence() -> None:
    ended = subprocess.run(
        [*CAIRN, "config", "default", "-o", "/nonexist/c.yaml"], capture_output=True, text=True
    )
    assert ended.returncode == 2
    assert ended.stderr == "cairn: -o /nonexist/c.yaml: No such file or directory\n"


def test_the_supervisor_takes_the_directory_from_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CAIRN_INSTANCE_DIR", raising=False)
    file = tmp_path / "z.yaml"
    flags = {"config": str(file)}
    file.write_text("cluster: {name: c}\ninstance: {name: i7, instance_dir: deep/below}\n")
    assert run._directory(flags) == tmp_path / "deep" / "below"
    assert run._directory({**flags, "instance-dir": "flag"}) == tmp_path / "flag"
    file.write_text("cluster: {name: c}\ninstance: {name: i7}\n")
    assert run._directory(flags) == tmp_path / "i7"
    assert run._directory({**flags, "instance-name": "i8"}) == tmp_path / "i8"
    assert run._directory({}) == tmp_path / "cairn-instance"
    file.write_text("cluster: {nme: c}\n")
    assert run._directory(flags) is None
    told = capfd.readouterr().err
    assert told == f"cairn run: --config {file}: unknown key cluster.nme: did you mean name?\n"


def test_files_of_an_instance_are_its_users_alone(tmp_path: Path) -> None:
    program = """
import os, sys
from pathlib import Path
from cairn.cli.instance.supervisor import supervise
os.umask(0o022)
directory = Path(sys.argv[1])
def child(tell, lifeline, beat):
    (directory / "raft.db").write_text("rows")
    for path in (directory.parent, directory, *sorted(directory.iterdir())):
        print(path.name, oct(path.stat().st_mode & 0o777))
    return 0
sys.exit(supervise(child, directory))
"""
    command = [sys.executable, "-c", program, str(tmp_path / "above" / "i1")]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    told = set(ended.stdout.splitlines())
    assert {"above 0o755", "i1 0o700", "lock 0o600", "raft.db 0o600"} <= told
    pids = [line for line in told if line.startswith("cairn.pid")]  # and the one it is written to
    assert all(line.endswith(" 0o600") for line in pids)


@pytest.mark.parametrize(("steady_s", "starts"), [(3600, 5), (0, 8)])
def test_who_mends_its_file_now_and_then_is_always_started_again(
    tmp_path: Path, steady_s: int, starts: int
) -> None:
    """Five repairs in the life of a supervisor were all that it had. In a row they are enough."""
    program = """
import sys
from pathlib import Path
from cairn.cli.instance import supervisor
supervisor.STEADY_S = float(sys.argv[2])
begun = Path(sys.argv[1]) / "begun"
def child(tell, lifeline, beat):
    with begun.open("a") as file:
        file.write(".")
    if begun.stat().st_size < 8:
        tell({"again": True})
    return 75
supervisor.supervise(child, begun.parent)
"""
    command = [sys.executable, "-c", program, str(tmp_path), str(steady_s)]
    subprocess.run(command, capture_output=True, timeout=30, check=True)
    assert (tmp_path / "begun").stat().st_size == starts


@pytest.mark.parametrize("listen", ["0.0.0.0:3301", "10.1.2.3", "example.org:3301", "[::]:3301"])
def test_peers_port_that_others_reach_needs_a_service_password(listen: str, tmp_path: Path) -> None:
    flags = {"listen": listen}
    with pytest.raises(ConfigProblem, match="there is no service password") as refused:
        check_open(load(flags, {}))
    assert "openssl rand -hex 32 > service.password" in str(refused.value.hint)
    secret = tmp_path / "service.password"
    secret.write_text("0123456789abcdef\n")
    secret.chmod(0o600)
    check_open(load({**flags, "service-password-file": str(secret)}, {}))


@pytest.mark.parametrize("listen", ["127.0.0.1", "127.8.9.1:3301", "localhost:3301", "[::1]:3301"])
def test_on_one_machine_no_service_password_is_needed(listen: str) -> None:
    config = load({"listen": listen}, {})
    assert config.service_secret == b""
    check_open(config)


@pytest.mark.parametrize("flag", ["service-password-file", "admin-password-file"])
@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "the file is empty"),
        (b" \n", "the file is empty"),
        (b"\xac\x00\xff", "it is not text"),
        (b"x" * 5000, "at most 4096 bytes"),
        (None, "No such file"),
    ],
    ids=["empty", "blank", "binary", "long", "missing"],
)
def test_a_password_file_that_has_none_is_refused_by_its_name(
    tmp_path: Path, flag: str, content: bytes | None, said: str
) -> None:
    """An empty service password would be none: anybody could join."""
    path = tmp_path / "secret"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigProblem, match=f"--{flag} {path}: .*{said}"):
        load({flag: str(path)}, {})
