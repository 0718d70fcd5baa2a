"""`cairn demo`: a real cluster of real processes on this machine, for trying and for tests."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from cairn.cli.demo.stop import STOP_S, end_all, running
from cairn.cli.instance.many import Born, Nursery, NurseryProblem
from cairn.cli.talking import Talk, TalkProblem, Target

READY_S = 60.0
DEFAULT_PASSWORD = "T0psecret1"
EXPELLED = 5  # the code of an instance that may never come back


@dataclass
class DemoOptions:
    instances: int
    replication_factor: int
    replication_mode: str
    base_port: int
    directory: str | None
    command: str | None
    detach: bool
    sample: str | None = None
    as_json: bool = False


class Demo:
    """The processes of one demo. Only what was started here is ever ended here."""

    def __init__(self, options: DemoOptions) -> None:
        self.options = options
        self.is_temporary = options.directory is None
        self.dir = Path(options.directory or tempfile.mkdtemp(prefix="cairn-demo-")).resolve()
        self.password = os.environ.get("CAIRN_ADMIN_PASSWORD") or DEFAULT_PASSWORD
        self.nursery: Nursery | None = None
        self.begun = time.monotonic()
        self.processes: dict[str, Born] = {}
        self.commands: dict[str, str] = {}  # how each instance was started
        self.names = [f"i{number}" for number in range(1, options.instances + 1)]

    # --- addresses --------------------------------------------------------------------------------

    def pg(self, at: int) -> str:
        return f"127.0.0.1:{self.options.base_port + at}"

    def http(self, at: int) -> str:
        return f"127.0.0.1:{self.options.base_port + 1000 + at}"

    def peer(self, at: int) -> str:
        return f"127.0.0.1:{self.options.base_port + 2000 + at}"

    def dsn(self, hosts: str) -> str:
        return f"postgresql://admin:{quote(self.password)}@{hosts}/cairn"

    def dsns(self) -> str:
        return self.dsn(",".join(self.pg(at) for at in range(len(self.names))))

    # --- life -------------------------------------------------------------------------------------

    def start(self) -> None:
        self.dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._check_ports()
        self.begun = time.monotonic()
        self.nursery = Nursery()
        secret = self.dir / "service.password"
        if not secret.exists():
            secret.touch(mode=0o600)
            secret.write_text(secrets.token_hex(16))
        config = self._write_config()
        peers = ",".join(self.peer(at) for at in range(min(3, len(self.names))))
        for at, name in enumerate(self.names):
            folder = self.dir / name
            folder.mkdir(mode=0o700, exist_ok=True)
            self._let_first_found(at, folder)
            arguments = [
                *(sys.executable, "-m", "cairn.cli.main", "run"),
                *("--config", str(config)),
                *("--instance-name", name, "--instance-dir", str(folder)),
                *("--listen", self.peer(at), "--pg-listen", self.pg(at)),
                *("--http-listen", self.http(at), "--peer", peers),
                *("--replicaset-name", f"r{at // self.options.replication_factor + 1}"),
                *("--service-password-file", str(secret)),
            ]
            self.commands[name] = shlex.join(arguments)
            environment = {**os.environ, "CAIRN_ADMIN_PASSWORD": self.password}
            try:
                with _uninterrupted():  # else one that is just being born would stay behind
                    self.processes[name] = self.nursery.start(
                        arguments, folder / "cairn.log", environment
                    )
            except NurseryProblem as problem:
                raise TalkProblem(str(problem)) from None
        self._write_json()

    @staticmethod
    def _let_first_found(at: int, folder: Path) -> None:
        """i1 shall found the cluster: the smallest guid does."""
        path = folder / "discovery.json"
        if at == 0 and not path.exists():
            path.write_text(json.dumps({"guid": "0" * 36, "peers": [], "founder": False}))

    def _check_ports(self) -> None:
        for at in range(len(self.names)):
            for flag, address in (
                ("--base-port", self.pg(at)),
                ("--base-port + 1000", self.http(at)),
                ("--base-port + 2000", self.peer(at)),
            ):
                host, _, port = address.rpartition(":")
                with socket.socket() as probe:
                    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    try:
                        probe.bind((host, int(port)))
                    except OSError:
                        raise TalkProblem(
                            f"{address} is taken ({flag}): choose another --base-port", 2
                        ) from None

    def _write_config(self) -> Path:
        path = self.dir / "cairn.yaml"
        path.write_text(
            "cluster:\n  name: demo\n  tier:\n    default:\n"
            f"      replication_factor: {self.options.replication_factor}\n"
            f"      replication_mode: {self.options.replication_mode}\n"
        )
        return path

    def facts(self) -> dict[str, Any]:
        return {
            "dir": str(self.dir),
            "dsn": self.dsn(self.pg(0)),
            "dsns": self.dsns(),
            "http": f"http://{self.http(0)}",
            "instances": [
                {
                    "name": name,
                    "pid": self.processes[name].pid,
                    "pg": self.pg(at),
                    "http": self.http(at),
                    "peer": self.peer(at),
                    "dsn": self.dsn(self.pg(at)),
                    "command": self.commands[name],
                }
                for at, name in enumerate(self.names)
            ],
        }

    def _write_json(self) -> None:
        path = self.dir / "demo.json"
        path.touch(mode=0o600)  # it has the password
        path.write_text(json.dumps(self.facts(), indent=2) + "\n")

    def wait_ready(self) -> float:
        """Seconds until everybody is Online and every replicaset has its share of buckets."""
        waiting = "the first instance"
        while time.monotonic() - self.begun < READY_S:
            for name, process in self.processes.items():
                if process.poll() is not None:
                    log = self.dir / name / "cairn.log"
                    raise TalkProblem(
                        f"{name} ended with code {process.returncode}; its log:\n{_tail(log)}"
                    )
            try:
                waiting = self._what_is_missing()
            except TalkProblem as problem:
                waiting = str(problem)
            if not waiting:
                return time.monotonic() - self.begun
            time.sleep(0.05)
        raise TalkProblem(f"the cluster was not ready within {READY_S:g} s: {waiting}", 4)

    def _what_is_missing(self) -> str:
        talk = Talk(Target(self.dsn(self.pg(0)), None))
        try:
            states = dict(talk.rows("SELECT name, current_state FROM _pico_instance"))
            late = [name for name in self.names if (states.get(name) or ["absent"])[0] != "Online"]
            if late:
                return f"{', '.join(late)} not Online yet"
            owners = {
                row[0] for row in talk.rows("SELECT current_replicaset_name FROM _pico_bucket")
            }
            ready = talk.rows("SELECT name, weight FROM _pico_replicaset")
            missing = [name for name, weight in ready if weight and name not in owners]
            if not owners:
                return "buckets are not distributed yet"
            return f"{', '.join(missing)} without buckets" if missing else ""
        finally:
            talk.close()

    def stop(self) -> None:
        for process in self.processes.values():
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + STOP_S
        for process in self.processes.values():
            try:
                process.wait(max(deadline - time.monotonic(), 0.1))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(STOP_S)
        end_all(self.dir)
        if self.nursery is not None:
            self.nursery.close()
        if self.is_temporary:
            shutil.rmtree(self.dir, ignore_errors=True)

    def environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "CAIRN_DSN": self.dsn(self.pg(0)),
            "CAIRN_DSNS": self.dsns(),
            "CAIRN_HTTP": f"http://{self.http(0)}",
            "CAIRN_DEMO_DIR": str(self.dir),
        }


def run_demo(options: DemoOptions) -> int:
    if options.instances < 1 or options.replication_factor < 1:
        sys.stderr.write("cairn demo: --instances and --replication-factor start at 1\n")
        return 2
    if options.detach and options.directory is None:
        sys.stderr.write("cairn demo: --detach needs --dir, so that --stop can find it\n")
        return 2
    if options.replication_factor > options.instances:
        sys.stderr.write(
            f"cairn demo: --replication-factor {options.replication_factor} needs at least as many "
            f"--instances, not {options.instances}\n"
        )
        return 2
    if not 1 <= options.base_port <= 65535 - 2000 - options.instances:
        sys.stderr.write("cairn demo: --base-port is 1 to 63000\n")
        return 2
    for number in (signal.SIGTERM, signal.SIGINT):  # one started with & has SIGINT ignored
        signal.signal(number, _interrupt)
    demo = Demo(options)
    if others := running(demo.dir):  # they are somebody else's: nothing here may touch them
        sys.stderr.write(
            f"cairn demo: {', '.join(others)} run in {demo.dir} already "
            f"(cairn demo --stop --dir {demo.dir} stops them)\n"
        )
        return 2
    try:
        demo.start()
        took_s = demo.wait_ready()
    except TalkProblem as problem:
        sys.stderr.write(f"cairn demo: {problem}\n")
        demo.stop()
        return problem.exit_code
    except KeyboardInterrupt:
        demo.stop()
        return 130
    except BaseException:  # a full disk, a file in the way: those that were started end, too
        demo.stop()
        raise
    if options.detach:
        if options.sample is not None:
            load_sample(demo, options.sample)
        if options.as_json:
            print(json.dumps(demo.facts(), indent=2))
        else:
            _welcome(demo, took_s)
        return 0
    try:
        if options.command is None:
            _welcome(demo, took_s)
        if options.sample is not None:
            load_sample(demo, options.sample)
        if options.command is not None:
            return subprocess.call(options.command, shell=True, env=demo.environment())
        _stay(demo)
        return 1
    except KeyboardInterrupt:
        print("\nstopping")
        return 0
    finally:
        demo.stop()


def _stay(demo: Demo) -> None:
    """Until Ctrl-C, or until nobody is left. Each instance may be killed, and started by hand."""
    gone: set[str] = set()
    while True:
        lives = {name for name, process in demo.processes.items() if process.poll() is None}
        if len(lives) < len(demo.processes):
            lives |= running(demo.dir).keys()
        gone -= lives
        for name, process in demo.processes.items():
            if name not in lives and name not in gone:
                gone.add(name)
                print(_ended(name, process.returncode, demo.commands[name]), flush=True)
        if not lives:
            break
        time.sleep(0.2)
    print("all instances have ended")


def _ended(name: str, code: int | None, command: str) -> str:
    if code == EXPELLED:
        return f"{name} was expelled: it has ended for good"
    return f"{name} has ended; to start it again:\n  {command}"


def load_sample(demo: Demo, file: str) -> None:
    """Sample rows through Spark, and the report on the cluster; the demo goes on without them."""
    table = Path(file).stem
    print(f"loading {file} into {table} through Spark …", flush=True)
    cairn = [sys.executable, "-m", "cairn.cli.main"]
    kept = Path("demo-data") if demo.is_temporary else demo.dir  # it shall outlive the cluster
    kept.mkdir(exist_ok=True)
    report = str(kept / "report.html")
    load = ["load", file, "--table", table, "--create", "--key", "id", "--write-id", "demo-sample"]
    types = Path(file).with_suffix(".ddl")
    if types.exists():
        load += ["--schema", types.read_text().strip()]
    for arguments in (load, ["report", "--out", report]):
        code = subprocess.call([*cairn, *arguments], env=demo.environment())
        if code:
            print(f"cairn {arguments[0]} ended with code {code}; the cluster runs without it")
            return
    print(f"the cluster's report is in {report}\n")


@contextlib.contextmanager
def _uninterrupted() -> Iterator[None]:
    """A signal waits until the end of it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _interrupt(number: int, frame: Any) -> None:
    raise KeyboardInterrupt


