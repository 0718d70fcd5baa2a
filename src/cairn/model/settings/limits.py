"""How large things may be: one table, because each of them travels inside another.

    statement → entry → Raft message → frame       a write to a global table
    rows → record → batch → frame                  a write to a sharded table
    rows → answer → frame                          a read at another instance

Whatever is accepted at one stage must fit the next: a thing that is accepted and cannot be sent
would be tried for ever. `tests/model/test_limits.py` holds them against each other.
"""

from __future__ import annotations

MIB = 1024 * 1024

#: Between two instances, everything included. Larger: one sender makes another hold that much.
FRAME_BYTES = 64 * MIB
#: What method name, ids and MessagePack's own bytes may add around a body, generously.
FRAME_EXTRA_BYTES = 64 * 1024
#: One-way messages to a peer that are not sent yet; past it they are dropped, Raft repeats itself.
UNSENT_BYTES = 32 * MIB
#: One Raft message as the core's codec takes it.
MESSAGE_BYTES = FRAME_BYTES
#: Where Raft stops adding entries to a message: the last one may be as long as an entry can be.
APPEND_BYTES = 64 * 1024
#: Entries that no majority has yet; past it proposals are refused until it has.
UNCOMMITTED_BYTES = 16 * MIB
#: One entry of the Raft log: all it writes to global tables. Smaller: wide rows are refused;
#: larger: one statement holds up heartbeats and every other change for as long as it is sent.
ENTRY_BYTES = 16 * MIB
#: One record of the row log: what one statement changed, or one bulk of rows, or one row.
RECORD_BYTES = 48 * MIB
#: What a statement changed is told in records of about this size, if it is more than one.
PART_BYTES = MIB
#: All records of one statement. Its master writes nothing else meanwhile, nor do its replicas.
CHANGES_BYTES = 4096 * MIB
#: The same where all changes have to be held until the end: rows with foreign keys. In memory they
#: take about six times as much.
HELD_CHANGES_BYTES = 128 * MIB
#: Characters of one SQL text; beyond it COPY is the way: parsing takes about 1 s per MiB.
STATEMENT_CHARS = 8 * MIB
#: Rows of one read that an instance holds before the first is sent, about.
ANSWER_BYTES = 512 * MIB
#: Rows of a longer answer that travel at once, about: heartbeats of the link go in between.
PIECE_BYTES = MIB
#: Temporary files of one statement, unless `sql_spill_max_bytes` says otherwise.
SPILL_BYTES = 8192 * MIB
#: Rows of a COPY that go into one entry of a global table.
COPY_ENTRY_BYTES = 4 * MIB
#: One message of a client: a value that it sends, or a piece of a COPY.
CLIENT_MESSAGE_BYTES = 256 * MIB
#: One value, or one row, while a statement works with it: no more would fit a frame.
VALUE_BYTES = FRAME_BYTES
#: The same where the event loop itself reads: longer ones are for a thread.
QUICK_VALUE_BYTES = 256 * 1024
#: What SQLite keeps for all statements of an instance, its caches too, when nobody makes a further
#: long text: each value may have VALUE_BYTES, and a row as many of them as it has columns.
TEXTS_BYTES = 1024 * MIB
#: Statements and bytes of one block (BEGIN … COMMIT): the asker holds them until its end, and sends
#: them as one message.
BLOCK_STATEMENTS, BLOCK_BYTES = 10_000, 32 * MIB
#: Advisory locks of one session.
SESSION_LOCKS = 4_096
#: Statements before it that one statement of a block may depend on: they are run again for it.
BLOCK_REPLAY = 1_000
#: Rows that a statement of a block, or a DO, may answer: they are held and sent as one message.
BLOCK_ANSWER_BYTES = 16 * MIB
#: Seconds that a block may hold the writer of its replicaset, at most.
BLOCK_S = 10.0
