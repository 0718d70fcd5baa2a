"""The books of a bank: what its clients did and were told, and what has to be true of it.

Each account has a balance and the list of the transfers that made it, so it explains itself.
A transfer is in the lists of two accounts of one customer or in none; a customer's accounts are in
one bucket, so whoever sees them at one moment sees that. Where nothing acknowledged may be lost,
one order of transfers and reads explains all answers (`serial`). Wide writes may be half done, if
they say so; side rows may be gone, if somebody emptied their table meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal

import msgspec

from cairn.sim.serial import Append, Read, Txn, why_not_serial

CUSTOMERS, ACCOUNTS, EACH = 6, 3, 100
MONEY, ROWS = CUSTOMERS * ACCOUNTS * EACH, CUSTOMERS * ACCOUNTS
ADDED = 7  # the DEFAULT of every column that comes
Outcome = Literal["done", "undone", "unknown"]


class Transfer(msgspec.Struct, frozen=True):
    name: str  # without the signs below
    customer: int
    source: int
    target: int
    money: int

    @property
    def out(self) -> str:
        return f"{self.name}:{self.money}o"

    @property
    def into(self) -> str:
        return f"{self.name}:{self.money}i"


class Account(msgspec.Struct, frozen=True):
    """As somebody was told it."""

    customer: int
    number: int
    balance: int
    tags: tuple[str, ...]


def account(row: Sequence[Any]) -> Account:
    return Account(int(row[0]), int(row[1]), int(row[2]), tags_of(row[3]))


def tags_of(text: str) -> tuple[str, ...]:
    return tuple(text.split("+")[1:])


def _amount(tag: str) -> int:
    """What it made of the balance."""
    money = int(tag[:-1].rpartition(":")[2])
    return money if tag.endswith("i") else -money


def why_wrong_account(told: Account) -> str | None:
    right = EACH + sum(map(_amount, told.tags))
    if told.balance != right:
        return f"{told} has not what its transfers make: {right}"
    if len(set(told.tags)) != len(told.tags):
        return f"{told} has a transfer twice"
    return None


def why_wrong_customer(accounts: Sequence[Account], *, own: str | None = None) -> str | None:
    """All accounts of one customer at one moment. `own` is the half that the asker's block made."""
    if sorted(each.number for each in accounts) != list(range(ACCOUNTS)):
        return f"accounts are missing or told twice: {accounts}"
    for each in accounts:
        if why := why_wrong_account(each):
            return why
    tags = {tag for each in accounts for tag in each.tags}
    for tag in sorted(tags):
        other = tag[:-1] + ("i" if tag.endswith("o") else "o")
        if other not in tags and tag != own:
            return f"half of a transfer: {tag} in {accounts}"
    return None


def why_wrong_sum(money: Any, rows: Any) -> str | None:
    if (int(money or 0), int(rows or 0)) != (MONEY, ROWS):
        return f"{money} in {rows} accounts, and there are {MONEY} in {ROWS}"
    return None


class Wide(msgspec.Struct, frozen=True):
    """A write of all rows of a table, in all replicasets."""

    tag: str
    begun: float
    end: float
    outcome: Outcome


class Batch(msgspec.Struct, frozen=True):
    """Rows of the table that is emptied now and then; `keys` None: it was emptied."""

    keys: frozenset[int] | None
    begun: float
    end: float
    outcome: Outcome


