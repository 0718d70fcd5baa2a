"""`cairn sql`: whom to start, and with which address."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from urllib.parse import quote

from cairn.cli.shell.shell import Shell
from cairn.cli.talking import Talk, TalkProblem, Target
from cairn.client.settings import Settings, split_address

#: Options of a DSN that libpq knows by the same name.
_LIBPQ = ("sslmode", "sslrootcert", "sslcert", "sslkey", "channel_binding")


def run_sql(
    dsn: str | None,
    password_file: str | None,
    *,
    commands: list[str],
    file: Path | None,
    own: bool,
    as_json: bool,
) -> int:
    if commands and file is not None:
        raise TalkProblem("-c or -f, not both", 2)
    target = Target(dsn, password_file)
    psql = shutil.which("psql")
    if psql is not None and not own and not as_json:
        words = [psql, conninfo(target.settings), "-X" if commands or file else "-q"]
        if commands or file is not None:
            words += ["-v", "ON_ERROR_STOP=1"]
        words += [word for command in commands for word in ("-c", command)]
        words += ["-f", str(file)] if file is not None else []
        sys.stdout.flush()
        os.execve(psql, words, {**os.environ, "PGPASSWORD": target.password})
    texts = list(commands)
    if file is not None:
        try:
            texts = [file.read_text(encoding="utf-8")]
        except (OSError, UnicodeDecodeError) as problem:
            raise TalkProblem(f"{file}: {problem}", 2) from None
    talk = Talk(target, target.settings.startup())
    try:
        shell = Shell(talk, as_json=as_json)
        if not texts and not sys.stdin.isatty():
            texts = [sys.stdin.read()]
        return shell.run_script(texts) if texts else shell.run()
    finally:
        talk.close()


def conninfo(settings: Settings) -> str:
    """The address for libpq; the password goes by the environment, where `ps` does not show it."""
    pairs = [(name, getattr(settings, name)) for name in _LIBPQ]
    keys = " ".join(f"-c {name}={value}" for name, value in settings.options.items())
    pairs += [("options", keys), ("application_name", "cairn sql")]
    pairs.append(("connect_timeout", str(max(2, round(settings.connect_timeout_s)))))
    hosts = ",".join("{}:{}".format(*_bracketed(host)) for host in settings.hosts)
    query = "&".join(f"{name}={quote(value, safe='')}" for name, value in pairs if value)
    user, database = quote(settings.user, safe=""), quote(settings.database, safe="")
    return f"postgresql://{user}@{hosts}/{database}?{query}"


def _bracketed(address: str) -> tuple[str, int]:
    host, port = split_address(address)
    return (f"[{host}]" if ":" in host else host), port
