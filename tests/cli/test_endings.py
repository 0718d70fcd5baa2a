"""However a command ends early, it says so in one sentence and with a code that scripts can use.

Every command is here: a new one has to be added to `ASKS` or to `ALONE`.
"""

from __future__ import annotations

import hashlib
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import product
from pathlib import Path
from typing import Any

import msgspec
import pytest

import cairn
from cairn.cli import anywhere
from cairn.cli.copies.files import MANIFEST
from cairn.cli.looking import watch
from cairn.cli.main import main
from cairn.model.backups import FORMAT, FileFacts, Manifest
from tests.cli.test_words import NAMES
from tests.cluster.harness import eventually, free_ports

UNREACHABLE, UNKNOWN, STOPPED = 3, 4, 130

#: Commands that talk to a cluster, as somebody would write them. FILE and DIR are there.
ASKS = {
    "sql": "sql --own -c SELECT_1",
    "status": "status",
    "watch": "watch",
    "explain-route": "explain-route SELECT_1",
    "top": "top",
    "doctor": "doctor",
    "expel": "expel i1 --yes",
    "switchover": "switchover default_1 --yes",
    "drain": "drain default_1 --yes",
    "restart": "restart --rolling --yes",
    "pause": "pause",
    "resume": "resume",
    "rebalance": "rebalance status --wait",
    "tier": "tier set default --replication-factor 2 --yes",
    "migrate": "migrate FILE --wait",
    "backup": "backup DIR/copies",
    "restore": "restore DIR/backup",
    "load": "load DIR/rows.csv --table t",
    "dump": "dump t --to DIR/out",
    "follow": "follow t --to DIR/out --once",
    "report": "report --out DIR/report.html",
}
#: Those that need no cluster, and what takes time in them: "" for what is over at once.
ALONE = {
    "demo": "demo --instances 1 --replication-factor 1 --dir DIR/demo --base-port PORT",
    "unlock": "",
    "simulate": "simulate --seeds 100000 --workers 2",
    "config default": "",
    "logs": "logs DIR --follow",
}


def test_every_command_is_here() -> None:
    assert sorted([*ASKS, *ALONE]) == sorted(NAMES)


# --- a cluster that goes away, from a socket ------------------------------------------------------


def message(kind: bytes, body: bytes = b"") -> bytes:
    return kind + struct.pack(">i", len(body) + 4) + body


WELCOME = message(b"R", struct.pack(">i", 0)) + message(b"K", bytes(8)) + message(b"Z", b"I")
Scene = Callable[[socket.socket], None]


def welcomed(client: socket.socket) -> None:
    """As far as the first question of a client that has logged in. Some only listen."""
    client.recv(65536)
    client.sendall(WELCOME)
    client.settimeout(0.5)
    with suppress(TimeoutError):
        client.recv(65536)


def gone_before_a_word(client: socket.socket) -> None:
    """It hangs up on whoever comes."""


def gone_after_the_question(client: socket.socket) -> None:
    welcomed(client)


def gone_in_the_answer(client: socket.socket) -> None:
    welcomed(client)
    client.sendall(message(b"T", b"\0\1one\0" + bytes(18))[:9])


def reset_after_the_question(client: socket.socket) -> None:
    welcomed(client)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


@contextmanager
def playing(scene: Scene) -> Iterator[str]:
    """The DSN of a server that plays a scene for its first client; then nobody listens any more."""
    listener = socket.create_server(("127.0.0.1", 0))

    def play() -> None:
        client, _ = listener.accept()
        listener.close()
        with client, suppress(OSError):
            scene(client)

    thread = threading.Thread(target=play, daemon=True)
    thread.start()
    try:
        yield f"postgresql://admin:secret@127.0.0.1:{listener.getsockname()[1]}/cairn?sslmode=disable"
    finally:
        thread.join(10)
        listener.close()


def write_backup(directory: Path) -> None:
    """One of a cluster without rows."""
    directory.mkdir()
    data = msgspec.msgpack.encode({"term": 1, "index": 1, "tables": []})
    (directory / "globals").write_bytes(data)
    facts = FileFacts("globals", len(data), hashlib.sha256(data).hexdigest())
    taken = "2026-11-17T00:00:00+00:00"
    made = Manifest(FORMAT, "one", cairn.__version__, "c", "u", 1, 1, 1, taken, (), facts)
    (directory / MANIFEST).write_bytes(msgspec.json.encode(made))


@pytest.fixture
def words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], list[str]]:
    (tmp_path / "rows.csv").write_text("id\n1\n")
    (tmp_path / "file.sql").write_text("-- pico.UP\nCREATE TABLE t (id INT PRIMARY KEY);\n")
    write_backup(tmp_path / "backup")
    monkeypatch.setattr(anywhere, "LOOK_FOR_S", 0.3)
    monkeypatch.setattr(watch, "GO_ON_S", 0.3)
    monkeypatch.chdir(tmp_path)

    def made(line: str) -> list[str]:
        line = line.replace("DIR", str(tmp_path)).replace("FILE", str(tmp_path / "file.sql"))
        return [word.replace("SELECT_1", "SELECT 1") for word in line.split()]

    return made


