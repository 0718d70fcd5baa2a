"""`cairn restore BACKUP`: a backup put into a new or emptied cluster, of whatever shape."""

from __future__ import annotations

import base64
import json
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from cairn.cli.copies import files
from cairn.cli.copies.backup import Shown, ended_by_signal
from cairn.cli.copies.rows import Rows, global_rows, pictures, rows_of
from cairn.cli.talking import Talk, TalkProblem, Target
from cairn.model.backups import Manifest, RestoreBegin, RestoreEnd
from cairn.model.settings.parameters import SETTINGS
from cairn.model.tables import system_tables as system
from cairn.model.tables.catalog import User
from cairn.model.tables.schema import Table
from cairn.model.tables.sequences import table_of

STEP_S = 120.0
TRIES = 5  # of one piece: a master may change meanwhile
AGAIN_S = 1.0
PIECE_ROWS = 2_000
PIECE_BYTES = 1_000_000
GLOBAL_ROWS = 200
LAST_BUILT_IN, FIRST_OWN = 32, 1000
#: A master is being named, or the end of a write is not known: pieces may come twice.
_AGAIN = ("PC003", "PC004", "PC006", "40003", "57P03")
#: Names instances, which are others here.
_OWNER = system.PICO_GOVERNOR_QUEUE.position("owner")  # the last column
_NOT_RESTORED = ("replication_graph",)


def run_restore_backup(
    directory: Path,
    dsn: str | None,
    password_file: str | None,
    *,
    to: str | None = None,
    as_json: bool = False,
) -> int:
    begun = time.monotonic()
    shown = Shown("restore")
    with ended_by_signal(), tempfile.TemporaryDirectory(prefix="cairn-restore-") as scratch:
        files.verify(directory, shown.about("verify"))
        chosen = Rows(directory, to, Path(scratch))
        talk = Talk(Target(dsn, password_file))
        try:
            told = Restore(talk, chosen, shown).run()
        finally:
            shown.end()
            talk.close()
    told |= {"seconds": round(time.monotonic() - begun, 3)}
    if as_json:
        print(json.dumps(told))
        return 0
    print(
        f"{told['backup']}: {told['rows']} rows of {len(told['tables'])} tables restored as of "
        f"{told['as_of']}, {told['seconds']:.1f} s"
    )
    print("admin keeps the password of this cluster; streams begin anew with a snapshot")
    return 0


