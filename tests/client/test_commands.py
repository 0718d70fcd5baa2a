"""`cairn watch` and `cairn explain-route`, by what they print."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cairn.cli.data import pipeline
from cairn.cli.data.spark_runs import with_password
from cairn.cli.looking.route import run_explain_route
from cairn.cli.looking.watch import Lines
from cairn.cli.talking import TalkProblem, Target

from .fake_cluster import FakeCluster

SELECT = "SELECT id, v FROM t WHERE id = $1"


def event(**fields: Any) -> dict[str, Any]:
    return {"op": "replace", "timestamp": "now", "raft": {"term": 2, "index": 7}, **fields}


def test_names_and_addresses_are_shown_instead_of_uuids() -> None:
    lines = Lines()
    lines.of(event(map="replicaset", replicaset_uuid="u-r1", name="r1", tier="default"))
    joined = lines.of(
        event(
            map="instance",
            instance_uuid="u-i1",
            replicaset_uuid="u-r1",
            name="i1",
            address="127.0.0.1:4327",
            current_state="Online",
        )
    )
    assert joined == (
        "now      2:7 replace instance     instance=i1 at 127.0.0.1:4327 "
        "replicaset=r1 current_state=Online"
    )
    gone = event(map="instance", current_state="Offline", instance_uuid="u-i1")
    assert lines.of(gone) == (
        "now      2:7 replace instance     instance=i1 at 127.0.0.1:4327 current_state=Offline"
    )
    ids = {"start": 1, "end": 9}
    moved = event(map="bucket", tier="t", bucket_id=ids, current_replicaset_uuid="u-r1")
    assert lines.of(moved) == "now      2:7 replace bucket       tier=t bucket_id=1–9 owner=r1"
    stranger = event(map="replicaset", replicaset_uuid="u-r9", current_master_uuid="u-i9")
    assert lines.of(stranger) == ("now      2:7 replace replicaset   replicaset=u-r9 master=u-i9")
    assert lines.of({"map": "heartbeat", "raft": {"term": 2, "index": 7}}) is None


def test_uuids_are_shown_beside_names_when_asked_for() -> None:
    lines = Lines(verbose=True)
    row = event(map="replicaset", replicaset_uuid="u-r1", name="r1", tier="default")
    assert lines.of(row) == ("now      2:7 replace replicaset   replicaset=r1 (u-r1) tier=default")


def test_what_has_no_position_is_shown_without_one() -> None:
    tiers = [{"name": "default", "bucket_count": 3000, "hash_version": 2}]
    hello = Lines().of({"map": "hello", "cluster_uuid": "u", "version": "0.2", "tiers": tiers})
    assert hello is not None
    assert hello.split() == (
        ["hello", "cluster_uuid=u", "version=0.2", "tiers=default", "(3000", "buckets)"]
    )


def test_a_route_is_told(cluster: FakeCluster, capsys: pytest.CaptureFixture[str]) -> None:
    key = cluster.key_of("i2")
    assert run_explain_route(SELECT, [str(key)], cluster.dsn(), None) == 0
    assert "→ r2 → i2" in capsys.readouterr().out
    assert run_explain_route(SELECT, [str(key)], cluster.dsn(), None, as_json=True) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["replicaset"], told["instance"], told["reason"]) == ("r2", "i2", "")


def test_missing_parameters_are_named_with_their_part_in_the_route(cluster: FakeCluster) -> None:
    with pytest.raises(TalkProblem) as caught:
        run_explain_route("INSERT INTO t VALUES ($1, $2)", ["7"], cluster.dsn(), None)
    assert caught.value.exit_code == 2
    assert str(caught.value) == (
        "the statement takes 2 parameters, 1 was given\n"
        "  $1 int8, part 1 of 1 of the distribution key\n"
        "  $2 text"
    )


def test_one_parameter_is_one(cluster: FakeCluster) -> None:
    with pytest.raises(TalkProblem, match="the statement takes 1 parameter, 0 were given"):
        run_explain_route(SELECT, [], cluster.dsn(), None)


def test_bad_sql_is_the_servers_error_and_exit_code_1(cluster: FakeCluster) -> None:
    with pytest.raises(TalkProblem, match="42601: syntax error at selekt") as caught:
        run_explain_route("selekt 1", [], cluster.dsn(), None)
    assert caught.value.exit_code == 1
    with pytest.raises(TalkProblem, match="22P02: invalid input syntax") as caught:
        run_explain_route(SELECT, ["x"], cluster.dsn(), None)
    assert caught.value.exit_code == 1


def test_a_cluster_that_is_not_there_is_exit_code_3(cluster: FakeCluster) -> None:
    dsn = cluster.dsn("i1")
    cluster.stop("i1")
    with pytest.raises(TalkProblem) as caught:
        run_explain_route("SELECT 1", [], dsn, None)
    assert caught.value.exit_code == 3


def test_the_pipelines_commands_end_with_3_when_nobody_answers(
    cluster: FakeCluster, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    dsn = cluster.dsn("i1")
    cluster.stop("i1")
    assert pipeline.dump("t", str(tmp_path / "out"), dsn=dsn) == 3
    assert "cannot reach 127.0.0.1:" in capsys.readouterr().err


@pytest.mark.parametrize("dsn", ["ann:old@h:1", "ann@h:1", "ann:old@h1:1,h2:2", "h:1"])
def test_the_password_file_beats_the_dsn_which_beats_the_environment(
    dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = f"postgresql://{dsn}/cairn?sslmode=disable"
    monkeypatch.setenv("PGPASSWORD", "of the environment")
    in_dsn = "old" if "old" in dsn else "of the environment"
    assert Target(text, None).password == in_dsn
    assert Target(with_password(text, None), None).password == in_dsn
    file = tmp_path / "password"
    file.write_text("p@ss/w:rd\n")
    monkeypatch.delenv("PGPASSWORD")
    given = Target(text, str(file))
    passed_on = Target(with_password(text, str(file)), None)
    assert given.password == passed_on.password == "p@ss/w:rd"
    assert given.settings == passed_on.settings


def test_what_is_wrong_without_spark_is_told_without_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = str(tmp_path / "missing.csv")
    assert pipeline.load([missing], "t", dsn="postgresql://127.0.0.1:1/cairn") == 2
    assert "no such file" in capsys.readouterr().err
    assert pipeline.dump("t", str(tmp_path), dsn="postgresql://127.0.0.1:1/cairn") == 2
    assert "--overwrite" in capsys.readouterr().err
