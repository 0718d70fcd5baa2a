"""Quick starts of Spark: what stands in front of Java and Python, and the archive of classes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cairn.cli.data.spark_runs import plain_interrupts
from cairn.spark import class_archive, launchers
from cairn.spark.launchers import UnsafeDirectory, launcher, python_for_workers

pyspark = pytest.importorskip("pyspark")
ZIPS = Path(pyspark.__file__).parent / "python" / "lib"


@pytest.fixture(autouse=True)
def own_temporary_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(launchers.tempfile, "tempdir", str(tmp_path))
    return tmp_path


def seen_by_a_worker(code: str, path: str) -> str:
    done = subprocess.run(
        [str(python_for_workers()), "-c", code],
        capture_output=True, text=True, check=True, env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip
    return done.stdout.strip()


def test_a_worker_takes_pyspark_from_where_it_is_installed(tmp_path: Path) -> None:
    zips = sorted(map(str, ZIPS.glob("*.zip")))
    path = ":".join([*zips, str(tmp_path)])
    assert seen_by_a_worker("import pyspark; print(pyspark.__file__)", path) == pyspark.__file__


def test_a_worker_keeps_what_a_user_has_put_on_its_path(tmp_path: Path) -> None:
    theirs = [str(tmp_path / "own code"), str(tmp_path / "more.zip")]
    path = ":".join([str(ZIPS / "pyspark.zip"), *theirs])
    found = seen_by_a_worker("import os; print(os.environ['PYTHONPATH'])", path)
    assert found.split(":") == theirs


def test_a_worker_gets_its_words_as_they_are() -> None:
    words = ["-c", "import sys; print(sys.argv[1:])", "two words", "$HOME", ""]
    done = subprocess.run([str(python_for_workers()), *words], capture_output=True, text=True)
    assert done.stdout.strip() == repr(words[2:])


def test_where_temporary_files_cannot_be_run_workers_start_as_spark_starts_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(launchers.os, "access", lambda path, how: False)
    assert python_for_workers() == Path(sys.executable)


def test_a_program_is_written_once_and_again_when_it_was_changed() -> None:
    path = launcher("python", "#!/bin/sh\n")
    assert launcher("python", "#!/bin/sh\n") == path
    path.write_text("something else")
    assert launcher("python", "#!/bin/sh\n").read_text() == "#!/bin/sh\n"
    assert launcher("python", "#!/bin/sh\n# other\n") != path


@pytest.mark.parametrize("mode", [0o777, 0o770])
def test_a_directory_that_others_can_write_to_is_refused(
    own_temporary_files: Path, mode: int
) -> None:
    folder = own_temporary_files / f"cairn-spark-{os.getuid()}"
    folder.mkdir()
    folder.chmod(mode)
    with pytest.raises(UnsafeDirectory, match="is not ours alone"):
        launcher("python", "#!/bin/sh\n")


def test_a_link_to_somebody_elses_directory_is_refused(own_temporary_files: Path) -> None:
    (own_temporary_files / "theirs").mkdir()
    (own_temporary_files / f"cairn-spark-{os.getuid()}").symlink_to(own_temporary_files / "theirs")
    with pytest.raises(UnsafeDirectory, match="is not ours alone"):
        launcher("python", "#!/bin/sh\n")


def test_an_archive_is_used_if_it_is_there_and_nobody_else_can_have_written_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "spark.jsa"
    monkeypatch.setattr(class_archive, "archive", lambda: path)
    assert class_archive.java_options() == ""
    path.write_bytes(b"classes")
    path.chmod(0o644)
    quiet = "-Xlog:disable -Xlog:all=error:stderr"
    assert class_archive.java_options() == f"-XX:SharedArchiveFile={path} {quiet}"
    path.chmod(0o666)
    assert class_archive.java_options() == ""


@pytest.mark.slow
def test_spark_starts_with_an_archive_that_is_made_and_with_one_that_is_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "spark.jsa"
    monkeypatch.setattr(class_archive, "archive", lambda: path)
    assert class_archive.make() == ""
    code = (
        "import sys; from cairn.spark import class_archive, session;"
        "OPTIONS = class_archive.OPTIONS;"
        "s = session('local[1]', settings={OPTIONS: sys.argv[1]}); print(s.range(10).count())"
    )
    for damage in (b"", b"damaged"):
        if damage:
            path.chmod(0o644)
            path.write_bytes(damage + path.read_bytes()[len(damage) :])
        done = subprocess.run(
            [sys.executable, "-c", code, class_archive.java_options()],
            capture_output=True, text=True, check=False, timeout=120,
        )  # fmt: skip
        assert (done.returncode, done.stdout) == (0, "10\n"), done.stderr[-2000:]


def test_what_fails_after_an_interrupt_is_told_as_the_interrupt() -> None:
    with pytest.raises(KeyboardInterrupt), plain_interrupts():
        try:
            signal.raise_signal(signal.SIGTERM)
        finally:
            raise RuntimeError("Answer from Java side is empty")


def test_what_fails_without_an_interrupt_is_told_as_it_is() -> None:
    with pytest.raises(RuntimeError, match="of its own"), plain_interrupts():
        raise RuntimeError("of its own")
