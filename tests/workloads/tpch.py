"""The tables of TPC-H, and rows for them from a small seeded generator of our own.

`scale` 1 would be as many rows as the specification has for it: 6,000,000 lines of orders.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from datetime import date, timedelta
from typing import Any

#: Name, columns, and the distribution that somebody who knows the queries would choose.
TABLES: dict[str, tuple[str, str]] = {
    "region": (
        "r_regionkey INT PRIMARY KEY, r_name CHAR(25) NOT NULL, r_comment VARCHAR(152)",
        "GLOBALLY",
    ),
    "nation": (
        "n_nationkey INT PRIMARY KEY, n_name CHAR(25) NOT NULL, n_regionkey INT NOT NULL,"
        " n_comment VARCHAR(152)",
        "GLOBALLY",
    ),
    "supplier": (
        "s_suppkey INT PRIMARY KEY, s_name CHAR(25) NOT NULL, s_address VARCHAR(40) NOT NULL,"
        " s_nationkey INT NOT NULL, s_phone CHAR(15) NOT NULL, s_acctbal NUMERIC(15, 2) NOT NULL,"
        " s_comment VARCHAR(101) NOT NULL",
        "GLOBALLY",
    ),
    "part": (
        "p_partkey INT PRIMARY KEY, p_name VARCHAR(55) NOT NULL, p_mfgr CHAR(25) NOT NULL,"
        " p_brand CHAR(10) NOT NULL, p_type VARCHAR(25) NOT NULL, p_size INT NOT NULL,"
        " p_container CHAR(10) NOT NULL, p_retailprice NUMERIC(15, 2) NOT NULL,"
        " p_comment VARCHAR(23) NOT NULL",
        "BY (p_partkey)",
    ),
    "partsupp": (
        "ps_partkey INT NOT NULL, ps_suppkey INT NOT NULL, ps_availqty INT NOT NULL,"
        " ps_supplycost NUMERIC(15, 2) NOT NULL, ps_comment VARCHAR(199) NOT NULL,"
        " PRIMARY KEY (ps_partkey, ps_suppkey)",
        "BY (ps_partkey)",
    ),
    "customer": (
        "c_custkey INT PRIMARY KEY, c_name VARCHAR(25) NOT NULL, c_address VARCHAR(40) NOT NULL,"
        " c_nationkey INT NOT NULL, c_phone CHAR(15) NOT NULL, c_acctbal NUMERIC(15, 2) NOT NULL,"
        " c_mktsegment CHAR(10) NOT NULL, c_comment VARCHAR(117) NOT NULL",
        "BY (c_custkey)",
    ),
    "orders": (
        "o_orderkey INT PRIMARY KEY, o_custkey INT NOT NULL, o_orderstatus CHAR(1) NOT NULL,"
        " o_totalprice NUMERIC(15, 2) NOT NULL, o_orderdate DATE NOT NULL,"
        " o_orderpriority CHAR(15) NOT NULL, o_clerk CHAR(15) NOT NULL,"
        " o_shippriority INT NOT NULL, o_comment VARCHAR(79) NOT NULL",
        "BY (o_orderkey)",
    ),
    "lineitem": (
        "l_orderkey INT NOT NULL, l_partkey INT NOT NULL, l_suppkey INT NOT NULL,"
        " l_linenumber INT NOT NULL, l_quantity NUMERIC(15, 2) NOT NULL,"
        " l_extendedprice NUMERIC(15, 2) NOT NULL, l_discount NUMERIC(15, 2) NOT NULL,"
        " l_tax NUMERIC(15, 2) NOT NULL, l_returnflag CHAR(1) NOT NULL,"
        " l_linestatus CHAR(1) NOT NULL, l_shipdate DATE NOT NULL, l_commitdate DATE NOT NULL,"
        " l_receiptdate DATE NOT NULL, l_shipinstruct CHAR(25) NOT NULL,"
        " l_shipmode CHAR(10) NOT NULL, l_comment VARCHAR(44) NOT NULL,"
        " PRIMARY KEY (l_orderkey, l_linenumber)",
        "BY (l_orderkey)",
    ),
}
INDEXES = (
    "CREATE INDEX lineitem_part ON lineitem (l_partkey, l_suppkey)",
    "CREATE INDEX orders_customer ON orders (o_custkey)",
    "CREATE INDEX partsupp_supplier ON partsupp (ps_suppkey)",
)

REGIONS = ("AFRICA", "AMERICA", "ASIA", "EUROPE", "MIDDLE EAST")
#: Nations with the number of their region.
NATIONS = (
    *(("ALGERIA", 0), ("ARGENTINA", 1), ("BRAZIL", 1), ("CANADA", 1), ("EGYPT", 4)),
    *(("ETHIOPIA", 0), ("FRANCE", 3), ("GERMANY", 3), ("INDIA", 2), ("INDONESIA", 2)),
    *(("IRAN", 4), ("IRAQ", 4), ("JAPAN", 2), ("JORDAN", 4), ("KENYA", 0)),
    *(("MOROCCO", 0), ("MOZAMBIQUE", 0), ("PERU", 1), ("CHINA", 2), ("ROMANIA", 3)),
    *(("SAUDI ARABIA", 4), ("VIETNAM", 2), ("RUSSIA", 3), ("UNITED KINGDOM", 3)),
    ("UNITED STATES", 1),
)
COLOURS = ("almond", "azure", "blue", "coral", "cream", "forest", "green", "ivory", "lime", "navy")
KINDS = ("STANDARD", "SMALL", "MEDIUM", "LARGE", "ECONOMY", "PROMO")
FINISHES = ("ANODIZED", "BURNISHED", "PLATED", "POLISHED", "BRUSHED")
METALS = ("TIN", "NICKEL", "BRASS", "STEEL", "COPPER")
SIZES = ("SM", "LG", "MED", "JUMBO", "WRAP")
BOXES = ("CASE", "BOX", "BAG", "JAR", "PKG", "PACK", "CAN", "DRUM")
SEGMENTS = ("AUTOMOBILE", "BUILDING", "FURNITURE", "MACHINERY", "HOUSEHOLD")
PRIORITIES = ("1-URGENT", "2-HIGH", "3-MEDIUM", "4-NOT SPECIFIED", "5-LOW")
INSTRUCTIONS = ("DELIVER IN PERSON", "COLLECT COD", "NONE", "TAKE BACK RETURN")
MODES = ("REG AIR", "AIR", "RAIL", "SHIP", "TRUCK", "MAIL", "FOB")
WORDS = (
    *("the", "slow", "quick", "final", "special", "pending", "regular", "express", "ironic"),
    *("packages", "requests", "deposits", "accounts", "theories", "Customer", "Complaints"),
)
FIRST, LAST, TODAY = date(1992, 1, 1), date(1998, 8, 2), date(1995, 6, 17)

Row = tuple[Any, ...]


class Rows:
    """The same rows for the same scale and seed."""

    def __init__(self, scale: float, seed: int = 1) -> None:
        self._dice = random.Random(seed)
        self.suppliers = max(int(10_000 * scale), 20)
        self.parts = max(int(200_000 * scale), 100)
        self.customers = max(int(150_000 * scale), 60)
        self.orders = max(int(1_500_000 * scale), 600)
        made: dict[str, Callable[[], Iterable[Row]]] = {
            "region": lambda: ((at, name, self._words(6)) for at, name in enumerate(REGIONS)),
            "nation": lambda: ((at, *each, self._words(6)) for at, each in enumerate(NATIONS)),
            "supplier": self._suppliers,
            "part": self._parts,
            "partsupp": self._offers,
            "customer": self._customers,
        }
        self.tables = {name: list(make()) for name, make in made.items()}
        both = list(self._orders())
        self.tables["orders"] = [order for order, _ in both]
        self.tables["lineitem"] = [line for _, lines in both for line in lines]

    def copied(self, table: str) -> Iterator[str]:
        """Lines for COPY."""
        return ("\t".join(map(str, row)) + "\n" for row in self.tables[table])

    def _words(self, most: int) -> str:
        return " ".join(self._dice.choices(WORDS, k=self._dice.randint(2, most)))

    def _money(self, low: int, high: int) -> str:
        cents = self._dice.randint(low * 100, high * 100)
        return f"{'-' if cents < 0 else ''}{abs(cents) // 100}.{abs(cents) % 100:02}"

    def _phone(self, nation: int) -> str:
        dice = self._dice.randint
        return f"{nation + 10}-{dice(100, 999)}-{dice(100, 999)}-{dice(1000, 9999)}"

    def _suppliers(self) -> Iterator[Row]:
        for at in range(1, self.suppliers + 1):
            nation = self._dice.randrange(25)
            address, money = self._words(3), self._money(-999, 9999)
            comment = self._words(8)
            yield (at, f"Supplier#{at:09}", address, nation, self._phone(nation), money, comment)

    def _parts(self) -> Iterator[Row]:
        choice = self._dice.choice
        for at in range(1, self.parts + 1):
            maker = self._dice.randint(1, 5)
            yield (
                at,
                " ".join(self._dice.sample(COLOURS, 5)),
                f"Manufacturer#{maker}",
                f"Brand#{maker}{self._dice.randint(1, 5)}",
                f"{choice(KINDS)} {choice(FINISHES)} {choice(METALS)}",
                self._dice.randint(1, 50),
                f"{choice(SIZES)} {choice(BOXES)}",
                f"{self._price(at)}",
                self._words(2),
            )

    def _price(self, part: int) -> str:
        cents = 90_000 + part // 10 % 20_001 + 100 * (part % 1_000)
        return f"{cents // 100}.{cents % 100:02}"

    def _supplier_of(self, part: int, nth: int) -> int:
        step = self.suppliers // 4 + (part - 1) // self.suppliers
        return (part + nth * step) % self.suppliers + 1

    def _offers(self) -> Iterator[Row]:
        for part in range(1, self.parts + 1):
            for supplier in sorted({self._supplier_of(part, nth) for nth in range(4)}):
                quantity, money = self._dice.randint(1, 9999), self._money(1, 1000)
                yield (part, supplier, quantity, money, self._words(10))

    def _customers(self) -> Iterator[Row]:
        for at in range(1, self.customers + 1):
            nation = self._dice.randrange(25)
            address, money = self._words(3), self._money(-999, 9999)
            segment, comment = self._dice.choice(SEGMENTS), self._words(8)
            yield (
                *(at, f"Customer#{at:09}", address, nation),
                *(self._phone(nation), money, segment, comment),
            )

    def _orders(self) -> Iterator[tuple[Row, list[Row]]]:
        days = (LAST - FIRST).days
        for nth in range(self.orders):
            key = nth // 8 * 32 + nth % 8 + 1  # with gaps, as orders have them
            ordered = FIRST + timedelta(self._dice.randrange(days))
            customer = self._dice.randint(1, self.customers)
            customer -= customer % 3 == 0  # a third of them never orders anything
            lines = [self._line(key, at, ordered) for at in range(1, self._dice.randint(1, 7) + 1)]
            states = {line[9] for line in lines}
            state = states.pop() if len(states) == 1 else "P"
            total = sum(int(str(line[5]).replace(".", "")) for line in lines)
            yield (
                (
                    *(key, customer, state, f"{total // 100}.{total % 100:02}", ordered),
                    self._dice.choice(PRIORITIES),
                    f"Clerk#{self._dice.randint(1, 1000):09}",
                    0,
                    self._words(7),
                ),
                lines,
            )

    def _line(self, order: int, number: int, ordered: date) -> Row:
        dice = self._dice
        part = dice.randint(1, self.parts)
        quantity = dice.randint(1, 50)
        cents = quantity * int(self._price(part).replace(".", ""))
        sent = ordered + timedelta(dice.randint(1, 121))
        promised = ordered + timedelta(dice.randint(30, 90))
        arrived = sent + timedelta(dice.randint(1, 30))
        return (
            *(order, part, self._supplier_of(part, dice.randrange(4)), number, f"{quantity}.00"),
            *(f"{cents // 100}.{cents % 100:02}", f"0.{dice.randint(0, 10):02}"),
            f"0.{dice.randint(0, 8):02}",
            dice.choice("RA") if arrived <= TODAY else "N",
            "O" if sent > TODAY else "F",
            *(sent, promised, arrived, dice.choice(INSTRUCTIONS), dice.choice(MODES)),
            self._words(4),
        )
