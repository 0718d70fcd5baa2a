"""Real clients with blocks on the same rows, at both instances: one order explains all answers."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterator
from typing import Any

import asyncpg
import pytest

from cairn.sim.serial import Append, Read, Txn, why_not_serial
from tests.cluster.harness import PASSWORD, Cluster

KEYS = (1, 2, 3)
CLIENTS, BLOCKS = 6, 25
READ = "SELECT tags FROM lists WHERE place = 1 AND no = $1"
APPEND = "UPDATE lists SET tags = tags || $2 WHERE place = 1 AND no = $1"
PUT = "UPDATE lists SET tags = $2 WHERE place = 1 AND no = $1"
BALANCE = "SELECT sum(n) FROM lists WHERE place = 1"


@pytest.fixture
def lists(cluster: Cluster) -> Iterator[Cluster]:
    first = cluster["i1"]
    first.sql("DROP TABLE IF EXISTS lists")
    first.sql(
        "CREATE TABLE lists (place INT, no INT, tags TEXT, n INT, PRIMARY KEY (place, no)) "
        "DISTRIBUTED BY (place)"
    )
    for key in KEYS:
        first.sql(f"INSERT INTO lists VALUES (1, {key}, '', 100)")
    yield cluster
    first.sql("DROP TABLE lists")


def tags_of(text: str) -> tuple[str, ...]:
    return tuple(text.split("+")[1:])


async def connected(cluster: Cluster, number: int) -> Any:
    port = cluster[("i1", "i2")[number % 2]].pg_port
    return await asyncpg.connect(host="127.0.0.1", port=port, user="admin", password=PASSWORD)


async def client(cluster: Cluster, number: int, chance: random.Random) -> list[Txn]:
    sql = await connected(cluster, number)
    found = []
    try:
        for count in range(BLOCKS):
            name = f"c{number}n{count}"
            ops: list[Read | Append] = []
            begun = time.monotonic()
            outcome: Any = "committed"
            try:
                async with sql.transaction(isolation="serializable"):
                    for step in range(chance.randint(1, 4)):
                        await _step(sql, chance, f"{name}.{step}", ops)
                    if chance.random() < 0.1:
                        raise ValueError
            except (asyncpg.SerializationError, ValueError):
                outcome = "undone"
            found.append(Txn(name, tuple(ops), begun, time.monotonic(), outcome))
    finally:
        await sql.close()
    return found


async def _step(sql: Any, chance: random.Random, tag: str, ops: list[Read | Append]) -> None:
    key = chance.choice(KEYS)
    kind = chance.choice(("read", "append", "put"))
    had = ""
    if kind != "append":
        had = await sql.fetchval(READ, key)
        ops.append(Read(key, tags_of(had)))
    if kind == "append":
        assert await sql.execute(APPEND, key, f"+{tag}") == "UPDATE 1"
    elif kind == "put":
        assert await sql.execute(PUT, key, f"{had}+{tag}") == "UPDATE 1"
    if kind != "read":
        ops.append(Append(key, tag))


def test_one_order_explains_what_clients_were_told(lists: Cluster) -> None:
    seed = random.randrange(1_000_000)
    print("seed", seed)

    async def run() -> tuple[list[Txn], dict[int, tuple[str, ...]]]:
        chances = [random.Random(f"{seed}/{number}") for number in range(CLIENTS)]
        parts = await asyncio.gather(*(client(lists, n, c) for n, c in enumerate(chances)))
        sql = await connected(lists, 0)
        final = {key: tags_of(await sql.fetchval(READ, key)) for key in KEYS}
        await sql.close()
        return [txn for part in parts for txn in part], final

    history, final = asyncio.run(run())
    assert why_not_serial(history, final) is None
    outcomes = [txn.outcome for txn in history]
    assert outcomes.count("committed") > CLIENTS and outcomes.count("undone") > 0


def test_transfers_keep_the_sum_and_no_reader_sees_half_of_one(lists: Cluster) -> None:
    """Whoever gets 40001 repeats the block: in the end all of them are done."""

    async def move(number: int, chance: random.Random) -> None:
        sql = await connected(lists, number)
        try:
            for _ in range(15):
                giver, taker = chance.sample(KEYS, 2)
                amount = chance.randint(1, 5)
                while not await _transfer(sql, giver, taker, amount):
                    pass
        finally:
            await sql.close()

    async def watch(until: asyncio.Event) -> set[int]:
        sql = await connected(lists, 1)
        seen = set()
        try:
            while not until.is_set():
                seen.add(await sql.fetchval(BALANCE))
        finally:
            await sql.close()
        return seen

    async def run() -> set[int]:
        over = asyncio.Event()
        watching = asyncio.create_task(watch(over))
        await asyncio.gather(*(move(n, random.Random(n)) for n in range(4)))
        over.set()
        return await watching

    assert asyncio.run(run()) == {300}


async def _transfer(sql: Any, giver: int, taker: int, amount: int) -> bool:
    change = "UPDATE lists SET n = $2 WHERE place = 1 AND no = $1"
    read = "SELECT n FROM lists WHERE place = 1 AND no = $1"
    try:
        async with sql.transaction():
            had, has = await sql.fetchval(read, giver), await sql.fetchval(read, taker)
            await sql.execute(change, giver, had - amount)
            await sql.execute(change, taker, has + amount)
    except asyncpg.SerializationError:
        return False
    return True
