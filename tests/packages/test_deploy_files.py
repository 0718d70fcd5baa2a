"""Units, images and manifests in `deploy/` say only what the program understands."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from packages.build import ALL, HOME, SERVER

from cairn.cli.instance.run import parser
from cairn.model.errors import ConfigProblem
from cairn.node.boot.config import HTTP_PORT, PEER_PORT, PG_PORT, SOURCES, InstanceConfig, load

DEPLOY = HOME / "deploy"
UNIT, ENV = DEPLOY / "systemd" / "cairn.service", DEPLOY / "systemd" / "cairn.env"
DOCKERFILE, COMPOSE = DEPLOY / "docker" / "Dockerfile", DEPLOY / "docker" / "compose.yaml"
KUBERNETES = DEPLOY / "kubernetes" / "cairn.yaml"
INSTALL = HOME / "docs" / "how-to-install.md"
FILES = (UNIT, ENV, DOCKERFILE, COMPOSE, KUBERNETES, INSTALL)
VARIABLES = {variable for variable, _ in SOURCES.values()} | {"CAIRN_CONFIG", "CAIRN_DSN"}
SECRETS = ("CAIRN_SERVICE_PASSWORD_FILE", "CAIRN_ADMIN_PASSWORD_FILE")
PORTS = {"peers": PEER_PORT, "pg": PG_PORT, "http": HTTP_PORT}


def manifests() -> dict[tuple[str, str], Any]:
    found = yaml.safe_load_all(KUBERNETES.read_text())
    return {(each["kind"], each["metadata"]["name"]): each["spec"] for each in found}


def pod() -> dict[str, Any]:
    found: dict[str, Any] = manifests()["StatefulSet", "cairn"]["template"]["spec"]
    return found


def container() -> dict[str, Any]:
    [found] = pod()["containers"]
    return dict(found)


def image_environment() -> dict[str, str]:
    return dict(re.findall(r"(CAIRN_\w+)=(\S+)", DOCKERFILE.read_text()))


def instances() -> Iterator[tuple[str, dict[str, str]]]:
    """Where it is written, and the environment of each instance."""
    lines = [line for line in ENV.read_text().splitlines() if not line.startswith("#")]
    yield "systemd", dict(line.split("=", 1) for line in lines)
    for name, service in yaml.safe_load(COMPOSE.read_text())["services"].items():
        yield f"compose {name}", image_environment() | service["environment"]
    for pod_name in ("cairn-0", "cairn-1", "cairn-2"):
        given = {each["name"]: each.get("value", pod_name) for each in container()["env"]}
        filled = {name: value.replace("$(POD)", pod_name) for name, value in given.items()}
        yield f"kubernetes {pod_name}", image_environment() | filled


def loaded(environment: Mapping[str, str], room: Path) -> InstanceConfig:
    secret = room / "secret"
    secret.write_text("Gr4nite-first\n")
    return load({}, {**environment, **dict.fromkeys(SECRETS, str(secret))})


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_variable_and_flag_exists(path: Path) -> None:
    text = path.read_text()
    assert set(re.findall(r"CAIRN_[A-Z_]+[A-Z]", text)) <= VARIABLES
    flags = {flag for action in parser()._actions for flag in action.option_strings}
    for command in re.findall(r"cairn run(?:\\\n|[^\n])*", text):
        assert set(re.findall(r"--[a-z-]+", command)) <= flags


@pytest.mark.parametrize(
    ("where", "environment"), list(instances()), ids=lambda each: str(each)[:20]
)
def test_every_instance_is_accepted_and_finds_itself_among_its_peers(
    where: str, environment: dict[str, str], tmp_path: Path
) -> None:
    config = loaded(environment, tmp_path)
    assert config.advertise in config.peers
    assert len(config.peers) == 3
    assert config.service_secret
    assert config.http_listen
    for secret in SECRETS:
        assert environment[secret].startswith("/")


def test_a_variable_with_a_wrong_value_would_be_noticed(tmp_path: Path) -> None:
    _, environment = next(instances())
    with pytest.raises(ConfigProblem):
        loaded({**environment, "CAIRN_INIT_REPLICATION_FACTOR": "three"}, tmp_path)


def test_probes_ask_for_what_is_served() -> None:
    served = (HOME / "src" / "cairn" / "web" / "app.py").read_text()
    probes = [
        container()[f"{kind}Probe"]["httpGet"] for kind in ("startup", "readiness", "liveness")
    ]
    asked = {probe["path"] for probe in probes}
    asked |= set(re.findall(r"/api/v1/health/\w+", COMPOSE.read_text()))
    assert asked == {f"/api/v1/health/{kind}" for kind in ("startup", "ready", "live")}
    for path in asked:
        assert f'Route("{path}"' in served
    assert {probe["port"] for probe in probes} == {"http"}


def test_ports_are_those_of_the_program() -> None:
    assert {each["name"]: each["containerPort"] for each in container()["ports"]} == PORTS
    service = manifests()["Service", "cairn"]
    assert {each["name"]: each["port"] for each in service["ports"]} == PORTS
    assert service["publishNotReadyAddresses"] is True
    assert f"EXPOSE {PEER_PORT} {PG_PORT} {HTTP_PORT}" in DOCKERFILE.read_text()


def test_pods_have_the_user_and_the_directory_of_the_image_and_may_write_nowhere_else() -> None:
    uid = int(re.findall(r"--uid (\d+)", DOCKERFILE.read_text())[0])
    assert pod()["securityContext"]["runAsUser"] == pod()["securityContext"]["fsGroup"] == uid
    mounted = {each["name"]: each["mountPath"] for each in container()["volumeMounts"]}
    assert image_environment()["CAIRN_INSTANCE_DIR"].startswith(mounted["data"] + "/")
    assert set(mounted) == {each["name"] for each in pod()["volumes"]} | {"data"}
    assert container()["securityContext"]["readOnlyRootFilesystem"] is True
    assert pod()["enableServiceLinks"] is False


def test_files_that_the_image_copies_are_there() -> None:
    ignored = (HOME / ".dockerignore").read_text().splitlines()
    for source in re.findall(r"^COPY (?!--from)(\S+) ", DOCKERFILE.read_text(), re.MULTILINE):
        assert (HOME / source).exists()
    for name in (line[1:] for line in ignored if line.startswith("!")):
        assert (HOME / name).exists()
    assert {f"!{name}" for name in (*SERVER, *ALL)} <= set(ignored)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze")
def test_systemd_understands_the_unit(tmp_path: Path) -> None:
    text = UNIT.read_text()
    assert "ExecStart=/opt/cairn/bin/cairn run\n" in text and "Type=notify\n" in text
    unit = tmp_path / UNIT.name
    unit.write_text(text.replace("/opt/cairn/bin/cairn", "/bin/true"))
    ended = subprocess.run(
        ["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False
    )
    told = [line for line in ended.stderr.splitlines() if UNIT.name in line]
    assert not told
