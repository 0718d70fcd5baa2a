"""The rules about damaged pages taken out one at a time, and the test that has to notice.

`python -m tests.replication.run_mutants rot:` plants them.
"""

from __future__ import annotations

HEALTH, FOLLOWER, COPIES = (
    "node/rows/upkeep/health.py",
    "node/rows/follower.py",
    "node/rows/copies.py",
)
LEAVING, STEPS = "governor/rules/leaving.py", "node/steering/governor_steps.py"
ROW_LOG, LOG_TABLES = "storage/data_db/row_log.py", "storage/data_db/log_tables.py"
ROT = "tests/sim_cluster/test_bit_rot.py::test_"
FILES = "tests/storage/test_bit_rot.py::test_"
EPOCHS = "tests/sim_cluster/test_epochs.py::test_"
INSTANCE, WRITER = "node/instance.py", "storage/files/writer.py"
OPENING, ASIDE = "node/rows/opening.py", "storage/files/setting_aside.py"
STARTS = "tests/sim_cluster/test_damaged_starts.py::test_"
OLD = "tests/sim_cluster/test_old_files.py::test_"
LOST = "tests/sim_cluster/test_lost_files.py::test_"
HUNG = "tests/sim_cluster/test_hung_disks.py::test_"
DISKS = "tests/node/test_disks.py::test_"
PLAN = "tests/governor/test_plan.py::test_"

