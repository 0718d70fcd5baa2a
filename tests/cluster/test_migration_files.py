"""Migration files are read and judged before anything is asked of a cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from cairn.cli.migrations.files import Operation, is_same, read_files
from cairn.cli.migrations.migrate import run_migrate
from cairn.cli.talking import TalkProblem

NOBODY = "postgresql://admin@127.0.0.1:1/cairn"  # a cluster that nobody may ask


def write(directory: Path, **files: str) -> list[str]:
    paths = []
    for name, text in files.items():
        path = directory / f"{name}.sql"
        path.write_text(text)
        paths.append(str(path))
    return paths


def refusal(paths: list[str], batch: str | None = None) -> str:
    with pytest.raises(TalkProblem) as caught:
        run_migrate(paths, NOBODY, None, batch=batch, wait=False, as_json=False, timeout_s=1.0)
    assert caught.value.exit_code == 2
    return str(caught.value)


def test_statements_come_in_the_order_of_the_files_names(tmp_path: Path) -> None:
    paths = write(
        tmp_path,
        m002="DROP TABLE t;",
        m001="-- first\nCREATE TABLE t (a INT PRIMARY KEY);\nINSERT INTO t VALUES (';');",
    )
    assert read_files(paths, None) == {
        "m001.sql": [
            Operation(
                "m001.sql",
                "-- first\nCREATE TABLE t (a INT PRIMARY KEY)",
                "m001.sql, statement 1",
            ),
            Operation("m001.sql", "INSERT INTO t VALUES (';')", "m001.sql, statement 2"),
        ],
        "m002.sql": [Operation("m002.sql", "DROP TABLE t", "m002.sql, statement 1")],
    }


def test_one_batch_may_hold_all_files(tmp_path: Path) -> None:
    paths = write(tmp_path, b="DROP TABLE b", a="DROP TABLE a")
    found = read_files(paths, "spring")
    assert [(each.batch, each.text) for each in found["spring"]] == [
        ("spring", "DROP TABLE a"),
        ("spring", "DROP TABLE b"),
    ]


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("DROP TABLE t;\n  DELETE FROM t WHERE;\n", ":2:22: syntax error at end of input"),
        ("DROP TABLE t;\nCREATE TABLE x (a INT", ":2:22: syntax error at end of input"),
        ("UPDATE t SET", ":1:13: syntax error: UPDATE needs SET"),
        ("DROP TABLE t;\n\n  CREATE TABEL x (a INT);", ":3:3: CREATE TABEL is not supported"),
        ("INSERT INTO t VALUES ('open", ":1:23: "),
        (
            "-- why\nSELECT 1;",
            ":2:1: SELECT cannot be queued: only what changes the cluster can",
        ),
        (
            "WITH x AS (SELECT 1) SELECT * FROM x",
            ":1:1: WITH cannot be queued: only what changes the cluster can",
        ),
        ("BEGIN; DROP TABLE t; COMMIT", ":1:1: BEGIN cannot be queued: only what changes"),
        (
            "DELETE FROM t WHERE a = $1",
            ":1:25: an operation of the queue cannot have parameters",
        ),
        (" -- nothing\n /* at all */ ;\n", ": holds no statement"),
        ("", ": holds no statement"),
    ],
)
def test_a_bad_file_is_refused_with_its_place(tmp_path: Path, text: str, where: str) -> None:
    good, bad = write(tmp_path, m001="DROP TABLE t", m002=text)
    assert refusal([good, bad]).startswith(f"{bad}{where}")


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    missing = str(tmp_path / "none.sql")
    assert refusal([missing]) == f"{missing}: No such file or directory"
    binary = tmp_path / "bytes.sql"
    binary.write_bytes(b"\xff\xfe")
    assert refusal([str(binary)]) == f"{binary}: not UTF-8 text"


def test_two_files_of_one_name_are_refused(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    [first] = write(tmp_path / "one", m001="DROP TABLE t")
    [second] = write(tmp_path / "two", m001="DROP TABLE t")
    assert refusal([first, second]) == f"{first} and {second} have the same name m001.sql"


def test_comments_and_blanks_make_no_other_statement() -> None:
    assert is_same("DROP TABLE t", "-- gone\nDROP  TABLE /* for good */ t")
    assert not is_same("DROP TABLE t", "DROP TABLE u")
    assert not is_same("INSERT INTO t VALUES ('a b')", "INSERT INTO t VALUES ('a  b')")
