"""The data plane with one rule taken out at a time, and the test that has to notice.

`python -m tests.replication.run_mutants` changes a copy of the source and runs that test on it.
Bugs that need a script of their own are planted in `tests/sim_cluster/test_planted.py`.
"""

from __future__ import annotations

import msgspec

from tests.cluster.backup_mutants import OF_BACKUPS
from tests.moves.mutants import OF_MOVES
from tests.native.mutants import OF_C
from tests.node.kept_mutants import OF_KEPT
from tests.replication.long_mutants import OF_LONG_STATEMENTS
from tests.sim_cluster.session_mutants import OF_SESSIONS
from tests.sql.once_mutants import OF_CALLS
from tests.storage.hidden_mutants import OF_HIDDEN
from tests.storage.rot_mutants import OF_ROT
from tests.topology.mutants import OF_THE_TOPOLOGY

TOPOLOGY = "model/members/topology.py"
APPLIER = "replication/applier.py"
RELAY = "replication/relay.py"
ROUTING = "replication/routing.py"
FOLLOWER = "node/rows/follower.py"
REPLICATION = "node/rows/replication.py"
PLACE = "node/rows/place.py"
MESH = "node/rows/mesh.py"
RELAYING = "node/rows/relay.py"
ACKS = "node/rows/acknowledgements.py"
LEASES = "node/rows/leases.py"
WRITING = "node/statements/asker/writing.py"
GLOBAL_WRITES = "node/statements/global_tables/global_writes.py"
DATA_PLANE = "node/rows/data_plane.py"
GUARD = "node/statements/owner/guard.py"
OWNER_READS = "node/statements/owner/reads.py"
OWNER_WRITES = "node/statements/owner/writes.py"
DATA_STORE = "storage/data_db/data_store.py"
ROW_LOG = "storage/data_db/row_log.py"
OPERATIONS = "storage/data_db/operations.py"
EXACT = "storage/data_db/exact_changes.py"
FULL_COPY = "storage/data_db/full_copy.py"
GLOBAL_TABLES = "storage/raft_db/global_tables.py"
READERS = "storage/readers.py"
SETTLING = "server/calls/settling.py"
STREAMS = "server/calls/row_changes.py"

UNIT = "tests/replication/test_"
RUNS = "tests/server/test_runs.py::test_"
SIM = "tests/sim_cluster/test_data_rules.py::test_"
ANSWERS = "tests/sim_cluster/test_sync_answers.py::test_"
EPOCHS = "tests/sim_cluster/test_epochs.py::test_"
STORE = "tests/storage/test_raft_store.py::test_"
SCHEMA = "tests/sim_cluster/test_schema_faults.py::test_"
PULLS = "tests/sim_cluster/test_pulls.py::test_"
NAMINGS = "tests/sim_cluster/test_namings.py::test_"
NEW_ROWS = "tests/native/test_point_inserts.py::test_"
LINKS = "tests/sim_cluster/test_refused_links.py::test_"


class Mutant(msgspec.Struct, frozen=True):
    rule: str
    name: str
    file: str
    old: str
    new: str
    test: str