class Restore:
    """One restore, in the order of `server/calls/restoring.py`."""

    def __init__(self, talk: Talk, chosen: Rows, shown: Shown) -> None:
        self._talk, self._chosen, self._shown = talk, chosen, shown
        self._manifest: Manifest = chosen.manifest
        self._content = global_rows(chosen.directory, self._manifest)
        self._catalog, self._cluster = pictures(self._content)
        self._tables = sorted(
            (table for table in self._catalog.tables.values() if not table.is_system),
            key=lambda table: table.id,
        )
        self._to = chosen.until_shown()
        self._rows = 0

    def run(self) -> dict[str, Any]:
        here = self._ask("check")
        if here["unfinished"] is not None:
            self._shown.say("what an interrupted restore has left is removed first")
            self._ask("undo")
        users = self.begin()
        try:
            ids = self.make_tables(users)
            for table in self._tables:
                self._fill(table)
            self._make_indexes(ids)
            self._make_keys(ids)
            self._ask("end", self._last(users, ids))
        except BaseException:
            self._shown.say("the restore did not end: what it made is removed")
            with suppress(TalkProblem):
                self._ask("undo")
            raise
        return {
            "backup": str(self._chosen.directory),
            "id": self._manifest.id,
            "as_of": self._to,
            "tables": [table.name for table in self._tables],
            "users": [user.name for user in self._users()],
            "rows": self._rows,
            "log_records": self._chosen.applied,
        }

    # --- steps ------------------------------------------------------------------------------------

    def _ask(self, action: str, body: Any = None) -> Any:
        packed = "" if body is None else base64.b64encode(msgspec.msgpack.encode(body)).decode()
        rows = self._talk.rows("CALL cairn_restore($1, $2)", (action, packed), STEP_S)
        return rows[0][0]

    def _users(self) -> list[User]:
        users = self._catalog.users.values()
        return sorted((user for user in users if user.id > LAST_BUILT_IN), key=lambda user: user.id)

    def begin(self) -> dict[int, int]:
        tiers = {
            tier.name: (tier.bucket_count, tier.hash_version)
            for tier in self._cluster.tiers.values()
            if any(each.sharding and each.sharding.tier == tier.name for each in self._tables)
        }
        names = [table.name for table in self._tables]
        found = self._ask("begin", RestoreBegin(self._manifest.id, self._users(), names, tiers))
        return {int(old): new for old, new in found["users"].items()}

    def make_tables(self, users: dict[int, int]) -> dict[int, int]:
        ids: dict[int, int] = {}
        for table in self._tables:
            owner = users.get(table.owner, table.owner)
            made = self._ask("table", msgspec.structs.replace(table, owner=owner))
            ids[table.id] = made["id"]
        return ids

    def _make_indexes(self, ids: dict[int, int]) -> None:
        for table in self._tables:
            for index in self._catalog.indexes.get(table.id, ()):
                self._ask("index", msgspec.structs.replace(index, table_id=ids[table.id]))

    def _make_keys(self, ids: dict[int, int]) -> None:
        for table in self._tables:
            keys = tuple(
                msgspec.structs.replace(key, parent=ids[key.parent]) for key in table.foreign_keys
            )
            if keys:
                self._make_keys_of(msgspec.structs.replace(table, foreign_keys=keys))

    def _make_keys_of(self, table: Table) -> None:
        """Between two backups global tables and rows are put back by clocks, which differ: a row
        may name one that is not there at that moment. That is told, and hides no rows."""
        try:
            self._ask("keys", table)
        except TalkProblem as problem:
            kept = tuple(key for key in table.foreign_keys if not key.is_global)
            if problem.sqlstate != "23503" or kept == table.foreign_keys:
                raise
            lost = ", ".join(key.name for key in table.foreign_keys if key.is_global)
            self._shown.say(
                f"table {table.name} is restored without {lost}: {problem}; mend its rows, then "
                "ALTER TABLE ... ADD FOREIGN KEY"
            )
            if kept:
                self._ask("keys", msgspec.structs.replace(table, foreign_keys=kept))

    def _fill(self, table: Table) -> None:
        for at, block in enumerate(self._blocks(table)):
            self._send(table, f"{self._manifest.id}:{table.id}:{at}", block)
            self._rows += len(block)
            self._shown(0, 0, f"{table.name}, {self._rows} rows")

    def _blocks(self, table: Table) -> Iterator[list[Any]]:
        if table.is_global:
            found = self._content.get(table.id, [])
            for at in range(0, len(found), GLOBAL_ROWS):
                yield from _cut(found[at : at + GLOBAL_ROWS])
            return
        assert table.sharding is not None
        for part in self._manifest.parts:
            if part.tier == table.sharding.tier:
                for block in rows_of(self._chosen.file(part), table, part, PIECE_ROWS):
                    yield from _cut(block)

    def _send(self, table: Table, piece: str, block: list[Any]) -> None:
        body = base64.b64encode(msgspec.msgpack.encode(block)).decode()
        for attempt in range(1, TRIES + 1):
            try:
                text = "CALL cairn_restore_rows($1, $2, $3)"
                self._talk.rows(text, (table.name, piece, body), STEP_S)
                return
            except TalkProblem as problem:
                if attempt == TRIES or problem.sqlstate not in _AGAIN:
                    raise
                self._shown.say(f"{problem}; trying again")
                time.sleep(AGAIN_S)

    # --- system tables ----------------------------------------------------------------------------

    def _last(self, users: dict[int, int], ids: dict[int, int]) -> RestoreEnd:
        of = {"table": ids, "user": users, "role": users}
        privileges = [
            (
                users.get(row[0], row[0]),
                users.get(row[1], row[1]),
                *row[2:4],
                of.get(row[3], {}).get(row[4], row[4]),
                *row[5:],
            )
            for row in self._content[system.PICO_PRIVILEGE.id]
        ]
        return RestoreEnd(
            backup=self._manifest.id,
            cluster_uuid=self._manifest.cluster_uuid,
            privileges=privileges,
            known_tables=[table.id for table in self._catalog.tables.values() if table.is_system],
            sequences=[
                (ids[table] + row[0] - table, *row[1:])
                for row in self._chosen.numbers()
                if (table := table_of(row[0])) in ids
            ],
            settings=[
                tuple(row)
                for row in self._content[system.PICO_DB_CONFIG.id]
                if row[0] in SETTINGS and row[0] not in _NOT_RESTORED
            ],
            queue=[
                (*row[:_OWNER], users.get(row[_OWNER], row[_OWNER]))
                for row in self._content.get(system.PICO_GOVERNOR_QUEUE.id, [])
                if row[0] >= FIRST_OWN
            ],
            types=self._owned(system.CAIRN_TYPE, users),
            views=self._owned(system.CAIRN_VIEW, users),
            routines=self._owned(system.PICO_ROUTINE, users),
            last_routine_id=int(self._cluster.properties.get("last_routine_id", 0)),
        )

    def _owned(self, table: Table, users: dict[int, int]) -> list[tuple[Any, ...]]:
        """Rows whose last column is the owner."""
        found = self._content.get(table.id, [])
        return [(*row[:-1], users.get(row[-1], row[-1])) for row in found]


def _cut(block: list[Any]) -> Iterator[list[Any]]:
    """By size as well: a piece has to fit a statement, and an entry of Raft."""
    found: list[Any] = []
    size = 0
    for row in block:
        found.append(row)
        size += sum(len(value) for value in row if isinstance(value, str | bytes))
        if size >= PIECE_BYTES:
            yield found
            found, size = [], 0
    if found:
        yield found
