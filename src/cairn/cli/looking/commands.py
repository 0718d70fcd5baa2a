"""What shows the cluster. Each command imports what it needs when it is run."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from cairn.cli.options import AsJson, Dsn, PasswordFile, finish

commands = typer.Typer()


@commands.command(short_help="Show instances, replicasets, the leader, the governor.")
def status(
    dsn: Dsn = None,
    password_file: PasswordFile = None,
    as_json: AsJson = False,
    watch: Annotated[bool, typer.Option("--watch", help="show it again every second")] = False,
) -> None:
    """Show instances, grades, replicasets, voters, the leader and what the governor does.

    In a pipe it is the same text, never wrapped; with --watch one after the other. Code 6 when the
    cluster answers and cannot do its work: no quorum, a replicaset without a master.

    Example: cairn status --dsn postgresql://admin@127.0.0.1:4327/cairn --watch
    """
    from cairn.cli.looking.status import show_status

    finish(lambda: show_status(dsn, password_file, as_json=as_json, watch=watch))


@commands.command(short_help="Follow topology events until Ctrl-C.")
def watch(
    dsn: Dsn = None,
    password_file: PasswordFile = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="events as they are, a line each")
    ] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="uuids too")] = False,
) -> None:
    """Follow topology events as they are committed, until Ctrl-C.

    Example: cairn watch --dsn postgresql://admin@127.0.0.1:4327/cairn
    """
    from cairn.cli.looking.watch import run_watch

    finish(lambda: run_watch(dsn, password_file, as_json=as_json, verbose=verbose))


@commands.command(
    name="explain-route", short_help="Tell where the smart driver would send a statement."
)
def explain_route(
    sql: Annotated[str, typer.Argument(help="a statement with $1, $2, …")],
    params: Annotated[list[str] | None, typer.Argument(help="its parameters")] = None,
    dsn: Dsn = None,
    password_file: PasswordFile = None,
    as_json: AsJson = False,
) -> None:
    """Tell to which instance the smart driver would send a statement, and why.

    Example: cairn explain-route 'SELECT * FROM orders WHERE id = $1' 42
    """
    from cairn.cli.looking.route import run_explain_route

    finish(lambda: run_explain_route(sql, params or [], dsn, password_file, as_json=as_json))


@commands.command(short_help="Live view: statements a second, and those that take the time.")
def top(
    once: Annotated[bool, typer.Option("--once", help="one view, then end")] = False,
    interval: Annotated[float, typer.Option(help="seconds between views", min=0.2)] = 2.0,
    dsn: Dsn = None,
    password_file: PasswordFile = None,
    as_json: AsJson = False,
) -> None:
    """What the cluster is doing now, until Ctrl-C: instances, rates, statements by their time.

    Example: cairn top --once --json
    """
    from cairn.cli.looking.top import run_top

    finish(lambda: run_top(dsn, password_file, once=once, interval_s=interval, as_json=as_json))


@commands.command(short_help="Logs of instances on this machine, merged and followed.")
def logs(
    directories: Annotated[
        list[Path] | None, typer.Argument(help="of instances, or a directory that has them in it")
    ] = None,
    which: Annotated[str, typer.Option(help="log, audit or slow")] = "log",
    since: Annotated[
        str | None, typer.Option(help="10m, 2h, 1d ago, or 2026-11-16T12:00:00")
    ] = None,
    level: Annotated[str, typer.Option(help="of the log: this and worse")] = "debug",
    count: Annotated[int, typer.Option("--lines", "-n", help="the last N", min=1)] = 50,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="as they grow")] = False,
    as_json: AsJson = False,
) -> None:
    """The logs of instances on this machine, in the order of time, each line with its instance.

    Needs no cluster. The log of a service manager is elsewhere: journalctl.

    Example: cairn logs /var/lib/cairn --which slow --since 1h
    """
    from cairn.cli.looking.logs import run_logs

    finish(
        lambda: run_logs(
            directories or [Path(os.environ.get("CAIRN_DEMO_DIR") or ".")],
            which=which,
            since=since,
            level=level,
            count=count,
            follow=follow,
            as_json=as_json,
        )
    )
