"""`cairn run`: one instance. Standard library only, until the child has been forked."""

from __future__ import annotations

import argparse
import gc
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cairn.node.boot.config import InstanceConfig
    from cairn.node.instance import Instance

EXAMPLE = """\
example: three instances on one machine, then a fourth that knows only the first

  cairn run --instance-name i1 --listen 127.0.0.1:3301 --pg-listen 127.0.0.1:4327 \\
            --peer 127.0.0.1:3301,127.0.0.1:3302,127.0.0.1:3303
  cairn run --instance-name i2 --listen 127.0.0.1:3302 --pg-listen 127.0.0.1:4328 --peer …
  cairn run --instance-name i3 --listen 127.0.0.1:3303 --pg-listen 127.0.0.1:4329 --peer …
  cairn run --instance-name i4 --listen 127.0.0.1:3304 --pg-listen 127.0.0.1:4330 \\
            --peer 127.0.0.1:3301

Each flag has an environment variable: --pg-listen is CAIRN_PG_LISTEN. A flag beats the
environment, which beats the file given by --config, which beats the default.
"""

FLAGS: tuple[tuple[str, str], ...] = (
    ("--cluster-name", "name of the cluster; the same on every instance (default: demo)"),
    ("--instance-dir", "where this instance keeps its files (default: ./<instance name>)"),
    ("--listen", "HOST:PORT for other instances (default: 127.0.0.1:3301)"),
    ("--advertise", "HOST:PORT under which other instances reach us (default: --listen)"),
    ("--pg-listen", "HOST:PORT for PostgreSQL clients (default: 127.0.0.1:4327)"),
    ("--pg-advertise", "HOST:PORT told to clients (default: --pg-listen)"),
    ("--http-listen", "HOST:PORT for the console, metrics and probes (default: off)"),
    ("--peer", "HOST:PORT,… of instances to find the cluster by (default: ourselves)"),
    ("--tier", "tier of this instance (default: default)"),
    ("--replicaset-name", "replicaset to join (default: chosen by the leader)"),
    ("--failure-domain", "KEY=VALUE,… where this instance stands, for example DC=MSK"),
    ("--init-replication-factor", "copies of each row, when the cluster is made (default: 1)"),
    ("--config", "YAML file; `cairn config default` prints one"),
    ("--service-password-file", "file with the secret shared by all instances"),
    ("--admin-password-file", "file with the admin's first password, when the cluster is made"),
    ("--tls-cert", "PEM certificate for PostgreSQL clients; they must use TLS then"),
    ("--tls-key", "its private key, without a passphrase"),
    ("--tls-ca", "PEM of the authority that must have signed clients' certificates"),
    ("--peer-tls-cert", "PEM certificate shown to other instances; traffic is encrypted then"),
    ("--peer-tls-key", "its private key, without a passphrase"),
    ("--peer-tls-ca", "PEM of the authority that must have signed all instances' certificates"),
    ("--boot-timeout", "seconds to wait for the cluster at start (default: 7200)"),
    ("--hang-timeout", "seconds of standing still until it is restarted (default: 60; 0: never)"),
    ("--log-level", "debug, info, warning or error (default: info)"),
)


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="cairn run",
        description="Run one instance of Cairn until SIGTERM or Ctrl-C.",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument(
        "--instance-name", "--instance-id", help="its name (default: given by the leader)"
    )
    for flag, about in FLAGS:
        made.add_argument(flag, help=about)
    return made


def main(arguments: list[str]) -> int:
    known = parser()
    found, unknown = known.parse_known_args(arguments)
    if unknown:
        return _unknown(unknown[0], known)
    flags = {
        name.replace("_", "-"): value for name, value in vars(found).items() if value is not None
    }
    from cairn.cli.instance.hiding import hide_passwords

    hide_passwords()
    directory = _directory(flags)
    if directory is None:
        return 2
    from cairn.cli.instance.supervisor import supervise

    return supervise(lambda *line: _child(flags, *line), directory)


def _unknown(word: str, known: argparse.ArgumentParser) -> int:
    from cairn.model.settings.nearest import nearest

    flags = [flag for action in known._actions for flag in action.option_strings]
    what = f"there is no flag {word}" if word.startswith("-") else f"{word} belongs to no flag"
    near = nearest(word.partition("=")[0], flags).partition("known: ")[0] or "see cairn run --help"
    sys.stderr.write(f"cairn run: {what}: {near}\n")
    return 2


def _directory(flags: dict[str, Any]) -> Path | None:
    """Where the instance's files are, as `load` will have it; None: it was said why not."""
    given = flags.get("instance-dir") or os.environ.get("CAIRN_INSTANCE_DIR")
    if not given and (flags.get("config") or os.environ.get("CAIRN_CONFIG")):
        given = _directory_by_file(flags)
        return Path(given) if given else None
    name = flags.get("instance-name") or os.environ.get("CAIRN_INSTANCE_NAME") or "cairn-instance"
    return Path(given or f"./{name}").absolute()


def _directory_by_file(flags: dict[str, Any]) -> str:
    """A child reads the file and tells: what that takes is not for the supervisor's memory."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            config = _load(flags)
            code = 2 if config is None else 0
            os.write(writing, b"" if config is None else os.fsencode(config.instance_dir))
            sys.stderr.flush()
        finally:
            os._exit(code)
    os.close(writing)
    with os.fdopen(reading, "rb") as stream:
        found = stream.read()
    os.waitpid(pid, 0)
    return os.fsdecode(found)


def _child(
    flags: dict[str, Any],
    tell: Callable[[dict[str, Any]], None],
    lifeline: int,
    beat: Callable[[float], None],
) -> int:
    # Neither modules nor rows in bulk are cycles: looking at them often costs more than it finds.
    gc.set_threshold(50_000, 20, 20)
    config = _load(flags)
    if config is None:
        return 2
    from cairn.node.boot.child import run

    return run(config, tell, lifeline, beat, _open_faces)


def _load(flags: dict[str, Any]) -> InstanceConfig | None:
    """The configuration; None: it was said what is wrong with it."""
    from cairn.model.errors import ConfigProblem
    from cairn.node.boot.config import check_open, load, peer_tls

    try:
        config = load(flags, os.environ)
        _check_hosts(config)
        check_open(config)
        peer_tls(config)
        if config.tls_cert or config.tls_key or config.tls_ca:
            from cairn.server.tls import from_config

            from_config(config)  # before the cluster is asked for a place
    except ConfigProblem as problem:
        sys.stderr.write(f"cairn run: {problem}\n")
        if problem.hint:
            sys.stderr.write(f"hint: {problem.hint}\n")
        return None
    return config


def _check_hosts(config: InstanceConfig) -> None:
    """A word that is no address of this machine is told before anything is made."""
    import socket

    from cairn.model.errors import ConfigProblem

    listening = (
        ("--listen", config.listen),
        ("--pg-listen", config.pg_listen),
        ("--http-listen", config.http_listen),
    )
    for flag, address in listening:
        host = address.rpartition(":")[0].strip("[]")
        try:
            if host:
                socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError):
            raise ConfigProblem(
                f"{flag} {address}: there is no host {host}; write HOST:PORT, such as "
                f"127.0.0.1:{address.rpartition(':')[2]}"
            ) from None


async def _open_faces(instance: Instance, config: InstanceConfig) -> None:
    """Listeners for clients; imported late, they are not needed to find a place."""
    from cairn.server.listener import open_pgwire

    face = await open_pgwire(instance, config)
    if config.http_listen:
        from cairn.web.opening import open_http

        open_http(face, config)
