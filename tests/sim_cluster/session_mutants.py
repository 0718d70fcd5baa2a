"""Rules of sessions and joins in parts, taken out one at a time, and the test that has to notice.

`python -m tests.replication.run_mutants sessions:` plants them.
"""

from __future__ import annotations

AT_ONCE = "node/statements/at_once.py"
EXCHANGE = "node/statements/asker/exchange.py"
SHORT = "node/statements/asker/short/reads.py"
READS, SPLITS = "node/statements/owner/reads.py", "node/statements/owner/splits.py"
DEALT, OUT = "storage/files/dealt.py", "storage/data_db/moving_out.py"

LANES = "tests/sim_cluster/test_sessions.py::test_rows_by_their_keys_are_told_right_over_sessions"
STREAMS = "tests/sim_cluster/test_streams.py::test_a_stream_is_whole_and_in_order"
ACKS = "node/rows/acknowledgements.py"
STREAM = "spark/streams/row_stream.py"
CHANGES = "node/statements/changes/schema_changes.py"
LEAVING = "server/session/leaving.py"
GOODBYES = "tests/sim_cluster/test_goodbyes.py::test_"
JOINS = "tests/sim_cluster/test_joins.py::test_"

#: (rule, name, file, old, new, test)
OF_SESSIONS: tuple[tuple[str, str, str, str, str, str], ...] = (
    (
        *("end", "sessions: goodbye is said right behind an answer", LEAVING),
        *("self._quiet = loop.call_later(QUIET_S, self._asks_nothing)", "self._asks_nothing()"),
        GOODBYES + "who_asks_all_the_time_is_told_instead_of_an_answer_and_nothing_was_done",
    ),
    (
        *("end", "sessions: who asks all the time is never told", LEAVING),
        *("if not is_first or type(request) not in _BEGINS:", "if True:"),
        GOODBYES + "who_asks_all_the_time_is_told_instead_of_an_answer_and_nothing_was_done",
    ),
    (
        *("9", "sessions: a lane asks no guard", AT_ONCE),
        "found = reads.quick_read(at, statement.sharded, reads.reader.answer, read)",
        "found = reads.reader.answer(read)",
        LANES + "[readers]",
    ),
    (
        *("5", "sessions: a quick read takes any bucket for its own", READS),
        "fence.owns(where) if type(where) is int",
        "True if type(where) is int",
        LANES + "[moves]",
    ),
    (
        *("5", "sessions: a quick read of several buckets takes any for its own", READS),
        "else fence.owns_all(where)",
        "else True",
        "tests/node/test_quick_reads.py",
    ),
    (
        *("5", "sessions: each of several owners is asked for all buckets", SHORT),
        "            sql, args = fragment.asked(params, ranges)\n",
        "            sql, args = fragment.asked(params, ((1, 3_000),))\n",
        LANES + "[moves]",
    ),
    (
        *("8", "sessions: a question to several owners is not ended by an error", SHORT),
        "        if problem is not None:\n            self.give_up()\n",
        "        if problem is not None:\n",
        "tests/node/test_short_reads.py",
    ),
    (
        *("14", "sessions: a schema change is over before the others have heard of it", CHANGES),
        "        await self._wait_end(version, deadline)\n        if plan.wait_applied",
        "        await self._wait_end(version, deadline)\n        if 0 and plan.wait_applied",
        "tests/sim_cluster/test_sessions.py::"
        "test_a_table_is_empty_for_everybody_once_a_session_is_told_so",
    ),
    (
        *("19", "streams: a taker is told before its giver has ended", STREAM),
        "            uuid: held_back(at, known, target.moves, known.positions.get(uuid, {}))\n",
        "            uuid: at\n",
        STREAMS + "[moves-strikes-5]",
    ),
    (
        *("19", "streams: a position goes back", "spark/streams/hand_overs.py"),
        *("        if past:\n", "        if 0:\n"),
        "tests/spark/test_handed_over.py::test_a_stream_never_goes_back",
    ),
    (
        *("10", "streams: what others pass on takes confirmations back", ACKS),
        "if uuid != self._place.uuid and covers(vclock, self.vclocks.get(uuid, {})):",
        "if uuid != self._place.uuid:",
        "tests/node/test_acknowledgements.py::test_what_others_pass_on_takes_nothing_back",
    ),
    (
        *("19", "streams: what no majority has is told", ACKS),
        "if not self._data.fence.is_sync or self._place.uuid not in vclock:",
        "if True:",
        STREAMS + "[cuts-3]",
    ),
    (
        *("15", "sessions: each side of a join goes by the map of its own moment", EXCHANGE),
        "buckets=_buckets(split.by, places),",
        "buckets=_buckets(split.by, self._places(fragment.tier, context)),",
        JOINS + "all_sides_are_dealt_out_by_one_map_whatever_moves_in_between",
    ),
    (
        *("15", "sessions: who deals out rows looks once whose they are", READS),
        "read.opcode_max, self._still(read, fence)",
        "read.opcode_max, lambda: None",
        JOINS + "all_is_right_without_a_bug[threads_are_busy]",
    ),
    (
        *("15", "sessions: rows are dealt out twice", SPLITS),
        ".append(row[:width])",
        ".extend([row[:width]] * 2)",
        JOINS + "joins_are_whole_while_buckets_move",
    ),
    (
        *("15", "sessions: a part is over with its first piece", DEALT),
        "return Piece([], data, is_over and not queue)",
        "return Piece([], data, True)",
        JOINS + "all_is_right_without_a_bug[askers_hear_late]",
    ),
    (
        *("15", "sessions: reads of two lives have the same numbers", "node/instance.py"),
        *("first = int(self.runtime.boot_clock() * 1e6)", "first = 0"),
        JOINS + "reads_of_two_lives_of_an_instance_have_other_numbers",
    ),
    (
        *("23", "sessions: a copy goes to whoever knows its number", "node/rows/copies.py"),
        *("if given is None or given[1] != request.subscriber:", "if given is None:"),
        "tests/sim_cluster/test_pulls.py::test_a_piece_of_a_copy_goes_to_whom_the_copy_is_for",
    ),
    (
        *("23", "sessions: what was done stays behind when its buckets move", OUT),
        *(
            "            if ranges:\n                found.append((name",
            "            if 0:\n                found.append((name",
        ),
        "tests/sim_cluster/test_once.py::test_an_operation_is_done_once_whatever_moves",
    ),
)
