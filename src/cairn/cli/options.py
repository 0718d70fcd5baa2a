"""What commands share: flags that mean the same everywhere, and how a command ends."""

from __future__ import annotations

import math
import os
import signal
from collections.abc import Callable
from typing import Annotated

import typer

from cairn.cli.stopping import STOPPED, stop_at_once

NOT_WORKING = 6  # the exit code for what was found, and cannot do its work
Dsn = Annotated[
    str | None,
    typer.Option(
        "--dsn",
        envvar="CAIRN_DSN",
        help="where the cluster is [default: postgresql://admin@127.0.0.1:4327/cairn]",
    ),
]
PasswordFile = Annotated[
    str | None, typer.Option("--password-file", help="file with the password (or PGPASSWORD)")
]
AsJson = Annotated[bool, typer.Option("--json", help="for machines")]
Yes = Annotated[bool, typer.Option("--yes", help="do not ask")]

UNREAD = 128 + signal.SIGPIPE  # as the shell shows programs that end of it


def a_share(value: float) -> float:
    """A weight: `nan` and `inf` are numbers to Python, and no shares of anything."""
    if not 0.0 <= value < math.inf:
        raise typer.BadParameter(f"{value} is no share: it is a number from 0 on")
    return value


def finish(work: Callable[[], int | None]) -> None:
    """Run a command; an error is one sentence and an exit code, and so is Ctrl-C."""
    from cairn.cli.talking import TalkProblem

    if signal.getsignal(signal.SIGINT) is stop_at_once:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        code = work()
    except TalkProblem as problem:
        typer.echo(f"cairn: {problem}", err=True)
        raise typer.Exit(problem.exit_code) from None
    except BrokenPipeError:  # `cairn … | head` has read enough, which is nobody's mistake
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # Python writes the rest when it ends
        raise typer.Exit(UNREAD) from None
    except OSError as problem:  # a full disk, a file that is not ours
        where = f"{problem.filename}: " if problem.filename else ""
        typer.echo(f"cairn: {where}{problem.strerror or problem}", err=True)
        raise typer.Exit(1) from None
    except KeyboardInterrupt:
        typer.echo("cairn: stopped by Ctrl-C", err=True)
        raise typer.Exit(STOPPED) from None
    raise typer.Exit(code or 0)