def _welcome(demo: Demo, took_s: float) -> None:
    count = len(demo.names)
    kept = " (removed when it stops; --dir keeps them)" if demo.is_temporary else ""
    who = "1 instance is" if count == 1 else f"{count} instances are"
    print(f"{who} Online after {took_s:.1f} s; files in {demo.dir}{kept}\n")
    print(f"  http://{demo.http(0)}   # the console: log in as admin")
    print(f"  psql '{demo.dsn(demo.pg(0))}'")
    print(f"  psql '{demo.dsn(demo.pg(0))}?options=smart_connector%3D0.1'   # topology notices")
    print(f"  {_cairn()} status --dsn '{demo.dsn(demo.pg(0))}'\n")
    if count == 2:
        print("two instances are two voters: if one dies, nobody can lead. Use three or more.\n")
    if demo.options.detach:
        stop = shlex.join(["demo", "--stop", "--dir", str(demo.dir)])
        print(f"it runs on; {_cairn()} {stop} stops it.", flush=True)
    else:
        print("Ctrl-C stops the cluster.", flush=True)


def _cairn() -> str:
    """How to call this very command from a shell."""
    ours = Path(sys.executable).with_name("cairn")
    on_path = shutil.which("cairn")
    if not ours.exists() or (on_path and Path(on_path).samefile(ours)):
        return "cairn"
    return shlex.quote(str(ours))


def _tail(path: Path) -> str:
    try:
        return "\n".join(path.read_text(errors="replace").splitlines()[-15:])
    except OSError:
        return "(no log)"
