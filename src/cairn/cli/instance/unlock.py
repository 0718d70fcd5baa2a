"""`cairn unlock`: the operator's way in, from the machine itself and without a login."""

from __future__ import annotations

import os
from pathlib import Path

from cairn.cli.talking import TalkProblem
from cairn.server.lockouts import KEY


def run_unlock(directory: Path) -> int:
    """Who may write into an instance's directory may do anything to it: that is the right."""
    if not (directory / "instance_uuid").exists():
        raise TalkProblem(f"--instance-dir {directory}: no instance has its files there", 2)
    if not (directory / "cairn.pid").exists():
        raise TalkProblem(
            f"--instance-dir {directory}: the instance does not run, and forgets lock-outs "
            "when it starts",
            3,
        )
    try:
        made = os.open(directory / KEY, os.O_CREAT | os.O_WRONLY | os.O_NOFOLLOW, 0o600)
        try:
            owner = directory.stat()  # root may do it for the instance's user
            if os.fstat(made).st_uid != owner.st_uid:
                os.fchown(made, owner.st_uid, owner.st_gid)
        finally:
            os.close(made)
    except OSError as problem:
        raise TalkProblem(f"--instance-dir {directory}: {problem.strerror}") from None
    print(f"all lock-outs of the instance in {directory} are over: log in again")
    return 0
