"""The rules of moving buckets taken out one at a time, and the test that has to notice.

`python -m tests.replication.run_mutants moves:` plants them. What needs a queue, a crash or a late
message is also taken out of the model, in `tests/moves/test_model.py`.
"""

from __future__ import annotations

TOPOLOGY = "model/members/topology.py"
STEPS, DECIDE, DELTA = "moves/steps.py", "moves/decide.py", "moves/delta.py"
IN, OUT = "storage/data_db/moving_in.py", "storage/data_db/moving_out.py"
STORE, COPY = "storage/data_db/data_store.py", "storage/data_db/full_copy.py"
SCHEMA, SHAPES = "model/tables/schema.py", "storage/data_db/shapes.py"
RESHAPING = "storage/files/reshaping.py"
MOVING, GUARD, CARRYING_OUT, DISPATCH = (
    "node/rows/moves/moving.py",
    "node/statements/owner/guard.py",
    "node/statements/owner/carrying_out.py",
    "node/statements/asker/dispatch.py",
)

_IF_NEWER = "if want.schema_version > have.schema_version:"
AS_STEP = "tests/moves/test_steps.py::test_"
DECIDED = "tests/moves/test_decide.py::test_"
DELTAS = "tests/moves/test_deltas.py::test_"
ALTERED = "tests/moves/test_altered.py::test_"
REPLICAS = "tests/moves/test_replicas.py::test_"
ONCE = "tests/moves/test_once.py::test_"
PARTS = "tests/moves/test_parts.py::test_"
TOLD = "tests/moves/test_streams.py::test_"
SIM = "tests/sim_cluster/test_move_rules.py::test_"

