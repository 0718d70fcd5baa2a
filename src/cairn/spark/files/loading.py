"""Files into a table: what can be read is written, what cannot is put aside with file and line."""

from __future__ import annotations

import csv
import gzip
import json
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import msgspec

from cairn.model.errors import CairnError, InvalidParameter, UndefinedTable
from cairn.model.quoting import identifier
from cairn.spark import cluster
from cairn.spark.tables import describe, spark_schema
from cairn.spark.writes import staging

_CORRUPT = "_corrupt_record"
MAX_BAD = 10_000  # bad rows that are looked up by line
_SQL_TYPES = {
    "bigint": "INTEGER", "int": "INTEGER", "smallint": "INTEGER", "tinyint": "INTEGER",
    "double": "DOUBLE", "float": "DOUBLE", "string": "TEXT", "boolean": "BOOLEAN",
    "timestamp": "DATETIME", "timestamp_ntz": "DATETIME", "date": "DATETIME", "binary": "BYTEA",
}  # fmt: skip


class BadRow(msgspec.Struct, frozen=True):
    file: str
    line: int | None
    column: str | None  # None: it is no row at all
    why: str
    record: str


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
    return str(kinds.pop())


def _kinds(name: str) -> set[str]:
    """Of a file by its name, of a directory by those of its files."""
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
) -> Loaded:
    """Write the rows of the files; `key` is the primary key of a table that is created.

    Whatever goes wrong, a table that was created for it is gone again, unless it has rows.
    """
    kind = file_format(files)
    missing = [name for name in files if "://" not in name and not Path(name).exists()]
    if missing:
        raise InvalidParameter(f"{missing[0]}: no such file")
    is_new = create and not _exists(dsn, table)
    if is_new:
        known = _found(spark, files, kind, schema)
        chosen_key = list(key) or _find_key(spark, files, kind, known)
        _create(dsn, table, known, chosen_key)
    elif key:
        _check_key(dsn, table, key)
    try:
        return _load(spark, dsn, files, kind, table, mode, on_conflict, commit, write_id, bad_file)
    except BaseException:
        if is_new:
            with suppress(CairnError):
                if not _count(dsn, table):
                    cluster.pool(dsn).execute(f"DROP TABLE {identifier(table)}")
        raise


def _load(
    spark: Any, dsn: str, files: Sequence[str], kind: str, table: str, mode: str,
    on_conflict: str, commit: str, write_id: str | None, bad_file: str | None,
) -> Loaded:  # fmt: skip
    from pyspark.sql import Observation
    from pyspark.sql import functions as f

    wanted = _schema(spark, dsn, files, kind, table)
    given = {field.name for field in wanted}
    parts = _primary_key(dsn, table) or describe(dsn, table).key
    key = [name for name in parts if name in given]  # the writer says what else is missing
    frame, bad = _read(spark, files, kind, wanted, key)
    found = find_lines(bad.limit(MAX_BAD).collect(), lambda record: blame(record, kind, wanted))
    path = _put_aside(found, bad_file or f"{table}.bad.jsonl")
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
            spark.sparkContext.cancelAllJobs()
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


def _find_key(spark: Any, files: Sequence[str], kind: str, schema: Any) -> list[str]:
    """The first column whose values are all there and all different."""
    from pyspark.sql import functions as f

    frame = _reader(spark, kind).schema(schema).format(kind).load(list(files))
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


def _reader(spark: Any, kind: str) -> Any:
    # A column that is in the names of directories is text: Spark would take 007 for 7.
    spark.conf.set("spark.sql.sources.partitionColumnTypeInference.enabled", "false")
    return spark.read.option("header", True) if kind == "csv" else spark.read


def _schema(spark: Any, dsn: str, files: Sequence[str], kind: str, table: str) -> Any:
    """The table's own types, for the columns that the files have."""
    known = spark_schema(describe(dsn, table), (), 18)
    by_name = {field.name: field for field in known.fields}
    names = list(by_name)
    if kind != "json":
        names = _reader(spark, kind).format(kind).load(list(files)).columns
    unknown = [name for name in names if name not in by_name]
    if unknown:
        raise InvalidParameter(f'{table} has no column "{unknown[0]}", which {files[0]} has')
    return [by_name[name] for name in names]


def _found(spark: Any, files: Sequence[str], kind: str, schema: str | None) -> Any:
    reader = spark.read
    if schema:
        reader = reader.schema(schema)
    if kind == "csv":
        reader = reader.option("header", True).option("inferSchema", schema is None)
    return reader.format(kind).load(list(files)).schema


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


