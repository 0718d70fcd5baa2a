"""Whatever one session asks, the instance answers the others meanwhile and stays Online."""

from __future__ import annotations

import itertools
import socket
import threading
import time
from collections.abc import Callable, Iterator

import psycopg
import pytest

from tests.cluster.harness import Cluster, Node, eventually
from tests.server.giants import Threads
from tests.server.raw import Raw, message

#: What is promised, without the time in which the instance's threads were ready and had no core.
#: The best of three tries counts: a statement that holds the loop does so each time.
PATIENCE_S, TRIES = 0.25, 3
LIMIT = "SET statement_timeout = '2s'"
NUMBERS = itertools.count(1_000_000)


def nested(depth: int) -> str:
    """A short text whose plan takes long: each level is looked at by all that are around it."""
    inner = "1"
    for at in range(depth):
        inner = f"(SELECT max(v) FROM apart WHERE id = {at} AND v = {inner})"
    return f"SELECT id FROM apart WHERE v = {inner}"


def joined(count: int) -> str:
    tables = ", ".join(f"apart a{at}" for at in range(count))
    return f"SELECT count(*) FROM {tables} WHERE " + " AND ".join(
        f"a{at}.v = a{at + 1}.v" for at in range(count - 1)
    )


HOSTILE = {
    "sub-queries in sub-queries": nested(25),
    "a join of many tables": joined(60),
    "a copy of such a join": f"COPY ({joined(40)}) TO STDOUT",
    "a LIKE that goes back": f"SELECT repeat('a', 40) LIKE '{'%a' * 25}%b'",
    "a regular expression that goes back": "SELECT repeat('a', 60) ~ '^((a*)*)*b$'",
    "a long list": "SELECT 1 WHERE 1 IN (" + ",".join(map(str, range(40_000))) + ")",
    "a longer list": "SELECT 1 WHERE 1 IN (" + ",".join(map(str, range(500_000))) + ")",
    "a long sum": "SELECT 1" + "+1" * 40_000,
    "a long text": f"SELECT length('{'x' * 4_000_000}')",
    "comments in comments": "SELECT 1 " + "/*" * 200_000 + "*/" * 200_000,
    "many statements": "SELECT 1;" * 20_000,
    "nothing, often": ";" * 500_000,
    "a call with many arguments": "CALL cairn_status(" + "1," * 100_000 + "1)",
    "a series": "SELECT count(*) FROM generate_series(1, 1000000)",
    "series times series": "SELECT count(*) FROM generate_series(1, 100000) a, "
    "generate_series(1, 100000) b",
    "a large value": "SELECT length(repeat('ab', 30000000))",
    "values that double": "WITH RECURSIVE r(n, s) AS (SELECT 1, 'x' UNION ALL SELECT n + 1, s || s "
    "FROM r WHERE n < 25) SELECT length(s) FROM r",
    "one value of many": "SELECT length(string_agg(repeat('x', 1000000), '')) "
    "FROM generate_series(1, 300)",
    "one part of many": "SELECT split_part(repeat('ab,', 10000000), ',', 9000000)",
    "many words": "SELECT length(initcap(repeat('ab ', 10000000)))",
    "a long json": f"SELECT '[{'[],' * 500_000}1]'::json IS NULL",
    "many rows": "SELECT g, repeat('x', 50) FROM generate_series(1, 300000) g",
    "a recursion": "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) "
    "SELECT count(*) FROM r",
    "many new rows": "INSERT INTO apart SELECT g, g FROM generate_series(1, 300000) g",
    "a write that reads long": "UPDATE deaf SET v = 'y' WHERE id = 1 AND "
    "(SELECT count(*) FROM deaf a, deaf b, deaf c, deaf d WHERE a.v > b.v || c.v || d.v) < 0",
    "a delete that reads long": "DELETE FROM deaf WHERE id = -1 AND EXISTS "
    "(SELECT 1 FROM deaf a, deaf b, deaf c, deaf d WHERE a.v || b.v || c.v || d.v = 'nope')",
}


PARAMETERS = {
    "a long json": ("SELECT json_array_length(%s::json)", f"[{'1,' * 6_000_000}1]"),
    "a long list": (
        "SELECT cardinality(%s::int[])",
        "{" + ",".join(map(str, range(200_000))) + "}",
    ),
}


#: Of rows with a value of 14 MB each; `{n}` is another row each time, `{first}` has a JSON.
STORED = {
    "an update beside it": "UPDATE long SET n = n + 1 WHERE id = {n}",
    "an update of it": "UPDATE long SET v = v || 'y' WHERE id = {n}",
    "all columns": "UPDATE long SET v = 'y', n = 1 WHERE id = {n}",
    "an update that tells it": "UPDATE long SET n = 2 WHERE id = {n} RETURNING v",
    "another in its place": "INSERT INTO long VALUES ({n}, 1, 'z') ON CONFLICT DO REPLACE",
    "a delete": "DELETE FROM long WHERE id = {n}",
    "a look": "SELECT v FROM long WHERE id = {n}",
    "a look at a json": "SELECT j FROM long_json WHERE id = {first}",
    "an update beside a json": "UPDATE long_json SET n = 2 WHERE id = {first}",
    "a block": "DO $$ BEGIN UPDATE long SET n = 3 WHERE id = {n}; DELETE FROM long WHERE id = {n}; "
    "END $$",
}


