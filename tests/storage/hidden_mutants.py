"""The rules of indexes that are filled before they are made, taken out one at a time.

`python -m tests.replication.run_mutants hidden:` plants them.
"""

from __future__ import annotations

HIDDEN, KEYS = "storage/data_db/hidden/indexes.py", "storage/data_db/hidden/key_list.py"
DATA_STORE, FILLING = "storage/data_db/data_store.py", "node/rows/upkeep/filling.py"
FIRST = "node/statements/changes/filled_first.py"
#: The end of `drop` with what `rest` does.
RESTED = (
    'IF EXISTS {_rows_name(table_id)}")\n'
    '        self._connection.execute("PRAGMA writable_schema = OFF")\n'
)
UNIT = "tests/storage/test_hidden_indexes.py::test_"
ONE = "tests/node/test_filling.py::test_"
REAL = "tests/cluster/test_large_indexes.py::test_"
WHOLE = UNIT + "an_index_that_is_filled_while_rows_change_is_whole"
CRASH = UNIT + "what_a_crash_leaves_is_forgotten_at_the_next_start"

#: (rule, name, file, old, new, test)
OF_HIDDEN: tuple[tuple[str, str, str, str, str, str], ...] = (
    (
        *("DDL", "hidden: a row without an entry cannot go", HIDDEN),
        *('    self._connection.execute("PRAGMA writable_schema = ON")\n', "    pass\n"),
        WHOLE,
    ),
    (
        *("DDL", "hidden: questions are answered by it", HIDDEN),
        *("physical_name, [_ALL_ROWS]", "physical_name, list[str]()"),
        UNIT + "nobody_reads_a_hidden_index",
    ),
    (
        *("DDL", "hidden: it is shown before it is filled", HIDDEN),
        *("self.whole.get(table.id) != _kind(table, index) or not", "not"),
        UNIT + "one_that_is_not_filled_or_is_of_other_columns_is_not_shown",
    ),
    (
        *("DDL", "hidden: equal rows are not looked for", HIDDEN),
        *("        if index.unique:\n            self._check_unique(table, index)\n", ""),
        UNIT + "a_unique_index_is_refused_where_two_rows_are_equal",
    ),
    (
        *("DDL", "hidden: NULLs are equal", HIDDEN),
        *('" AND ".join(f"{part} IS NOT NULL" for part in parts)', '"true"'),
        UNIT + "a_unique_index_is_refused_where_two_rows_are_equal",
    ),
    (
        *("DDL", "hidden: what a crash left stays", DATA_STORE),
        *("            self.hidden.forget_left()\n", ""),
        CRASH,
    ),
    (
        *("DDL", "hidden: questions with a part of its condition are answered by it", HIDDEN),
        *('" AND ".join(f"({each})" for each in', '" AND ".join(f"{each}" for each in'),
        UNIT + "nobody_reads_a_hidden_index",
    ),
    (
        *("DDL", "hidden: keys of the last bucket of a piece are left out", KEYS),
        *('f"{BUCKET_COLUMN} BETWEEN ? AND ?"', 'f"{BUCKET_COLUMN} >= ? AND {BUCKET_COLUMN} < ?"'),
        WHOLE,
    ),
    (
        *("DDL", "hidden: the copies of rows stay", HIDDEN),
        *('        self._connection.execute(f"DELETE FROM {rows}")\n', ""),
        WHOLE,
    ),
    (
        *("DDL", "hidden: keys are looked for before the index is there", FILLING),
        *(
            "        if not await self._write(begin):\n            raise _NotWanted\n",
            "        await asyncio.sleep(0)\n",
        ),
        REAL + "writes_go_on_while_an_index_is_filled",
    ),
    (
        *("DDL", "hidden: entries of an expression are missing for a while", HIDDEN),
        *("        if (upto := self._upto.get(table.id)) is not None:", "        if upto := '':"),
        WHOLE,
    ),
    (
        *(
            "DDL",
            "hidden: the next index of a table waits until the last one is forgotten",
            FILLING,
        ),
        *(
            "if fill is not None and fill.is_filled and table.id not in",
            "if fill is None and () in",
        ),
        ONE + "one_index_after_the_other",
    ),
    (
        *("DDL", "hidden: what was wrong with an index is told again", FILLING),
        *("            self._end(fill)  # told once", "            pass  # told once"),
        ONE + "what_was_wrong_is_told_once",
    ),
    (
        *("DDL", "hidden: nobody fills it first", FILLING),
        *("SMALL_ROWS = 50_000", "SMALL_ROWS = 500_000_000"),
        REAL + "a_kill_in_the_middle_leaves_nothing_that_is_not_whole",
    ),
    (
        *("DDL", "hidden: an index of a table that was dropped is begun", FILLING),
        *("if self._data.store.tables.get(table.id) != table:", "if False:"),
        ONE + "no_index_is_begun_of_a_table_that_was_dropped_before_the_writers_turn",
    ),
    (
        *("DDL", "hidden: a table that was dropped is a mistake of ours", FILLING),
        *("return self._data.store.tables.get(table.id) is not table", "return False"),
        ONE + "a_table_that_is_dropped_meanwhile_is_no_mistake",
    ),
    (
        *("DDL", "hidden: two statements take instances in any order", FIRST),
        *("known = rows[: asked.begun]", "known = rows"),
        ONE + "two_statements_each_with_an_instance_do_not_wait_for_each_other_for_ever",
    ),
    (
        *("DDL", "hidden: SQLite judges entries while a drop may be taken back", HIDDEN),
        *('IF EXISTS {_rows_name(table_id)}")\n', RESTED),
        UNIT + "rows_without_an_entry_can_go_after_a_drop_that_was_rolled_back",
    ),
    (
        *("DDL", "hidden: columns are taken back under it", "storage/data_db/shapes.py"),
        *("                self.hidden.drop(want.id)\n", "                pass\n"),
        UNIT + "columns_that_are_taken_back_take_their_hidden_index_along",
    ),
    (
        *("DDL", "hidden: a look begins to fill", FILLING),
        *("        if request.only_look:\n", "        if False:\n"),
        ONE + "who_only_looks_begins_nothing",
    ),
    (
        *("DDL", "hidden: SQLite judges entries while another index is hidden", HIDDEN),
        *("if not self._names():", "if True:"),
        UNIT + "rows_without_an_entry_can_go_after_a_drop_that_was_rolled_back",
    ),
)
