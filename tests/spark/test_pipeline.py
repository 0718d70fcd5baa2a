"""The pipeline as commands, and the report people look at."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cairn.cli.data import pipeline
from cairn.client.sync_pool import SyncPool
from cairn.model.errors import InvalidParameter
from cairn.spark import cluster
from cairn.spark.files.loading import file_format
from cairn.spark.files.rejects import blame


def test_a_csv_with_bad_lines_is_loaded_and_they_are_put_aside(
    spark: Any, dsn: str, pool: SyncPool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "in.csv"
    source.write_text("id,name,price\n1,a,1.5\n2,b,oops\n3,c,\n,d,4\n5,ü,5.25\n")
    aside = tmp_path / "bad.jsonl"
    code = pipeline.load(
        [str(source)], "loaded_csv", dsn=dsn, create=True, key=["id"],
        schema="id bigint, name string, price double", bad_file=str(aside), as_json=True,
    )  # fmt: skip
    assert code == 5
    told = json.loads(capsys.readouterr().out)
    assert (
        told["first_of_them"] == f'{aside.parent}/in.csv: column "id": a part of the key is missing'
    )
    assert (told["rows_read"], told["rows_added"], told["rows_put_aside"]) == (3, 3, 2)
    assert told["put_aside_in"] == str(aside)
    rows = pool.fetch("SELECT id, name, price FROM loaded_csv ORDER BY id")
    assert rows == [(1, "a", 1.5), (3, "c", None), (5, "ü", 5.25)]
    bad = [json.loads(line) for line in aside.read_text().splitlines()]
    assert [(each["line"], each["column"], each["why"]) for each in bad] == [
        (None, "id", "a part of the key is missing"),
        (3, "price", '"oops" is not of type double'),
    ]


def test_a_record_is_blamed_on_the_column_that_does_not_fit() -> None:
    from pyspark.sql.types import _parse_datatype_string

    fields = _parse_datatype_string("id bigint, w timestamp, b boolean").fields
    told = [
        blame('1,"2024-01-01 10:00:00",maybe', "csv", fields),
        blame("1,yesterday,true", "csv", fields),
        blame("1,2024-01-01", "csv", fields),
        blame('"","2024-01-01",', "csv", fields),
        blame('{"id": 1.5}', "json", fields),
        blame('{"id": 1', "json", fields)[1][:14],
        blame("[1]", "json", fields),
    ]
    assert told == [
        ("b", '"maybe" is not of type boolean'),
        ("w", '"yesterday" is not of type timestamp'),
        (None, "it has 2 fields, the header has 3"),
        ("id", '"" is not of type bigint'),
        ("id", "1.5 is not of type bigint"),
        "it is not JSON",
        (None, "it is not a JSON object"),
    ]


def test_a_table_that_is_created_gets_a_key_that_fits(
    spark: Any, dsn: str, pool: SyncPool, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "in.csv"
    source.write_text("town,code,n\nBonn,b,1\nBonn,c,1\n")
    assert pipeline.load([str(source)], "found_key", dsn=dsn, create=True) == 0
    with pytest.raises(Exception, match="found_key_pkey"):
        pool.execute("INSERT INTO found_key VALUES ('Ulm', 'b', 2)")
    assert pipeline.load([str(source)], "found_key", dsn=dsn, create=True, key=["town"]) == 1
    assert "the primary key of found_key is (code), not (town)" in capfd.readouterr().err
    pool.execute("DROP TABLE found_key")


@pytest.mark.parametrize(
    ("key", "said"),
    [([], "no column of the files has a value of its own in every row"), (["n"], "23505")],
)
def test_a_load_that_fails_leaves_no_table_behind(
    spark: Any, dsn: str, pool: SyncPool, tmp_path: Path, key: list[str], said: str,
    capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    source = tmp_path / "in.csv"
    source.write_text("town,n\nBonn,1\nBonn,1\n")
    assert pipeline.load([str(source)], "left_behind", dsn=dsn, create=True, key=key) == 1
    assert said in capfd.readouterr().err
    assert pool.fetch("SELECT name FROM _pico_table WHERE name = 'left_behind'") == []


@pytest.mark.slow
def test_what_is_dumped_can_be_loaded_again(
    spark: Any, dsn: str, pool: SyncPool, tmp_path: Path
) -> None:
    lines = tmp_path / "in.jsonl"
    lines.write_text("".join(json.dumps({"k": i, "v": f"w{i}"}) + "\n" for i in range(500)))
    assert pipeline.load([str(lines)], "loaded_json", dsn=dsn, create=True, key=["k"]) == 0
    assert pipeline.dump("loaded_json", str(tmp_path / "out"), dsn=dsn, splits=2) == 0
    files = [str(path) for path in (tmp_path / "out").glob("*.parquet")]
    assert pipeline.load(files, "loaded_again", dsn=dsn, create=True, key=["k"]) == 0
    assert pool.fetch("SELECT count(*), sum(k) FROM loaded_again") == [(500, 124750)]


KINDS = (
    "id INT PRIMARY KEY, t TEXT, code TEXT, n DECIMAL, d DOUBLE, b BOOLEAN, u UUID, at DATETIME, "
    "y DATE, j JSON, l INT[]"
)
ROWS = (
    "(1, 'ä', '007', 1.50, 0.1, true, '00000000-0000-0000-0000-000000000001', "
    "'2026-01-02T03:04:05.000006Z', '2026-01-02', '{\"a\": [1, null]}', '{1,2}'), "
    "(2, NULL, '7', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL), "
    "(3, 'it''s', 'a/b c', -99999999999.123, 1e300, false, NULL, '1969-12-31T23:59:59Z', "
    "'1969-12-31', '[]', '{}')"
)


@pytest.mark.parametrize("partition_by", [(), ("code",)], ids=["plain", "by a column"])
def test_a_directory_that_was_dumped_is_loaded_as_it_was(
    spark: Any, dsn: str, pool: SyncPool, tmp_path: Path, partition_by: tuple[str, ...]
) -> None:
    """People name what `dump` wrote. '007' stays what it is, though it is a directory's name."""
    pool.execute(f"CREATE TABLE round ({KINDS})")
    try:
        pool.execute(f"INSERT INTO round VALUES {ROWS}")
        rows = pool.fetch("SELECT * FROM round ORDER BY id")
        to = str(tmp_path / "out")
        assert pipeline.dump("round", to, dsn=dsn, splits=2, partition_by=partition_by) == 0
        pool.execute("DELETE FROM round")
        assert pipeline.load([to], "round", dsn=dsn) == 0
        assert pool.fetch("SELECT * FROM round ORDER BY id") == rows
    finally:
        pool.execute("DROP TABLE round")


