"""Backups and what is put back from them. Each command imports what it needs when it is run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cairn.cli.options import AsJson, Dsn, PasswordFile, finish

commands = typer.Typer()


@commands.command(short_help="Copy the whole cluster as it is at one moment, while people work.")
def backup(
    directory: Annotated[Path, typer.Argument(help="where backups are; each gets a directory")],
    previous: Annotated[
        str | None,
        typer.Option("--from", help="only what changed since this one of them, or: latest"),
    ] = None,
    keep: Annotated[
        int, typer.Option(help="afterwards remove all but the last N, and what they need", min=0)
    ] = 0,
    verify: Annotated[
        bool, typer.Option("--verify", help="take none; read what is there and compare")
    ] = False,
    dsn: Dsn = None,
    password_file: PasswordFile = None,
    as_json: AsJson = False,
) -> None:
    """Copy the whole cluster as it is at one moment, while people work.

    Writers wait some milliseconds. The copy gets its name when all of it is on disk. Only for
    those who may do everything (admin); it has all rows: keep it as safe as the cluster.

    Example: cairn backup /var/backups/shop --from latest --keep 14
    """
    from cairn.cli.copies.backup import run_backup, run_verify

    if verify:
        finish(lambda: run_verify(directory, as_json=as_json))
    finish(
        lambda: run_backup(
            directory, dsn, password_file, previous=previous, keep=keep, as_json=as_json
        )
    )


@commands.command(short_help="Put a backup into an empty cluster, or directories back.")
def restore(
    directories: Annotated[
        list[Path], typer.Argument(help="one backup; or those of all instances, all stopped")
    ],
    to: Annotated[
        str | None, typer.Option(help="a backup: as of this time, 2026-11-16T12:00:00+00:00")
    ] = None,
    without: Annotated[
        list[str] | None,
        typer.Option(help="directories: an instance whose directory is lost for good"),
    ] = None,
    dsn: Dsn = None,
    password_file: PasswordFile = None,
    as_json: Annotated[bool, typer.Option("--json", help="a backup: for machines")] = False,
) -> None:
    """Put what `cairn backup` took into a new or emptied cluster that runs.

    It may have another number of replicasets and instances. Users, rights, settings, tables,
    indexes and migrations are restored as well. If it does not end, what it made is removed.

    Example: cairn restore /var/backups/shop/2026-11-16T120000Z

    With the directories of stopped instances, put back from a copy and not started yet: begins a
    new history in them. Nothing is changed unless all of them fit together.

    Example: cairn restore i1 i2 i3
    """
    from cairn.cli.copies.files import backups_in, is_backup
    from cairn.cli.copies.restore import run_restore
    from cairn.cli.copies.restore_backup import run_restore_backup
    from cairn.cli.talking import TalkProblem

    def work() -> int:
        if not any(map(is_backup, directories)):
            for each in directories:
                if found := backups_in(each):
                    raise TalkProblem(f"{each} has backups in it: name one, {found[-1]}", 2)
            if to is not None:
                raise TalkProblem(f"--to is for a backup, and {directories[0]} is none", 2)
            return run_restore(directories, without or [])
        if len(directories) > 1 or without:
            raise TalkProblem("one backup is restored at a time, without other directories", 2)
        return run_restore_backup(directories[0], dsn, password_file, to=to, as_json=as_json)

    finish(work)
