"""What the text of a peer's write may do: change rows of the table it names, and nothing else."""

from __future__ import annotations

import pytest

from cairn.model.errors import AccessDenied
from cairn.model.rpc import WriteRequest, WriteResponse
from cairn.sim.cluster.loads.load import INSERT, TABLE
from tests.sim_cluster.scenes import Triple, inside, played

NAME = TABLE.physical_name
REFUSED = (
    "ATTACH 'other.db' AS other",
    "PRAGMA user_version = 7",
    f"DROP TABLE {NAME}",
    "CREATE TABLE t99 (a)",
    "DELETE FROM row_log",
    f"DELETE FROM {NAME}; DELETE FROM row_log",
    f"INSERT INTO {NAME} VALUES (1, 9, 'x'); INSERT INTO {NAME} VALUES (1, 10, 'x')",
    f"SELECT * FROM {NAME}",
    "COMMIT",
    "VACUUM",
    "REINDEX",
)


def request(sql: str, row: tuple[object, ...] = (), **fields: object) -> WriteRequest:
    return WriteRequest(TABLE.id, 1, sql, (row,), (1,), **fields)  # type: ignore[arg-type]


def test_a_peer_may_change_rows_of_the_table_it_names_and_nothing_else() -> None:
    async def script(scene: Triple) -> None:
        third, master = inside(scene.third), inside(scene.master)
        hole = request(INSERT, (1, 8, "x"), returning="; DELETE FROM row_log", told=(0,))
        open_hole = request(
            INSERT, (1, 8, "x"), ranges=((1, 30),), open_sql="DROP TABLE row_log", operation="once"
        )
        more = request(INSERT, (1, 8, "x"), more=(("DELETE FROM row_log", ((),)),))
        before = dict(master.data.vclock)
        for bad in (*map(request, REFUSED), hole, open_hole, more):
            with pytest.raises(AccessDenied):
                await third.peers.call(master.raft_id, "write_rows", bad, WriteResponse, 5.0)
        assert master.data.vclock == before
        good = request(INSERT, (1, 8, "x"))
        answer = await third.peers.call(master.raft_id, "write_rows", good, WriteResponse, 5.0)
        assert answer.row_count == 1
        assert master.data.store.tables.keys() == {TABLE.id}

    played("async", script)


def test_what_a_write_does_is_told_by_sqlite_not_by_its_words() -> None:
    """A value or a name may have any word in it."""

    async def script(scene: Triple) -> None:
        kinds = inside(scene.master).execution.writes._kinds
        values = f"INSERT INTO {NAME} (bucket_id, c0, c1) VALUES"
        known = {
            f"{values} (?, ?, 'SELECT')": (True, False),
            f"{values} (?, ?, 'DO UPDATE') ON CONFLICT DO NOTHING": (True, False),
            f"{values} (?, ?, '') ON CONFLICT (bucket_id, c0) DO UPDATE SET c1 = ''": (
                False,
                False,
            ),
            f"UPDATE {NAME} SET c1 = 'INSERT INTO ' WHERE bucket_id = ? AND c0 = ?": (False, False),
            f"DELETE FROM {NAME} WHERE bucket_id = ? AND c0 <> (select ?)": (False, True),
            f"UPDATE {NAME} SET c1 = x'80ff' WHERE bucket_id = ? AND c0 = ?": (False, False),
        }
        found = {}
        for sql in known:
            kind = kinds.of(request(sql, (1, 8)))
            assert kind.table == NAME
            found[sql] = (kind.only_inserts, kind.has_query)
        assert found == known

    played("async", script)
