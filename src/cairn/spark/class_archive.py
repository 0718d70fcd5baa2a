"""An archive of Spark's classes: with it Java starts in half of the time.

    python -m cairn.spark.class_archive

Java reads, checks and lays out some fifteen thousand classes at each start of Spark. It can keep
the result in a file and map that one. The file is made once for an installation, on request: it
takes half a minute and 180 MB. It lies in the environment of Python that has PySpark, and is used
by our commands if it is there.
Java itself looks whether it fits: one for other jars, or for another build of Java, is not used.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from cairn.spark.launchers import is_ours

HINT = "half of it after `python -m cairn.spark.class_archive`, once"
OPTIONS = "spark.driver.defaultJavaOptions"
_QUIET = "-Xlog:disable -Xlog:all=error:stderr"  # it warns on stdout, where our answers go
_PATIENCE_S = 180.0


def archive() -> Path:
    """Where it is, or would be."""
    import pyspark

    java = os.environ.get("JAVA_HOME") or shutil.which("java") or ""
    named = f"{os.path.realpath(java)} {Path(str(pyspark.__file__)).resolve()}"
    digest = hashlib.sha256(named.encode()).hexdigest()[:12]
    return Path(sys.prefix) / "share" / "cairn" / f"spark-{pyspark.__version__}-{digest}.jsa"


def java_options() -> str:
    """For the driver: to use the archive, or nothing if there is none that can be trusted."""
    path = archive()
    if " " in str(path) or not path.is_file() or not is_ours(path):
        return ""
    return f"-XX:SharedArchiveFile={path} {_QUIET}"


def make() -> str:
    """Make it anew; why not, or nothing."""
    path = archive()
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        fresh = Path(folder) / "classes.jsa"
        try:
            told = subprocess.run(
                [sys.executable, "-m", "cairn.spark.class_archive", "--use", str(fresh)],
                stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_PATIENCE_S,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return f"Java had not written it after {_PATIENCE_S:.0f} s"
        if told.returncode or not fresh.exists():
            return (told.stderr.strip().splitlines() or ["Java wrote no file"])[-1]
        fresh.replace(path)
    return ""


def _use_spark(fresh: Path) -> None:
    """What our commands do of Spark, so that its classes are in the archive."""
    from pyspark.sql.datasource import DataSource, DataSourceWriter, WriterCommitMessage

    from cairn.spark import session

    class Nothing(DataSourceWriter):  # type: ignore[misc]
        def write(self, rows: Any) -> Any:
            return WriterCommitMessage()

    class Nowhere(DataSource):  # type: ignore[misc]
        def writer(self, schema: Any, overwrite: bool) -> Any:
            return Nothing()

    options = f"-XX:ArchiveClassesAtExit={fresh} -XX:TieredStopAtLevel=1 {_QUIET}"
    spark = session("local[2]", "class archive", {OPTIONS: options})
    try:
        _read_and_write(spark, fresh.parent, Nowhere)
    finally:
        java = spark.sparkContext._gateway.proc
        spark.stop()
        spark.sparkContext._gateway.shutdown()
        java.stdin.close()  # Spark's sign to end; then the archive is written
        java.wait(timeout=_PATIENCE_S)


def _read_and_write(spark: Any, folder: Path, nowhere: Any) -> None:
    from pyspark.sql import functions as f

    spark.dataSource.register(nowhere)
    frame = spark.range(100).select("id", f.col("id").cast("string").alias("name"), f.rand())
    for kind in ("csv", "parquet"):
        files = str(folder / kind)
        frame.write.format(kind).option("header", True).save(files)
        read = spark.read.format(kind).option("header", True).option("inferSchema", True)
        found = read.load(files)
        found.groupBy("name").agg(f.count("*"), f.max("id")).orderBy("name").limit(3).collect()
    found.write.format(nowhere.name()).mode("append").save()


def main(words: list[str]) -> int:
    if words[:1] == ["--use"]:
        _use_spark(Path(words[1]))
        return 0
    begun = time.monotonic()
    if problem := make():
        sys.stderr.write(f"no class archive, Spark starts as slowly as before: {problem}\n")
        return 1
    size, seconds = archive().stat().st_size, time.monotonic() - begun
    sys.stdout.write(f"class archive of Spark: {size >> 20} MB after {seconds:.0f} s\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
