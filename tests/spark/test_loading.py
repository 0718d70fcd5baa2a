"""Files as other programs write them, and files of which too much is wrong."""

from __future__ import annotations

import csv
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from cairn.cli.data import pipeline
from cairn.cli.data.spark_runs import sentence
from cairn.client.sync_pool import SyncPool
from tests.spark.conftest import CAIRN

DRIVER = Path("/usr/share/java/postgresql.jar")
TEXTS = ['say "yes"', 'C:\\new\\table "x"', "a,b", "", "ends with \\", '"', "ü 表"]


@pytest.fixture
def texts(pool: SyncPool) -> Any:
    pool.execute("CREATE TABLE texts (id INT PRIMARY KEY, t TEXT)")
    yield "texts"
    pool.execute("DROP TABLE texts")


def written(path: Path, texts: list[str]) -> str:
    """As spreadsheets, Python and psql write it: a quote inside of quotes is doubled."""
    with path.open("w", encoding="utf-8", newline="") as file:
        out = csv.writer(file, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC)
        out.writerow(("id", "t"))
        out.writerows(enumerate(texts))
    return str(path)


def test_texts_with_quotes_and_backslashes_come_as_they_were_written(
    spark: Any, dsn: str, pool: SyncPool, tmp_path: Path, texts: str
) -> None:
    assert pipeline.load([written(tmp_path / "in.csv", TEXTS)], texts, dsn=dsn) == 0
    assert pool.fetch("SELECT id, t FROM texts ORDER BY id") == [*enumerate(TEXTS)]


def test_texts_with_line_ends_are_loaded_on_request(
    spark: Any, dsn: str, pool: SyncPool, tmp_path: Path, texts: str
) -> None:
    lines = ["one\ntwo", 'a\n"b"\n', "plain"]
    source = written(tmp_path / "in.csv", lines)
    assert pipeline.load([source], texts, dsn=dsn, multiline=True) == 0
    assert pool.fetch("SELECT id, t FROM texts ORDER BY id") == [*enumerate(lines)]


@pytest.mark.parametrize("most", [0, 2])
def test_more_rejected_rows_than_allowed_load_nothing_and_are_shown(
    spark: Any,
    dsn: str,
    pool: SyncPool,
    tmp_path: Path,
    texts: str,
    most: int,
    capfd: pytest.CaptureFixture[str],
) -> None:
    source, aside = tmp_path / "in.csv", tmp_path / "aside.jsonl"
    source.write_text("id,t\n1,a\nx,b\ny,c\nz,d\n")
    code = pipeline.load([str(source)], texts, dsn=dsn, bad_file=str(aside), max_rejects=most)
    told = capfd.readouterr().err
    assert (code, pool.fetch("SELECT count(*) FROM texts")) == (1, [(0,)])
    assert f"more than {most} rows of the files are no rows of texts: nothing is written" in told
    assert 'column "id": "x" is not of type bigint' in told
    shown = [json.loads(line)["line"] for line in aside.read_text().splitlines()]
    assert shown == [3, 4, 5][: most or 1]


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_what_is_dumped_as_text_is_loaded_as_it_was(
    spark: Any, dsn: str, pool: SyncPool, tmp_path: Path, texts: str, kind: str
) -> None:
    for number, text in enumerate([*TEXTS, None]):
        pool.execute("INSERT INTO texts VALUES ($1, $2)", number, text)
    rows = pool.fetch("SELECT * FROM texts ORDER BY id")
    to = str(tmp_path / "out")
    assert pipeline.dump(texts, to, dsn=dsn, kind=kind) == 0
    pool.execute("DELETE FROM texts")
    assert pipeline.load([to], texts, dsn=dsn) == 0
    assert pool.fetch("SELECT * FROM texts ORDER BY id") == rows


