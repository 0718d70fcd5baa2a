"""Files into a table: what can be read is written, what cannot is put aside with file and line."""

from __future__ import annotations

import csv
import gzip
import re
import uuid
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from cairn.model.errors import CairnError, InvalidParameter, UndefinedTable
from cairn.model.quoting import identifier
from cairn.spark import cluster
from cairn.spark.files.rejects import BadRow, blame, find_lines, put_aside
from cairn.spark.tables import describe, spark_schema
from cairn.spark.writes import staging

_CORRUPT = "_corrupt_record"
JDBC = "jdbc"
MAX_REJECTS = 10_000  # unless somebody says another number
#: As spreadsheets, Python and PostgreSQL write it. Spark would take a backslash for the escape.
CSV = {"header": "true", "escape": '"'}
#: Nothing between two commas is NULL, a pair of quotes is an empty text: Spark tells them apart
#: only if NULL is written in another way, here one that no file has.
_READ_CSV = CSV | {"nullValue": "\0"}
_NUMBER = re.compile(r"[+-]?[\d.]+")
_SQL_TYPES = {
    "bigint": "INTEGER", "int": "INTEGER", "smallint": "INTEGER", "tinyint": "INTEGER",
    "double": "DOUBLE", "float": "DOUBLE", "string": "TEXT", "boolean": "BOOLEAN",
    "timestamp": "DATETIME", "timestamp_ntz": "DATETIME", "date": "DATE", "binary": "BYTEA",
}  # fmt: skip


class Files(msgspec.Struct, frozen=True):
    """What is loaded, and how Spark has to read it."""

    spark: Any
    names: Sequence[str]
    kind: str  # parquet, csv, json or jdbc
    is_multiline: bool = False
    database: dict[str, str] = {}  # what Spark has to know to read from one

    def frame(self, schema: Any = None, **options: object) -> Any:
        if self.kind == JDBC:
            return self.spark.read.format(JDBC).options(url=self.names[0], **self.database).load()
        # A column that is in the names of directories is text: Spark would take 007 for 7.
        self.spark.conf.set("spark.sql.sources.partitionColumnTypeInference.enabled", "false")
        if self.kind == "csv":
            options = {**_READ_CSV, "multiLine": self.is_multiline, **options}
        reader = self.spark.read if schema is None else self.spark.read.schema(schema)
        return reader.format(self.kind).options(**options).load(list(self.names))


class Loaded(msgspec.Struct, frozen=True):
    table: str
    rows: int  # that were read and are no bad ones
    added: int  # by which the table has grown
    bad: int
    bad_file: str | None
    first_bad: BadRow | None = None


_KINDS = {
    ".parquet": "parquet", ".csv": "csv", ".jsonl": "json", ".json": "json", ".ndjson": "json",
}  # fmt: skip


def file_format(files: Sequence[str]) -> str:
    kinds = {kind for name in files for kind in _kinds(name)}
    if len(kinds) != 1 or "" in kinds:
        raise InvalidParameter(
            "the files must all be .parquet, all .csv or all .jsonl, those in directories too"
        )
    if kinds == {JDBC} and len(files) > 1:
        raise InvalidParameter("one database at a time")
    return str(kinds.pop())


def _kinds(name: str) -> set[str]:
    """Of a file by its name, of a directory by those of its files."""
    if name.startswith("jdbc:"):
        return {JDBC}
    suffixes = [each for each in Path(name).suffixes if each not in (".gz", ".bz2", ".zst")]
    kind = _KINDS.get(suffixes[-1] if suffixes else "", "")
    if kind or "://" in name or not Path(name).is_dir():
        return {kind}
    return {
        found
        for path in Path(name).rglob("*")
        if path.is_file() and not path.name.startswith(("_", "."))
        for found in _kinds(str(path))
    }


def load(
    spark: Any,
    dsn: str,
    files: Sequence[str],
    table: str,
    *,
    create: bool = False,
    key: Sequence[str] = (),
    schema: str | None = None,
    mode: str = "append",
    on_conflict: str = "error",
    commit: str = "staged",
    write_id: str | None = None,
    bad_file: str | None = None,
    max_rejects: int = MAX_REJECTS,
    multiline: bool = False,
    database: dict[str, str] | None = None,
) -> Loaded:
    """Write the rows of the files; `key` is the primary key of a table that is created.

    With more rows to put aside than `max_rejects` nothing is written. `multiline`: texts in quotes
    may have line ends; each file is then read by one task. `database`: Spark's options for the one
    that the only "file", a JDBC URL, names. Whatever goes wrong, a table that was
    created for it is gone again, unless it has rows.
    """
    kind = file_format(files)
    missing = [name for name in files if "://" not in name and not Path(name).exists()]
    if missing:
        raise InvalidParameter(f"{missing[0]}: no such file")
    source = Files(spark, files, kind, multiline, database or {})
    is_new = create and not _exists(dsn, table)
    if is_new:
        inferred = {"inferSchema": True} if kind == "csv" and not schema else {}
        known = source.frame(schema, **inferred).schema
        _check_names(source, [field.name for field in known.fields])
        chosen_key = list(key) or _find_key(source, known)
        _create(dsn, table, known, chosen_key)
    elif key:
        _check_key(dsn, table, key)
    try:
        return _load(source, dsn, table, mode, on_conflict, commit, write_id, bad_file, max_rejects)
    except BaseException:
        if is_new:
            with suppress(CairnError):
                if not _count(dsn, table):
                    cluster.pool(dsn).execute(f"DROP TABLE {identifier(table)}")
        raise


