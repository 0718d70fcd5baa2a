"""`cairn sql`. It imports what it needs when it is run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cairn.cli.options import AsJson, Dsn, PasswordFile, finish

commands = typer.Typer()


@commands.command(short_help="SQL by hand: psql, or a small shell of our own.")
def sql(
    command: Annotated[
        list[str] | None,
        typer.Option("--command", "-c", help="run this, print its rows, end; may be given often"),
    ] = None,
    file: Annotated[
        Path | None, typer.Option("--file", "-f", help="run the statements of a file, end")
    ] = None,
    own: Annotated[bool, typer.Option("--own", help="our own shell, also where psql is")] = False,
    dsn: Dsn = None,
    password_file: PasswordFile = None,
    as_json: AsJson = False,
) -> None:
    """SQL by hand. Where psql is installed it is started, else a small shell of our own.

    Our own has lines you can edit, a history, completion with Tab, and \\? for its commands.
    With --json it is always our own: an array of rows for each statement. In a script it stops
    at the first error with code 1.

    Example: cairn sql -c 'SELECT count(*) FROM orders'
    """
    from cairn.cli.shell.psql import run_sql

    finish(
        lambda: run_sql(
            dsn, password_file, commands=command or [], file=file, own=own, as_json=as_json
        )
    )