#: (rule, name, file, old, new, test)
OF_MOVES: tuple[tuple[str, str, str, str, str, str], ...] = (
    # --- the freeze ---------------------------------------------------------------------------
    (
        *("freeze", "moves: a frozen range is written", TOPOLOGY),
        *("return self.frozen_at is None or self.state is BucketState.COPIED", "return True"),
        AS_STEP + "who_serves_the_range_in_each_phase",
    ),
    (
        *("freeze", "moves: the last position is told before the freeze", IN),
        *("if (move.id, frozen_at) not in store.fence.frozen:", "if False:"),
        REPLICAS + "the_last_position_is_told_from_behind_the_freeze_alone",
    ),
    (
        *("freeze", "moves: a schema change does not keep a range from being frozen", DECIDE),
        *("elif view.has_pending_ddl:", "elif False:"),
        DECIDED + "a_pending_schema_change_keeps_ranges_from_being_frozen",
    ),
    (
        *("freeze", "moves: a schema change and a freeze do not exclude each other", STEPS),
        *("(*_own(move), *_both(move), SCHEMA_RANGE, _property_range(PAUSED))", "_own(move)"),
        AS_STEP + "a_schema_change_makes_freeze_and_hand_over_void",
    ),
    (
        *("freeze", "moves: a freeze is never ended", DECIDE),
        *("if view.frozen_s.get(move.id, 0.0) > FREEZE_MAX_S *", "if False and FREEZE_MAX_S *"),
        DECIDED + "a_frozen_range_waits_for_its_target_half_a_second_and_no_longer",
    ),
    (
        *("freeze", "moves: two ranges of one source are frozen at once", DECIDE),
        *("each.phase is Phase.FROZEN and each.source == move.source", "False"),
        DECIDED + "of_one_source_one_range_is_frozen_at_a_time",
    ),
    # --- the hand-over ------------------------------------------------------------------------
    (
        *("hand-over", "moves: a hand-over does not hold on to the replicasets", STEPS),
        *(
            '(*_own(move), *_both(move), SCHEMA_RANGE),\n        f"buckets {move}: handed over"',
            '(*_own(move), SCHEMA_RANGE),\n        f"buckets {move}: handed over"',
        ),
        AS_STEP + "a_change_of_either_replicaset_makes_it_void",
    ),
    (
        *("hand-over", "moves: no step holds on to the source", STEPS),
        *(
            "return (one_key(table, (move.source,)), one_key(table, (move.target,)))",
            "return (one_key(table, (move.target,)),)",
        ),
        AS_STEP + "a_change_of_either_replicaset_makes_it_void",
    ),
    (
        *("hand-over", "moves: no step holds on to the target", STEPS),
        *(
            "return (one_key(table, (move.source,)), one_key(table, (move.target,)))",
            "return (one_key(table, (move.source,)),)",
        ),
        AS_STEP + "a_change_of_either_replicaset_makes_it_void",
    ),
    (
        *("hand-over", "moves: the epoch of the source is not compared", STEPS),
        *("and report.source_epoch == move.source_epoch == source.epoch", "and True"),
        AS_STEP + "only_the_word_of_this_very_freeze_hands_over",
    ),
    (
        *("hand-over", "moves: the epoch of the target is not compared", STEPS),
        *("and report.target_epoch == move.target_epoch == target.epoch", "and True"),
        AS_STEP + "only_the_word_of_this_very_freeze_hands_over",
    ),
    (
        *("hand-over", "moves: the word of an earlier freeze hands over", STEPS),
        *("and report.frozen_at == move.frozen_at", "and True"),
        DECIDED + "a_report_of_an_earlier_freeze_hands_nothing_over",
    ),
    (
        *("hand-over", "moves: only the target's master has the last rows", MOVING),
        *(
            "            await self._held.by_those_who_count(lsn, epoch)\n            first =",
            "            first =",
        ),
        SIM + "a_range_is_handed_over_only_when_the_target_s_replica_has_it",
    ),
    (
        *("lease", "moves: a lease without an index", "node/rows/leases.py"),
        *(
            "            await self._runner.wait_applied(answer.index, LEASE_S, but_rows=True)\n",
            "",
        ),
        TOLD + "a_lease_counts_only_for_who_has_applied_what_was_committed_when_it_was_granted",
    ),
    (
        *("lease", "moves: a lease whatever is not applied", "node/consensus/unapplied.py"),
        *("and all(each >= FIRST_USER_TABLE_ID for each in tables)", ""),
        "tests/sim_cluster/test_long_entries.py",
    ),
    (
        *("lease", "moves: a lease waits for rows of global tables", "node/rows/leases.py"),
        *("answer.index, LEASE_S, but_rows=True", "answer.index, LEASE_S"),
        "tests/sim_cluster/test_long_entries.py",
    ),
    (
        *("lease", "moves: the writer does not know the newest fence", STORE),
        *("or (newest is not fence and not newest.owns(bucket))", ""),
        REPLICAS + "what_the_newest_fence_takes_away_is_refused_before_the_writer_has_it",
    ),
    # --- deltas -------------------------------------------------------------------------------
    (
        *("delta", "moves: a delta is taken wherever the target stands", DELTA),
        *("return progress is not None and (", "return True or ("),
        DELTAS + "a_delta_that_comes_twice_is_taken_once",
    ),
    (
        *("delta", "moves: a delta of an attempt that was given up is taken", DELTA),
        *(
            "(progress.move, progress.attempt, progress.at, progress.after)"
            " == (move, attempt, at, after)",
            "(progress.move, progress.at, progress.after) == (move, at, after)",
        ),
        DELTAS + "a_late_delta_of_an_attempt_that_was_given_up_is_refused",
    ),
    (
        *("delta", "moves: a late delta is taken after the move was given up", IN),
        *("if not store.fence.takes(move.id):", "if False:"),
        DELTAS + "a_late_delta_after_the_move_was_given_up_is_refused",
    ),
    (
        *("delta", "moves: a copy does not begin with an empty range", IN),
        *(
            "for table in store.tables.values():\n                execute(",
            "for table in ():\n                execute(",
        ),
        DELTAS + "a_copy_begins_with_an_empty_range",
    ),
    (
        *("delta", "moves: a stamp has no epoch", OUT),
        *("if lsn and (row is None or row[0] != epoch):", "if lsn and row is None:"),
        DELTAS + "a_position_of_another_history_is_told_by_its_epoch",
    ),
    (
        *("delta", "moves: a log that forgot something is gone on with", OUT),
        *("if lsn >= first and self._missing(origin, first):", "if False:"),
        DELTAS + "the_first_records_of_a_new_master_must_be_there_as_well",
    ),
    (
        *("delta", "moves: rows and log of a delta are of two moments", OUT),
        *(
            "        with self._moment():\n            return self._delta(",
            "        if True:\n            return self._delta(",
        ),
        DELTAS + "all_of_a_delta_is_of_one_moment",
    ),
    (
        *("delta", "moves: a key that changes is sent whole", DELTA),
        *("if had and has:", "if had or has:"),
        DELTAS + "a_key_that_changes_is_cut_at_the_mark",
    ),
    (
        *("delta", "moves: records are ordered by name instead of epoch", OUT),
        *("key=lambda record: (record[0], record[1], record[2])", "key=lambda record: record[1:3]"),
        DELTAS + "records_of_several_masters_follow_in_the_order_of_their_epochs",
    ),
    (
        *("delta", "moves: rows come with half of the log", OUT),
        *("                is_whole = False\n                break\n", "                break\n"),
        DELTAS + "rows_come_only_with_a_delta_whose_log_part_reached_the_present",
    ),
    # --- schema changes -----------------------------------------------------------------------
    (
        *("schema", "moves: a delta is taken in the middle of a schema change", IN),
        *("if number in truncated and store.versions.get(number) != version:", "if False:"),
        DELTAS + "while_a_schema_change_is_half_made_nothing_is_taken",
    ),
    (
        *("schema", "moves: what was truncated comes back", DELTA),
        *("if change.version < truncated_at:", "if False:"),
        DELTAS + "what_was_truncated_does_not_come_back",
    ),
    (
        *("schema", "moves: rows of before a column come without its default", SCHEMA),
        *("(missing_value(column) for column in table", "(None for column in table"),
        ALTERED + "rows_of_before_have_the_default_wherever_they_go",
    ),
    (
        *("schema", "moves: NOT NULL judges what was written before it", IN),
        *('    store.judge(clients=False)\n    execute("SAVEPOINT', '    execute("SAVEPOINT'),
        ALTERED + "a_row_that_was_null_once_moves_although_it_must_not_be_now",
    ),
    (
        *("schema", "moves: NOT NULL judges nobody", SHAPES),
        *("if self._judges is not clients:", "clients = False\n        if self._judges:"),
        ALTERED + "a_row_that_was_null_once_moves_although_it_must_not_be_now",
    ),
    (
        *("schema", "moves: NOT NULL judges rows of a full copy", COPY),
        *(
            "        self._store.judge(clients=False)\n",
            "        self._store.judge(clients=True)\n",
        ),
        ALTERED + "rows_that_left_and_are_null_do_not_make_a_copy_or_a_check_fail",
    ),
    (
        *("schema", "moves: a unique index that older changes do not fit ends the move", IN),
        *("except apsw.ConstraintError as problem:", "except ZeroDivisionError as problem:"),
        ALTERED + "what_a_unique_index_would_refuse_begins_anew",
    ),
    (
        *("schema", "moves: an aborted change leaves its NOT NULL", RESHAPING),
        *("if create_table_sql(have) != create_table_sql(want):", _IF_NEWER),
        ALTERED + "a_change_that_is_aborted_leaves_the_table_as_it_was",
    ),
    # --- operations ---------------------------------------------------------------------------
    (
        *("once", "moves: operations stay behind", OUT),
        *("operations += self._done(start, end)", "pass"),
        DELTAS + "operations_move_with_their_buckets_and_with_no_others",
    ),
    (
        *("once", "moves: operations move without their buckets", OUT),
        *(
            "ranges = intersection(_decode_ranges(packed), ((start, end),))",
            "ranges = _decode_ranges(packed)",
        ),
        DELTAS + "operations_move_with_their_buckets_and_with_no_others",
    ),
    (
        *("once", "moves: operations are known of copied rows only", OUT),
        *("if operation.buckets is None:", "if True:"),
        DELTAS + "an_operation_is_known_of_buckets_that_were_not_copied_yet",
    ),
    (
        *("once", "moves: a part by ranges is skipped whole", CARRYING_OUT),
        *("if not left or not request.open_sql:", "if True:"),
        ONCE + "a_part_by_ranges_leaves_out_what_came_with_its_buckets",
    ),
    (
        *("once", "moves: an empty range remembers operations", IN),
        *("            store.operations.forget_buckets(part.start, part.end)\n", ""),
        DELTAS + "an_empty_range_knows_no_operations",
    ),
    # --- statements ---------------------------------------------------------------------------
    (
        *("parts", "moves: the second round is planned whole", DISPATCH),
        *("    return requests(left)\n", "    return requests(None)\n"),
        PARTS + "only_what_was_not_executed_is_sent_to_the_new_owner",
    ),
    (
        *("parts", "moves: what stops the rest hides what was done", DISPATCH),
        *(
            "                if not settled:\n                    raise\n",
            "                raise\n",
        ),
        PARTS + "what_stops_the_rest_does_not_hide_what_was_done",
    ),
    (
        *("parts", "moves: a read is judged before its snapshot opens", "storage/readers.py"),
        *("        check()\n\n    def end", "        pass\n\n    def end"),
        "tests/storage/test_readers.py"
        "::test_a_read_is_judged_when_its_rows_are_those_of_one_moment",
    ),
    # --- old rows -----------------------------------------------------------------------------
    (
        *("drop", "moves: rows that are owned are dropped", IN),
        *("if store.fence.touches(move.start, move.end):", "if False:"),
        REPLICAS + "rows_that_are_owned_are_not_dropped",
    ),
    (
        *("drop", "moves: a replica drops before it knows of the hand-over", IN),
        *("if not store.fence.has_given(part.move):", "if False:"),
        REPLICAS + "a_replica_drops_old_rows_only_when_it_knows_of_the_hand_over",
    ),
    (
        *("drop", "moves: an old drop waits while the buckets are here again", IN),
        *(
            "if not store.fence.has_given(part.move):",
            "if store.fence.touches(part.start, part.end):",
        ),
        REPLICAS + "a_replica_that_was_away_while_a_range_left_and_came_back_goes_on",
    ),
    (
        *("delta", "moves: how far it came in another epoch is believed", MOVING),
        *("if read_in != epoch:", "if known is None:"),
        "tests/sim_cluster/test_move_rules.py::test_how_far_a_move_had_come_in_another_epoch_"
        "is_read_anew",
    ),
    (
        *("drop", "moves: a move is done before the drop is safe", MOVING),
        *("        await self._held.by_those_who_count(0, epoch)\n", ""),
        SIM + "a_move_is_done_only_when_the_source_s_replica_has_dropped_the_rows",
    ),
    (
        *("sweep", "moves: nobody looks for rows that belong to others", MOVING),
        *("        self._sweeping.follow()\n", ""),
        SIM + "a_master_that_starts_sweeps_rows_that_its_replicaset_does_not_own",
    ),
    (
        *("sweep", "moves: rows on their way are swept", IN),
        *(
            "if any(low <= end and high >= start for _, low, high in store.fence.incoming):",
            "if False:",
        ),
        REPLICAS + "rows_that_are_owned_or_on_their_way_are_not_swept",
    ),
    (
        *("sweep", "moves: a replica sweeps before it knows why", IN),
        *("if part.move > store.fence.last_move:", "if False:"),
        REPLICAS + "a_replica_sweeps_when_it_knows_of_the_moves_that_its_master_knew",
    ),
    (
        *("copy", "moves: a full copy without progress", COPY),
        *('            (PROGRESS, "SELECT move, body FROM move_progress"),\n', ""),
        REPLICAS + "a_full_copy_in_the_middle_of_a_move_has_its_progress",
    ),
    (
        *("plan", "moves: a move that nobody wants goes on", DECIDE),
        *("if why := _no_longer_wanted(view, move):", 'if why := "":'),
        DECIDED + "a_target_that_leaves_gets_nothing",
    ),
    (
        *("replica", "moves: a replica answers for rows that it does not have yet", GUARD),
        *("        elif not fence.is_master:\n", "        elif False:\n"),
        SIM + "a_replica_answers_for_new_buckets_when_it_has_their_rows",
    ),
    (
        *("carried", "moves: changes of buckets are forgotten", "node/consensus/global_state.py"),
        *("            found |= keys\n", ""),
        SIM + "a_move_is_done_only_when_the_source_s_replica_has_dropped_the_rows",
    ),
    (
        *("carried", "moves: a fence keeps what was given away", "node/rows/data_plane.py"),
        *("spliced(made.owned, out, ", "spliced(made.owned, [], "),
        "tests/moves/test_carried_on.py"
        "::test_routes_and_fences_that_are_carried_on_are_those_made_anew",
    ),
    # --- streams ------------------------------------------------------------------------------
    (
        *("stream", "moves: records of moves are told", "server/calls/row_changes.py"),
        *(
            "    if record.kind != Kind.ROWS:\n        return []\n    return [\n",
            "    return [\n",
        ),
        TOLD + "records_of_moves_are_told_to_nobody",
    ),
    (
        *(
            "stream",
            "moves: a target is read before its source's end",
            "spark/streams/hand_overs.py",
        ),
        *(
            "max(min(lsn, move.first.get(origin, 0)), mine.get(origin, 0))",
            "lsn",
        ),
        "tests/spark/test_handed_over.py"
        "::test_a_target_is_read_past_its_first_record_only_behind_the_last_of_the_source",
    ),
)
