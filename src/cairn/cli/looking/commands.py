"""What shows the cluster. Each command imports what it needs when it is run."""

from __future__ import annotations

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

    In a pipe it is the same text, never wrapped; with --watch one after the other.

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
) -> None:
    """Tell to which instance the smart driver would send a statement, and why.

    Example: cairn explain-route 'SELECT * FROM orders WHERE id = $1' 42
    """
    from cairn.cli.looking.route import run_explain_route

    finish(lambda: run_explain_route(sql, params or [], dsn, password_file))
