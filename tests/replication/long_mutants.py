"""Long statements with one rule taken out at a time, and the test that has to notice."""

from __future__ import annotations

ROW_LOG = "storage/data_db/row_log.py"
RELAY = "replication/relay.py"
DATA_STORE = "storage/data_db/data_store.py"
ARRIVING = "storage/data_db/long/arriving.py"
GATHERING = "storage/data_db/long/gathering.py"
ACKS = "node/rows/acknowledgements.py"
LONG = "tests/replication/test_long_statements.py::test_"

OF_LONG_STATEMENTS = (
    (
        *("1", "long: a part is applied as it comes", ROW_LOG),
        *("        if body.more:\n", "        if False:\n"),
        LONG + "a_replica_applies_nothing_of_it_before_all_is_there",
    ),
    (
        *("1", "long: what is held goes into the next epoch", ROW_LOG),
        *("        self.arriving.forget()\n        before = int", "        before = int"),
        LONG + "a_statement_that_its_master_took_along_was_never_there",
    ),
    (
        *("1", "long: half of a damaged statement stays", ROW_LOG),
        *('                store.connection.execute("ROLLBACK TO long_statement")\n', ""),
        LONG + "a_damaged_part_takes_back_all_of_it_and_it_is_asked_for_anew",
    ),
    (
        *("1", "long: what a full copy overtook goes on", ARRIVING),
        *("if vclock.get(origin, 0) != found.before:", "if False:"),
        LONG + "a_full_copy_overtakes_what_is_held",
    ),
    (
        *("1", "long: all is sent again each time", RELAY),
        *("return max(self.vclock.get(origin, 0), self.held.get(origin, 0))",),
        "return self.vclock.get(origin, 0)",
        LONG + "what_a_replica_holds_is_not_asked_for_again",
    ),
    (
        *("1", "long: nobody is told that there is more", DATA_STORE),
        *("self._put(encode_part(now, part))", 'self._put(encode_part(now, part)[:-1] + b"\\xc2")'),
        LONG + "a_long_statement_is_told_in_records_that_follow_each_other",
    ),
    (
        *("1", "long: the end of a statement is no record of its own", DATA_STORE),
        *(
            "        return self._put(data)\n\n    def log",
            "        return self.vclock[self.origin]\n\n    def log",
        ),
        LONG + "an_operation_is_known_with_all_of_its_rows_or_not_at_all",
    ),
    (
        *("1", "long: what was told is told with the next statement", GATHERING),
        *("            self._file.clear()\n", "            pass\n"),
        LONG + "long_rows_that_were_told_are_not_told_again",
    ),
    (
        *("1", "long: a part is as long as its rows happen to be", GATHERING),
        *("if len(data) > PART_MOST and", "if False and"),
        LONG + "no_record_is_longer_than_it_may_be_whatever_was_guessed",
    ),
    (
        *("1", "long: the newest changes are not looked at", GATHERING),
        *("new = len(self.changes), self.changes[self.look_at - LOOK_EVERY :]",),
        "new = len(self.changes), self.changes[:LOOK_EVERY]",
        LONG + "what_is_in_memory_is_bounded_also_when_rows_grow",
    ),
    (
        *("1", "long: an epoch is known whose record was taken back", DATA_STORE),
        'self.last_epoch = int(self.get("last_epoch", 0))',
        'self.last_epoch = vars(self).get("last_epoch") or int(self.get("last_epoch", 0))',
        LONG + "a_statement_that_fails_while_it_is_logged_leaves_no_trace_of_its_epoch",
    ),
    (
        *("10", "long: who applies a long statement is not waited for", ACKS),
        *(" and not self._is_on_its_way(each.lsn, now),", ","),
        "tests/sim_cluster/test_long_waits.py::test_it_is_acknowledged_however_long_its_records_"
        "take_and_so_is_who_comes_behind_it",
    ),
    (
        *("10", "long: who died with a part of it is waited for", ACKS),
        *("        if not self._is_linked(row.raft_id):\n            return False\n", ""),
        "tests/sim_cluster/test_long_waits.py::test_nobody_waits_for_replicas_that_died_with_a_"
        "part_of_it",
    ),
    (
        *("10", "long: who begins anew is waited for anew", ACKS),
        *("if upto and (known is None or upto > known.upto):", "if upto:"),
        "tests/node/test_acknowledgements.py::test_who_begins_anew_again_and_again_is_not_waited_"
        "for_again",
    ),
    (
        *("1", "long: a replica has as little room as a statement", ARRIVING),
        *("KEPT_SHARE = 0.01", "KEPT_SHARE = 0.05"),
        LONG + "a_replica_may_use_space_that_is_kept_from_statements",
    ),
    (
        *("1", "long: statements of a block share a part", GATHERING),
        *("begun = self._mark - self._gone", "begun = 0"),
        LONG + "each_statement_of_a_block_is_told_of_its_own_rows",
    ),
    (
        *("1", "long: tied rows leave before their ties are looked at", GATHERING),
        *("if not self._are_tied and self._size >= PART_BYTES:", "if self._size >= PART_BYTES:"),
        LONG + "tied_rows_are_held_until_the_end_as_far_as_memory_may_be_used",
    ),
    (
        *("1", "long: a tail of any length is undone in memory", ROW_LOG),
        *("if size <= UNDONE_BYTES:", "if True:"),
        LONG + "a_tail_that_is_too_long_to_be_undone_is_kept_aside_whole",
    ),
)
