"""A bank under fire: money goes from one account of a customer to another, over real sessions.

Transfers are blocks, DO and single statements; others ask for all the money in many ways, write to
all customers at once, fill and empty a side table, draw numbers, and change the tables meanwhile.
`bank_books` says what has to be true of the answers. Errors are judged, too: one that is a mistake
of the database fails the trial, and so does a statement that was refused because of a schema change
or a master that moved, without having waited for it.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from cairn.model.errors import CairnError
from cairn.sim.cluster.checks import Violation
from cairn.sim.cluster.loads.banking.bank_books import (
    ACCOUNTS,
    ADDED,
    CUSTOMERS,
    EACH,
    Account,
    Books,
    Outcome,
    Transfer,
    account,
    why_wrong_account,
    why_wrong_sum,
)
from cairn.sim.cluster.loads.banking.bank_texts import (
    ALL,
    BOTH,
    CHANGER_TOLD,
    CHANGES,
    MOVE,
    OF_VIEW,
    OTHERS,
    SCANS,
    SCHEMA,
    SET,
    SUMS,
    TOLD,
    VIEW,
)
from cairn.sim.cluster.loads.heard import heard
from cairn.sim.cluster.loads.load import Load
from cairn.sim.cluster.loads.registers import EQUAL_S, wait_settled, why_unequal
from cairn.sim.cluster.node import SimNode
from cairn.sim.cluster.sessions import UNKNOWN, Connections, Faces, WireClient
from cairn.sim.linear import FOREVER

PATIENCE_S = 12.0  # of a client
WAITED_S = 4.5  # what moves is followed for at least that long before a statement is refused


class _Block:
    """What one client does, as far as it has come."""

    def __init__(self) -> None:
        self.reads: list[tuple[bool, list[Account]]] = []
        self.is_ending = False  # from here on its outcome may be unknown


class Bank:
    """Clients, and what has to be true of every answer."""

    groups = ()  # of the table that other loads change

    def __init__(self, load: Load, faces: Faces, chance: random.Random, *, is_strict: bool) -> None:
        self._world, self._chance = load.world, chance
        self._connections = Connections(faces)
        self.books = Books(is_strict=is_strict)
        self.is_calm = False  # nobody dies or stands still: nothing is left half done
        self.change_s = 2.0  # between two changes of tables
        self.done = self.unknown = self.refused = self.reads = 0
        self.problem = ""
        self.ways: Counter[str] = Counter()
        self._key = 0
        self._has_view = chance.random() < 0.5

    async def run(self, seconds: float) -> None:
        until = self._world.loop.time() + seconds
        works: list[Callable[[int, SimNode], Awaitable[None]]] = [
            *[self._transfer] * 8,
            *[self._count] * 3,
            *[self._look] * 2,
            *[self._write_wide, self._write_wide, self._fill, self._fill, self._events],
        ]
        clients = [self._client(at, until, work, 0.3) for at, work in enumerate(works)]
        changer = self._client(len(works), until, self._change, self.change_s)
        await asyncio.gather(*clients, changer)

    async def _client(
        self, whose: int, until: float, work: Callable[[int, SimNode], Any], pause_s: float
    ) -> None:
        while self._world.loop.time() < until:
            await asyncio.sleep(self._chance.uniform(0.1, 1.0) * pause_s)
            nodes = [node for node in self._world.running() if node.instance is not None]
            if nodes:
                await work(whose, self._chance.choice(nodes))

    async def fill(self) -> None:
        """Before anything happens."""
        node = self._world.running()[0]
        for text in (*SCHEMA, *[VIEW] * self._has_view):
            await self._surely(node, text)
        every = range(CUSTOMERS)
        rows = ", ".join(f"({each}, 'n')" for each in every)
        await self._surely(node, f"INSERT INTO cust (id, name) VALUES {rows}")
        rows = ", ".join(f"({each}, '')" for each in every)
        await self._surely(node, f"INSERT INTO owner VALUES {rows}")
        rows = ", ".join(f"({each}, {no}, {EACH}, '')" for each in every for no in range(ACCOUNTS))
        await self._surely(node, f"INSERT INTO acc VALUES {rows}")
        await self._world.until(lambda: why_unequal(self._world) is None, "equal", EQUAL_S)

    async def _surely(self, node: SimNode, text: str) -> None:
        outcome, _ = await self._asked(-1, node, lambda client: client.ask(text))
        if outcome != "done":
            raise Violation(f"{text} before any blow: {outcome} {self.problem}")

    # --- transfers --------------------------------------------------------------------------------

    async def _transfer(self, whose: int, node: SimNode) -> None:
        chance, block = self._chance, _Block()
        self._key += 1
        source, target = chance.sample(range(ACCOUNTS), 2)
        customer, money = chance.randrange(CUSTOMERS), chance.randrange(1, 20)
        asked = Transfer(f"{whose}.{self._key}", customer, source, target, money)
        way = chance.choice((self._blind, self._blind, self._informed, self._do, self._single))
        begun = self._now
        outcome, answer = await self._asked(whose, node, lambda client: way(client, asked, block))
        if outcome == "done" and answer == "rolled back":
            outcome = "undone"
        elif outcome == "unknown" and not block.is_ending:
            outcome = "undone"  # a block that was not told to commit
        self._counted(outcome, way.__name__)
        end = self._now if outcome == "done" else float(FOREVER)
        self.books.transferred(asked, block.reads, begun, end, outcome)

    async def _blind(self, client: WireClient, asked: Transfer, block: _Block) -> str:
        """Two updates, maybe a look in between; nothing that the client was told goes in."""
        chance = self._chance
        customer, money = asked.customer, asked.money
        async with _Begun(client, chance):
            await self._one(client, MOVE, (customer, asked.source, -money, f"+{asked.out}"))
            await asyncio.sleep(chance.choice((0.0, 0.001, 0.05)))
            if chance.random() < 0.4:
                block.reads.append((True, await self._accounts(client, asked, asked.out)))
            if chance.random() < 0.2:
                await client.ask("SAVEPOINT s")
                await self._one(client, MOVE, (customer, asked.source, -1, "+never:1o"))
                await client.ask("ROLLBACK TO s")
            await self._one(client, MOVE, (customer, asked.target, money, f"+{asked.into}"))
            return await self._ended(client, block)

    async def _informed(self, client: WireClient, asked: Transfer, block: _Block) -> str:
        """What is written was made from what was read: it has to be so still at COMMIT."""
        async with _Begun(client, self._chance):
            accounts = await self._accounts(client, asked, None)
            block.reads.append((False, accounts))
            await asyncio.sleep(self._chance.choice((0.0, 0.01, 0.1)))
            for number, money, tag in (
                (asked.source, -asked.money, asked.out),
                (asked.target, asked.money, asked.into),
            ):
                [had] = [each for each in accounts if each.number == number]
                tags = "".join(f"+{each}" for each in (*had.tags, tag))
                params = (asked.customer, number, had.balance + money, tags)
                await self._one(client, SET, params)
            return await self._ended(client, block)

    async def _ended(self, client: WireClient, block: _Block) -> str:
        if self._chance.random() < 0.1:
            await client.ask("ROLLBACK")
            return "rolled back"
        block.is_ending = True
        await client.ask("COMMIT")
        return "committed"

    async def _do(self, client: WireClient, asked: Transfer, block: _Block) -> str:
        block.is_ending = True
        halves = (
            (asked.source, -asked.money, asked.out),
            (asked.target, asked.money, asked.into),
        )
        texts = [
            f"UPDATE acc SET bal = bal + {money}, tags = tags || '+{tag}' "
            f"WHERE cust = {asked.customer} AND no = {number}; "
            for number, money, tag in halves
        ]
        await client.ask(f"DO $$ BEGIN {''.join(texts)}END $$")
        return "committed"

    async def _single(self, client: WireClient, asked: Transfer, block: _Block) -> str:
        block.is_ending = True
        tags = f"+{asked.out}", f"+{asked.into}"
        params = (asked.customer, asked.source, asked.target, asked.money, *tags)
        _, count = await client.run(BOTH, params)
        if count != 2:
            raise Violation(f"{asked} changed {count} accounts")
        return "committed"

    async def _one(self, client: WireClient, text: str, params: Sequence[Any]) -> None:
        _, count = await client.run(text, params)
        if count != 1:
            raise Violation(f"{text} {params} changed {count} accounts")

    async def _accounts(
        self, client: WireClient, asked: Transfer, own: str | None
    ) -> list[Account]:
        """Inside of a block: not judged as a whole before COMMIT, but each explains itself."""
        rows, _ = await client.run(ALL, (asked.customer,))
        found = [account((asked.customer, *row)) for row in rows]
        self.reads += 1
        for each in found:
            why = why_wrong_account(each)
            if why is None and each.number == asked.source and own and own not in each.tags:
                why = f"a block does not see its own {own} in {each}"
            if why:
                raise Violation(f"told in a block: {why}")
        if len(found) != ACCOUNTS:
            raise Violation(f"told in a block: {found}")
        return found

    # --- questions --------------------------------------------------------------------------------

    async def _count(self, whose: int, node: SimNode) -> None:
        await self.sum(whose, node, self._chance.choice(self._sums()), self._option())

    def _sums(self) -> tuple[str, ...]:
        return (*SUMS, "COPY", *[OF_VIEW] * self._has_view)

    def _option(self) -> str:
        return OTHERS if self._chance.random() < 0.15 else ""

    async def sum(self, whose: int, node: SimNode, way: str, option: str = "") -> bool:
        """All the money; whether it was answered."""
        if way == "COPY":
            text = f"COPY (SELECT bal FROM acc{option}) TO STDOUT"
            outcome, told = await self._asked(whose, node, lambda client: client.copied(text))
            found = [int(each) for each in (told or b"").split()]
            answer = (sum(found), len(found))
        else:
            text = way + option
            outcome, told = await self._asked(whose, node, lambda client: client.run(text, ()))
            answer = told[0][0] if told else (0, 0)
        if outcome == "done":
            self._found(node, text, why_wrong_sum(*answer))
        return outcome == "done"

    async def _look(self, whose: int, node: SimNode) -> None:
        work = self._chance.choice(
            (self.scan, self.scan, self._star, self._customer, self.wide, self.side)
        )
        await work(whose, node)

    async def scan(self, whose: int, node: SimNode, text: str = "") -> bool:
        begun, option = self._now, ""
        if not text:
            text, option = self._chance.choice(SCANS), self._option()
        run = text + option
        outcome, answer = await self._asked(whose, node, lambda client: client.run(run, ()))
        if outcome == "done":
            why = self.books.told(answer[0], begun, self._now, is_fresh=not option)
            if why is None and len(answer[0]) != CUSTOMERS * ACCOUNTS:
                why = f"{len(answer[0])} accounts were told"
            self._found(node, text, why)
        return outcome == "done"

    async def _star(self, whose: int, node: SimNode) -> None:
        """Columns that were added have their DEFAULT."""
        begun, text = self._now, "SELECT * FROM acc"
        outcome, rows = await self._asked(whose, node, lambda client: client.ask(text))
        if outcome == "done":
            why = self.books.told(rows, begun, self._now)
            if any(int(each or 0) != ADDED for row in rows for each in row[4:]):
                why = f"a column that was added has not its DEFAULT: {rows}"
            self._found(node, text, why)

    async def _customer(self, whose: int, node: SimNode) -> None:
        begun, customer = self._now, self._chance.randrange(CUSTOMERS)
        outcome, answer = await self._asked(
            whose, node, lambda client: client.run(ALL, (customer,))
        )
        if outcome == "done":
            rows = [(customer, *row) for row in answer[0]]
            why = self.books.told(rows, begun, self._now) if rows else "no account"
            self._found(node, ALL, why)

    def _found(self, node: SimNode, text: str, why: str | None) -> None:
        self.reads += 1
        if why:
            raise Violation(f"{node} told of {text}: {why}")

    # --- all customers at once, side rows, numbers ------------------------------------------------

    async def _write_wide(self, whose: int, node: SimNode) -> None:
        self._key += 1
        begun, tag = self._now, f"w{self._key}"
        if self._chance.random() < 0.3:  # the rows are read first, and written by their keys
            text = f"UPDATE owner SET tags = tags || '+{tag}' WHERE cust IN (SELECT id FROM cust)"
        else:
            text = f"UPDATE owner SET tags = tags || '+{tag}' WHERE cust >= 0"
        outcome, answer = await self._asked(whose, node, lambda client: client.run(text, ()))
        self._counted(outcome, "write wide")
        if outcome == "done" and answer[1] != CUSTOMERS:
            raise Violation(f"{node} changed {answer[1]} rows of {text}")
        self.books.wrote_wide(tag, begun, self._now, outcome)

    async def wide(self, whose: int, node: SimNode) -> bool:
        begun, option = self._now, self._option()
        text = "SELECT cust, tags FROM owner" + option
        outcome, answer = await self._asked(whose, node, lambda client: client.run(text, ()))
        if outcome == "done":
            why = self.books.told_wide(answer[0], begun, is_fresh=not option)
            self._found(node, text, why)
        return outcome == "done"

    async def _fill(self, whose: int, node: SimNode) -> None:
        chance, begun = self._chance, self._now
        if chance.random() < 0.1:
            outcome, _ = await self._asked(
                whose, node, lambda client: client.ask("TRUNCATE TABLE side"), is_change=True
            )
            self._counted(outcome, "truncate")
            self.books.emptied(begun, self._now, outcome)
            return
        keys = [self._key * 10 + each for each in range(chance.choice((1, 6)))]
        self._key += 1
        if chance.random() < 0.4:
            lines = "".join(f"{key}\tc\n" for key in keys).encode()
            text = "COPY side (id, t) FROM STDIN"
            outcome, _ = await self._asked(whose, node, lambda client: client.copy_in(text, lines))
            if outcome == "undone" and len(keys) > 1:
                outcome = "unknown"  # rows of several replicasets
        else:
            values = ", ".join(f"({key}, 'i')" for key in keys)
            text = f"INSERT INTO side (id, t) VALUES {values}"
            outcome, _ = await self._asked(whose, node, lambda client: client.run(text, ()))
        self._counted(outcome, text[:4] + " side")
        self.books.put(keys, begun, self._now, outcome)

    async def side(self, whose: int, node: SimNode) -> bool:
        begun, option = self._now, self._option()
        text = "SELECT id FROM side" + option
        outcome, answer = await self._asked(whose, node, lambda client: client.run(text, ()))
        if outcome == "done":
            keys = [int(row[0]) for row in answer[0]]
            why = self.books.told_side(keys, begun, self._now, is_fresh=not option)
            self._found(node, text, why)
        return outcome == "done"

    async def _events(self, whose: int, node: SimNode) -> None:
        chance = self._chance
        if chance.random() < 0.3:
            outcome, answer = await self._asked(
                whose, node, lambda client: client.run("SELECT nextval('numbers')", ())
            )
            if outcome == "done":
                self._found(node, "nextval", self.books.number("numbers", int(answer[0][0][0])))
            return
        self._key += 1
        texts = [f"e{self._key}.{each}" for each in range(chance.choice((1, 5)))]
        values = ", ".join(f"('{text}')" for text in texts)
        insert = f"INSERT INTO ev (t) VALUES {values} RETURNING id, t"
        outcome, answer = await self._asked(whose, node, lambda client: client.run(insert, ()))
        self._counted(outcome, "events")
        if outcome == "done":
            if [row[1] for row in answer[0]] != texts:
                raise Violation(f"{node} told of {insert}: {answer[0]}")
            for number, text in answer[0]:
                self._found(node, insert, self.books.event(int(number), text))

    async def _change(self, whose: int, node: SimNode) -> None:
        text = self._chance.choice(CHANGES).format(n=self._chance.randrange(4))
        outcome, _ = await self._asked(whose, node, lambda client: client.ask(text), is_change=True)
        self.ways[f"change {outcome}"] += 1

    # --- asking -----------------------------------------------------------------------------------

    @property
    def _now(self) -> float:
        return self._world.loop.time()

    def _counted(self, outcome: Outcome, way: str) -> None:
        name = "refused" if outcome == "undone" else outcome
        setattr(self, name, getattr(self, name) + 1)
        self.ways[f"{way.strip('_')} {name}"] += 1

    async def _asked(
        self,
        whose: int,
        node: SimNode,
        ask: Callable[[WireClient], Awaitable[Any]],
        *,
        is_change: bool = False,
    ) -> tuple[Outcome, Any]:
        async def work() -> Any:
            return await ask(await self._connections.free(whose, node))

        begun = self._now
        task = await heard(self._world, node, work, PATIENCE_S)
        if task is None or task.cancelled():
            return "unknown", None
        try:
            return "done", task.result()
        except CairnError as problem:
            return self._refused(node, problem, self._now - begun, is_change=is_change), None

    def _refused(
        self, node: SimNode, problem: CairnError, waited_s: float, *, is_change: bool
    ) -> Outcome:
        """What the error says of the outcome. One that a client should never see is a violation."""
        code = problem.sqlstate
        self.problem = f"{code} {problem}"
        self.ways[f"told {code}"] += 1
        if code == "PC006":  # of rows of several replicasets: each of them says what it did
            if self.is_calm and "unknown" not in (problem.detail or ""):
                raise Violation(f"{node} left a write half done: {problem.detail}")
            return "unknown"
        if code not in (CHANGER_TOLD if is_change else TOLD):
            raise Violation(f"{node} told a client after {waited_s:.3f} s: {code} {problem}")
        if code == "PC003" and waited_s < WAITED_S and not is_change:
            raise Violation(f"{node} did not wait for a master ({waited_s:.3f} s): {problem}")
        return "unknown" if code in (UNKNOWN, "58000") else "undone"

    # --- the end ----------------------------------------------------------------------------------

    async def check(self) -> None:
        """After calm everything is answered, whoever is asked, and the books are right."""
        await wait_settled(self._world)
        for node in self._world.running():
            for way in self._sums():
                await self._must(node, self.sum(-1, node, way))
            await self._must(node, self.scan(-1, node, SCANS[0]))
            await self._must(node, self.wide(-1, node))
            await self._must(node, self.side(-1, node))
        node = self._world.running()[0]
        for text, judge in (
            ("SELECT id, t FROM ev", self.books.why_wrong_events),
            (SCANS[0], self.books.why_wrong),
        ):
            outcome, answer = await self._asked(-1, node, lambda client, t=text: client.run(t, ()))  # type: ignore[misc]
            if outcome != "done":
                raise Violation(f"{text} is not answered in the end: {self.problem}")
            if why := judge(answer[0]):
                raise Violation(f"in the end: {why}")

    async def _must(self, node: SimNode, asked: Awaitable[bool]) -> None:
        if not await asked:
            raise Violation(f"{node} does not answer in the end: {self.problem}")


class _Begun:
    """BEGIN … until COMMIT. After an error some clients roll back, others hang up."""

    def __init__(self, client: WireClient, chance: random.Random) -> None:
        self._client, self._chance = client, chance

    async def __aenter__(self) -> None:
        await self._client.ask("BEGIN")

    async def __aexit__(self, kind: Any, problem: BaseException | None, _: Any) -> None:
        if problem is None:
            return
        if isinstance(problem, CairnError) and self._chance.random() < 0.5:
            try:
                await self._client.ask("ROLLBACK")
            except CairnError:
                self._client.close()
        else:
            self._client.close()