#: (rule, name, file, old, new, test)
OF_ROT: tuple[tuple[str, str, str, str, str, str], ...] = (
    (
        *("22", "rot: a file that is gone counts as an empty one", OPENING),
        *("    _note_lost(path, name, state, at)\n", ""),
        LOST + "replicas_whose_files_were_removed_do_not_name_one_of_them_master",
    ),
    (
        *("22", "rot: who cannot read its rows vouches for none at all", OPENING),
        *("had_rows=mine is not None", "had_rows=False"),
        STARTS + "who_has_the_last_copy_and_cannot_read_it_stays_and_says_where_it_is",
    ),
    (
        *("22", "rot: an empty file takes the place of the last copy", ASIDE),
        *("is_done or (aside / _NEEDED).exists()", "is_done"),
        STARTS + "who_has_the_last_copy_and_cannot_read_it_stays_and_says_where_it_is",
    ),
    (
        *("18", "rot: who has no rows is waited for", LEAVING),
        *("of_all=not is_sync", "of_all=False"),
        STARTS + "who_takes_a_copy_when_its_master_is_lost_is_not_waited_for",
    ),
    (
        *("18", "rot: nobody remembers that there were others", "node/boot/alone.py"),
        *("noted.index > runner.view.last_index()", "False"),
        OLD + "a_founder_that_was_put_back_and_told_of_nobody_acknowledges_nothing",
    ),
    (
        *("22", "rot: a full disk counts as damage", "storage/files/sqlite.py"),
        *(
            "    if isinstance(problem, _DAMAGED) or is_damage(problem):\n        return damaged(",
            "    if isinstance(problem, apsw.Error):\n        return damaged(",
        ),
        STARTS + "a_disk_that_is_full_or_does_not_answer_is_no_damage",
    ),
    (
        *("17", "rot: nobody looks at disks that take nothing", INSTANCE),
        *('            (self.disks.run, "disk watch"),\n', ""),
        HUNG + "a_master_that_cannot_write_makes_way_for_another",
    ),
    (
        *("17", "rot: a statement that waits counts as a disk that hangs", WRITER),
        *('or (is_own and fields[0] != "D")', ""),
        DISKS + "a_thread_that_waits_in_its_commit_stands_and_one_that_waits_in_its_work_does_not",
    ),
    (
        *("22", "rot: a damaged file is given up for a copy of a damaged master", HEALTH),
        *("return answer.can_give is True and", "return"),
        ROT + "a_replica_keeps_the_rows_that_it_can_read_while_its_master_is_damaged_too",
    ),
    (
        *("22", "rot: a copy of a damaged master is asked for at once", FOLLOWER),
        *("pause_s = min(2 * pause_s, longest_s)", "pause_s = 0.1"),
        ROT + "a_copy_of_a_damaged_master_is_asked_for_now_and_then_and_told",
    ),
    (
        *("22", "rot: a copy that failed stays open", COPIES),
        *("self._given.pop(request.copy_id, None)", "pass"),
        ROT + "a_copy_of_a_damaged_master_is_asked_for_now_and_then_and_told",
    ),
    (
        *("22", "rot: a damaged master is deposed for a whole minority", LEAVING),
        *(
            "and not _has_whole_majority(view, replicaset)",
            "and not _is_sync(view, replicaset)",
        ),
        PLAN + "a_damaged_master_stays_where_only_a_minority_is_whole",
    ),
    (
        *("22", "rot: a damaged master that was told to leave is called back", LEAVING),
        *(
            "if keeps_damaged(view, replicaset):\n            continue\n        heirs = _succ",
            "heirs = _succ",
        ),
        PLAN + "a_damaged_master_that_cannot_hand_over_leaves_only_by_force",
    ),
    (
        *("22", "rot: a damaged one is named although a majority is whole", STEPS),
        *("whole if len(whole) >= action.needed else fit", "fit"),
        ROT + "who_is_named_when_the_damaged_one_has_the_most",
    ),
    (
        *("22", "rot: a whole minority is enough", STEPS),
        *("whole if len(whole) >= action.needed else fit", "whole or fit"),
        ROT + "who_is_named_when_the_damaged_one_has_the_most",
    ),
    (
        *("22", "rot: one that was given up is named", STEPS),
        *("sorted(set(answers) - set(action.given_up)) or sorted(answers)", "sorted(answers)"),
        ROT + "who_is_named_when_the_damaged_one_has_the_most",
    ),
    (
        *("22", "rot: all replicas give up their files for one damaged master", HEALTH),
        *("and all(self._name < name for name in there)", ""),
        ROT + "one_replica_takes_a_copy_of_a_master_whose_log_cannot_be_read",
    ),
    (
        *("22", "rot: nobody takes a copy of a master whose log cannot be read", HEALTH),
        *("if not why and self._shall_copy(master):", "if False:"),
        ROT + "one_replica_takes_a_copy_of_a_master_whose_log_cannot_be_read",
    ),
    (
        *("22", "rot: copies are taken of a master that cannot be followed", FOLLOWER),
        *("if not self._reader.goes_past_copy(self._data.vclock):", "if False:"),
        ROT + "a_copy_after_which_nothing_can_be_followed_is_not_taken_again",
    ),
    (
        *("22", "rot: a copy that has no end is begun", HEALTH),
        *("if request.copy_id == 0 and not self._can_give:", "if False:"),
        ROT + "who_lacks_records_keeps_its_rows_while_its_master_cannot_give_a_copy",
    ),
    (
        *("22", "rot: an heir is wished for that has not all rows", LEAVING),
        *("must_have = holds_more(view, replicaset)", "must_have = False"),
        ROT + "a_damaged_master_that_nobody_can_follow_is_left_in_peace",
    ),
    (
        *("22", "rot: only the first heir is asked", LEAVING),
        *(
            "for heir in heirs:\n            yield",
            "for heir in heirs[:1]:\n            yield",
        ),
        PLAN + "an_heir_of_a_damaged_master_has_all_of_its_rows_before_anybody_is_deposed",
    ),
    (
        *("22", "rot: a log is not read without the index of its origins", ROW_LOG),
        *('"SELECT uuid, id FROM origin NOT INDEXED"', '"SELECT uuid, id FROM origin"'),
        FILES + "a_log_whose_list_of_origins_has_a_damaged_index_is_read_to_its_end",
    ),
    (
        *("22", "rot: a file that is being filled takes records", ROW_LOG),
        *("if not store.is_complete:", "if False:"),
        "tests/replication/test_row_log.py::test_a_file_that_is_being_filled_takes_no_records",
    ),
    (
        *("22", "rot: a copy of an earlier epoch is taken to its end", COPIES),
        *("if applier.history.epoch != epoch:", "if False:"),
        EPOCHS + "a_copy_that_was_begun_in_an_earlier_epoch_is_begun_anew",
    ),
    (
        *("22", "rot: what the writer knows is not told", COPIES),
        *("if not is_damage(problem):\n                raise", "raise"),
        ROT + "what_a_damaged_list_of_tables_says_is_known_to_the_writer",
    ),
)
