"""Answers that are half told: nobody holds much of them, and owners stop when nobody reads on."""

from __future__ import annotations

import re
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from struct import pack, unpack

import pytest

from tests.cluster.harness import Cluster, Node, eventually, free_ports
from tests.server.raw import Raw, fields, message

pytestmark = pytest.mark.cluster

ROWS = 150_000
TEXT = "x" * 300
ALL = b"SELECT id, s FROM big"  # a plain scan: read by a worker, where one is idle
BY_SQLITE = ALL + b" WHERE id >= 0"


class Pair:
    """Two instances that each own half of 150,000 rows, 45 MB."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.pages: dict[str, int] = {}
        self.ask, self.other = self.cluster.add("i1"), self.cluster.add("i2")
        self.cluster.peers = f"{self.ask.peer},{self.other.peer}"
        for name in ("i1", "i2"):
            self.start(name)
        self.cluster.wait_online("i1", "i2")
        query = "SELECT DISTINCT current_replicaset_name FROM _pico_bucket"
        eventually(lambda: len(self.ask.sql(query)) == 2, "buckets on both instances")

    def start(self, name: str) -> None:
        (self.pages[name],) = free_ports(1)
        self.cluster[name].start("--http-listen", f"127.0.0.1:{self.pages[name]}")

    def half_told(self) -> list[int]:
        """How many answers each instance is reading from its files."""
        return [self._half_told(name) for name in ("i1", "i2")]

    def _half_told(self, name: str) -> int:
        address = f"http://127.0.0.1:{self.pages[name]}/metrics"
        with urllib.request.urlopen(address, timeout=10) as page:
            found = re.search(r"^cairn_open_reads (\d+)\.0$", page.read().decode(), re.MULTILINE)
        assert found is not None
        return int(found[1])


def loaded(node: Node) -> bool:
    with node.connect() as sql:
        sql.execute("DELETE FROM big")
        with sql.cursor().copy("COPY big FROM STDIN") as copy:
            copy.write("".join(f"{at}\t{TEXT}\n" for at in range(ROWS)))
    return True


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    cluster = Cluster(tmp_path_factory.mktemp("half"), "half")
    try:
        made = Pair(cluster)
        made.ask.sql("CREATE TABLE big (id INT PRIMARY KEY, s TEXT) DISTRIBUTED BY (id)")
        eventually(lambda: loaded(made.ask), "all rows to be stored", 60.0)
        yield made
    finally:
        cluster.close()


@pytest.fixture
def client(pair: Pair) -> Iterator[Raw]:
    with Raw(pair.ask.pg_port, 60.0) as made:
        yield made.log_in()
    eventually(lambda: pair.half_told() == [0, 0], "the owners to stop")


def memory_mib(node: Node) -> float:
    status = Path(f"/proc/{node.child_pid}/status").read_text()
    found = re.search(r"VmRSS:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1]) / 1024


def buckets(node: Node) -> list[int]:
    return [row["buckets"] for row in node.status()["replicasets"]]


def number(body: bytes) -> int:
    """The first column of a DataRow in text format."""
    (length,) = unpack("!i", body[2:6])
    return int(body[6 : 6 + length])


def numbers(messages: list[tuple[bytes, bytes]]) -> list[int]:
    return [number(body) for kind, body in messages if kind == b"D"]


def workers(node: Node) -> int:
    children = Path(f"/proc/{node.child_pid}/task/{node.child_pid}/children").read_text().split()
    lines = [Path(f"/proc/{child}/cmdline").read_bytes() for child in children]
    return sum(b"cairn.server.scan.worker" in line for line in lines)


@pytest.fixture
def idle_workers(pair: Pair) -> None:
    """Each instance has read rows of its own by a worker, and keeps it for the next ones."""
    for node in (pair.ask, pair.other):  # either may have founded the first replicaset
        [(low, high)] = node.sql(
            "SELECT min(b.bucket_id_start), max(b.bucket_id_end) FROM _pico_bucket b "
            "JOIN _pico_instance i ON i.replicaset_name = b.current_replicaset_name "
            "WHERE i.name = %s",
            (node.name,),
        )
        with node.connect() as sql:
            text = f"COPY (SELECT id FROM big WHERE bucket_id BETWEEN {low} AND {high}) TO STDOUT"
            with sql.cursor().copy(text) as copy:  # type: ignore[call-overload]
                assert sum(1 for _ in copy) > 20_000
        assert workers(node) == 1


def begin_to_read(client: Raw, text: bytes = BY_SQLITE) -> list[int]:
    """Ask for everything, and take only some of it."""
    client.send(message(b"Q", text + b"\0"))
    return numbers([client.read() for _ in range(100)])


@pytest.mark.parametrize("text", [BY_SQLITE, ALL])
def test_a_client_that_does_not_read_makes_the_owners_wait(
    pair: Pair, client: Raw, idle_workers: None, text: bytes
) -> None:
    before = [memory_mib(pair.ask), memory_mib(pair.other)]
    found = begin_to_read(client, text)
    eventually(lambda: pair.half_told() == [1, 1], "both owners to be half told")
    pair.ask.sql("SELECT count(*) FROM big")  # others are served meanwhile
    grown = [memory_mib(pair.ask) - before[0], memory_mib(pair.other) - before[1]]
    assert pair.half_told() == [1, 1]
    assert max(grown) < 40, grown
    found += numbers(client.until(b"Z"))
    assert sorted(found) == list(range(ROWS))


@pytest.mark.parametrize("text", [BY_SQLITE, ALL])
def test_the_owners_stop_when_the_client_goes_away(
    pair: Pair, idle_workers: None, text: bytes
) -> None:
    with Raw(pair.ask.pg_port, 60.0) as client:
        begin_to_read(client.log_in(), text)
        eventually(lambda: pair.half_told() == [1, 1], "both owners to be half told")
    eventually(lambda: pair.half_told() == [0, 0], "the owners to stop")
    ended = 0 if text == ALL else 1  # a worker is never left half-way
    for node in (pair.ask, pair.other):
        eventually(lambda node=node: workers(node) == ended, "the worker to end")  # type: ignore[misc]


@pytest.mark.parametrize("text", [BY_SQLITE, ALL])
def test_the_owners_stop_at_a_cancel(
    pair: Pair, client: Raw, idle_workers: None, text: bytes
) -> None:
    begin_to_read(client, text)
    eventually(lambda: pair.half_told() == [1, 1], "both owners to be half told")
    with Raw(pair.ask.pg_port) as other:
        other.send(pack("!II", 8 + len(client.cancel_key), 80877102) + client.cancel_key)
    *_, (kind, body), ready = client.until(b"Z")
    assert (kind, fields(body)["C"], ready[0]) == (b"E", "57014", b"Z")
    eventually(lambda: pair.half_told() == [0, 0], "the owners to stop")


def bind_and_execute(portal: bytes, max_rows: int) -> bytes:
    """A portal of the whole table, and the first of its rows."""
    return (
        message(b"P", b"\0" + ALL + b"\0" + pack("!H", 0))
        + message(b"B", portal + b"\0\0" + pack("!HHH", 0, 0, 0))
        + execute(portal, max_rows)
    )


def execute(portal: bytes, max_rows: int) -> bytes:
    return message(b"E", portal + b"\0" + pack("!I", max_rows)) + message(b"S")


def test_a_portal_is_fetched_in_parts(pair: Pair, client: Raw) -> None:
    client.query("BEGIN")
    client.send(bind_and_execute(b"p", 40_000))
    found, ends = [], []
    while True:
        told = client.until(b"Z")
        found.append(len(numbers(told)))
        ends.append(told[-2][0])
        if ends[-1] != b"s":
            break
        assert numbers(client.query("SELECT id FROM big WHERE id = 7")) == [7]  # in between
        client.send(execute(b"p", 40_000))
    assert (found, ends) == ([40_000, 40_000, 40_000, 30_000], [b"s", b"s", b"s", b"C"])
    client.query("COMMIT")


def test_a_portal_that_is_closed_ends_its_answer(pair: Pair, client: Raw) -> None:
    client.query("BEGIN")
    client.send(bind_and_execute(b"p", 1_000))
    assert len(numbers(client.until(b"Z"))) == 1_000
    assert pair.half_told() == [1, 1]
    client.send(message(b"C", b"Pp\0"), message(b"S")).until(b"Z")
    eventually(lambda: pair.half_told() == [0, 0], "the owners to stop")
    client.send(bind_and_execute(b"q", 1_000)).until(b"Z")
    client.query("ROLLBACK")
    eventually(lambda: pair.half_told() == [0, 0], "the end of the block to be the portal's")


@pytest.fixture
def other_client(pair: Pair) -> Iterator[Raw]:
    with Raw(pair.ask.pg_port, 60.0) as made:
        yield made.log_in()


def test_buckets_that_move_meanwhile_are_told_once(
    pair: Pair, client: Raw, other_client: Raw, idle_workers: None
) -> None:
    pair.ask.sql("ALTER SYSTEM SET rebalance_drop_delay = 0")
    pair.ask.sql("ALTER SYSTEM SET rebalance_rows_per_s = 0")
    found, by_workers = begin_to_read(client), begin_to_read(other_client, ALL)
    eventually(lambda: pair.half_told() == [2, 2], "both owners to be half told")
    pair.ask.sql("CALL cairn_rebalance('drain', 'default_2')")
    query = "SELECT DISTINCT current_replicaset_name FROM _pico_bucket"
    eventually(lambda: pair.ask.sql(query) == [("default_1",)], "all buckets to move", 60.0)
    found += numbers(client.until(b"Z"))
    by_workers += numbers(other_client.until(b"Z"))
    assert sorted(found) == sorted(by_workers) == list(range(ROWS))
    pair.ask.sql("CALL cairn_rebalance('weight', 'default_2', 1.0)")
    eventually(lambda: set(buckets(pair.ask)) == {1500}, "half of them to come back", 60.0)


#: Without an end at either of the two: each row meets a quarter of all others.
ENDLESS = (
    b"SELECT count(*), max(a.s || b.s) FROM (SELECT id % 4 AS n, s FROM big WHERE id < 80000) a "
    b"JOIN (SELECT id % 4 AS n, s FROM big WHERE id < 80000) b ON a.n = b.n "
    b"OPTION (sql_repartition = on)"
)


def temporary(*nodes: Node) -> int:
    """Files without a name that these have open."""
    links = [link for node in nodes for link in Path(f"/proc/{node.child_pid}/fd").iterdir()]
    found = 0
    for link in links:
        with suppress(FileNotFoundError):
            found += "(deleted)" in str(link.readlink())
    return found


def begin_to_join(pair: Pair, client: Raw, text: bytes = ENDLESS) -> None:
    assert temporary(pair.ask, pair.other) == 0
    client.send(message(b"Q", text + b"\0"))
    eventually(lambda: temporary(pair.ask, pair.other) > 0, "rows to be joined", 60.0)


def nothing_is_left(pair: Pair) -> bool:
    return pair.half_told() == [0, 0] and temporary(pair.ask, pair.other) == 0


def test_a_join_in_parts_ends_everywhere_at_a_cancel(pair: Pair, client: Raw) -> None:
    begin_to_join(pair, client)
    with Raw(pair.ask.pg_port) as other:
        other.send(pack("!II", 8 + len(client.cancel_key), 80877102) + client.cancel_key)
    *_, (kind, body), ready = client.until(b"Z")
    assert (kind, fields(body)["C"], ready[0]) == (b"E", "57014", b"Z")
    eventually(lambda: nothing_is_left(pair), "owners and joiners to stop")


def test_a_join_in_parts_ends_everywhere_at_its_timeout(pair: Pair, client: Raw) -> None:
    client.query("SET statement_timeout = 1500")
    begun = client.query(ENDLESS)
    assert fields(begun[-2][1])["C"] == "57014"
    eventually(lambda: nothing_is_left(pair), "owners and joiners to stop")


def test_a_join_in_parts_ends_everywhere_when_the_client_goes_away(pair: Pair) -> None:
    with Raw(pair.ask.pg_port, 60.0) as client:
        begin_to_join(pair, client.log_in())
    eventually(lambda: nothing_is_left(pair), "owners and joiners to stop")


@pytest.mark.slow
def test_buckets_that_move_meanwhile_are_joined_once(pair: Pair, client: Raw) -> None:
    """Keys are joined while all buckets go to one owner and come back."""
    key = "SELECT count(*), count(DISTINCT a.n), sum(b.n) FROM (SELECT id + 0 AS n FROM big) a "
    text = f"{key} JOIN (SELECT id + 0 AS n FROM big) b ON a.n = b.n OPTION (sql_repartition = on)"
    pair.ask.sql("ALTER SYSTEM SET rebalance_drop_delay = 0")
    pair.ask.sql("ALTER SYSTEM SET rebalance_rows_per_s = 0")
    query = "SELECT DISTINCT current_replicaset_name FROM _pico_bucket"
    expected = (ROWS, ROWS, ROWS * (ROWS - 1) // 2)
    rounds = 0
    with pair.ask.connect() as sql:
        plan = sql.execute(f"EXPLAIN (ANALYZE) {text}").fetchall()
        assert any("join in parts" in line for (line,) in plan)
        pair.ask.sql("CALL cairn_rebalance('drain', 'default_2')")
        while pair.ask.sql(query) != [("default_1",)]:
            assert sql.execute(text).fetchone() == expected
            rounds += 1
        assert sql.execute(text).fetchone() == expected
        pair.ask.sql("CALL cairn_rebalance('weight', 'default_2', 1.0)")
        while set(buckets(pair.ask)) != {1500}:
            assert sql.execute(text).fetchone() == expected
            rounds += 1
    assert rounds > 0


def test_an_asker_that_dies_leaves_nothing_of_its_join(pair: Pair) -> None:
    with Raw(pair.other.pg_port, 60.0) as client:
        begin_to_join(pair, client.log_in())
        pair.other.kill()
    eventually(lambda: pair._half_told("i1") == 0 and not temporary(pair.ask), "the rest to end")
    pair.start("i2")
    pair.cluster.wait_online("i1", "i2")
    eventually(lambda: pair.ask.sql("SELECT count(*) FROM big") == [(ROWS,)], "all rows again")


def test_an_owner_that_dies_meanwhile_is_told_and_never_left_out(
    pair: Pair, client: Raw, other_client: Raw, idle_workers: None
) -> None:
    begun = [(client, begin_to_read(client)), (other_client, begin_to_read(other_client, ALL))]
    eventually(lambda: pair.half_told() == [2, 2], "both owners to be half told")
    with Raw(pair.ask.pg_port, 60.0) as joining:
        begin_to_join(pair, joining.log_in())
        pair.other.kill()
        # No rows are told yet: it is begun anew, for as long as a read waits for a new master.
        *_, (kind, body), _ = joining.until(b"Z")
        assert (kind, fields(body)["C"]) == (b"E", "PC003"), fields(body)
        eventually(lambda: not temporary(pair.ask), "the join to end")
    for reader, found in begun:
        *rows, (kind, body), _ = reader.until(b"Z")
        problem = fields(body)
        assert (kind, problem["C"], problem["M"]) == (
            b"E",
            "40001",
            "the rest of the answer cannot be had any more",
        )
        found += numbers(rows)
        assert len(found) == len(set(found)) < ROWS
    pair.start("i2")
    pair.cluster.wait_online("i1", "i2")
    eventually(lambda: pair.ask.sql("SELECT count(*) FROM big") == [(ROWS,)], "all rows again")