MUTANTS = tuple(
    Mutant(*each)
    for each in (
        (
            *("10", "a new epoch answers those who waited in an older one", ACKS),
            *("lambda each: not self._is_history(each.lsn, each.epoch),", "lambda each: False,"),
            EPOCHS + "whoever_waits_for_a_majority_is_not_answered_by_a_record_of_another_epoch",
        ),
        (
            *("14", "a change forgets that its table was to be emptied", DATA_PLANE),
            "    truncate = _is_to_be_emptied(table, local)\n",
            "    truncate = False\n",
            SCHEMA
            + "a_master_that_was_away_when_a_table_was_emptied_empties_it_at_the_next_change",
        ),
        (
            *("23", "two full copies at once write one file", "node/rows/copies.py"),
            *("if self._taken is not target:", "if False:"),
            EPOCHS + "of_two_copies_at_once_only_the_later_one_counts",
        ),
        (
            *("10", "a read may begin in one epoch and end in another", GUARD),
            *("if fence.epoch != epoch:", "if False:"),
            EPOCHS + "a_read_that_began_in_another_epoch_is_no_answer",
        ),
        (
            *("2", "a refused statement leaves the number of its origin", DATA_STORE),
            *(
                "                self.reload_log()\n            self._gathered",
                "            self._gathered",
            ),
            UNIT
            + "row_log.py::test_a_refused_first_statement_of_a_new_master_leaves_nothing_behind",
        ),
        (
            *("2", "a relay knows no epochs of its copy", ROW_LOG),
            *("return epoch if end == lsn else 0", "return 0"),
            UNIT
            + "row_log.py::test_a_relay_that_took_a_copy_refuses_a_subscriber_of_another_history",
        ),
        (
            *("14", "a schema that could not be reconciled is left as it is", DATA_PLANE),
            *("                    self._may_differ = True\n", ""),
            SCHEMA + "a_new_master_makes_the_change_that_its_predecessor_took_along",
        ),
        (
            *("2", "a tail is acknowledged in a new epoch", FOLLOWER),
            *("await self._place.entered.wait()\n        taken =", "taken ="),
            EPOCHS + "an_acknowledgement_in_a_new_epoch_is_never_of_a_tail",
        ),
        (
            *("3", "who has lost its own records waits for ever", ROW_LOG),
            *("if store.vclock.get(store.origin, 0) < history.cut.get(store.origin, 0):",),
            *("if False:",),
            EPOCHS + "who_has_lost_records_of_its_own_takes_a_full_copy",
        ),
        (
            *("2", "with one record of an operation all of it is forgotten", OPERATIONS),
            *("            left = known.buckets\n            for low", "            for low"),
            UNIT + "row_log.py::test_of_an_operation_only_what_was_taken_back_is_forgotten",
        ),
        (
            *("23", "operations that were done are remembered for ever", REPLICATION),
            *("            await self._forget_operations()\n", ""),
            SIM + "operations_that_were_done_long_ago_are_forgotten_everywhere",
        ),
        (
            *("4", "changes behind a row that C stored are not seen", DATA_STORE),
            *(
                "            hook(self._on_change)\n        if count",
                "            pass\n        if count",
            ),
            NEW_ROWS + "changes_of_others_are_seen_again_after_it",
        ),
        (
            *("2", "two rows that C stored have one place in the log", DATA_STORE),
            *(
                "            self.vclock[origin] = lsn\n            self.touched",
                "            self.touched",
            ),
            NEW_ROWS + "changes_of_others_are_seen_again_after_it",
        ),
        (
            *("5", "a row that C stores needs no master", OWNER_WRITES),
            *("store.check_write(insert.table, insert.version, (insert.bucket,), None)", "pass"),
            SIM + "a_write_without_a_lease_is_not_executed",
        ),
        (
            *("2", "the first row of an epoch does not say so when C stores it", DATA_STORE),
            *("or epoch != self.last_epoch or", "or"),
            NEW_ROWS + "what_else_has_to_be_written_is_left_to_python",
        ),
        # --- who is master ------------------------------------------------------------------------
        (
            *("2", "a master goes on in its epoch after a restart", "node/steering/membership.py"),
            *("            changes += _master_changes(cluster, instance)\n", "            pass\n"),
            NAMINGS + "a_master_that_lost_its_last_records_gives_their_numbers_to_no_others",
        ),
        (
            *("9", "a lease is asked for by what an earlier life was", LEASES),
            *(" or not self.is_awake:", ":"),
            NAMINGS + "a_lease_is_not_asked_for_by_what_an_earlier_life_was",
        ),
        (
            *("1", "a failover that is called off is forgotten", "governor/rules/leaving.py"),
            *(
                "        elif replicaset.current_master_name:\n            yield _dep",
                "        elif False:\n            yield _dep",
            ),
            NAMINGS + "a_failover_that_is_called_off_leaves_nobody_waiting_for_a_naming",
        ),
        # --- global tables ------------------------------------------------------------------------
        (
            *("13", "a snapshot brings no indexes", GLOBAL_TABLES),
            *("for text in dump.indexes:", "for text in ():"),
            STORE + "who_installs_a_snapshot_has_the_same_schema_as_who_applied_the_log",
        ),
        (
            *("13", "who installs a snapshot keeps an old index", GLOBAL_TABLES),
            *("in _index_names(self.connection, table):", "in ():"),
            STORE + "who_installs_a_snapshot_has_the_same_schema_as_who_applied_the_log",
        ),
        # --- epochs, cuts and seals ---------------------------------------------------------------
        (
            *("1", "a sealed record is applied", APPLIER),
            *("elif record.epoch < history.promised:", "elif False:"),
            UNIT + "applier.py::test_a_record_is_applied_in_its_epoch_after_all_before_it",
        ),
        (
            *("1", "a promise is in memory only", DATA_STORE),
            *('self.put("promised_epoch", epoch)', "pass"),
            UNIT + "row_log.py::test_a_promise_outlives_a_restart",
        ),
        (
            *("2", "a record past the cut is applied", APPLIER),
            *("if record.lsn > history.limit(record.origin, record.epoch):", "if False:"),
            UNIT + "applier.py::test_a_record_past_the_cut_is_refused_by_name",
        ),
        (
            *("2", "only the last cut leaves records out", APPLIER),
            *("later = [cut for number, cut in self.past.items() if number > epoch]", "later = []"),
            UNIT + "applier.py::test_a_record_past_any_later_cut_is_refused",
        ),
        (
            *("2", "a forgotten cut is taken for none", ROW_LOG),
            *("if before and not history.knows_all_after(before) and store.vclock:", "if False:"),
            UNIT + "row_log.py::test_who_missed_a_cut_that_is_forgotten_asks_for_a_copy",
        ),
        (
            *("2", "who entered an epoch forgets it by restarting", ROW_LOG),
            *("store.put(ENTERED_EPOCH, history.epoch)", "pass"),
            UNIT + "row_log.py::test_who_missed_a_cut_that_is_forgotten_asks_for_a_copy",
        ),
        (
            *("3", "two earlier epochs go in any order", APPLIER),
            *(
                "if not covers(vclock, begin):",
                "if record.epoch == history.epoch and not covers(vclock, begin):",
            ),
            EPOCHS + "a_replica_that_missed_two_epochs_applies_them_in_their_order",
        ),
        (
            *("3", "a naming forgets the cut before it", TOPOLOGY),
            *("past = {**self.past_cuts, self.epoch: self.cut}", "past = {self.epoch: self.cut}"),
            EPOCHS + "a_replica_that_missed_two_epochs_applies_them_in_their_order",
        ),
        (
            *("2", "a tail past the cut stays", ROW_LOG, "if not limits:", "if True:"),
            UNIT + "row_log.py::test_a_tail_past_the_cut_is_undone_and_kept_aside",
        ),
        (
            *("2", "a tail is undone and forgotten", ROW_LOG),
            *(
                "                store.set_aside(record)\n                size",
                "                size",
            ),
            UNIT + "row_log.py::test_a_tail_past_the_cut_is_undone_and_kept_aside",
        ),
        (
            *("16", "quick reads share a moment while a thread commits", READERS),
            *("self._may_stand = False\n        self._leave()", "self._leave()"),
            "tests/storage/test_standing_reads.py::"
            + "test_while_a_thread_may_commit_each_read_is_of_its_own_moment",
        ),
        (
            *("16", "quick reads share a moment for ever", READERS),
            *("self._may_stand = False\n        self._leave()", "self._may_stand = False"),
            "tests/sim_cluster/test_registers.py::test_masters_go_back_and_forth_and_rows_stay",
        ),
        (
            *("3", "a log that is forgotten takes its vclock along", DATA_STORE),
            *('"UPDATE origin SET base = ? WHERE id = ?"', '"SELECT ?, ?"'),
            "tests/storage/test_log_tables.py::"
            + "test_a_log_that_was_forgotten_to_its_end_still_says_where_it_ended",
        ),
        (
            *("2", "who has to copy forgets it by restarting", DATA_STORE),
            *('self.put("copying", 1)', "pass"),
            UNIT
            + "row_log.py::test_a_schema_change_past_the_cut_asks_for_a_copy_and_is_kept_aside",
        ),
        (
            *("2", "a missed cut is not noticed", RELAYING),
            *(
                "if request.epoch == self._place.history.epoch:\n            check",
                "if False:\n            check",
            ),
            LINKS + "a_log_that_tells_another_history_is_put_aside_and_the_rows_are_copied",
        ),
        (
            *("2", "a full copy forgets its epochs", FULL_COPY),
            *("store.put(COPIED_EPOCHS, _encode(epochs))", "pass"),
            UNIT + "row_log.py::test_a_copy_without_a_log_still_knows_its_epoch",
        ),
        (
            *("3", "an epoch begins before the earlier one ends", APPLIER),
            *("if not covers(vclock, begin):", "if False:"),
            UNIT + "applier.py::test_a_record_is_applied_in_its_epoch_after_all_before_it",
        ),
        (
            *("3", "a gap is not noticed", APPLIER, "if record.lsn > have + 1:", "if False:"),
            UNIT + "applier.py::test_a_gap_is_refused_by_name",
        ),
        (
            *("3", "a record seen twice is applied twice", APPLIER),
            *("if record.lsn <= have:", "if False:"),
            UNIT + "row_log.py::test_records_seen_twice_are_applied_once",
        ),
        (
            *("1", "an answer of one is enough for a seal", "governor/rules/leaving.py"),
            *("needed=majority if is_sync else len(staying)", "needed=1"),
            UNIT + "governor.py::test_a_seal_takes_a_majority_of_the_recorded_members_in_sync_mode",
        ),
        # --- rows and schema ----------------------------------------------------------------------
        (
            *("4", "another schema version is taken", EXACT),
            *("if table is None or table.schema_version != version:", "if table is None:"),
            UNIT + "row_log.py::test_a_record_that_does_not_fit_changes_nothing",
        ),
        (
            *("4", "a change of no row is content", EXACT, "if found != wanted:", "if False:"),
            UNIT + "row_log.py::test_a_record_that_does_not_fit_changes_nothing",
        ),
        (
            *("4", "a schema change leaves no record", DATA_STORE),
            *("self.log(Body(Kind.DDL, self.now(), shape=shape))", "pass"),
            UNIT + "row_log.py::test_a_schema_change_is_applied_at_its_place",
        ),
        (
            *("4", "a record whose row does not fit stays in the log", ROW_LOG),
            *("                store.take_back_newest(record)\n", "                pass\n"),
            UNIT + "row_log.py::test_a_record_that_does_not_fit_changes_nothing",
        ),
        (
            *("4", "half a schema change stays in memory", ROW_LOG),
            *(
                "if body.kind == Kind.DDL:\n                store",
                "if False:\n                store",
            ),
            UNIT
            + "row_log.py::test_a_schema_change_that_fails_half_way_leaves_the_table_as_it_was",
        ),
        # --- the writer decides -------------------------------------------------------------------
        (
            *("5", "mastership is not checked by the writer", DATA_STORE),
            *(
                "        self.check_master()\n        self.check_version",
                "        self.check_version",
            ),
            SIM + "a_write_that_was_queued_before_the_demotion_is_refused_after_it",
        ),
        (
            *("8", "a fence waits behind queued writes", "node/rows/data_plane.py"),
            *("must_sync=False, is_urgent=True, is_quick=True", "must_sync=False, is_quick=True"),
            SIM + "a_write_that_was_queued_before_the_demotion_is_refused_after_it",
        ),
        (
            *("8", "one writer for rows and Raft", "node/instance.py"),
            *(
                'self.runtime.disk(store.connection, "data writer", lost, GroupOf(store))',
                "self._raft_disk",
            ),
            SIM + "a_long_statement_stops_neither_raft_nor_the_instances_state",
        ),
        # --- global tables ------------------------------------------------------------------------
        (
            *("11", "a lagging instance says that there is nothing to change", GLOBAL_WRITES),
            *("is_sure = False  # that", "is_sure = True  # that"),
            "tests/sim_cluster/test_global_writes.py::test_"
            "an_update_finds_a_row_that_was_acknowledged_elsewhere",
        ),
        # --- leases -------------------------------------------------------------------------------
        (
            *("9", "no lease is needed to write", DATA_STORE),
            *("if not self.lease_held(fence.epoch):", "if False:"),
            SIM + "a_write_without_a_lease_is_not_executed",
        ),
        (
            *("9", "no lease is needed to acknowledge", OWNER_WRITES),
            *("elif self._lease.is_held(fence.epoch):", "elif True:"),
            SIM + "a_write_whose_lease_ends_during_the_commit_is_told_as_unknown",
        ),
        (
            *("9", "who lost a lease is told that it has it", LEASES),
            *("waiter.callback(is_held)", "waiter.callback(True)"),
            SIM + "a_write_whose_lease_ends_during_the_commit_is_told_as_unknown",
        ),
        (
            *("9", "a lease of any epoch will do for a write", LEASES),
            *("is_held = self.is_held(waiter.epoch)", "is_held = self.is_held(self._epoch)"),
            SIM + "a_lease_of_another_epoch_says_nothing_of_a_write",
        ),
        (
            *("9", "no lease is needed to begin a read", OWNER_READS),
            "list[Row]:\n        self._guard.check_read(request)\n        epoch = ",
            "list[Row]:\n        epoch = ",
            SIM + "a_read_without_a_lease_is_refused_before_it_begins",
        ),
        (
            *("9", "no lease is needed to answer a read", GUARD),
            "        self.check_read(request)\n        await self.check_stays",
            "        await self.check_stays",
            SIM + "a_read_whose_lease_ends_while_it_runs_is_no_answer",
        ),
        (
            *("9", "a lease never ends", LEASES),
            *("self._runtime.boot_clock() < self._until", "self._until > 0"),
            ANSWERS + "a_reader_at_a_master_that_was_cut_off_is_told_nothing_that_is_over",
        ),
        (
            *("runs", "executions that change nothing count as one row", WRITING),
            *("must_change=len(each.rows)", "must_change=None"),
            RUNS + "they_end_as_if_each_had_been_run_by_itself",
        ),
        (
            *("runs", "a run that is refused is told as done", WRITING),
            *(
                "        except CairnError:\n            return [False] * len(rows)",
                "        except CairnError:\n            return [True] * len(rows)",
            ),
            RUNS + "the_first_that_is_wrong_is_told_and_those_behind_it_are_not_executed",
        ),
        (
            *("9", "a lease outlives its epoch", LEASES),
            *("if replicaset.epoch != request.epoch:", "if False:"),
            SIM + "a_lease_is_bound_to_uuid_incarnation_and_epoch",
        ),
        (
            *("9", "a leader that lost its quorum grants", LEASES),
            "index = await self._runner.read_index(LEASE_S)\n        refusal",
            "index = self._runner.applied_index\n        refusal",
            SIM + "a_leader_that_nobody_hears_grants_no_lease",
        ),
        (
            *("9", "a new leader does not wait", LEASES),
            *("self._inherited_until = self._runtime.boot_clock() + LEASE_S", "pass"),
            SIM + "a_new_leader_waits_one_lease_time_before_it_names_a_master",
        ),
        (
            *("9", "the silence of one voter ends leases", LEASES),
            *("self._runner.core.members.agreed(ago_ms) / 1000", "max(ago_ms.values()) / 1000"),
            SIM + "one_voter_that_heard_nothing_does_not_end_leases",
        ),
        (
            *("9", "what an earlier life answered is forgotten", "node/consensus/last_words.py"),
            *("= 0, clock(), clock()", "= 0, 0.0, 0.0"),
            "tests/node/test_last_words.py::test_a_new_life_may_have_answered_until_it_began",
        ),
        # --- sync ---------------------------------------------------------------------------------
        (
            *("10", "the master's own disk is enough", ACKS),
            *("have[len(have) // 2]", "have[0]"),
            SIM + "a_sync_write_is_acknowledged_when_a_majority_has_it_on_disk",
        ),
        (
            *("10", "what was received is acknowledged", FOLLOWER),
            "        link.took(answer.records)\n",
            "        link.took(answer.records)\n"
            "        claimed = {record.origin: record.lsn for record in answer.records}\n"
            "        self._data.vclock = {**self._data.vclock, **claimed}\n"
            "        uuid = next(u for u, known in self.links.items() if known is link)\n"
            "        spawn(self._pull(link.upstream, uuid, link))\n",
            SIM + "a_sync_write_is_acknowledged_when_a_majority_has_it_on_disk",
        ),
        (
            *("10", "only the living count", PLACE),
            "return () if found is None else found[1].members",
            "return () if found is None else tuple(n for n in found[1].members if "
            'self.state.cluster.instances[n].current_state.grade.value == "Online")',
            SIM + "a_majority_is_one_of_the_recorded_members_not_of_the_living",
        ),
        (
            *("10", "an acknowledgement of another epoch counts", ACKS),
            *("if request.epoch != self._place.history.epoch:", "if False:"),
            SIM + "an_acknowledgement_of_another_epoch_is_not_counted",
        ),
        (
            *("10", "a read does not wait for the majority", GUARD),
            *("await self._replication.acks.wait_readable(self._seen_at_most(), epoch)", "pass"),
            SIM + "a_read_is_held_until_what_it_saw_cannot_be_taken_away",
        ),
        (
            *("10", "what a master had acknowledged is settled by its next epoch", SETTLING),
            *(
                "    execution.guard.check_lease(epoch)\n    execution.guard.check_lease(epoch)",
                "execution.guard.check_lease()",
            ),
            "tests/sim_cluster/test_settled.py"
            "::test_a_master_of_a_later_epoch_settles_nothing_of_an_earlier_one",
        ),
        (
            *("10", "a read trusts what the event loop has heard of commits", GUARD),
            *(
                "        origin = self.data.store.origin\n",
                "        return self.data.vclock.get(self.data.store.origin, 0)\n",
            ),
            ANSWERS + "a_read_tells_no_row_of_a_commit_that_only_the_disk_knows_of",
        ),
        (
            *("10", "members go although nobody else has their rows", "governor/rules/leaving.py"),
            *("needed=len(left) - len(left) // 2 if is_sync else 0", "needed=0"),
            "tests/sim_cluster/test_sync_members.py"
            "::test_who_has_a_row_is_expelled_when_enough_of_the_others_have_it",
        ),
        (
            *("19", "a stream reads a log that is forgotten meanwhile", STREAMS),
            *(
                '        reader.connection.execute("BEGIN")',
                '        reader.connection.execute("SELECT 1")',
            ),
            "tests/server/test_told_changes.py::"
            "test_records_that_are_forgotten_while_they_are_read_are_told",
        ),
        (
            *("8", "who is run again goes behind others", "storage/files/writer.py"),
            "        for job in reversed(jobs):\n            self._queue.insert(self._urgent, job)",
            "        for job in jobs:\n            self._queue.append(job)",
            "tests/storage/test_writer.py::test_whoever_is_run_again_keeps_its_place",
        ),
        (
            *("blocks", "temporary rows stay of a refused commit", "server/session/blocks.py"),
            "        except BaseException:\n            self._end()\n",
            "        except BaseException:\n            self._end(is_committed=True)\n",
            "tests/server/test_temp_tables.py::"
            "test_a_commit_that_is_refused_leaves_nothing_in_temporary_tables",
        ),
        (
            *(
                "blocks",
                "of each table one version is looked at",
                "node/statements/blocks/asking.py",
            ),
            "versions = {each for listed in block for each in listed.item.tables.items()}",
            "versions = {t: v for each in block for t, v in each.item.tables.items()}.items()",
            "tests/server/test_blocks.py::"
            "test_a_table_that_changes_between_two_statements_of_a_block_is_told_at_once",
        ),
        (
            *("10", "acknowledgements outlive their epoch", ACKS),
            *("        self.vclocks.clear()\n", ""),
            "tests/node/test_acknowledgements.py::"
            "test_what_was_confirmed_in_an_earlier_epoch_confirms_nothing_in_the_next",
        ),
        (
            *("10", "who is alone waits for others", ACKS),
            *("if self._waiters and len(self._place.members()) < 2:", "if False:"),
            "tests/sim_cluster/test_sync_members.py::"
            "test_who_is_alone_in_sync_mode_is_confirmed_by_its_own_disk",
        ),
        (
            *("10", "what earlier epochs left is not waited for", ACKS),
            "return vclock.get(place.uuid, 0) if covers(vclock, place.history.cut) else -1",
            "return vclock.get(place.uuid, 0)",
            ANSWERS + "a_read_at_a_new_master_waits_until_a_majority_has_what_the_old_one_left",
        ),
        (
            *("10", "a repeated operation is acknowledged at once", OWNER_WRITES),
            *("        if fence.is_sync:\n", "        if fence.is_sync and done.lsn:\n"),
            ANSWERS + "an_operation_that_was_done_before_is_acknowledged_when_a_majority_has_it",
        ),
        (
            *("10", "a row that may go again is told as in the way", OWNER_WRITES),
            *('if fence.is_sync and done.sqlstate.startswith("23"):', "if False:"),
            ANSWERS + "a_row_that_is_in_the_way_is_told_when_it_is_there_to_stay",
        ),
        (
            *("10", "streams are told of rows that may go again", ACKS),
            *("if not self._data.fence.is_sync or self._place.uuid not in vclock:", "if True:"),
            ANSWERS + "streams_are_told_only_what_a_majority_has",
        ),
        # --- connections, judges, governor --------------------------------------------------------
        (
            *("16", "a relay leaves its cursor open", ROW_LOG),
            *("        cursor.close()", "        self._kept = cursor"),
            UNIT
            + "row_log.py::test_a_relay_reads_to_the_end_of_what_fits_and_sees_what_came_since",
        ),
        (
            *("16", "a scan leaves its cursor open", "storage/readers.py"),
            *(
                "        cursor.close(True)\n    return found",
                "        taken.kept = cursor\n    return found",
            ),
            UNIT + "streams_and_readers.py::test_a_scan_stopped_at_its_limit_leaves_no_cursor_open",
        ),
        (
            *("17", "time that was slept through counts", "node/consensus/raft_runner.py"),
            *("min(int(late / TICK_S), MAX_CATCH_UP - 1)", "int(late / TICK_S)"),
            SIM + "a_leader_that_stood_still_takes_nobody_for_dead",
        ),
        (
            *("18", "a stuck subject stops all", "governor/plan.py"),
            *("if (action.step, action.subject) not in view.waiting:", "if True:"),
            UNIT + "governor.py::test_a_replicaset_whose_seal_fails_holds_up_no_other",
        ),
        (
            *("18", "the governor says nothing of stopped links", "governor/waiting.py"),
            *("found += view.stopped_links", "pass"),
            LINKS + "what_must_not_be_applied_stops_the_link_and_everybody_can_see_it",
        ),
        # --- how often rows are pulled ------------------------------------------------------------
        (
            *("speed", "a row wakes the pulls of all", RELAYING),
            *(
                "        while not self._has_news",
                "        if not self._has_news",
            ),
            PULLS + "a_row_wakes_only_the_pulls_of_those_who_take_it_here",
        ),
        (
            *("speed", "each record travels alone", RELAYING),
            *("            await asyncio.sleep(left)\n", "            pass\n"),
            PULLS + "records_that_follow_each_other_closely_travel_together_in_async_mode",
        ),
        (
            *("speed", "a pull that is held is woken once", RELAYING),
            *("        elif held in self._held:\n", "        elif False:\n"),
            PULLS + "who_was_woken_for_nothing_is_woken_again",
        ),
        (
            *("2", "a pull that is held is answered before its epoch is entered", RELAYING),
            *("            if self._place.is_complete:\n", "            if True:\n"),
            PULLS + "a_pull_that_was_held_is_answered_in_a_new_epoch_once_that_is_entered",
        ),
        (
            *("2", "a pull is answered before its epoch is entered", RELAYING),
            *("if not self._data.fence.is_sync or not self._place.is_complete:", "if False:"),
            PULLS + "a_pull_that_was_held_is_answered_in_a_new_epoch_once_that_is_entered",
        ),
        (
            *("speed", "a new epoch is no news for a pull", RELAYING),
            *("            or history is not self._place.history\n", ""),
            PULLS + "a_pull_that_was_held_is_answered_in_a_new_epoch_once_that_is_entered",
        ),
        (
            *("speed", "a commit does not wake a pull that is held", RELAYING),
            *(
                "        self._data.when_moved(held.look)\n        return held.later",
                "        return held.later",
            ),
            PULLS + "sync_mode_does_not_wait_for_more",
        ),
        # --- streams ------------------------------------------------------------------------------
        (
            *("19", "moved rows are told as changes", STREAMS),
            *("if record.kind != Kind.ROWS:", "if record.kind == Kind.DDL:"),
            UNIT + "streams_and_readers.py::test_rows_that_only_moved_are_not_told_as_changes",
        ),
        (
            *("19", "a position past the cut is silent", STREAMS),
            *("if known > vclock.get(origin, 0):", "if False:"),
            UNIT + "streams_and_readers.py::test_a_position_past_a_cut_is_lost_and_says_so",
        ),
        (
            *("19", "an lsn that was used again is taken for the old one", STREAMS),
            *("if here.get(origin, epoch) != epoch:", "if False:"),
            UNIT
            + "streams_and_readers.py"
            + "::test_a_position_whose_lsn_was_used_again_is_lost_and_says_so",
        ),
        # --- routing ------------------------------------------------------------------------------
        (
            *("22", "routing news are records", MESH),
            "            await asyncio.sleep(BEAT_S)\n",
            "            await asyncio.sleep(BEAT_S)\n"
            "            record = lambda: self._data.store.statement(lambda: 0, kind=3)\n"
            "            await self._data.run(record)\n",
            SIM + "routing_news_move_no_vclock",
        ),
        (
            *("22", "rows of a dead publisher live on", ROUTING),
            *("if self._ticks - heard_at > SILENCE_TICKS", "if False"),
            UNIT + "routing.py::test_rows_of_a_dead_publisher_go_with_its_heartbeat",
        ),
        (
            *("22", "older news replace newer ones", ROUTING),
            *("and each.age <= known.age)", "and each.age == known.age)"),
            UNIT + "routing.py::test_older_news_of_a_publisher_never_replace_newer_ones",
        ),
        # --- smaller ------------------------------------------------------------------------------
        (
            *("23", "an old incarnation gets a lease", LEASES),
            *("if instance.target_state.incarnation != request.incarnation:", "if False:"),
            SIM + "a_lease_is_bound_to_uuid_incarnation_and_epoch",
        ),
        (
            *("23", "a record of any size", DATA_STORE),
            *("if len(data) > RECORD_MAX_BYTES:", "if False:"),
            UNIT + "row_log.py::test_a_statement_too_big_for_one_message_is_refused",
        ),
        (
            *(
                "23",
                "an answer of any size",
                ROW_LOG,
                "if found and size > max_bytes:",
                "if False:",
            ),
            UNIT
            + "row_log.py::test_a_relay_reads_to_the_end_of_what_fits_and_sees_what_came_since",
        ),
        (
            *("23", "a full copy of several moments", FULL_COPY),
            *('self._connection.execute("BEGIN")', "pass"),
            UNIT + "row_log.py::test_a_full_copy_is_of_one_moment_and_the_log_goes_on_from_there",
        ),
        (
            *("23", "a full copy is kept for who has gone", REPLICATION),
            *("            self.copies.drop_idle()\n", ""),
            SIM + "a_full_copy_that_nobody_goes_on_with_is_given_up",
        ),
        (
            *("23", "a full copy without done operations", FULL_COPY),
            *("(OPERATIONS, _READ_OPERATIONS),", ""),
            UNIT + "row_log.py::test_a_full_copy_is_of_one_moment_and_the_log_goes_on_from_there",
        ),
        # --- what must not be sent or taken -------------------------------------------------------
        (
            *("seed", "a subscriber gets its own rows", RELAY),
            "return [origin for origin in asked if origin != request.subscriber]",
            "return list(asked)",
            UNIT + "relay.py::test_nobody_gets_his_own_rows_even_if_he_asks_for_them",
        ),
        (
            *("bad input", "any origin is taken", FOLLOWER),
            *("check_origins(answer.records, request.origins, self._place.uuid)", "pass"),
            LINKS + "what_must_not_be_applied_stops_the_link_and_everybody_can_see_it",
        ),
        (
            *("bad input", "a damaged record stops the instance", ROW_LOG),
            *(
                "        except _MISFITS as problem:",
                "        except ZeroDivisionError as problem:",
            ),
            UNIT + "row_log.py::test_a_record_that_does_not_fit_changes_nothing",
        ),
        (
            *("bad input", "rows cross replicasets", PLACE),
            *("if mine.uuid != replicaset_uuid or theirs != mine.name:", "if False:"),
            LINKS + "a_peer_of_another_replicaset_gets_no_rows",
        ),
        *OF_THE_TOPOLOGY,
        *OF_MOVES,
        *OF_SESSIONS,
        *OF_KEPT,
        *OF_LONG_STATEMENTS,
        *OF_BACKUPS,
        *OF_ROT,
        *OF_CALLS,
        *OF_HIDDEN,
        *OF_C,
    )
)