def _load(
    source: Files, dsn: str, table: str, mode: str, on_conflict: str, commit: str,
    write_id: str | None, bad_file: str | None, max_rejects: int,
) -> Loaded:  # fmt: skip
    from pyspark.sql import Observation
    from pyspark.sql import functions as f

    wanted = _schema(source, dsn, table)
    given = {field.name for field in wanted}
    parts = _primary_key(dsn, table) or describe(dsn, table).key
    key = [name for name in parts if name in given]  # the writer says what else is missing
    frame, bad = _read(source, wanted, key)
    rejected = bad.limit(max_rejects + 1).collect()
    found = find_lines(rejected, lambda record: blame(record, source.kind, wanted))
    path = put_aside(found[: max_rejects or 1], bad_file or f"{table}.bad.jsonl")
    if len(found) > max_rejects:
        raise InvalidParameter(
            f"more than {max_rejects} rows of the files are no rows of {table}: "
            f"nothing is written; the first of them is {found[0].place} {found[0].reason}, "
            f"more are in {path}",
            hint="--max-rejects allows more",
        )
    before = _count(dsn, table) if mode == "append" else 0
    seen = Observation()
    frame = frame.observe(seen, f.count(f.lit(1)).alias("rows"))
    chosen = write_id or uuid.uuid4().hex
    writer = frame.write.format("cairn").option("dsn", dsn).option("table", table)
    writer = writer.option("onConflict", on_conflict).option("commit", commit)
    try:
        writer.option("writeId", chosen).mode(mode).save()
    except KeyboardInterrupt:
        with suppress(Exception):  # whatever it answers: its tasks shall not go on
            source.spark.sparkContext.cancelAllJobs()
        raise KeyboardInterrupt(_interrupted(dsn, commit, chosen)) from None
    added = _count(dsn, table) - before
    return Loaded(table, seen.get["rows"], added, len(found), path, found[0] if found else None)


def _interrupted(dsn: str, commit: str, write_id: str) -> str:
    """What has become of a load that somebody stopped; what it kept aside is thrown away."""
    if commit == "direct":
        return "interrupted: rows that were written before it stay"
    if staging.abandon(dsn, write_id):
        return "interrupted: nothing was written"
    return f"interrupted while rows became visible: finish it with --write-id {write_id}"


def _count(dsn: str, table: str) -> int:
    [(count,)] = cluster.pool(dsn).fetch(f"SELECT count(*) FROM {identifier(table)}")
    return int(count)


# --- schema ---------------------------------------------------------------------------------------


def _exists(dsn: str, table: str) -> bool:
    try:
        describe(dsn, table)
    except UndefinedTable:
        return False
    return True


def _primary_key(dsn: str, table: str) -> list[str]:
    """Of a table that exists; empty if this user may not know."""
    sql = (
        "SELECT i.parts FROM _pico_index AS i JOIN _pico_table AS t ON i.table_id = t.id "
        "WHERE i.id = 0 AND t.name = $1"
    )
    with suppress(CairnError):
        row = cluster.pool(dsn).fetchrow(sql, table)
        return [part if isinstance(part, str) else part[0] for part in (row[0] if row else ())]
    return []


def _check_key(dsn: str, table: str, key: Sequence[str]) -> None:
    known = _primary_key(dsn, table)
    if known and list(key) != known:
        raise InvalidParameter(
            f"the primary key of {table} is ({', '.join(known)}), not ({', '.join(key)})",
            hint="leave out --key: the table exists",
        )


def _find_key(source: Files, schema: Any) -> list[str]:
    """The first column whose values are all there and all different."""
    from pyspark.sql import functions as f

    frame = source.frame(schema)
    names = [
        field.name
        for field in schema.fields
        if field.dataType.simpleString() in ("bigint", "int", "string")
    ]
    counts = [f.count_distinct(f.col(f"`{name}`")).alias(f"n{at}") for at, name in enumerate(names)]
    told = frame.agg(f.count(f.lit(1)).alias("rows"), *counts).collect()[0] if names else None
    for at, name in enumerate(names):
        if told is not None and told["rows"] and told[f"n{at}"] == told["rows"]:
            return [name]
    raise InvalidParameter(
        "no column of the files has a value of its own in every row",
        hint="name the columns of the primary key: --key a,b",
    )


def _schema(source: Files, dsn: str, table: str) -> Any:
    """The table's own types, for the columns that the files have."""
    known = spark_schema(describe(dsn, table), (), 18)
    by_name = {field.name: field for field in known.fields}
    names = list(by_name)
    if source.kind == "csv":
        names = _header(source.names) or source.frame().columns
    elif source.kind != "json":
        names = source.frame().columns
    unknown = [name for name in names if name not in by_name]
    if unknown:
        raise InvalidParameter(f'{table} has no column "{unknown[0]}", which {source.names[0]} has')
    return [by_name[name] for name in names]


