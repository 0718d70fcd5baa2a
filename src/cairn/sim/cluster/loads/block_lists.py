"""Blocks under fire: clients that read and change a few rows of one bucket in BEGIN … COMMIT or DO.

Each row is a list of tags, so what was read tells which writes came before. Clients come to any
instance, think between statements, sometimes roll back, and take 40001 for what it is: the block
did not happen. `serial` judges what they were told. Of a block that only reads, and did not ask for
more, each statement is judged by itself.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import msgspec

from cairn.model.errors import CairnError
from cairn.node.statements.at_once import Outcome
from cairn.node.statements.blocks.open_block import OpenBlock
from cairn.node.statements.context import Context
from cairn.node.statements.executor import Executor
from cairn.sim.cluster.checks import Violation
from cairn.sim.cluster.loads.heard import heard
from cairn.sim.cluster.loads.load import Load
from cairn.sim.cluster.loads.registers import EQUAL_S, table_at, wait_settled
from cairn.sim.cluster.node import SimNode
from cairn.sim.serial import Append, Read, Txn, why_not_serial
from cairn.sql.api import prepare
from cairn.sql.plans import Prepared

PATIENCE_S = 8.0  # of a client
KEYS = 3  # of one bucket


class _Statement(msgspec.Struct):
    prepared: Prepared
    sharded: dict[int, int]
    oids: tuple[int, ...] = ()


class _Texts:
    """Statements for the table as an instance knows it now."""

    def __init__(self, node: SimNode) -> None:
        table = table_at(node)
        assert table is not None and node.instance is not None
        self._catalog = node.instance.state.catalog
        name, (key, value) = table.name, [column.name for column in table.columns[:2]]
        self.read = f"SELECT {value} FROM {name} WHERE {key} = $1"
        self.append = f"UPDATE {name} SET {value} = {value} || $2 WHERE {key} = $1"
        self.put = f"UPDATE {name} SET {value} = $2 WHERE {key} = $1"
        self.insert = f"INSERT INTO {name} ({key}, {value}) VALUES ($1, '') ON CONFLICT DO NOTHING"
        self.both = (
            f"DO $$ BEGIN {self.append}; UPDATE {name} SET {value} = {value} || $4 "
            f"WHERE {key} = $3; RETURN QUERY {self.read}; END $$"
        )

    def statement(self, text: str) -> _Statement:
        prepared = prepare(text, self._catalog)
        return _Statement(prepared, self._catalog.sharded(prepared.tables))

    def bucket(self, key: int) -> int:
        plan: Any = prepare(self.read, self._catalog).plan
        found: int = plan.bucket([key])
        return found


class _Block:
    """What one client does in one block, as far as it has come."""

    def __init__(self, name: str, start: float) -> None:
        self.name, self.start = name, start
        self.ops: list[Read | Append] = []
        self.is_ending = False  # from here on its outcome may be unknown
        self.is_strict = False

    def ended(self, end: float, outcome: Any) -> list[Txn]:
        if self.is_strict or any(isinstance(op, Append) for op in self.ops):
            return [Txn(self.name, tuple(self.ops), self.start, end, outcome)]
        return [
            Txn(f"{self.name}.{at}", (op,), self.start, end, outcome)
            for at, op in enumerate(self.ops)
        ]


class Lists:
    """Clients, what they did, and what has to be true in the end."""

    def __init__(
        self, load: Load, chance: random.Random, *, groups: int = 2, clients_each: int = 3
    ) -> None:
        self._load, self._world, self._chance = load, load.world, chance
        self._count, self._clients = groups, clients_each
        self.groups: list[list[int]] = []
        self.history: list[list[Txn]] = []
        self.done = self.unknown = self.refused = self.reads = 0
        self.problem = ""
        self.ways: dict[str, int] = {}

    async def run(self, seconds: float) -> None:
        await self._begin()
        until = self._world.loop.time() + seconds
        await asyncio.gather(
            *(
                self._client(number, at, until)
                for at in range(self._count)
                for number in range(self._clients)
            )
        )

    async def _begin(self) -> None:
        """Keys that share a bucket, some for each group; their rows are there before anything."""
        node = self._world.running()[0]
        texts, found = _Texts(node), dict[int, list[int]]()
        for key in range(1, 2_000):
            found.setdefault(texts.bucket(key), []).append(key)
        buckets = self._chance.sample(sorted(found), self._count)
        self.groups = [found[bucket][:KEYS] for bucket in buckets]
        self.history = [[] for _ in self.groups]
        for key in (key for group in self.groups for key in group):
            await self._surely(_inserting(key))

    async def _surely(self, ask: Callable[[SimNode], Coroutine[Any, Any, Outcome]]) -> Outcome:
        """Something that may be repeated, until it was done."""
        until = self._world.loop.time() + EQUAL_S
        while self._world.loop.time() < until:
            nodes = [node for node in self._world.running() if _knows_table(node)]
            if nodes:
                node = self._chance.choice(nodes)
                outcome, answer = await self._heard(node, partial(ask, node))
                if outcome == "done":
                    return answer  # type: ignore[no-any-return]
            await asyncio.sleep(0.2)
        raise Violation(f"cannot be done in the end: {self.problem}")

    # --- clients ----------------------------------------------------------------------------------

    async def _client(self, number: int, group: int, until: float) -> None:
        chance, count = self._chance, 0
        while self._world.loop.time() < until:
            await asyncio.sleep(chance.uniform(0.01, 0.15))
            nodes = [node for node in self._world.running() if _knows_table(node)]
            if not nodes:
                continue
            node, count = chance.choice(nodes), count + 1
            name = f"g{group}c{number}n{count}"
            block = _Block(name, self._world.loop.time())
            works = (self._interactive, self._do, self._plainly)
            [work] = chance.choices(works, (6, 2, 2))
            heard, answer = await self._heard(node, partial(work, node, self.groups[group], block))
            outcome = "undone"
            if heard == "done":
                outcome = answer
            elif heard == "unknown" and block.is_ending:
                outcome = "unknown"
            told = {"committed": "done", "undone": "refused", "unknown": "unknown"}[outcome]
            setattr(self, told, getattr(self, told) + 1)
            end = self._world.loop.time()
            self.history[group] += block.ended(end, outcome)

    async def _interactive(self, node: SimNode, keys: list[int], block: _Block) -> str:
        """BEGIN, some statements with time to think, COMMIT or ROLLBACK."""
        chance, executor = self._chance, self._load.ways(node)
        texts = _Texts(node)
        block.is_strict = chance.random() < 0.3
        open_block = OpenBlock(executor, is_strict=block.is_strict)
        context = Context()

        async def run(text: str, *params: Any) -> Outcome:
            outcome = await open_block.run(texts.statement(text), params, context)
            _go_on()
            await asyncio.sleep(chance.choice((0.0, 0.001, 0.02)))
            return outcome

        for step in range(chance.randint(1, 4)):
            key, tag = chance.choice(keys), f"{block.name}.{step}"
            kind = chance.choices(("read", "append", "put"), (4, 4, 3))[0]
            self._went(kind)
            if kind != "append":
                had = _only(await run(texts.read, key))
                block.ops.append(Read(key, _tags(had)))
                self.reads += 1
            if kind == "append":
                outcome = await run(texts.append, key, f"+{tag}")
            elif kind == "put":
                outcome = await run(texts.put, key, f"{had}+{tag}")
            if kind != "read":
                if outcome.count != 1:
                    raise Violation(f"a row of {keys} is gone")
                block.ops.append(Append(key, tag))
        if chance.random() < 0.1:
            self._went("rollback")
            return "undone"
        block.is_ending = True
        await open_block.commit(context)
        return "committed"

    async def _do(self, node: SimNode, keys: list[int], block: _Block) -> str:
        texts, executor = _Texts(node), self._load.ways(node)
        first, second = self._chance.sample(keys, 2)
        tags = f"{block.name}.0", f"{block.name}.1"
        self._went("do")
        block.ops += [Append(first, tags[0]), Append(second, tags[1])]
        block.is_ending = True
        params = (first, f"+{tags[0]}", second, f"+{tags[1]}")
        outcome = await executor.run(texts.statement(texts.both), params, Context())
        block.ops.append(Read(first, _tags(_only(outcome))))
        return "committed"

    async def _plainly(self, node: SimNode, keys: list[int], block: _Block) -> str:
        """One write outside of any block, in between the statements of others."""
        texts, executor = _Texts(node), self._load.ways(node)
        key, tag = self._chance.choice(keys), f"{block.name}.0"
        self._went("plainly")
        block.ops.append(Append(key, tag))
        block.is_ending = True
        await executor.run(texts.statement(texts.append), (key, f"+{tag}"), Context())
        return "committed"

    def _went(self, way: str) -> None:
        self.ways[way] = self.ways.get(way, 0) + 1

    async def _heard(self, node: SimNode, work: Callable[[], Any]) -> tuple[str, Any]:
        """How it ended, and its answer. Of a process that died nothing is heard."""
        task = await heard(self._world, node, work, PATIENCE_S)
        if task is None:
            return "unknown", None
        try:
            return "done", task.result()
        except asyncio.CancelledError:
            return "unknown", None
        except CairnError as problem:
            self.problem = f"{problem.sqlstate} {problem}"
            return ("unknown" if problem.sqlstate == "40003" else "refused"), None

    # --- the end ----------------------------------------------------------------------------------

    async def check(self) -> None:
        """After calm: replicas are equal, lists can be read, and an order explains every answer."""
        await wait_settled(self._world)
        for keys, history in zip(self.groups, self.history, strict=True):
            final = {}
            for key in keys:
                final[key] = _tags(_only(await self._surely(_reading(key))))
            if why := why_not_serial(history, final):
                raise Violation(f"rows {keys}: {why}")


def _go_on() -> None:
    """A client that has gone away sends nothing more, also if its last statement had its last word
    and ended well."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


def _knows_table(node: SimNode) -> Any:
    return None if node.instance is None else table_at(node)


def _inserting(key: int) -> Callable[[SimNode], Coroutine[Any, Any, Outcome]]:
    return lambda node: _alone(node, _Texts(node).insert, key)


def _reading(key: int) -> Callable[[SimNode], Coroutine[Any, Any, Outcome]]:
    return lambda node: _alone(node, _Texts(node).read, key)


async def _alone(node: SimNode, text: str, *params: Any) -> Outcome:
    assert node.instance is not None
    executor: Executor = node.instance.executor
    return await executor.run(_Texts(node).statement(text), params, Context())


def _only(outcome: Outcome) -> str:
    rows = list(outcome.rows or ())
    if len(rows) != 1:
        raise Violation(f"one row was wanted, {len(rows)} were told")
    return str(rows[0][0])


def _tags(text: str) -> tuple[str, ...]:
    return tuple(text.split("+")[1:])