def test_some_columns_of_a_dump_are_loaded_and_others_stay_empty(
    spark: Any, dsn: str, pool: SyncPool, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    pool.execute("CREATE TABLE wide (id INT PRIMARY KEY, a TEXT, b TEXT)")
    pool.execute("CREATE TABLE narrow (id INT PRIMARY KEY, a TEXT)")
    try:
        pool.execute("INSERT INTO wide VALUES (1, 'x', 'y')")
        some, every = str(tmp_path / "some"), str(tmp_path / "every")
        assert pipeline.dump("wide", some, dsn=dsn, columns=["id", "a"]) == 0
        assert pipeline.dump("wide", every, dsn=dsn) == 0
        pool.execute("DELETE FROM wide")
        assert pipeline.load([some], "wide", dsn=dsn) == 0
        assert pool.fetch("SELECT * FROM wide") == [(1, "x", None)]
        assert pipeline.load([every], "narrow", dsn=dsn) == 1
        assert 'narrow has no column "b"' in capfd.readouterr().err
    finally:
        pool.execute("DROP TABLE wide")
        pool.execute("DROP TABLE narrow")


def test_the_kind_of_a_directory_is_that_of_its_files(tmp_path: Path) -> None:
    def made(name: str, *files: str) -> str:
        for each in files:
            (tmp_path / name / each).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name / each).touch()
        return str(tmp_path / name)

    assert file_format([made("a", "_SUCCESS", ".x.crc", "part-0.snappy.parquet")]) == "parquet"
    assert file_format([made("b", "k=1/p.csv.gz", "k=2/p.csv"), "more.csv"]) == "csv"
    assert file_format([made("c.parquet", "_SUCCESS")]) == "parquet"
    for wrong in (made("d", "_SUCCESS"), made("e", "a.csv", "b.parquet"), made("f", "a.csv", "x")):
        with pytest.raises(InvalidParameter, match="must all be"):
            file_format([wrong])


