"""`cairn doctor`: each thing that is wrong is found, named, and told with what to do."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from cairn.cli.doctor import directory
from cairn.cli.doctor.certificates import good_until, judged, of_file
from cairn.cli.doctor.cluster import surprises
from cairn.cli.doctor.findings import BAD, GOOD, WARNING, Finding, tell
from cairn.storage.files.sqlite import open_writer
from tests.cluster.backups import cairn
from tests.cluster.harness import Cluster, eventually

Make = Callable[..., Cluster]


def wrong(path: Path) -> list[tuple[str, str]]:
    return [
        (each.level, each.what)
        for each in directory.look_at(path)
        if each.level in (BAD, WARNING) and "disk" not in each.what
    ]


def test_a_stopped_directory_is_read_whole(new_cluster: Make, tmp_path: Path) -> None:
    cluster = new_cluster().start("i1")
    node = cluster["i1"]
    node.sql("CREATE TABLE t (id INT PRIMARY KEY, body TEXT) DISTRIBUTED BY (id)")
    node.sql("INSERT INTO t SELECT n, repeat('x', 500) FROM generate_series(1, 500) AS g (n)")
    node.dir.chmod(0o700)
    [running] = [each for each in directory.look_at(node.dir) if "runs here" in each.what]
    assert running.level not in (BAD, WARNING)
    assert node.stop() == 0
    (node.dir / "cairn.log").chmod(0o600)
    assert wrong(node.dir) == []
    told = {each.what for each in directory.look_at(node.dir) if each.level == GOOD}
    assert "an instance of cluster test, version 0.1.0" in told
    assert not list(node.dir.glob("cairn.pid"))

    (node.dir / "data.db").chmod(0o644)
    assert wrong(node.dir) == [(WARNING, "others may read data.db: rows are in clear there")]
    (node.dir / "data.db").chmod(0o600)

    data = node.dir / "data.db"
    open_writer(data).close()  # the last one that closes moves its log into the file
    whole = data.read_bytes()
    for at in (whole.index(b"x" * 400), whole.rindex(b"x" * 400)):  # a row, a long record
        data.write_bytes(whole[:at] + b"y" + whole[at + 1 :])
        [(level, what)] = wrong(node.dir)
        assert (level, what.startswith("pages are damaged")) == (BAD, True), what
    data.write_bytes(whole)
    assert wrong(node.dir) == []

    data.write_bytes(b"")
    assert [level for level, _ in wrong(node.dir)] != []
    data.unlink()
    assert (BAD, "the file is missing") in wrong(node.dir)
    (node.dir / "restore.json").write_text("{}")
    assert (BAD, "a restore was begun and not finished") in wrong(node.dir)


def test_what_is_no_directory_of_an_instance_is_said(tmp_path: Path) -> None:
    assert wrong(tmp_path / "nothing") == [(BAD, "there is no such directory")]
    assert wrong(tmp_path) == [(BAD, "no instance has lived here: raft.db is missing")]
    assert list(tmp_path.iterdir()) == []


def test_a_directory_with_those_of_instances_in_it_stands_for_them(tmp_path: Path) -> None:
    """`cairn doctor DIR` of a demo; one that lost its raft.db is still told of."""
    for name in ("i1", "i2"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "raft.db").touch()
    alone = [*wrong(tmp_path / "i1"), *wrong(tmp_path / "i2")]
    assert wrong(tmp_path) == alone != []
    (tmp_path / "data.db").touch()
    assert wrong(tmp_path) == [(BAD, "no instance has lived here: raft.db is missing")]


def made(tmp_path: Path, days: int) -> bytes:
    pem = tmp_path / f"{days}.crt"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
            *("-nodes", "-keyout", str(tmp_path / "key"), "-out", str(pem)),
            *("-days", str(days), "-subj", "/CN=localhost"),
        ],
        check=True,
        capture_output=True,
        timeout=30,
    )
    return of_file(str(pem))


def test_certificates_are_judged_by_their_last_day(tmp_path: Path) -> None:
    der = made(tmp_path, 100)
    now = datetime.now(UTC)
    assert timedelta(days=99) < good_until(der) - now <= timedelta(days=100)

    def told(after_days: float) -> tuple[str, str]:
        found = judged("i1", der, now + timedelta(days=after_days))
        return found.level, found.what

    assert told(0) == (GOOD, "the certificate is good for 99 days")
    assert told(80) == (WARNING, "the certificate expires in 19 days")
    assert told(99.5) == (WARNING, "the certificate expires in 11 hours")
    assert told(101.5) == (BAD, "the certificate has expired 1 day ago")
    assert told(102.5) == (BAD, "the certificate has expired 2 days ago")
    assert judged("i1", b"no certificate", now).level == BAD
    century = made(tmp_path, 36_500)  # its year does not fit into two digits
    assert good_until(century).year > 2100


@pytest.mark.parametrize(
    ("setting", "what"),
    [
        ({"governor_auto_offline_timeout": 60.0}, "a dead master is noticed after 60.0 s"),
        (
            {"governor_auto_offline_timeout": 0.5},
            "whoever is silent for 0.5 s is taken for dead",
        ),
        ({"scrub_interval": 0.0}, "damage of files is never looked for"),
        ({"atomic_blocks": False}, "each statement of BEGIN … COMMIT commits by itself"),
        ({"read_preference": "any"}, "reads go to any: they may be a moment behind"),
    ],
)
def test_settings_that_surprise_are_told(setting: dict[str, Any], what: str) -> None:
    quiet: dict[str, Any] = {"instances": [{"addresses": {"pg": "127.0.0.1:4327"}}]}
    assert surprises("c", {}, quiet) == []
    [found] = surprises("c", setting, quiet)
    [key] = setting
    assert (found.where, found.what) == (key, what)
    assert found.do == f"ALTER SYSTEM RESET {key}, if it is not meant so."


def test_the_exit_code_says_whether_something_is_to_be_done(
    capsys: pytest.CaptureFixture[str],
) -> None:
    good, bad = Finding(GOOD, "i1", "it lives"), Finding(BAD, "i2", "it does not", "Start it.")
    old = Finding(WARNING, "i3", "it is old")
    assert tell([good], as_json=False) == 0
    assert tell([good, bad], as_json=False) == 6
    assert capsys.readouterr().out == (
        "✓ i1: it lives\nnothing is wrong\n"
        "✗ i2: it does not\n    Start it.\n✓ i1: it lives\n1 to look at\n"
    )
    assert tell([old, good], as_json=True) == 1
    assert tell([old, bad], as_json=True) == 6


def test_a_cluster_that_cannot_work_is_told_by_a_code_of_its_own(small: Cluster) -> None:
    """`cairn status` ended with 0 while two of three voters were dead."""
    node = small["i1"]
    assert cairn(node, "status")[0] == 0
    others = (small["i2"], small["i3"])
    try:
        for each in others:
            each.pause()
        eventually(lambda: cairn(node, "status", "--json")[0] == 6, "the loss of the quorum")
        code, told = cairn(node, "status")
        assert code == 6 and "Start i2 and i3" in told
        code, told = cairn(node, "doctor")
        assert code == 6 and "✗ small: No quorum" in told
    finally:
        for each in others:
            each.resume()
    eventually(lambda: cairn(node, "status")[0] == 0, "that it works again")


def test_a_running_cluster_is_looked_at(small: Cluster) -> None:
    node = small["i1"]
    node.sql("ALTER SYSTEM SET scrub_interval = 0.0")
    try:
        code, told = cairn(node, "doctor", "--json")
    finally:
        node.sql("ALTER SYSTEM RESET scrub_interval")
    found = {(each["where"], each["what"]) for each in json.loads(told)["findings"]}
    assert code == 1
    assert ("scrub_interval", "damage of files is never looked for") in found
    assert cairn(node, "pause")[0] == 0
    try:
        code, told = cairn(node, "doctor")
    finally:
        assert cairn(node, "resume")[0] == 0
    assert code == 1
    assert "! small: Automatic failover is paused: a master that dies is not replaced\n" in told
