"""The `cairn` command line: everything but `run`, which starts before this is imported."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

import cairn

app = typer.Typer(
    name="cairn",
    help="A distributed SQL database whose clients always know the way.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
config_app = typer.Typer(
    help="Configuration files.\n\nExample: cairn config default -o cairn.yaml",
    short_help="Configuration files.",
    no_args_is_help=True,
)
app.add_typer(config_app, name="config")

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


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"cairn {cairn.__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", "-V", callback=_version, is_eager=True, help="print it")
    ] = False,
) -> None:
    """A distributed SQL database whose clients always know the way."""


@app.command(name="run", add_help_option=False, short_help="Run one instance (cairn run --help).")
def _run() -> None:
    """Run one instance until SIGTERM or Ctrl-C (see `cairn run --help`)."""
    from cairn.cli.run import main

    sys.exit(main(sys.argv[2:]))


@config_app.command(name="default")
def _config_default(
    output: Annotated[str | None, typer.Option("-o", help="write it to a file")] = None,
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
    from cairn.cli.demo import DemoOptions, run_demo
    from cairn.cli.demo_stop import stop_demo

    if replication_mode not in ("async", "sync"):
        typer.echo(f"cairn demo: --replication-mode {replication_mode}: async or sync", err=True)
        raise typer.Exit(2)
    if stop:
        raise typer.Exit(stop_demo(directory))
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
    raise typer.Exit(run_demo(options))


@app.command(short_help="Show instances, replicasets, the leader, the governor.")
def status(
    dsn: Dsn = None,
    password_file: PasswordFile = None,
    as_json: Annotated[bool, typer.Option("--json", help="for machines")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="show it again every second")] = False,
) -> None:
    """Show instances, grades, replicasets, voters, the leader and what the governor does.

    In a pipe it is the same text, never wrapped; with --watch one after the other.

    Example: cairn status --dsn postgresql://admin@127.0.0.1:4327/cairn --watch
    """
    from cairn.cli.status import show_status

    _finish(lambda: show_status(dsn, password_file, as_json=as_json, watch=watch))


@app.command(short_help="Remove an instance from the cluster for good.")
def expel(
    instance: Annotated[str, typer.Argument(help="name or uuid")],
    dsn: Dsn = None,
    password_file: PasswordFile = None,
    force: Annotated[bool, typer.Option("--force", help="even if rows are lost")] = False,
    timeout: Annotated[float, typer.Option(help="seconds to wait for the end")] = 60.0,
) -> None:
    """Remove an instance from the cluster for good, and wait until it is done.

    Example: cairn expel i4 --dsn postgresql://admin@127.0.0.1:4327/cairn
    """
    from cairn.cli.expel import run_expel

    _finish(lambda: run_expel(instance, dsn, password_file, force=force, timeout_s=timeout))


@app.command(short_help="Make another instance the master of a replicaset.")
def switchover(
    replicaset: Annotated[str, typer.Argument(help="name or uuid")],
    to: Annotated[
        str | None, typer.Option(help="which instance [default: the one that is least behind]")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="do not ask")] = False,
    timeout: Annotated[float, typer.Option(help="seconds to wait for the end")] = 60.0,
    dsn: Dsn = None,
    password_file: PasswordFile = None,
    as_json: Annotated[bool, typer.Option("--json", help="for machines")] = False,
) -> None:
    """Make another instance the master of a replicaset, and wait until it is.

    Nothing that was acknowledged is lost; writes wait a moment.

    Example: cairn switchover default_1 --to i2 --yes
    """
    from cairn.cli.switchover import run_switchover

    _finish(
        lambda: run_switchover(
            replicaset, dsn, password_file, to=to, yes=yes, as_json=as_json, timeout_s=timeout
        )
    )


@app.command(short_help="Copy the whole cluster as it is at one moment, while people work.")
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
    as_json: Annotated[bool, typer.Option("--json", help="for machines")] = False,
) -> None:
    """Copy the whole cluster as it is at one moment, while people work.

    Writers wait some milliseconds. The copy gets its name when all of it is on disk. Only for
    those who may do everything (admin); it has all rows: keep it as safe as the cluster.

    Example: cairn backup /var/backups/shop --from latest --keep 14
    """
    from cairn.cli.backup import run_backup, run_verify

    if verify:
        _finish(lambda: run_verify(directory, as_json=as_json))
    _finish(
        lambda: run_backup(
            directory, dsn, password_file, previous=previous, keep=keep, as_json=as_json
        )
    )


@app.command(short_help="Put a backup into an empty cluster, or directories back.")
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
    from cairn.cli.backup_files import backups_in, is_backup
    from cairn.cli.restore import run_restore
    from cairn.cli.restore_backup import run_restore_backup
    from cairn.cli.talking import TalkProblem

    def work() -> int:
        if not any(map(is_backup, directories)):
            for each in directories:
                if found := backups_in(each):
                    raise TalkProblem(f"{each} has several backups: name one, {found[-1]}", 2)
            if to is not None:
                raise TalkProblem(f"--to is for a backup, and {directories[0]} is none", 2)
            return run_restore(directories, without or [])
        if len(directories) > 1 or without:
            raise TalkProblem("one backup is restored at a time, without other directories", 2)
        return run_restore_backup(directories[0], dsn, password_file, to=to, as_json=as_json)

    _finish(work)


@app.command(short_help="Show, plan, pause and steer buckets that move.")
def rebalance(
    action: Annotated[
        str, typer.Argument(help="status, plan, pause, resume, weight or drain")
    ] = "status",
    replicaset: Annotated[str, typer.Argument(help="for weight and drain")] = "",
    weight: Annotated[float, typer.Argument(help="its share in proportion to others")] = 1.0,
    dsn: Dsn = None,
    password_file: PasswordFile = None,
    as_json: Annotated[bool, typer.Option("--json", help="for machines")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="show it again every second")] = False,
    wait: Annotated[bool, typer.Option("--wait", help="until nothing has to move")] = False,
) -> None:
    """Show which buckets move; plan what would follow; pause and resume; set weights; drain.

    Example: cairn rebalance drain default_1 --wait
    """
    from cairn.cli.rebalance import run_rebalance

    _finish(
        lambda: run_rebalance(
            dsn,
            password_file,
            action,
            name=replicaset,
            weight=weight,
            as_json=as_json,
            watch=watch,
            wait=wait,
        )
    )


@app.command(short_help="Show, add, change and drop tiers.")
def tier(
    action: Annotated[str, typer.Argument(help="list, add, set or drop")] = "list",
    name: Annotated[str, typer.Argument(help="of the tier")] = "",
    replication_factor: Annotated[
        int | None, typer.Option(help="instances of each replicaset", min=1, max=31)
    ] = None,
    replication_mode: Annotated[str | None, typer.Option(help="async or sync")] = None,
    bucket_count: Annotated[int | None, typer.Option(help="of a new tier", min=0)] = None,
    release: Annotated[
        bool, typer.Option("--release", help="expel replicas above the new factor")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="do not ask")] = False,
    dsn: Dsn = None,
    password_file: PasswordFile = None,
    as_json: Annotated[bool, typer.Option("--json", help="for machines")] = False,
) -> None:
    """Show tiers; add one to a running cluster; change how many copies it keeps, and how.

    Example: cairn tier set default --replication-factor 3
    """
    from cairn.cli.tier import run_tier

    options = {
        "replication_factor": replication_factor,
        "replication_mode": replication_mode,
        "bucket_count": bucket_count,
    }
    _finish(
        lambda: run_tier(
            dsn, password_file, action, name, options, release=release, yes=yes, as_json=as_json
        )
    )


@app.command(short_help="Follow topology events until Ctrl-C.")
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
    from cairn.cli.watch import run_watch

    _finish(lambda: run_watch(dsn, password_file, as_json=as_json, verbose=verbose))


@app.command(name="explain-route", short_help="Tell where the smart driver would send a statement.")
def explain_route(
    sql: Annotated[str, typer.Argument(help="a statement with $1, $2, …")],
    params: Annotated[list[str] | None, typer.Argument(help="its parameters")] = None,
    dsn: Dsn = None,
    password_file: PasswordFile = None,
) -> None:
    """Tell to which instance the smart driver would send a statement, and why.

    Example: cairn explain-route 'SELECT * FROM orders WHERE id = $1' 42
    """
    from cairn.cli.route import run_explain_route

    _finish(lambda: run_explain_route(sql, params or [], dsn, password_file))


@app.command(short_help="Put numbered SQL files into the governor's queue.")
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
    from cairn.cli.migrate import run_migrate

    _finish(
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


Master = Annotated[str, typer.Option(help="Spark master, or a cluster's address")]
Summary = Annotated[bool, typer.Option("--json", help="the summary for machines")]


@app.command()
def load(
    files: Annotated[list[str], typer.Argument(help="Parquet, CSV or JSON lines")],
    table: Annotated[str, typer.Option(help="where the rows go")],
    dsn: Dsn = None,
    password_file: PasswordFile = None,
    create: Annotated[
        bool, typer.Option("--create", help="make the table if it is missing")
    ] = False,
    key: Annotated[str, typer.Option(help="primary key of a new table: COLUMN,…")] = "",
    schema: Annotated[str | None, typer.Option(help="types of the columns, Spark DDL")] = None,
    mode: Annotated[str, typer.Option(help="append or overwrite")] = "append",
    on_conflict: Annotated[str, typer.Option(help="error, ignore or replace")] = "error",
    commit: Annotated[str, typer.Option(help="staged (exactly once) or direct")] = "staged",
    write_id: Annotated[str | None, typer.Option(help="makes a repeated load do nothing")] = None,
    bad_file: Annotated[
        str | None, typer.Option(help="where bad rows go [default: TABLE.bad.jsonl]")
    ] = None,
    master: Master = "local[*,4]",
    as_json: Summary = False,
) -> None:
    """Load files into a table through Spark.

    Example: cairn load orders.csv --table orders --create --key id
    """
    from cairn.cli import pipeline

    code = pipeline.load(
        files, table, dsn=dsn, password_file=password_file, create=create,
        key=[word for word in key.split(",") if word], schema=schema, mode=mode,
        on_conflict=on_conflict, commit=commit, write_id=write_id, bad_file=bad_file,
        master=master, as_json=as_json,
    )  # fmt: skip
    raise typer.Exit(code)


@app.command()
def dump(
    table: Annotated[str, typer.Argument(help="what to read")],
    to: Annotated[str, typer.Option(help="directory for Parquet files")],
    dsn: Dsn = None,
    password_file: PasswordFile = None,
    partition_by: Annotated[str, typer.Option(help="COLUMN,… as directories")] = "",
    columns: Annotated[str, typer.Option(help="COLUMN,… (default: all)")] = "",
    splits: Annotated[int, typer.Option(help="partitions per replicaset; 0: by size")] = 0,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="replace what is there")] = False,
    master: Master = "local[*,4]",
    as_json: Summary = False,
) -> None:
    """Write a table to Parquet files through Spark.

    Example: cairn dump orders --to orders.parquet
    """
    from cairn.cli import pipeline

    code = pipeline.dump(
        table, to, dsn=dsn, password_file=password_file,
        partition_by=[word for word in partition_by.split(",") if word],
        columns=[word for word in columns.split(",") if word], splits=splits, overwrite=overwrite,
        master=master, as_json=as_json,
    )  # fmt: skip
    raise typer.Exit(code)


@app.command(short_help="Write a table's changes to Parquet files as they come.")
def follow(
    table: Annotated[str, typer.Argument(help="whose changes")],
    to: Annotated[str, typer.Option(help="directory for Parquet files")],
    dsn: Dsn = None,
    password_file: PasswordFile = None,
    starting: Annotated[str, typer.Option(help="earliest, latest or snapshot")] = "earliest",
    every: Annotated[float, typer.Option(help="seconds between batches")] = 5.0,
    once: Annotated[bool, typer.Option("--once", help="what there is now, then end")] = False,
    master: Master = "local[*,4]",
    as_json: Summary = False,
) -> None:
    """Write a table's changes to Parquet files as they come; restarts where it ended.

    Example: cairn follow orders --to changes/ --once
    """
    from cairn.cli import pipeline

    code = pipeline.follow(
        table, to, dsn=dsn, password_file=password_file, starting=starting, every_s=every,
        once=once, master=master, as_json=as_json,
    )  # fmt: skip
    raise typer.Exit(code)


@app.command(short_help="Write what happened to the cluster as an HTML page.")
def report(
    out: Annotated[str, typer.Option(help="the page to write")] = "report.html",
    dsn: Dsn = None,
    password_file: PasswordFile = None,
    tables_to: Annotated[str | None, typer.Option(help="directory for the data as Parquet")] = None,
    master: Master = "local[*,4]",
    as_json: Summary = False,
) -> None:
    """Write what happened to the cluster, and how its rows lie, as one HTML page.

    Example: cairn report --out report.html
    """
    from cairn.cli import pipeline

    code = pipeline.report(
        out, dsn=dsn, password_file=password_file, tables_to=tables_to, master=master,
        as_json=as_json,
    )  # fmt: skip
    raise typer.Exit(code)


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

    if ledger is not None:
        raise typer.Exit(1 if keep_ledger(ledger, minutes, nodes) else 0)
    if seed is not None:
        raise typer.Exit(1 if explain(seed, nodes).failure is not None else 0)
    raise typer.Exit(1 if run_seeds(first, seeds, workers, nodes=nodes) else 0)


def _finish(work: Any) -> None:
    """Run a command and turn its error into one line and an exit code."""
    from cairn.cli.talking import TalkProblem

    try:
        code = work()
    except TalkProblem as problem:
        typer.echo(f"cairn: {problem}", err=True)
        raise typer.Exit(problem.exit_code) from None
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    raise typer.Exit(code or 0)