def test_the_report_is_one_page_with_everything_in_it(spark: Any, dsn: str, tmp_path: Path) -> None:
    page, tables = tmp_path / "report.html", tmp_path / "tables"
    assert pipeline.report(str(page), dsn=dsn, tables_to=str(tables)) == 0
    text = page.read_text()
    assert "<svg" in text and "Availability" in text and "i1" in text and "r2" in text
    assert "http" not in text.replace("http-equiv", "")
    assert "<title>Cluster demo</title>" in text
    assert "What took long" in text
    assert spark.read.parquet(str(tables / "intervals")).count() >= 2


@pytest.mark.slow
def test_the_report_says_who_led_raft_in_which_term(spark: Any, dsn: str, tmp_path: Path) -> None:
    page, tables = tmp_path / "report.html", tmp_path / "tables"
    assert pipeline.report(str(page), dsn=dsn, tables_to=str(tables)) == 0
    raft = cluster.call(dsn, "CALL cairn_status()")["raft"]
    leaders = spark.read.parquet(str(tables / "leaders")).orderBy("term").collect()
    assert len({row["term"] for row in leaders}) == len(leaders)
    assert (leaders[-1]["term"], leaders[-1]["leader"]) == (raft["term"], raft["leader"])
    assert f"{raft['leader']} leads term {raft['term']}" in page.read_text()


def test_rows_that_replace_others_are_read_but_not_added(
    spark: Any, dsn: str, pool: SyncPool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "in.jsonl"
    for word in ("old", "new"):
        source.write_text(json.dumps({"k": 1, "v": word}) + "\n")
        code = pipeline.load(
            [str(source)], "replaced", dsn=dsn, create=True, key=["k"], on_conflict="replace",
            as_json=True,
        )  # fmt: skip
        assert code == 0
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(each["rows_read"], each["rows_added"]) for each in told] == [(1, 1), (1, 0)]
    assert pool.fetch("SELECT k, v FROM replaced") == [(1, "new")]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"mode": "add"}, "--mode add: one of append, overwrite"),
        ({"on_conflict": "stop"}, "--on-conflict stop: one of error, ignore, replace"),
        ({"commit": "now"}, "--commit now: one of staged, direct"),
        ({"key": ["nokey"], "create": True}, 'column "nokey" is not in the files; they have k'),
        ({}, 'table with name "nowhere" not found (--create makes it)'),
    ],
)
def test_a_wrong_option_is_said_by_its_name(
    spark: Any, dsn: str, tmp_path: Path, capfd: pytest.CaptureFixture[str],
    options: dict[str, Any], said: str,
) -> None:  # fmt: skip
    lines = tmp_path / "in.jsonl"
    lines.write_text('{"k": 1}\n')
    assert pipeline.load([str(lines)], "nowhere", dsn=dsn, **options) in (1, 2)
    assert said in capfd.readouterr().err


@pytest.mark.parametrize(
    ("dsn_of", "code"), [(lambda dsn: dsn, 1), (lambda dsn: "postgresql://a@127.0.0.1:1/c", 3)]
)
def test_what_goes_wrong_is_one_sentence(
    spark: Any, dsn: str, dsn_of: Any, code: int, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    lines = tmp_path / "in.jsonl"
    lines.write_text('{"k": 1}\n')
    assert pipeline.load([str(lines)], "nowhere", dsn=dsn_of(dsn)) == code
    said = [line for line in capfd.readouterr().err.splitlines() if line.startswith("cairn: ")]
    assert len(said) == 1


def test_buckets_that_get_another_owner_are_moves(spark: Any) -> None:
    """However it came about; being told again by the same owner is none."""
    from cairn.spark.report.analytics import _moves

    told = [(1, 1, "r1"), (2, 1, "r1"), (3, 4, "r2"), (4, 1, "r2")]  # index, first bucket, owner
    events = spark.createDataFrame(
        [(1, index, 0, "bucket", "default", (start, 10), owner) for index, start, owner in told],
        "term int, index int, n int, map string, tier string, "
        "bucket_id struct<start:int,end:int>, current_replicaset_uuid string",
    ).selectExpr("*", "current_timestamp() AS ts")
    found = _moves(events).orderBy("index").drop("ts", "tier", "term").collect()
    assert [tuple(row) for row in found] == [
        (3, "r1", "r2", 4, 10, 7),
        (4, "r1", "r2", 1, 3, 3),
    ]