def ended(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> tuple[int, str, str]:
    monkeypatch.setattr(sys, "argv", ["cairn", *words])
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(SystemExit) as end:
        main()
    signal.signal(signal.SIGINT, before)
    told = capfd.readouterr()
    code = end.value.code
    return code if isinstance(code, int) else 0 if code is None else 1, told.out, told.err


def is_one_sentence(err: str) -> bool:
    lines = err.strip().splitlines()
    return len(lines) == 1 and lines[0].startswith("cairn") and "Traceback" not in err


SCENES = (
    gone_before_a_word,
    gone_after_the_question,
    gone_in_the_answer,
    reset_after_the_question,
)


def cases() -> Iterator[Any]:
    for name, scene in product(ASKS, SCENES):
        is_late = scene is not gone_before_a_word  # Spark has started, or the driver is patient
        is_rare = scene in SCENES[2:] or (is_late and name in ("report", "explain-route"))
        marks = (pytest.mark.slow,) if is_rare else ()
        yield pytest.param(name, scene, id=f"{name}-{scene.__name__}", marks=marks)


@pytest.mark.parametrize(("name", "scene"), list(cases()))
def test_a_cluster_that_goes_away_ends_every_command_with_a_sentence(
    name: str,
    scene: Scene,
    words: Callable[[str], list[str]],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    with playing(scene) as dsn:
        monkeypatch.setenv("CAIRN_DSN", dsn)
        code, _, err = ended(words(ASKS[name]), monkeypatch, capfd)
    print(code, repr(err))
    if name == "watch":  # it has looked for another instance, and said so
        err = err[err.index("\n") + 1 :] if "asking another" in err else err
    assert is_one_sentence(err)
    assert code in (UNREACHABLE, UNKNOWN)
    assert scene is not gone_before_a_word or code == UNREACHABLE  # nothing was asked


@pytest.mark.slow
@pytest.mark.parametrize("name", ASKS)
def test_ctrl_c_ends_every_command_that_waits_for_a_cluster(
    name: str,
    words: Callable[[str], list[str]],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    over = threading.Event()

    def silent(client: socket.socket) -> None:
        welcomed(client)
        os.kill(os.getpid(), signal.SIGINT)
        if name == "sql":  # the first one only asks the server to end the statement
            over.wait(0.2)
            os.kill(os.getpid(), signal.SIGINT)
        over.wait(20)

    monkeypatch.setenv("CAIRN_DSN", "")
    with playing(silent) as dsn:
        monkeypatch.setenv("CAIRN_DSN", dsn)
        try:
            code, _, err = ended(words(ASKS[name]), monkeypatch, capfd)
        finally:
            over.set()
    print(code, repr(err))
    assert is_one_sentence(err) and err.startswith("cairn: stopped by Ctrl-C")
    assert code == STOPPED


@pytest.mark.cluster
@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, line in ALONE.items() if line])
def test_ctrl_c_ends_every_command_that_works_by_itself(
    name: str, words: Callable[[str], list[str]], tmp_path: Path
) -> None:
    """A process of its own: these have children and signals of their own."""
    (tmp_path / "cairn.log").write_text("2026-11-17T00:00:00Z INFO cairn: it is there\n")
    line = ALONE[name].replace("PORT", str(free_ports(1)[0] % 10_000 + 20_000))
    process = subprocess.Popen(
        [sys.executable, "-u", "-m", "cairn.cli.main", *words(line)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # as at a terminal
    )
    try:
        assert process.stdout is not None
        if name == "simulate":  # which says nothing before its end
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
            eventually(lambda: children.read_text().split(), "its workers")
        else:
            assert process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
        assert "Traceback" not in err
        assert process.returncode == (0 if name == "demo" else STOPPED)  # a demo is ended so
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def test_ctrl_c_before_a_command_has_begun_is_no_traceback() -> None:
    process = subprocess.Popen(
        [sys.executable, "-X", "importtime", "-m", "cairn.cli.main", "status"],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "CAIRN_DSN": "postgresql://127.0.0.1:1/x"},
    )
    assert process.stderr is not None
    for line in process.stderr:
        if "cairn.cli.options" in line:
            break  # in the middle of its imports
    process.send_signal(signal.SIGINT)
    told = process.stderr.read()
    assert process.wait(30) == STOPPED
    assert "Traceback" not in told and "cairn: stopped by Ctrl-C" in told


def test_whoever_stops_reading_ends_a_command_without_a_word() -> None:
    words = "from cairn.cli.options import finish; finish(lambda: print('x' * 1_000_000))"
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(
            [sys.executable, "-c", words], stdout=writing, stderr=subprocess.PIPE, check=False
        )
    finally:
        os.close(writing)
    assert b"Broken" not in done.stderr
    assert done.returncode != 0
