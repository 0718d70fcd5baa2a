"""The rules of backups taken out one at a time, and the test that has to notice.

`python -m tests.replication.run_mutants backup:` plants them.
"""

from __future__ import annotations

HELD, TAKER, CUT = (
    "node/rows/upkeep/backups.py",
    "node/steering/backup_taker.py",
    "replication/cut.py",
)
ROWS, PAGES = "cli/copies/rows.py", "storage/files/page_copy.py"
REAL = "tests/cluster/test_backup.py::test_"
PARTS = "tests/node/test_backup_parts.py::test_"
COPY = "tests/storage/test_page_copy.py::test_"
VALUE = "tests/replication/test_cut.py::test_"

#: (rule, name, file, old, new, test)
OF_BACKUPS: tuple[tuple[str, str, str, str, str, str], ...] = (
    (
        *("moment", "backup: masters go on before all have stopped", HELD),
        *("return copy.gate.wait(HOLD_S)", "return True"),
        PARTS + "a_master_that_is_held_writes_nothing_until_it_is_let_go",
    ),
    (
        *("moment", "backup: buckets may move meanwhile", CUT),
        *("if part.owned != merged(", "if False and part.owned != merged("),
        VALUE + "a_bucket_that_was_handed_over_meanwhile_makes_the_moment_void",
    ),
    (
        *("moment", "backup: a master may change meanwhile", CUT),
        *("if part.epoch != replicaset.epoch or", "if False and"),
        VALUE + "a_master_that_changed_makes_the_moment_void",
    ),
    (
        *("moment", "backup: a schema may change meanwhile", CUT),
        *("part.versions.get(table.id) != table.schema_version", "False"),
        VALUE + "a_schema_on_its_way_makes_the_moment_void",
    ),
    (
        *("copy", "backup: rows of moved buckets count", ROWS),
        *("for start, end in part.owned:", "for start, end in ((1, 1 << 30),):"),
        REAL + "everything_is_there_exactly_once_while_buckets_move_and_tables_change",
    ),
    (
        *("copy", "backup: pages of the write-ahead log get no checksum", PAGES),
        *('target.execute("CREATE TABLE first (page); DROP TABLE first")', "pass"),
        COPY + "pages_that_are_in_the_write_ahead_log_only_get_checksums",
    ),
    (
        *("time", "backup: numbers of the backup before are given again", ROWS),
        *(
            "if self._following is not None:\n            found = ",
            "if False:\n            found = ",
        ),
        REAL + "rows_come_back_as_of_a_time_between_two_backups",
    ),
)