@pytest.fixture(scope="module")
def deaf(cluster: Cluster) -> Iterator[Cluster]:
    node = cluster["i1"]
    node.sql("CREATE TABLE deaf (id INT PRIMARY KEY, v TEXT) DISTRIBUTED GLOBALLY")
    rows = ", ".join(f"({at}, 'v{at}')" for at in range(400))
    node.sql(f"INSERT INTO deaf VALUES {rows}")
    node.sql("CREATE TABLE apart (id INT PRIMARY KEY, v INT) DISTRIBUTED BY (id)")
    yield cluster
    node.sql("DROP TABLE deaf")
    node.sql("DROP TABLE apart")


@pytest.mark.parametrize("what", HOSTILE)
def test_others_are_answered_while_a_hostile_statement_runs(deaf: Cluster, what: str) -> None:
    silences_s: list[float] = []
    while len(silences_s) < TRIES and min(silences_s, default=PATIENCE_S) >= PATIENCE_S:
        text = f"{HOSTILE[what]} -- {next(NUMBERS)}"  # one of the last try would be known
        silences_s.append(longest_silence_s(deaf, text))
    assert min(silences_s) < PATIENCE_S, silences_s
    assert set(deaf.states("i2").values()) == {"Online"}


@pytest.mark.parametrize("what", PARAMETERS)
def test_others_are_answered_while_a_giant_parameter_is_read(deaf: Cluster, what: str) -> None:
    text, value = PARAMETERS[what]
    silences_s: list[float] = []
    while len(silences_s) < TRIES and min(silences_s, default=PATIENCE_S) >= PATIENCE_S:
        silences_s.append(longest_silence_s(deaf, text, (value,)))
    assert min(silences_s) < PATIENCE_S, silences_s


@pytest.fixture(scope="module")
def here(deaf: Cluster) -> Iterator[list[int]]:
    """Ids of rows that the first instance has."""
    node = deaf["i1"]
    node.sql("CREATE TABLE long (id INT PRIMARY KEY, n INT, v TEXT) DISTRIBUTED BY (id)")
    node.sql("CREATE TABLE long_json (id INT PRIMARY KEY, n INT, j JSON) DISTRIBUTED BY (id)")
    node.sql("INSERT INTO long SELECT g, 1, 'x' FROM generate_series(1, 40) g")
    found = node.sql(
        "SELECT id FROM long JOIN _pico_bucket AS b ON bucket_id BETWEEN bucket_id_start AND "
        "bucket_id_end JOIN _pico_instance AS i ON i.replicaset_name = current_replicaset_name "
        "WHERE i.name = 'i1'"
    )
    ids = [row[0] for row in found]
    node.sql("INSERT INTO long_json VALUES (%s, 1, %s)", (ids[0], f"[{'1,' * 7_000_000}1]"))
    yield ids
    node.sql("DROP TABLE long")
    node.sql("DROP TABLE long_json")


@pytest.mark.parametrize("what", STORED)
def test_others_are_answered_while_a_long_row_is_worked_on(
    deaf: Cluster, here: list[int], what: str
) -> None:
    silences_s: list[float] = []
    for n in here[:TRIES]:
        text = "INSERT INTO long VALUES (%s, 1, repeat('x', 14000000)) ON CONFLICT DO REPLACE"
        deaf["i1"].sql(text, (n,))
        silences_s.append(longest_silence_s(deaf, STORED[what].format(n=n, first=here[0])))
        if silences_s[-1] < PATIENCE_S:
            break
    assert min(silences_s) < PATIENCE_S, silences_s


@pytest.mark.parametrize(
    "text",
    ["INSERT INTO many SELECT id + 1, n FROM many", "UPDATE many SET id = id + 1 WHERE n = 0"],
)
def test_others_are_answered_while_many_rows_get_other_keys(deaf: Cluster, text: str) -> None:
    """Each of them is looked at, and given to its owner."""

    def attack(node: Node) -> None:
        with node.connect() as connection:
            connection.execute(text)

    silences_s: list[float] = []
    while len(silences_s) < TRIES and min(silences_s, default=PATIENCE_S) >= PATIENCE_S:
        node = deaf["i1"]
        node.sql("CREATE TABLE many (id INT PRIMARY KEY, n INT) DISTRIBUTED BY (id)")
        try:
            node.sql("INSERT INTO many SELECT 2 * g, 0 FROM generate_series(1, 200000) g")
            silences_s.append(longest_silence_beside_s(deaf, attack))
            assert node.sql("SELECT sum(n), count(*) > 199999 FROM many") == [(0, True)]
        finally:
            node.sql("DROP TABLE many")
    assert min(silences_s) < PATIENCE_S, silences_s


