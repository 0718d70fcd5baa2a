"""Runs docs/how-to-install.md, block by block, on three hosts made of namespaces of this machine.

    python -m tests.packages.three_hosts        (as root; the wheel is built first)

A host has its own network and its own /etc, /opt, /root, /var and /run: what is done there is gone
afterwards. There is no systemd and no ssh: `systemctl`, `ssh` and `scp` are stand-ins of this file.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from packages.build import HOME, build_all

PAGE = HOME / "docs" / "how-to-install.md"
HOSTS = ("10.0.0.1", "10.0.0.2", "10.0.0.3")
_BLOCK = re.compile(r"```sh\n# on ([^\n]+)\n(.*?)```", re.DOTALL)
_PROGRAM = re.compile(r"/opt/cairn(/|$)", re.MULTILINE)  # not the files beside it
_DIRECTORIES = ("etc", "opt", "root", "var/lib", "run")

#: Reads the unit as systemd would: user, environment file, state directory, command, READY=1.
SYSTEMCTL = """#!/usr/bin/env python3
import os, pwd, signal, socket, subprocess, sys

def lines(path):
    return [line.strip() for line in open(path) if "=" in line and line[0] != "#"]

def start():
    user = pwd.getpwnam(unit["User"])
    state = "/var/lib/" + unit["StateDirectory"]
    os.makedirs(state, int(unit["StateDirectoryMode"], 8), exist_ok=True)
    os.chown(state, user.pw_uid, user.pw_gid)
    systemd = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    systemd.bind("\\0cairn-notify")
    given = dict(line.split("=", 1) for line in lines(unit["EnvironmentFile"]))
    given |= {"PATH": "/usr/bin:/bin", "NOTIFY_SOCKET": "@cairn-notify"}
    log = open("/run/journal", "ab")
    subprocess.Popen(
        unit["ExecStart"].split(), env=given, cwd=unit["WorkingDirectory"], user=user.pw_uid,
        group=user.pw_gid, extra_groups=[], umask=int(unit["UMask"], 8), start_new_session=True,
        stdin=subprocess.DEVNULL, stdout=log, stderr=log,
    )
    if "--no-block" not in sys.argv:
        while not systemd.recv(1000).startswith(b"READY=1"):
            pass

unit = dict(line.split("=", 1) for line in lines("/etc/systemd/system/cairn.service"))
[word, *_] = sys.argv[1:]
if word == "start":
    start()
elif word == "kill":
    [name] = os.listdir("/var/lib/cairn")
    for pid in open(f"/var/lib/cairn/{name}/cairn.pid").read().split():
        os.kill(int(pid), signal.SIGKILL)
    start()  # Restart=on-failure
elif word not in ("daemon-reload", "enable"):
    sys.exit(f"the stand-in for systemctl does not know {word}")
