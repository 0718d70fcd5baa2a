"""The queue of migrations. Each command imports what it needs when it is run."""

from __future__ import annotations

from typing import Annotated

import typer

from cairn.cli.options import Dsn, PasswordFile, finish

commands = typer.Typer()


@commands.command(short_help="Put numbered SQL files into the governor's queue.")
def migrate(
    words: Annotated[
        list[str], typer.Argument(help="SQL files; or: status, retry ID, skip ID", metavar="FILES…")
    ],
    dsn: Dsn = None,
    password_file: PasswordFile = None,
    batch: Annotated[str | None, typer.Option(help="one batch for all files")] = None,
    wait: Annotated[bool, typer.Option("--wait", help="until all are done")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="status for machines")] = False,
    timeout: Annotated[float, typer.Option(help="seconds to wait")] = 600.0,
) -> None:
    """Put numbered SQL files into the governor's queue; running it again is safe.

    Example: cairn migrate migrations/*.sql --wait

    Then: cairn migrate status, cairn migrate retry 1003, cairn migrate skip 1003
    """
    from cairn.cli.migrations.migrate import run_migrate

    finish(
        lambda: run_migrate(
            words,
            dsn,
            password_file,
            batch=batch,
            wait=wait,
            as_json=as_json,
            timeout_s=timeout,
        )
    )