def _read(
    spark: Any, files: Sequence[str], kind: str, fields: list[Any], key: Sequence[str]
) -> tuple[Any, Any]:
    """(rows to write, rows to put aside with their file)."""
    from pyspark.sql import functions as f
    from pyspark.sql import types

    names = [field.name for field in fields]
    no_key = " OR ".join(f"`{name}` IS NULL" for name in key) or "false"
    missing = f.coalesce(
        f.lit(None).cast("string"), *[f.when(f.col(f"`{n}`").isNull(), f.lit(n)) for n in key]
    )
    if kind == "parquet":
        frame = _reader(spark, kind).parquet(*files)
        frame = frame.select(*[f.col(x.name).cast(x.dataType).alias(x.name) for x in fields])
        record = f.to_json(f.struct(*names))
        source = frame.withColumn("_file", f.col("_metadata.file_path"))
        bad = source.where(no_key).select("_file", record.alias("record"), missing.alias("column"))
        return frame.where(f"NOT ({no_key})"), bad
    wide = types.StructType(
        [types.StructField(each.name, each.dataType) for each in fields]
        + [types.StructField(_CORRUPT, types.StringType())]
    )
    reader = spark.read.schema(wide).option("columnNameOfCorruptRecord", _CORRUPT)
    if kind == "csv":
        reader = reader.option("header", True).option("enforceSchema", True)
    # `.json` and `.csv` may not be asked for the corrupt column alone: take all of it.
    frame = reader.format(kind).load(list(files)).withColumn("_file", f.col("_metadata.file_path"))
    is_bad = f"{_CORRUPT} IS NOT NULL OR {no_key}"
    column = f.when(f.col(_CORRUPT).isNull(), missing)
    record = f.coalesce(f.col(_CORRUPT), f.to_json(f.struct(*names)))
    bad = frame.where(is_bad).select("_file", record.alias("record"), column.alias("column"))
    return frame.where(f"NOT ({is_bad})").select(*names), bad


def blame(record: str, kind: str, fields: Sequence[Any]) -> tuple[str | None, str]:
    """(column, why) of a record that Spark could not read as a row."""
    if kind == "csv":
        values: list[Any] = next(csv.reader([record]), [])
        if len(values) != len(fields):
            return None, f"it has {len(values)} fields, the header has {len(fields)}"
        given = dict(zip([field.name for field in fields], values, strict=True))
    else:
        try:
            given = json.loads(record)
        except ValueError as problem:
            return None, f"it is not JSON: {problem}"
        if not isinstance(given, dict):
            return None, "it is not a JSON object"
    for field in fields:
        value, word = given.get(field.name), field.dataType.simpleString()
        if not _fits(value, word):
            return field.name, f"{json.dumps(value, ensure_ascii=False)[:60]} is not of type {word}"
    return None, "it is not a row of the table"


def _fits(value: Any, word: str) -> bool:
    if value is None or value == "" or word == "string":
        return True
    try:
        match word.partition("(")[0]:
            case "bigint":
                return not isinstance(value, float | bool) and abs(int(value)) < 1 << 63
            case "double" | "decimal":
                return not isinstance(value, bool) and float(value) == float(value)
            case "boolean":
                return str(value).lower() in ("true", "false")
            case "timestamp" | "timestamp_ntz" | "date":
                datetime.fromisoformat(str(value))
    except (ValueError, TypeError):
        return False
    return True


def find_lines(
    rows: Sequence[Any], blamed: Callable[[str], tuple[str | None, str]]
) -> list[BadRow]:
    """Spark knows the text of a bad row but not its line: look it up where it came from."""
    by_file: dict[str, list[Any]] = {}
    for row in rows:
        by_file.setdefault(row["_file"], []).append(row)
    found: list[BadRow] = []
    for url, bad in by_file.items():
        path = Path(unquote(urlsplit(url).path))
        lines: dict[str, list[int]] = {}
        wanted = {row["record"] for row in bad}
        if path.suffix not in (".parquet", ".bz2", ".zst") and path.exists():
            opener = gzip.open if path.suffix == ".gz" else open
            with opener(path, "rt", encoding="utf-8", errors="replace") as text:
                for number, line in enumerate(text, 1):
                    if (bare := line.rstrip("\r\n")) in wanted:
                        lines.setdefault(bare, []).append(number)
        for row in bad:
            places = lines.get(row["record"])
            at = places.pop(0) if places else None
            column, why = row["column"], "a part of the key is missing"
            if column is None:
                column, why = blamed(row["record"])
            found.append(BadRow(str(path), at, column, why, row["record"]))
    return sorted(found, key=lambda each: (each.file, each.line or 0))


def _put_aside(found: list[BadRow], path: str) -> str | None:
    if not found:
        return None
    with open(path, "w", encoding="utf-8") as out:
        for each in found:
            out.write(json.dumps(msgspec.to_builtins(each), ensure_ascii=False) + "\n")
    return path
