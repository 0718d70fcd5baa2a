"""Writes on several owners: split, done side by side, and told apart when some of them fail."""

from __future__ import annotations

from typing import Any

import pytest

from cairn.client import sync
from cairn.client.logic.shares import Share, SomeUnknown, SomeWritten
from cairn.model.errors import CairnError, OutcomeUnknown

from .driving import INSERT, pool_of, run
from .fake_cluster import FakeCluster

COPY = "COPY t FROM STDIN"
TEN = "INSERT INTO t (id, v) VALUES " + ", ".join(
    f"(${2 * n + 1}, ${2 * n + 2})" for n in range(10)
)
PARAMS = [part for key in range(10) for part in (key, "x")]


def keys_of(cluster: FakeCluster, name: str, among: range = range(10)) -> list[int]:
    return [key for key in among if cluster.home(key) == name]


def owner(cluster: FakeCluster, number: int) -> str:
    return f"r{number} at {cluster.instances[f'i{number}'].address}"


def test_an_insert_that_one_owner_refused_says_what_each_did(cluster: FakeCluster) -> None:
    async def test() -> None:
        async with pool_of(cluster) as pool:
            cluster.instances["i2"].refuse = ["23505"]
            with pytest.raises(SomeWritten) as caught:
                await pool.execute(TEN, *PARAMS)
            assert caught.value.sqlstate == "PC006"
            count = len(keys_of(cluster, "i1"))
            assert set(caught.value.shares) == {
                Share(owner(cluster, 1), "done", f"INSERT 0 {count}"),
                Share(owner(cluster, 2), "not executed", "23505 refused with 23505"),
            }
            assert "r2 at" in str(caught.value.detail)
            assert sorted(cluster.rows) == keys_of(cluster, "i1")

    run(test)


def test_an_owner_that_falls_silent_is_unknown(cluster: FakeCluster) -> None:
    async def test() -> None:
        async with pool_of(cluster) as pool:
            await pool.execute("INSERT INTO t (id, v) VALUES ($1, $2)", 99, "warm")
            cluster.instances["i1"].refuse = ["23514"]
            cluster.instances["i2"].hang_up_on = "insert"
            with pytest.raises(SomeUnknown) as caught:
                await pool.execute(TEN, *PARAMS)
            assert isinstance(caught.value, OutcomeUnknown)
            assert sorted(share.state for share in caught.value.shares) == [
                "not executed",
                "unknown",
            ]

    run(test)


def test_an_insert_that_everybody_refused_is_that_error(cluster: FakeCluster) -> None:
    async def test() -> None:
        async with pool_of(cluster) as pool:
            for name in ("i1", "i2", "i3"):
                cluster.instances[name].refuse = ["23514"]
            with pytest.raises(CairnError) as caught:
                await pool.execute(TEN, *PARAMS)
            assert caught.value.sqlstate == "23514" and not cluster.rows

    run(test)


def test_executemany_counts_done_unknown_and_not_executed_by_owner(cluster: FakeCluster) -> None:
    async def test() -> None:
        async with pool_of(cluster) as pool:
            await pool.execute(INSERT, 9999, "warm")
            cluster.instances["i2"].hang_up_on = "insert"
            with pytest.raises(OutcomeUnknown) as caught:
                await pool.executemany(INSERT, [(key, "x") for key in range(2000)])
            among = range(2000)
            mine, lost = len(keys_of(cluster, "i1", among)), 500
            assert caught.value.detail == (
                f"{mine} of 2000 statements were executed; "
                + "; ".join(
                    sorted(
                        (
                            f"{owner(cluster, 1)}: {mine} done, 0 unknown",
                            f"{owner(cluster, 2)}: 0 done, {lost} unknown",
                        ),
                        key=lambda text: text.partition(" at ")[2],
                    )
                )
                + f"; not executed: {2000 - mine - lost}"
            )

    run(test)