def _check_names(source: Files, names: Sequence[str]) -> None:
    """A file without a line of names would lose its first row, and name the columns by it."""
    if source.kind == "csv" and any(_NUMBER.fullmatch(name) for name in names):
        raise InvalidParameter(
            f"the first line of {source.names[0]} has values and no names: {', '.join(names)}",
            hint="put a line with the names of the columns before it",
        )


def _header(files: Sequence[str]) -> list[str]:
    """The columns that all files have in the same order. Spark would take those of the first one
    for all, or say only that it failed; and to ask it for them is a job of its own.

    Empty where Spark has to say: files that are not here or packed, names that it changes.
    """
    first: tuple[Path, list[str]] | None = None
    for path in _local_files(files):
        opener = gzip.open if path.suffix == ".gz" else open
        with opener(path, "rt", encoding="utf-8-sig", errors="replace", newline="") as text:
            header = next((row for row in csv.reader(text) if row), None)
        if header is None:
            continue
        first = first or (path, header)
        if header != first[1]:
            raise InvalidParameter(
                f"{path} has the columns {', '.join(header)}, and {first[0]} has "
                f"{', '.join(first[1])}",
                hint="load files whose columns differ one after the other",
            )
    names = first[1] if first is not None else []
    is_plain = all(names) and len({name.lower() for name in names}) == len(names)
    return names if is_plain and all(Path(each).is_file() for each in files) else []


def _local_files(files: Sequence[str]) -> Iterator[Path]:
    for name in files:
        path = Path(name)
        found = sorted(path.rglob("*")) if path.is_dir() else [path]
        for each in found:
            hidden = each.name.startswith(("_", ".")) and each != path
            if each.is_file() and not hidden and each.suffix not in (".bz2", ".zst"):
                yield each


def _create(dsn: str, table: str, schema: Any, key: Sequence[str]) -> None:
    chosen = list(key)
    known = [field.name for field in schema.fields]
    missing = [name for name in chosen if name not in known]
    if missing:
        raise InvalidParameter(
            f'the key\'s column "{missing[0]}" is not in the files; they have {", ".join(known)}'
        )
    columns = []
    for field in schema.fields:
        word = field.dataType.simpleString()
        sql = "DECIMAL" if word.startswith("decimal") else _SQL_TYPES.get(word)
        if sql is None:
            raise InvalidParameter(f'column "{field.name}" is {word}, which no table can hold')
        columns.append(
            f"{identifier(field.name)} {sql}{' NOT NULL' if field.name in chosen else ''}"
        )
    primary = ", ".join(map(identifier, chosen))
    cluster.pool(dsn).execute(
        f"CREATE TABLE {identifier(table)} ({', '.join(columns)}, PRIMARY KEY ({primary}))"
    )


# --- rows -----------------------------------------------------------------------------------------


def _read(source: Files, fields: list[Any], key: Sequence[str]) -> tuple[Any, Any]:
    """(rows to write, rows to put aside with their file)."""
    from pyspark.sql import functions as f
    from pyspark.sql import types

    names = [field.name for field in fields]
    no_key = " OR ".join(f"`{name}` IS NULL" for name in key) or "false"
    missing = f.coalesce(
        f.lit(None).cast("string"), *[f.when(f.col(f"`{n}`").isNull(), f.lit(n)) for n in key]
    )
    if source.kind in ("parquet", JDBC):
        frame = source.frame()
        frame = frame.select(*[f.col(x.name).cast(x.dataType).alias(x.name) for x in fields])
        record = f.to_json(f.struct(*names))
        file = f.col("_metadata.file_path") if source.kind == "parquet" else f.lit("database")
        placed = frame.withColumn("_file", file)
        bad = placed.where(no_key).select("_file", record.alias("record"), missing.alias("column"))
        return frame.where(f"NOT ({no_key})"), bad
    wide = types.StructType(
        [types.StructField(each.name, each.dataType) for each in fields]
        + [types.StructField(_CORRUPT, types.StringType())]
    )
    # `.json` and `.csv` may not be asked for the corrupt column alone: take all of it.
    # A file whose columns stand in another order is refused: values would change their places.
    strict = {"enforceSchema": False} if source.kind == "csv" else {}
    frame = source.frame(wide, columnNameOfCorruptRecord=_CORRUPT, **strict)
    frame = frame.withColumn("_file", f.col("_metadata.file_path"))
    is_bad = f"{_CORRUPT} IS NOT NULL OR {no_key}"
    column = f.when(f.col(_CORRUPT).isNull(), missing)
    record = f.coalesce(f.col(_CORRUPT), f.to_json(f.struct(*names)))
    bad = frame.where(is_bad).select("_file", record.alias("record"), column.alias("column"))
    return frame.where(f"NOT ({is_bad})").select(*names), bad
