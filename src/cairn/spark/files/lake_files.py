"""Copies of a table as others read them: Parquet in versions, or Delta Lake.

`ParquetCopy`: `current` is a link to the newest version, a directory of files; a version is made
aside and appears by renaming. Files whose rows did not change are shared with the version before.
`DeltaCopy`: each version is one commit of the table's log, and carries the number of its batch.
"""

from __future__ import annotations

import os
import shutil
import zlib
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from cairn.model.errors import InvalidParameter

PARTS = 8  # files of a version of Parquet
KEPT = 2  # versions: who has begun to read the one before may end
COMPACT_EVERY = 20  # commits of a Delta table
_GONE = "__gone"


class Copy(Protocol):
    """What a copy can do. `number` is the batch that its newest version was made from."""

    def number(self) -> int: ...

    def schema(self) -> Any: ...

    def replace(self, number: int, keys: list[str], rows: Any) -> None: ...

    def change(self, number: int, keys: list[str], put: Any, gone: Any) -> None: ...


class ParquetCopy:
    def __init__(self, place: Path, table: str) -> None:
        self._place, self._current = place, place / "current"

    def number(self) -> int:
        return int(self._version().name) if self._current.is_symlink() else -1

    def schema(self) -> Any:
        if not self._current.is_symlink():
            return None
        return pq.read_schema(self._version() / _part(0)).remove_metadata()

    def _version(self) -> Path:
        return self._place / os.readlink(self._current)

    def replace(self, number: int, keys: list[str], rows: Any) -> None:
        draft = self._draft()
        parts = {0: rows.schema.empty_table(), **_by_part(rows, keys)}
        for at, part in parts.items():
            _write(draft / _part(at), part)
        self._publish(draft, number)

    def change(self, number: int, keys: list[str], put: Any, gone: Any) -> None:
        """Only files that have, or get, one of the rows are written."""
        if not self._current.is_symlink():
            self.replace(number, keys, put)
            return
        draft, before = self._draft(), self._version()
        came, went = _by_part(put, keys), _by_part(gone, keys)
        for at in range(PARTS):
            old, new = before / _part(at), draft / _part(at)
            touched = [each for each in (came.get(at), went.get(at)) if each is not None]
            if not touched:
                if old.exists():
                    os.link(old, new)
                continue
            rows = pq.read_table(old) if old.exists() else put.schema.empty_table()
            names = pa.concat_arrays([_names(each, keys) for each in touched])
            rows = rows.filter(pc.invert(pc.is_in(_names(rows, keys), value_set=names)))
            _write(new, pa.concat_tables([rows, *([came[at]] if at in came else [])]))
        self._publish(draft, number)

    def _draft(self) -> Path:
        draft = self._place / "versions" / "_draft"
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(parents=True)
        return draft

    def _publish(self, draft: Path, number: int) -> None:
        final = draft.with_name(f"{number:08d}")
        shutil.rmtree(final, ignore_errors=True)  # of a run that was killed before the next line
        draft.rename(final)
        _sync(final.parent)
        link = self._place / "_current"
        link.unlink(missing_ok=True)
        link.symlink_to(Path("versions") / final.name)
        link.rename(self._current)
        _sync(self._place)
        for old in sorted(path for path in final.parent.iterdir() if path.name.isdigit())[:-KEPT]:
            shutil.rmtree(old)


def _part(at: int) -> str:
    return f"part-{at:02d}.parquet"


def _write(path: Path, rows: Any) -> None:
    pq.write_table(rows, path)
    _sync(path)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _names(rows: Any, keys: list[str]) -> Any:
    """One text for each row that no row with another key has: lengths keep the columns apart."""
    texts = []
    for key in keys:
        text = rows.column(key).combine_chunks().cast(pa.string())
        texts += [pc.utf8_length(text).cast(pa.string()), text]
    return pc.binary_join_element_wise(*texts, ":")


def _by_part(rows: Any, keys: list[str]) -> dict[int, Any]:
    names = _names(rows, keys).to_pylist()
    at = pa.array([zlib.crc32(name.encode()) % PARTS for name in names], pa.int64())
    return {part: rows.filter(pc.equal(at, part)) for part in at.unique().to_pylist()}


class DeltaCopy:
    def __init__(self, place: Path, table: str) -> None:
        try:
            import deltalake
        except ImportError:
            raise InvalidParameter(
                "--format delta needs the package deltalake", hint='pip install "cairn-db[delta]"'
            ) from None
        self._lake: Any = deltalake
        self._place, self._id = str(place), f"cairn follow {table}"

    def _table(self) -> Any:
        return (
            self._lake.DeltaTable(self._place)
            if self._lake.DeltaTable.is_deltatable(self._place)
            else None
        )

    def number(self) -> int:
        table = self._table()
        found = None if table is None else table.transaction_version(self._id)
        return -1 if found is None else int(found)

    def schema(self) -> Any:
        table = self._table()
        return None if table is None else pa.schema(table.schema().to_arrow())

    def replace(self, number: int, keys: list[str], rows: Any) -> None:
        self._lake.write_deltalake(
            self._place, rows, mode="overwrite", schema_mode="overwrite",
            commit_properties=self._properties(number),
        )  # fmt: skip
        self._tidy(number)

    def change(self, number: int, keys: list[str], put: Any, gone: Any) -> None:
        table = self._table()
        if table is None:
            self.replace(number, keys, put)
            return
        flags = pa.array([False] * put.num_rows + [True] * gone.num_rows, pa.bool_())
        source = pa.concat_tables([put, gone]).append_column(_GONE, flags)
        columns = {f'"{name}"': f's."{name}"' for name in put.schema.names}
        (
            table.merge(
                source, " AND ".join(f't."{key}" = s."{key}"' for key in keys),
                source_alias="s", target_alias="t", commit_properties=self._properties(number),
            )
            .when_matched_delete(predicate=f"s.{_GONE}")
            .when_matched_update(columns)
            .when_not_matched_insert(columns, predicate=f"NOT s.{_GONE}")
            .execute()
        )  # fmt: skip
        self._tidy(number)

    def _properties(self, number: int) -> Any:
        return self._lake.CommitProperties(
            app_transactions=[self._lake.Transaction(app_id=self._id, version=number)]
        )

    def _tidy(self, number: int) -> None:
        """Small files become few; those that no version of the last week names are removed."""
        if number % COMPACT_EVERY == COMPACT_EVERY - 1:
            table = self._table()
            table.optimize.compact()
            table.create_checkpoint()
            table.vacuum(dry_run=False)
