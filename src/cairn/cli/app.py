"""The `cairn` command line: everything but `run`, which starts before this is imported."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path
from typing import Annotated

import typer

import cairn
from cairn.cli.copies.commands import commands as copies
from cairn.cli.data.commands import commands as data
from cairn.cli.doctor.commands import commands as doctor
from cairn.cli.instance import run
from cairn.cli.looking.commands import commands as looking
from cairn.cli.migrations.commands import commands as migrations
from cairn.cli.options import finish
from cairn.cli.shell.commands import commands as shell
from cairn.cli.steering.commands import commands as steering

app = typer.Typer(
    name="cairn",
    help="A distributed SQL database whose clients always know the way.",
    no_args_is_help=True,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
config_app = typer.Typer(
    help="Configuration files.\n\nExample: cairn config default -o cairn.yaml",
    short_help="Configuration files.",
    no_args_is_help=True,
)
app.add_typer(config_app, name="config")

for each in (shell, looking, doctor, steering, migrations, copies, data):
    app.add_typer(each)


def _version(wanted: bool) -> None:
    if wanted:
        from cairn.native import library

        part = "" if library.library() else " (without its compiled part: bulk is slower)"
        typer.echo(f"cairn {cairn.__version__}{part}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", "-V", callback=_version, is_eager=True, help="print it")
    ] = False,
) -> None:
    """A distributed SQL database whose clients always know the way."""


def _flags_of_run() -> inspect.Signature:
    """For the shell's completion only: `run` reads its flags itself."""
    flags = [flag for action in run.parser()._actions for flag in action.option_strings]
    return inspect.Signature(
        [
            inspect.Parameter(
                flag.strip("-").replace("-", "_"),
                inspect.Parameter.KEYWORD_ONLY,
                annotation=Annotated[str | None, typer.Option(flag)],
                default=None,
            )
            for flag in flags
            if flag.startswith("--")
        ]
    )


@app.command(name="run", add_help_option=False, short_help="Run one instance (cairn run --help).")
def _run(**_: object) -> None:
    """Run one instance until SIGTERM or Ctrl-C (see `cairn run --help`)."""
    sys.exit(run.main(sys.argv[2:]))


_run.__signature__ = _flags_of_run()  # type: ignore[attr-defined]


@config_app.command(name="default")
def _config_default(
    output: Annotated[str | None, typer.Option("-o", "--output", help="write it to a file")] = None,
) -> None:
    """Print a commented configuration file.

    Example: cairn config default -o cairn.yaml && cairn run --config cairn.yaml
    """
    from cairn.node.boot.config import default_file

    if output is None:
        typer.echo(default_file(), nl=False)
    else:
        try:
            with open(output, "w") as file:
                file.write(default_file())
        except OSError as problem:
            typer.echo(f"cairn: -o {output}: {problem.strerror}", err=True)
            raise typer.Exit(2) from None


@app.command(short_help="Start a real cluster on this machine.")
def demo(
    instances: Annotated[int, typer.Option(help="how many instances")] = 4,
    replication_factor: Annotated[int, typer.Option(help="copies of each row")] = 2,
    replication_mode: Annotated[str, typer.Option(help="async or sync")] = "async",
    base_port: Annotated[int, typer.Option(help="pgwire of i1; others count up")] = 4327,
    directory: Annotated[str | None, typer.Option("--dir", help="where files go")] = None,
    command: Annotated[
        str | None, typer.Option("--exec", help="run this when ready, then stop the cluster")
    ] = None,
    detach: Annotated[bool, typer.Option("--detach", help="leave it running")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="with --detach: for machines, as in DIR/demo.json")
    ] = False,
    stop: Annotated[bool, typer.Option("--stop", help="end a detached demo in --dir")] = False,
    sample: Annotated[
        str | None, typer.Option(help="CSV file to load through Spark when ready")
    ] = None,
) -> None:
    """Start a real cluster of real processes on this machine.

    Example: cairn demo --instances 4 --exec "psql \\$CAIRN_DSN -c 'select 1'"
    """
    from cairn.cli.demo.start import DemoOptions, run_demo
    from cairn.cli.demo.stop import stop_demo

    if replication_mode not in ("async", "sync"):
        typer.echo(f"cairn demo: --replication-mode {replication_mode}: async or sync", err=True)
        raise typer.Exit(2)
    if stop:
        finish(lambda: stop_demo(directory))
    options = DemoOptions(
        instances,
        replication_factor,
        replication_mode,
        base_port,
        directory,
        command,
        detach,
        sample,
        as_json,
    )
    finish(lambda: run_demo(options))


@app.command(short_help="End lock-outs after wrong passwords, on the machine itself.")
def unlock(
    instance_dir: Annotated[
        Path,
        typer.Option(
            "--instance-dir", envvar="CAIRN_INSTANCE_DIR", help="where the instance has its files"
        ),
    ],
) -> None:
    """End all lock-outs of an instance, without a login, on the machine itself.

    Example: cairn unlock --instance-dir /var/lib/cairn/i1
    """
    from cairn.cli.instance.unlock import run_unlock

    finish(lambda: run_unlock(instance_dir))


@app.command(short_help="Run the Raft core under the seeded simulator.")
def simulate(
    seed: Annotated[int | None, typer.Option(help="repeat one seed")] = None,
    seeds: Annotated[int, typer.Option(help="how many seeds")] = 100,
    first: Annotated[int, typer.Option(help="the first of them")] = 1,
    workers: Annotated[int, typer.Option(help="processes")] = 2,
    nodes: Annotated[int | None, typer.Option(help="always this many nodes")] = None,
    ledger: Annotated[
        Path | None, typer.Option(help="go on where this file ends, and add to it")
    ] = None,
    minutes: Annotated[float, typer.Option(help="with --ledger: how long")] = 10.0,
) -> None:
    """Run the Raft core under the seeded simulator, with all faults and oracles.

    Example: cairn simulate --seed 42
    """
    from cairn.sim.main import explain, keep_ledger, run_seeds

    def work() -> int:
        if ledger is not None:
            return 1 if keep_ledger(ledger, minutes, nodes) else 0
        if seed is not None:
            return 1 if explain(seed, nodes).failure is not None else 0
        return 1 if run_seeds(first, seeds, workers, nodes=nodes) else 0

    finish(work)