@pytest.mark.parametrize("form", ["rows", "lines", "odd pieces"])
def test_copy_gives_each_owner_its_rows(cluster: FakeCluster, form: str) -> None:
    lines = b"".join(b"%d\tvalue %d\n" % (key, key) for key in range(2000))
    source: list[Any] = {
        "rows": [(key, f"value {key}") for key in range(2000)],
        "lines": lines.splitlines(keepends=True),
        "odd pieces": [lines[at : at + 777] for at in range(0, len(lines), 777)],
    }[form]

    async def test() -> None:
        async with pool_of(cluster) as pool:
            assert await pool.copy_in(COPY, source) == "COPY 2000"

    run(test)
    assert cluster.rows == {key: f"value {key}" for key in range(2000)}
    for name in ("i1", "i2"):
        ((verb, keys),) = cluster.instances[name].executed
        assert (verb, keys) == ("copy", keys_of(cluster, name, range(2000)))


def test_copy_takes_an_asynchronous_source_and_text_without_its_last_newline(
    cluster: FakeCluster,
) -> None:
    async def pieces() -> Any:
        for key in range(9):
            yield f"{key}\tx\n"
        yield "9\tx"

    async def test() -> None:
        async with pool_of(cluster) as pool:
            assert await pool.copy_in(COPY, pieces()) == "COPY 10"

    run(test)
    assert sorted(cluster.rows) == list(range(10))


def test_copy_ends_where_the_data_says_so(cluster: FakeCluster) -> None:
    with sync.connect(cluster.dsn()) as connection:
        assert connection.pool.copy_in(COPY, [b"1\tx\n2\ty\n\\.\n3\tz\n"]) == "COPY 2"
    assert cluster.rows == {1: "x", 2: "y"}


@pytest.mark.parametrize(
    ("break_it", "second"),
    [("refuse", "not executed"), ("hang up", "unknown")],
)
def test_a_copy_that_failed_at_one_owner_says_what_each_did(
    cluster: FakeCluster, break_it: str, second: str
) -> None:
    if break_it == "refuse":
        cluster.instances["i2"].refuse = ["23505"]
    else:
        cluster.instances["i2"].hang_up_on = "copy"
    with sync.connect(cluster.dsn(), timeout_s=3.0) as connection:
        with pytest.raises(SomeWritten) as caught:
            connection.pool.copy_in(COPY, [(key, "x") for key in range(100)])
        states = {share.owner: share.state for share in caught.value.shares}
        assert states == {owner(cluster, 1): "done", owner(cluster, 2): second}


def test_an_owner_that_is_gone_gets_its_rows_through_another(cluster: FakeCluster) -> None:
    with sync.connect(cluster.dsn("i1"), timeout_s=3.0) as connection:
        cluster.stop("i2")
        rows = [(key, "x") for key in range(100)]
        assert connection.pool.copy_in(COPY, rows) == "COPY 100"
    assert sorted(cluster.rows) == list(range(100))


def test_a_bad_line_is_the_servers_to_refuse(cluster: FakeCluster) -> None:
    with sync.connect(cluster.dsn()) as connection:
        with pytest.raises(CairnError, match="bad line"):
            connection.pool.copy_in(COPY, [b"no number\tx\n"])
        assert not cluster.rows


def test_copy_goes_in_and_out_and_fails_cleanly(cluster: FakeCluster) -> None:
    async def test() -> None:
        async with pool_of(cluster) as pool:
            lines = (b"%d\tvalue %d\n" % (n, n) for n in range(1000))
            assert await pool.copy_in("COPY t FROM STDIN", lines) == "COPY 1000"
            chunks = [chunk async for chunk in pool.copy_out("COPY t TO STDOUT")]
            assert b"".join(chunks).count(b"\n") == 1000
            with pytest.raises(CairnError, match="bad line"):
                await pool.copy_in("COPY t FROM STDIN", [b"not a number\tx\n"])
            with pytest.raises(CairnError, match="not COPY"):
                await pool.copy_in("SELECT id, v FROM t", [])

            def broken() -> Any:
                yield b"1\tx\n"
                raise ValueError("the file ended")

            with pytest.raises(ValueError, match="the file ended"):
                await pool.copy_in("COPY t FROM STDIN", broken())
            assert await pool.fetch("SELECT id, v FROM t")

    run(test)
