"""Tables to and from files, through Spark. Each command imports what it needs when it is run."""

from __future__ import annotations

from typing import Annotated

import typer

from cairn.cli.options import Dsn, PasswordFile, finish

commands = typer.Typer()


Master = Annotated[str, typer.Option(help="Spark master, or a cluster's address")]
Summary = Annotated[bool, typer.Option("--json", help="the summary for machines")]


@commands.command()
def load(
    files: Annotated[
        list[str],
        typer.Argument(help="Parquet, CSV or JSON lines, directories of them, or a URL of JDBC"),
    ],
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
        str | None,
        typer.Option("--bad-file", "--reject", help="where bad rows go [default: TABLE.bad.jsonl]"),
    ] = None,
    max_rejects: Annotated[
        int, typer.Option(min=0, help="with more bad rows than that nothing is loaded")
    ] = 10_000,
    multiline: Annotated[
        bool, typer.Option("--multiline", help="CSV: texts in quotes may have line ends")
    ] = False,
    source: Annotated[
        str, typer.Option("--from", help="JDBC: a table, or '(SELECT …) AS rows'")
    ] = "",
    from_password_file: Annotated[
        str | None, typer.Option(help="JDBC: file with the password for that database")
    ] = None,
    jars: Annotated[str, typer.Option(help="JDBC: the driver, FILE,…")] = "",
    master: Master = "local[*,4]",
    as_json: Summary = False,
) -> None:
    """Load files into a table through Spark.

    Example: cairn load orders.csv --table orders --create --key id
    What `cairn dump` wrote is taken as the directory that it is.
    """
    from cairn.cli.data import pipeline

    finish(
        lambda: pipeline.load(
            files, table, dsn=dsn, password_file=password_file, create=create,
            key=[word for word in key.split(",") if word], schema=schema, mode=mode,
            on_conflict=on_conflict, commit=commit, write_id=write_id, bad_file=bad_file,
            max_rejects=max_rejects, multiline=multiline, source=source,
            source_password_file=from_password_file, jars=jars, master=master, as_json=as_json,
        )
    )  # fmt: skip


@commands.command()
def dump(
    table: Annotated[str, typer.Argument(help="what to read")],
    to: Annotated[str, typer.Option(help="directory for the files")],
    dsn: Dsn = None,
    password_file: PasswordFile = None,
    partition_by: Annotated[str, typer.Option(help="COLUMN,… as directories")] = "",
    columns: Annotated[str, typer.Option(help="COLUMN,… (default: all)")] = "",
    splits: Annotated[int, typer.Option(help="partitions per replicaset; 0: by size")] = 0,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="replace what is there")] = False,
    kind: Annotated[str, typer.Option("--format", help="parquet, csv or jsonl")] = "parquet",
    master: Master = "local[*,4]",
    as_json: Summary = False,
) -> None:
    """Write a table to files through Spark.

    Example: cairn dump orders --to orders.parquet
    """
    from cairn.cli.data import pipeline

    finish(
        lambda: pipeline.dump(
            table, to, dsn=dsn, password_file=password_file,
            partition_by=[word for word in partition_by.split(",") if word],
            columns=[word for word in columns.split(",") if word], splits=splits,
            overwrite=overwrite, kind=kind, master=master, as_json=as_json,
        )
    )  # fmt: skip


@commands.command(short_help="Write a table's changes to Parquet files as they come.")
def follow(
    table: Annotated[str, typer.Argument(help="whose changes")],
    to: Annotated[
        str | None, typer.Option(help="directory for the changes, as Parquet files")
    ] = None,
    into: Annotated[
        str | None, typer.Option(help="directory for a copy of the rows, kept current")
    ] = None,
    kind: Annotated[
        str, typer.Option("--format", help="of the copy: parquet or delta")
    ] = "parquet",
    dsn: Dsn = None,
    password_file: PasswordFile = None,
    starting: Annotated[
        str, typer.Option(help="of the changes: earliest, latest or snapshot")
    ] = "earliest",
    every: Annotated[float, typer.Option(help="seconds between batches")] = 5.0,
    once: Annotated[bool, typer.Option("--once", help="what there is now, then end")] = False,
    master: Master = "local[*,4]",
    as_json: Summary = False,
) -> None:
    """Write a table's changes to Parquet files as they come, or keep a copy of it current.

    It goes on where it ended. Example: cairn follow orders --into lake/orders --format delta
    """
    from cairn.cli.data import pipeline

    finish(
        lambda: pipeline.follow(
            table, to, into=into, kind=kind, dsn=dsn, password_file=password_file,
            starting=starting, every_s=every, once=once, master=master, as_json=as_json,
        )
    )  # fmt: skip


@commands.command(short_help="Write what happened to the cluster as an HTML page.")
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
    from cairn.cli.data import pipeline

    finish(
        lambda: pipeline.report(
            out, dsn=dsn, password_file=password_file, tables_to=tables_to, master=master,
            as_json=as_json,
        )
    )  # fmt: skip