def longest_silence_s(deaf: Cluster, hostile: str, params: tuple[str, ...] | None = None) -> float:
    """Of another session, while the statement runs."""

    def attack(node: Node) -> None:
        with node.connect() as connection:
            connection.execute(LIMIT)
            if hostile.startswith("COPY"):
                with connection.cursor().copy(hostile) as told:
                    list(told)
            else:
                connection.execute(hostile, params)

    return longest_silence_beside_s(deaf, attack)


def longest_silence_beside_s(deaf: Cluster, attack: Callable[[Node], None]) -> float:
    node = deaf["i1"]
    threads = Threads(node.child_pid)
    ended = threading.Event()

    def attacked() -> None:
        try:
            attack(node)
        except psycopg.Error as problem:
            wrong.append(problem.sqlstate)
        finally:
            ended.set()

    wrong: list[str | None] = []
    thread = threading.Thread(target=attacked)
    with node.connect() as other:
        thread.start()
        longest, deadline = 0.0, time.monotonic() + 30
        while not ended.is_set() and time.monotonic() < deadline:
            begun, before = time.monotonic(), threads.waited_s()
            assert other.execute("SELECT 1").fetchone() == (1,)
            took = time.monotonic() - begun
            longest = max(longest, took - (threads.waited_s() - before))
        thread.join(1)
        assert not thread.is_alive(), "neither a limit nor the statement itself has ended it"
    assert "XX000" not in wrong
    return longest


def new_texts(at: int) -> bytes:
    """Each has to be understood; none is long."""
    return message(b"P", b"\0SELECT %d%s\0\0\0" % (at, b",1" * 900))


def runs_of_one(at: int) -> bytes:
    return message(b"B", b"\0again\0\0\0\0\0\0\0") + message(b"E", b"\0\0\0\0\0")


def texts_with_values(at: int) -> bytes:
    return message(b"Q", b"SELECT v FROM deaf WHERE id IN (%d%s)\0" % (at, b",1" * (at % 900)))


@pytest.mark.parametrize(
    ("asked", "count"), [(new_texts, 100), (runs_of_one, 20_000), (texts_with_values, 200)]
)
def test_others_are_answered_while_a_pipeline_is_worked_on(
    deaf: Cluster, asked: Callable[[int], bytes], count: int
) -> None:
    """A hundred new texts in one go held the loop for seconds, the last word about a lease too."""

    def attack(node: Node) -> None:
        with Raw(node.pg_port, 60.0) as raw:
            raw.log_in()
            prepared = message(b"P", b"again\0SELECT v FROM deaf WHERE id = 7\0\0\0")
            raw.send(prepared, message(b"S")).until(b"Z")
            sent = b"".join(asked(next(NUMBERS)) for _ in range(count))
            ends = count if asked is texts_with_values else 1
            threading.Thread(target=raw.send, args=(sent, message(b"S"))).start()
            for _ in range(ends):
                raw.until(b"Z")

    silences_s: list[float] = []
    while len(silences_s) < TRIES and min(silences_s, default=PATIENCE_S) >= PATIENCE_S:
        silences_s.append(longest_silence_beside_s(deaf, attack))
    assert min(silences_s) < PATIENCE_S, silences_s


def test_a_client_that_does_not_read_is_waited_for(deaf: Cluster) -> None:
    """What it has asked for stays unmade: memory does not grow with its questions."""
    node = deaf["i1"]

    def memory_mib() -> int:
        with open(f"/proc/{node.child_pid}/status") as status:
            line = next(line for line in status if line.startswith("VmRSS"))
        return int(line.split()[1]) // 1024

    with Raw(node.pg_port) as greedy:
        greedy.log_in()
        greedy.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        before = memory_mib()
        question = message(b"Q", b"SELECT repeat('x', 5000000)\0")
        greedy.send(question * 60)
        eventually(lambda: node.sql("SELECT 1") == [(1,)], "an answer to another")
        highest = before
        for _ in range(20):
            highest = max(highest, memory_mib())
            assert node.sql("SELECT 1") == [(1,)]
        assert highest - before < 150, f"{before} → {highest} MiB for 300 MiB that nobody reads"


def test_requests_behind_a_long_one_are_left_in_the_socket(deaf: Cluster) -> None:
    """And whoever leaves meanwhile is seen to leave, although nobody reads from it."""
    node = deaf["i1"]
    with Raw(node.pg_port) as greedy:
        greedy.log_in()
        long_one = b"SELECT count(*) FROM generate_series(1, 1000000) a, generate_series(1, 9000) b"
        greedy.send(message(b"Q", long_one + b"\0"))
        greedy.socket.settimeout(2)
        piece = message(b"P", b"\0SELECT 1\0\0\0") * 2_000
        with pytest.raises(TimeoutError):
            for _ in range(1_000):
                greedy.send(piece)
    ask = "SELECT count(*) FROM pg_stat_activity WHERE query = %s"
    eventually(lambda: node.sql(ask, (long_one.decode(),)) == [(0,)], "the end of the long one")
