"""What makes a kept change of a block worthless, left out one at a time, and who has to notice.

`python -m tests.replication.run_mutants kept:` plants them.
"""

from __future__ import annotations

KEPT = "node/statements/blocks/kept.py"
OWNER = "node/statements/blocks/block_owner.py"
STORE, SHAPES = "storage/data_db/data_store.py", "storage/data_db/shapes.py"
TOUCHED = "storage/data_db/touched.py"
EXACT = "storage/data_db/exact_changes.py"

UNIT = "tests/node/test_kept.py::test_"
AFTER = UNIT + "it_is_run_again_after"
ROWS = "tests/storage/test_touched.py::test_"
SIM = "tests/sim_cluster/test_kept.py::test_what_is_put_back_is_what_would_be_done_again"
FITS = UNIT + "what_does_not_fit_is_a_conflict_and_nothing_of_it_stays"

#: (rule, name, file, old, new, test)
OF_KEPT: tuple[tuple[str, str, str, str, str, str], ...] = (
    (
        *("9", "kept: it holds in another epoch and with other buckets", KEPT),
        *("if made.fence is not store.fence or made", "if made"),
        AFTER + "[another_epoch]",
    ),
    (
        *("5", "kept: a bucket that left and came back is the same", KEPT),
        *("made.fence is not store.fence", "made.fence != store.fence"),
        AFTER + "[bucket_left_and_came_back]",
    ),
    (
        *("14", "kept: it holds for other tables", KEPT),
        *(" or made.versions is not store.versions:", ":"),
        UNIT + "a_new_table_alone_counts_though_nobody_was_told",
    ),
    (
        *("14", "kept: a schema that was changed and changed back is the same", KEPT),
        *("made.versions is not store.versions", "made.versions != store.versions"),
        UNIT + "a_change_of_the_schema_that_is_taken_back_counts_too",
    ),
    (
        *("5", "kept: a bucket that is about to leave is still here", KEPT),
        *("if store.newest is not store.fence:", "if 0:"),
        AFTER + "[bucket_is_about_to_leave]",
    ),
    (
        *("9", "kept: rows that others touched are as they were", KEPT),
        *("return not store.touched.is_since(made.then, made.tables, made.buckets)", "return True"),
        AFTER + "[written]",
    ),
    (
        *("9", "kept: another answer is the same", KEPT),
        *("made.told != item.told or ", ""),
        UNIT + "it_is_not_taken_for_another_answer_or_another_statement",
    ),
    (
        *("9", "kept: one that holds is enough for all", KEPT),
        *("                return None\n", "                continue\n"),
        UNIT + "one_that_does_not_hold_is_enough_to_run_all",
    ),
    (
        *("9", "kept: rows that are tied to others", KEPT),
        *(" or any(table in store.kin for table in item.tables)", ""),
        UNIT + "rows_that_are_tied_to_others_are_never_kept",
    ),
    (
        *("26", "kept: any number of changes", KEPT),
        *("len(changes) > MOST_CHANGES or ", ""),
        UNIT + "much_is_not_kept",
    ),
    (
        *("26", "kept: buckets cost nothing", KEPT),
        *(" + _BUCKET_BYTES * len(buckets)", ""),
        UNIT + "much_is_not_kept",
    ),
    (
        *("26", "kept: rows cost nothing", KEPT),
        *("size += sum(", "sum("),
        UNIT + "much_is_not_kept",
    ),
    (
        *("26", "kept: statements of any number", KEPT),
        *(" or len(self._made) > MOST:", ":"),
        UNIT + "the_oldest_are_forgotten_first[MOST]",
    ),
    (
        *("26", "kept: statements of any size together", KEPT),
        *("while self._bytes > MOST_BYTES or ", "while "),
        UNIT + "the_oldest_are_forgotten_first[MOST_BYTES]",
    ),
    (
        *("26", "kept: what was forgotten goes on counting", KEPT),
        *("                self._bytes -= made.size\n", "                pass\n"),
        UNIT + "the_oldest_are_forgotten_first",
    ),
    (
        *("9", "kept: what SQLite refuses is an error of its own", KEPT),
        *("                Damaged,\n                apsw.ConstraintError,\n", "Damaged,"),
        FITS,
    ),
    (
        *("9", "kept: changes that meet no row are taken for done", EXACT),
        *("if self._carry_out(said) != len(said):", "if self._carry_out(said) < 0:"),
        FITS,
    ),
    (
        *("9", "kept: what is put back is in no record", SHAPES),
        *("        self._changes.extend(changes)\n", ""),
        UNIT + "what_is_put_back_is_as_if_it_had_been_run",
    ),
    (
        *("9", "kept: what is put back is told twice", SHAPES),
        "        with self.unheard():\n            carry_out()\n",
        "        carry_out()\n",
        UNIT + "what_is_put_back_is_as_if_it_had_been_run",
    ),
    (
        *("9", "kept: a statement that has read all buckets", OWNER),
        *("if guard.is_all or not _may", "if not _may"),
        SIM,
    ),
    (
        *("9", "kept: a statement that has read global tables or views", OWNER),
        *("if len(item.tables) != len(prepared.tables):", "if 0:"),
        SIM,
    ),
    (
        *("9", "kept: a write that is run again before what has seen it", OWNER),
        *("not items[early].made and _is_read(planned[early])", "not items[early].made"),
        SIM,
    ),
    (
        *(
            "9",
            "kept: the buckets that a statement read are not noted",
            "node/statements/blocks/block_guard.py",
        ),
        *("            self.touched |= buckets\n", ""),
        SIM,
    ),
    (
        *("9", "kept: rows of a statement touch nothing", STORE),
        *("            self.touched.rows(body.changes)\n", "            pass\n"),
        AFTER + "[written]",
    ),
    (
        *("9", "kept: rows that are inserted in C touch nothing", STORE),
        *("            self.touched.row(table, bucket)\n", ""),
        "tests/native/test_point_inserts.py::test_both_ways_leave_the_same_file",
    ),
    (
        *("9", "kept: bulk rows, moves and schemas touch nothing", STORE),
        "        else:\n            self.touched.all()\n",
        "",
        UNIT + "what_is_not_known_in_detail_touches_everything[another_table]",
    ),
    (
        *("9", "kept: a group that was taken back touches nothing", STORE),
        '''        """Learn the local tables, the vclock and the promise from disk."""
        self.touched.all()
''',
        "",
        UNIT + "what_is_not_known_in_detail_touches_everything[group_taken_back]",
    ),
    (
        *("9", "kept: what the hook is not told touches nothing", SHAPES),
        "        self.touched.all()\n        with self.unheard():\n",
        "        with self.unheard():\n",
        ROWS + "changes_behind_the_back_of_the_hook_touch_everything",
    ),
    (
        *("9", "kept: a row that leaves its bucket does not touch it", TOUCHED),
        *("for row in (change.old, change.new):", "for row in (change.new,):"),
        ROWS + "a_row_that_changes_its_bucket_touches_both",
    ),
    (
        *("26", "kept: more buckets than can be remembered are forgotten", TOUCHED),
        *("            self.all()\n", "            self._at.clear()\n"),
        ROWS + "more_buckets_than_are_remembered_count_as_all",
    ),
)
