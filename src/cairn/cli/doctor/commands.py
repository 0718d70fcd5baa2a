"""`cairn doctor`. It imports what it needs when it is run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cairn.cli.options import AsJson, Dsn, PasswordFile, finish

commands = typer.Typer()


@commands.command(short_help="Look for what is wrong, and say what to do.")
def doctor(
    directories: Annotated[
        list[Path] | None, typer.Argument(help="of stopped instances; none: the running cluster")
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(help="a file for `cairn run`: it and its certificates"),
    ] = None,
    dsn: Dsn = None,
    password_file: PasswordFile = None,
    as_json: AsJson = False,
) -> None:
    """Look for what is wrong, and say what to do about it. Nothing is changed.

    Of a running cluster: quorum, masters, lag, clocks, certificates, settings that surprise. Of
    directories of stopped instances: files, checksums, versions, free space, rights. Code 6 when
    something does not work, 1 when something is to be done before it does not.

    Example: cairn doctor

    Example: cairn doctor /var/lib/cairn/i1
    """
    from cairn.cli.doctor.run import run_doctor

    finish(lambda: run_doctor(directories or [], config, dsn, password_file, as_json=as_json))
