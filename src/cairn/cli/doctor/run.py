"""`cairn doctor`: whom it looks at."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

from cairn.cli.doctor import cluster, directory
from cairn.cli.doctor.certificates import judged, of_file
from cairn.cli.doctor.findings import BAD, GOOD, Finding, tell
from cairn.cli.talking import Target
from cairn.model.errors import ConfigProblem
from cairn.node.boot.config import check_open, load, peer_tls


def run_doctor(
    directories: list[Path],
    config: Path | None,
    dsn: str | None,
    password_file: str | None,
    *,
    as_json: bool,
) -> int:
    found = [finding for each in directories for finding in directory.look_at(each)]
    if config is not None:
        found += _configuration(config)
    if not directories and config is None:
        found = cluster.look_at(Target(dsn, password_file))
    return tell(found, as_json=as_json)


def _configuration(path: Path) -> list[Finding]:
    try:
        config = load({"config": str(path)}, os.environ)
        check_open(config)
        peer_tls(config)
    except ConfigProblem as problem:
        return [Finding(BAD, str(path), str(problem), problem.hint or "")]
    found = [Finding(GOOD, str(path), "it can be used")]
    now = datetime.now(UTC)
    for file in (config.tls_cert, config.tls_ca, config.peer_tls_cert, config.peer_tls_ca):
        if not file:
            continue
        try:
            found.append(judged(file, of_file(file), now))
        except (OSError, ValueError) as problem:
            found.append(Finding(BAD, file, f"it cannot be read: {problem}"))
    return found