class Books:
    """`is_strict`: nothing acknowledged may be lost."""

    def __init__(self, *, is_strict: bool) -> None:
        self.is_strict = is_strict
        self._txns: list[list[Txn]] = [[] for _ in range(CUSTOMERS)]
        self._undone: set[str] = set()
        self._sent: set[str] = set()
        self._wide: list[Wide] = []
        self._batches: list[Batch] = []
        self._numbers: set[tuple[str, int]] = set()
        self._events: dict[int, str] = {}
        self._told_wide: list[tuple[dict[int, tuple[str, ...]], float, bool]] = []
        self._told_side: list[tuple[frozenset[int], float, float, bool]] = []
        self._count = 0

    # --- transfers --------------------------------------------------------------------------------

    def transferred(
        self,
        transfer: Transfer,
        reads: Iterable[tuple[bool, Sequence[Account]]],
        begun: float,
        end: float,
        outcome: Outcome,
    ) -> None:
        """`reads` of the block, each before or after its first half was written."""
        ops: list[Read | Append] = []
        first = Append(transfer.source, transfer.out)
        is_put = False
        for is_after, accounts in reads:
            if is_after and not is_put:
                ops.append(first)
                is_put = True
            ops += [Read(each.number, each.tags) for each in accounts]
        ops += [first] * (not is_put)
        ops.append(Append(transfer.target, transfer.into))
        self._sent |= {transfer.out, transfer.into}
        if outcome == "undone":
            self._undone |= {transfer.out, transfer.into}
        named = {"done": "committed", "undone": "undone", "unknown": "unknown"}[outcome]
        self._txns[transfer.customer].append(
            Txn(transfer.name, tuple(ops), begun, end, named)  # type: ignore[arg-type]
        )

    def told(
        self, rows: Iterable[Sequence[Any]], begun: float, end: float, *, is_fresh: bool = True
    ) -> str | None:
        """Whole customers, each at one moment; None: nothing is wrong with that by itself."""
        by_customer: dict[int, list[Account]] = {}
        for each in map(account, rows):
            by_customer.setdefault(each.customer, []).append(each)
        for customer, accounts in by_customer.items():
            if why := why_wrong_customer(accounts) or self._why_untrue(accounts):
                return why
            if is_fresh:
                self._count += 1
                ops = tuple(Read(each.number, each.tags) for each in accounts)
                self._txns[customer].append(Txn(f"read {self._count}", ops, begun, end))
        return None

    def _why_untrue(self, accounts: Iterable[Account]) -> str | None:
        for each in accounts:
            for tag in each.tags:
                if tag in self._undone:
                    return f"{tag} was undone, and is in {each}"
        return None

    # --- wide writes ------------------------------------------------------------------------------

    def wrote_wide(self, tag: str, begun: float, end: float, outcome: Outcome) -> None:
        self._wide.append(Wide(tag, begun, end, outcome))

    def told_wide(
        self, rows: Sequence[Sequence[Any]], begun: float, *, is_fresh: bool = True
    ) -> str | None:
        """All rows, with the list of wide writes of each. The rest is judged in the end: what was
        under way then is known only by then."""
        if sorted(int(row[0]) for row in rows) != list(range(CUSTOMERS)):
            return f"rows are missing or told twice: {rows}"
        lists = {int(key): tags_of(text) for key, text in rows}
        for key, tags in lists.items():
            if len(set(tags)) != len(tags):
                return f"row {key} has a write twice: {tags}"
        self._told_wide.append((lists, begun, is_fresh))
        return None

    def why_wrong_wide(self) -> str | None:
        for lists, begun, is_fresh in self._told_wide:
            for each in self._wide:
                has = [key for key, tags in lists.items() if each.tag in tags]
                if each.outcome == "undone" and has:
                    return f"{each.tag} was refused, and is in rows {has}"
                is_due = is_fresh and self.is_strict and each.end < begun
                if each.outcome == "done" and is_due and len(has) < CUSTOMERS:
                    return f"{each.tag} was acknowledged, and is only in rows {has}"
        return None

    # --- side rows --------------------------------------------------------------------------------

    def put(self, keys: Iterable[int], begun: float, end: float, outcome: Outcome) -> None:
        self._batches.append(Batch(frozenset(keys), begun, end, outcome))

    def emptied(self, begun: float, end: float, outcome: Outcome) -> None:
        self._batches.append(Batch(None, begun, end, outcome))

    def told_side(
        self, keys: Sequence[int], begun: float, end: float, *, is_fresh: bool = True
    ) -> str | None:
        if len(set(keys)) != len(keys):
            return f"rows were told twice: {sorted(keys)}"
        self._told_side.append((frozenset(keys), begun, end, is_fresh))
        return None

    def why_wrong_side(self) -> str | None:
        for told in self._told_side:
            if why := self._why_wrong_side(*told):
                return why
        return None

    def _why_wrong_side(
        self, found: frozenset[int], begun: float, end: float, is_fresh: bool
    ) -> str | None:
        emptied = [each for each in self._batches if each.keys is None]
        for each in self._batches:
            if each.keys is None:
                continue
            there = found & each.keys
            if each.outcome == "undone" and there:
                return f"rows {sorted(there)} were refused, and are there"
            if there and is_fresh and self.is_strict and self._is_over(each, emptied, begun):
                return f"rows {sorted(there)} were there before their table was emptied"
            if not is_fresh or not self.is_strict or each.outcome != "done" or each.end >= begun:
                continue
            may_be_gone = any(
                cut.outcome != "undone" and cut.begun < end and _end(cut) > each.begun
                for cut in emptied
            )
            if there != each.keys and not may_be_gone:
                return f"acknowledged rows {sorted(each.keys - there)} are not there"
        return None

    @staticmethod
    def _is_over(batch: Batch, emptied: list[Batch], begun: float) -> bool:
        """Written for certain before the table was emptied, and that was over before `begun`."""
        return any(
            cut.outcome == "done" and _end(batch) < cut.begun and cut.end < begun for cut in emptied
        )

    # --- numbers ----------------------------------------------------------------------------------

    def number(self, of: str, number: int) -> str | None:
        if (of, number) in self._numbers:
            return f"{of} gave {number} twice"
        self._numbers.add((of, number))
        return None

    def event(self, number: int, text: str) -> str | None:
        self._events[number] = text
        return self.number("ev", number)

    def why_wrong_events(self, rows: Iterable[Sequence[Any]]) -> str | None:
        """At the end."""
        found = {int(number): text for number, text in rows}
        for number, text in self._events.items():
            if found.get(number, text) != text:
                return f"event {number} is {found[number]}, it was told as {text}"
            if self.is_strict and number not in found:
                return f"acknowledged event {number} is lost"
        return None

    # --- the end ----------------------------------------------------------------------------------

    def why_wrong(self, rows: Iterable[Sequence[Any]]) -> str | None:
        """`rows` are all accounts in the end."""
        final: list[dict[int, tuple[str, ...]]] = [{} for _ in range(CUSTOMERS)]
        for each in map(account, rows):
            for tag in each.tags:
                if tag not in self._sent:
                    return f"nobody made {tag} of {each}"
            final[each.customer][each.number] = each.tags
        if why := self.why_wrong_wide() or self.why_wrong_side():
            return why
        if not self.is_strict:
            return None
        for customer, txns in enumerate(self._txns):
            if why := why_not_serial(txns, final[customer]):
                return f"customer {customer}: {why}"
        return None


def _end(batch: Batch) -> float:
    """Of what is not known the end is not known either."""
    return batch.end if batch.outcome == "done" else float("inf")