def test_files_whose_columns_stand_in_another_order_never_change_places(
    spark: Any,
    dsn: str,
    pool: SyncPool,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    pool.execute("CREATE TABLE places (town TEXT PRIMARY KEY, country TEXT)")
    try:
        one, other = tmp_path / "a.csv", tmp_path / "b.csv"
        one.write_text("town,country\nBonn,Germany\n")
        other.write_text("country,town\nFrance,Lyon\n")
        assert pipeline.load([str(one), str(other)], "places", dsn=dsn) == 1
        told = f"{other} has the columns country, town, and {one} has town, country"
        assert told in capfd.readouterr().err
        assert pool.fetch("SELECT * FROM places") == []
    finally:
        pool.execute("DROP TABLE places")


def test_a_file_without_names_is_not_taken_for_one_with_odd_names(
    spark: Any, dsn: str, pool: SyncPool, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "bare.csv"
    source.write_text("1,ann,12.5\n2,bob,7.25\n")
    assert pipeline.load([str(source)], "bare", dsn=dsn, create=True) == 1
    told = f"the first line of {source} has values and no names: 1, ann, 12.5"
    assert told in capfd.readouterr().err
    assert pool.fetch("SELECT name FROM _pico_table WHERE name = 'bare'") == []


def test_columns_with_nothing_in_some_rows_keep_their_types(
    spark: Any, dsn: str, pool: SyncPool, tmp_path: Path
) -> None:
    source = tmp_path / "in.csv"
    source.write_text("id,n,d,b,t\n1,5,2024-02-29,true,x\n2,,,,\n3,7,2024-03-01,false,y\n")
    try:
        assert pipeline.load([str(source)], "gaps", dsn=dsn, create=True) == 0
        asked = "SELECT id, n, d::text, b, t FROM gaps ORDER BY id"
        assert pool.fetch(asked) == [
            (1, 5, "2024-02-29", True, "x"),
            (2, None, None, None, None),
            (3, 7, "2024-03-01", False, "y"),
        ]
    finally:
        pool.execute("DROP TABLE IF EXISTS gaps")


@pytest.mark.parametrize("kind", ["parquet", "csv", "jsonl"])
def test_a_table_without_rows_is_dumped_too(
    spark: Any, dsn: str, tmp_path: Path, texts: str, kind: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert pipeline.dump(texts, str(tmp_path / "out"), dsn=dsn, kind=kind, as_json=True) == 0
    assert json.loads(capfd.readouterr().out)["rows"] == 0


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({}, "say what to take: --from TABLE"),
        ({"source": "t"}, "--jars FILE: the JDBC driver of that database"),
        ({"source": "t", "jars": "/nowhere.jar"}, "/nowhere.jar: no such file"),
        ({"files": ["a.csv"], "source": "t"}, "go with a URL of JDBC"),
    ],
)
def test_another_database_needs_a_table_and_a_driver(
    more: dict[str, Any], said: str, capfd: pytest.CaptureFixture[str]
) -> None:
    asked: dict[str, Any] = {"files": ["jdbc:postgresql://db/shop"], "table": "t"} | more
    assert pipeline.load(**asked) == 2
    assert said in capfd.readouterr().err


def test_the_last_cause_of_what_java_says_is_the_reason() -> None:
    told = (
        "An error occurred while calling o60.load.\n: java.sql.SQLException: No suitable driver\n"
        "\tat java.sql.DriverManager.getDriver(DriverManager.java:299)\n"
    )
    deeper = f"{told}Caused by: java.net.ConnectException: Connection refused\n"
    assert [sentence(Exception(each)) for each in (told, deeper)] == [
        ("No suitable driver", False),
        ("Connection refused", False),
    ]


@pytest.mark.slow
@pytest.mark.skipif(not DRIVER.exists(), reason="Debian's libpostgresql-jdbc-java is not installed")
def test_rows_of_another_database_are_loaded(
    demo: dict[str, Any], dsn: str, pool: SyncPool, tmp_path: Path
) -> None:
    """PostgreSQL's own driver, and a cluster that speaks its protocol, stand for any database."""
    pool.execute("CREATE TABLE there (id INT PRIMARY KEY, t TEXT, d DATE, n DECIMAL)")
    pool.execute("INSERT INTO there VALUES (1, 'a\"b', '2024-02-29', 1.50), (2, NULL, NULL, NULL)")
    password = tmp_path / "password"
    password.write_text("T0psecret1\n")
    address = demo["instances"][0]["pg"]
    words = ["load", f"jdbc:postgresql://{address}/cairn?user=admin", "--from", "there"]
    words += ["--from-password-file", str(password), "--jars", str(DRIVER), "--master", "local[1]"]
    words += ["--table", "here", "--create", "--key", "id", "--dsn", dsn]
    try:
        done = subprocess.run([*CAIRN, *words], capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        asked = "SELECT id, t, d, n FROM {} ORDER BY id"
        assert pool.fetch(asked.format("here")) == pool.fetch(asked.format("there"))
        kinds = "SELECT data_type FROM information_schema.columns WHERE table_name = 'here'"
        assert sorted(pool.fetch(kinds)) == [("bigint",), ("date",), ("numeric",), ("text",)]
    finally:
        pool.execute("DROP TABLE IF EXISTS here")
        pool.execute("DROP TABLE there")