"""


class Host:
    """A network namespace with an address on the common bridge, and a mount namespace."""

    def __init__(self, room: Path, name: str, address: str) -> None:
        self.name, self.address, self.room = name, address, room / name
        lines = ["mount --make-rprivate /"]
        for directory in _DIRECTORIES:
            upper, work = self.room / directory / "up", self.room / directory / "work"
            upper.mkdir(parents=True), work.mkdir(parents=True)
            over = f"lowerdir=/{directory},upperdir={upper},workdir={work}"
            lines.append(f"mount -t overlay overlay -o {over} /{directory}")
        lines += ["ip link set lo up", "echo ready", "exec sleep infinity"]
        self.process = subprocess.Popen(
            ["unshare", "--mount", "--net", "sh", "-ec", "\n".join(lines)],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        if self.process.stdout.readline() != "ready\n":
            raise SystemExit(f"{name}: no namespaces on this machine")

    def connect(self, bridge: Host) -> None:
        near, far = f"cairn-{self.name}"[-15:], f"at-{self.name}"
        bridge.run(f"ip link add {near} type veth peer name {far} netns {self.process.pid}")
        bridge.run(f"ip link set {near} master wire up")
        self.run(f"ip addr add {self.address}/24 dev {far} && ip link set {far} up")

    def run(self, text: str, **environment: str) -> subprocess.CompletedProcess[str]:
        enter = (
            "nsenter",
            "-t",
            str(self.process.pid),
            "--mount",
            "--net",
            "--wdns=" + os.getcwd(),
        )
        env = {**os.environ, **environment}
        command = [*enter, "bash", "-ec", text]
        return subprocess.run(
            command,
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )

    def close(self) -> None:
        """Whoever runs there is ended, then the namespaces go."""
        ask = f"cat {' '.join(f'/var/lib/cairn/db{n}/cairn.pid' for n in (1, 2, 3))} 2>/dev/null"
        for pid in self.run(f"{ask} || true").stdout.split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        self.process.kill()
        self.process.wait()


class Hosts:
    """The desk, whose bridge connects them, and the three."""

    def __init__(self, room: Path) -> None:
        self.room = room
        self.desk = Host(room, "desk", "10.0.0.9")
        self.hosts = {at: Host(room, f"db{n}", at) for n, at in enumerate(HOSTS, 1)}
        self.desk.run("ip link add wire type bridge && ip link set wire up")
        self.desk.run("ip addr add 10.0.0.9/24 dev wire")
        for host in self.hosts.values():
            host.connect(self.desk)
        self._stand_ins()

    def _stand_ins(self) -> None:
        tools = self.room / "bin"
        tools.mkdir()
        pids = "".join(f"{at}) pid={host.process.pid};; " for at, host in self.hosts.items())
        find = f'case "${{at#root@}}" in {pids}*) exit 1;; esac; enter="nsenter -t $pid --mount"\n'
        texts = {
            "ssh": f'#!/bin/bash\nat=$1; shift; {find}exec $enter --wdns=/ bash -c "$*"\n',
            "scp": '#!/bin/bash\nset -e; shift; target="${@: -1}"; at=${target%%:*}; '
            f'{find}exec $enter --wdns="$PWD" cp "${{@:1:$#-1}}" "${{target#*:}}"\n',
            "systemctl": SYSTEMCTL,
        }
        for name, text in texts.items():
            (tools / name).write_text(text)
            (tools / name).chmod(0o755)
        self.path = f"{tools}:{Path(sys.executable).parent}:{os.environ['PATH']}"

    def install(self, text: str) -> str:
        """On the first host, with this machine's network; the others get a copy."""
        first, *others = self.hosts.values()
        enter = (
            "nsenter",
            "-t",
            str(first.process.pid),
            "--mount",
            "--wdns=/",
            "bash",
            "-ec",
            text,
        )
        subprocess.run(enter, check=True)
        for other in others:
            source, target = first.room / "opt" / "up" / "cairn", "/opt/cairn"
            assert other.run(f"cp -a {shlex.quote(str(source))} {target}").returncode == 0
        return ""

    def close(self) -> None:
        for host in (*self.hosts.values(), self.desk):
            host.close()


def blocks() -> Iterator[tuple[str, str]]:
    found = _BLOCK.findall(PAGE.read_text())
    assert len(found) >= 8, "the page has lost its blocks"
    yield from found


def follow(hosts: Hosts, where: str, text: str, before: str) -> str:
    if where.startswith("your machine"):
        ended = hosts.desk.run(before + text, PATH=hosts.path, HOME="/root")
        assert (ended.returncode != 0) == where.endswith("fails"), ended.stdout
        return ended.stdout
    lines = text.splitlines(keepends=True)
    install = "".join(line for line in lines if _PROGRAM.search(line))
    rest = "".join(line for line in lines if not _PROGRAM.search(line))
    told = []
    for address, host in hosts.hosts.items():
        if where in ("every host", address):
            ended = host.run(rest, PATH=hosts.path, HOME="/root")
            assert ended.returncode == 0, ended.stdout
            told.append(ended.stdout)
    if install:
        hosts.install(install)
    return "".join(told)


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="three-hosts-") as place:
        room = Path(place)
        room.chmod(0o755)
        work = room / "work"
        work.mkdir()
        build_all(work / "dist")
        shutil.copytree(HOME / "deploy", work / "deploy")
        os.chdir(work)
        hosts = Hosts(room)
        kept = ""  # a person's shell remembers what it was told
        try:
            for where, text in blocks():
                sys.stdout.write(f"--- on {where}\n{text}")
                begun = time.monotonic()
                sys.stdout.write(follow(hosts, where, text, kept))
                sys.stdout.write(f"    ({time.monotonic() - begun:.1f} s)\n")
                sys.stdout.flush()
                if where.startswith("your"):
                    found = re.findall(r"^(?:export .*|\. ~.*|umask .*)$", text, re.MULTILINE)
                    kept += "".join(f"{line}\n" for line in found)
        except AssertionError as problem:
            for host in hosts.hosts.values():
                sys.stdout.write(f"=== {host.name}\n{host.run('tail -n 30 /run/journal').stdout}")
            raise SystemExit(f"the page does not work: {problem}") from None
        finally:
            hosts.close()


if __name__ == "__main__":
    main()
