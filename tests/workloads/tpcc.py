"""Orders of a wholesaler in the manner of TPC-C: five kinds of transactions in BEGIN … COMMIT.

Rows of one warehouse lie together, so that each transaction is about one replicaset; with
`BY ()` all warehouses do, and some goods come from another warehouse, as the specification wants.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import psycopg

DISTRICTS, CUSTOMERS, ITEMS = 4, 12, 60
TABLES = {
    "warehouse": "w_id INT PRIMARY KEY, w_name VARCHAR(10), w_tax NUMERIC(4, 4),"
    " w_ytd NUMERIC(12, 2)",
    "district": "w_id INT, d_id INT, d_tax NUMERIC(4, 4), d_ytd NUMERIC(12, 2), d_next_o_id INT,"
    " PRIMARY KEY (w_id, d_id)",
    "client": "w_id INT, d_id INT, c_id INT, c_last VARCHAR(16), c_discount NUMERIC(4, 4),"
    " c_balance NUMERIC(12, 2), c_ytd_payment NUMERIC(12, 2), c_payment_cnt INT,"
    " c_delivery_cnt INT, PRIMARY KEY (w_id, d_id, c_id)",
    "payment": "w_id INT, d_id INT, c_id INT, h_no UUID, h_amount NUMERIC(6, 2),"
    " h_date TIMESTAMP, PRIMARY KEY (w_id, h_no)",
    "orders": "w_id INT, d_id INT, o_id INT, o_c_id INT, o_entry_d TIMESTAMP, o_carrier_id INT,"
    " o_ol_cnt INT, PRIMARY KEY (w_id, d_id, o_id)",
    "new_order": "w_id INT, d_id INT, o_id INT, PRIMARY KEY (w_id, d_id, o_id)",
    "order_line": "w_id INT, d_id INT, o_id INT, ol_number INT, ol_i_id INT, ol_supply_w_id INT,"
    " ol_quantity INT, ol_amount NUMERIC(6, 2), ol_delivery_d TIMESTAMP,"
    " PRIMARY KEY (w_id, d_id, o_id, ol_number)",
    "stock": "w_id INT, i_id INT, s_quantity INT, s_ytd INT, s_order_cnt INT,"
    " PRIMARY KEY (w_id, i_id)",
    "item": "i_id INT PRIMARY KEY, i_name VARCHAR(24), i_price NUMERIC(5, 2)",
}
#: Kinds of transactions, as often as the specification wants each.
MIX = ("new_order",) * 45 + ("payment",) * 43 + ("status", "delivery", "level") * 4
#: Each has to answer no rows.
BOOKS = {
    "what districts were paid, their warehouse was": (
        "SELECT w.w_id FROM warehouse w JOIN (SELECT w_id, sum(d_ytd) AS paid FROM district"
        " GROUP BY w_id) d ON d.w_id = w.w_id WHERE w.w_ytd <> d.paid"
    ),
    "the last order is the one before the next": (
        "SELECT d.w_id, d.d_id FROM district d WHERE d.d_next_o_id - 1 <>"
        " (SELECT max(o_id) FROM orders o WHERE o.w_id = d.w_id AND o.d_id = d.d_id)"
    ),
    "new orders have no gaps": (
        "SELECT w_id, d_id FROM new_order GROUP BY w_id, d_id"
        " HAVING max(o_id) - min(o_id) + 1 <> count(*)"
    ),
    "an order has the lines that it counts": (
        "SELECT o.w_id, o.d_id, o.o_id FROM orders o LEFT JOIN (SELECT w_id, d_id, o_id, count(*)"
        " AS lines FROM order_line GROUP BY w_id, d_id, o_id) l ON l.w_id = o.w_id"
        " AND l.d_id = o.d_id AND l.o_id = o.o_id WHERE coalesce(l.lines, 0) <> o.o_ol_cnt"
    ),
    "what has no carrier is new": (
        "SELECT o.w_id FROM orders o LEFT JOIN new_order n ON n.w_id = o.w_id"
        " AND n.d_id = o.d_id AND n.o_id = o.o_id"
        " WHERE (o.o_carrier_id IS NULL) <> (n.o_id IS NOT NULL)"
    ),
    "what warehouses were paid is in the payments": (
        "SELECT w.w_id FROM warehouse w LEFT JOIN (SELECT w_id, sum(h_amount) AS paid FROM payment"
        " GROUP BY w_id) h ON h.w_id = w.w_id WHERE w.w_ytd <> coalesce(h.paid, 0)"
    ),
    "a client owes what was delivered and not paid": (
        "SELECT c.w_id FROM client c LEFT JOIN (SELECT o.w_id, o.d_id, o.o_c_id, sum(l.ol_amount)"
        " AS owed FROM orders o JOIN order_line l ON l.w_id = o.w_id AND l.d_id = o.d_id"
        " AND l.o_id = o.o_id WHERE l.ol_delivery_d IS NOT NULL GROUP BY o.w_id, o.d_id, o.o_c_id)"
        " x ON x.w_id = c.w_id AND x.d_id = c.d_id AND x.o_c_id = c.c_id"
        " WHERE c.c_balance <> coalesce(x.owed, 0) - c.c_ytd_payment"
    ),
}


class Shop:
    """The tables, those who work on them, and the books."""

    def __init__(self, connect: Callable[[], psycopg.Connection[Any]], place: str = "") -> None:
        """`place`: BY WAREHOUSE, BY () or nothing, for a database that has one place."""
        self._connect, self._place = connect, place
        self._mixes = place != "BY WAREHOUSE"  # goods may come from another warehouse
        self.warehouses = 0
        self.retried = 0
        self.done: Counter[str] = Counter()

    def fill(self, warehouses: int) -> None:
        self.warehouses = warehouses
        places = range(1, warehouses + 1)
        districts = [(w, d) for w in places for d in range(1, DISTRICTS + 1)]
        clients = [(w, d, c) for w, d in districts for c in range(1, CUSTOMERS + 1)]
        goods = range(1, ITEMS + 1)
        filled: dict[str, list[str]] = {
            "warehouse": [f"{w}\thouse {w}\t0.0{w % 10}\t0" for w in places],
            "district": [f"{w}\t{d}\t0.05\t0\t1" for w, d in districts],
            "client": [f"{w}\t{d}\t{c}\tname {c % 5}\t0.1\t0\t0\t0\t0" for w, d, c in clients],
            "stock": [f"{w}\t{i}\t50\t0\t0" for w in places for i in goods],
            "item": [f"{i}\titem {i}\t{i % 90 + 1}.50" for i in goods],
        }
        with self._connect() as connection:
            for name, columns in TABLES.items():
                connection.execute(f"CREATE TABLE {name} ({columns}){self._clause(name)}".encode())
                with connection.cursor().copy(f"COPY {name} FROM STDIN".encode()) as copy:
                    copy.write("".join(f"{line}\n" for line in filled.get(name, ())))

    def _clause(self, table: str) -> str:
        if not self._place:
            return ""
        if table == "item":
            return " DISTRIBUTED GLOBALLY"
        return " DISTRIBUTED BY ()" if self._place == "BY ()" else " DISTRIBUTED BY (w_id)"

    def drop(self) -> None:
        with self._connect() as connection:
            connection.execute(f"DROP TABLE {', '.join(TABLES)}".encode())

    def work(self, clients: int, each: int = 0, seed: int = 1, seconds: float = 0.0) -> int:
        """So many transactions of each client, or what the time allows; how many committed."""
        self.done, self.retried = Counter(), 0
        until = time.monotonic() + seconds if seconds else None
        clerks = [_Clerk(self, at, seed) for at in range(clients)]
        threads = [threading.Thread(target=clerk.run, args=(each, until)) for clerk in clerks]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for clerk in clerks:
            if clerk.problem is not None:
                raise clerk.problem
            self.done += clerk.done
            self.retried += clerk.retried
        return self.done.total()

    def connect(self) -> psycopg.Connection[Any]:
        return self._connect()

    @property
    def mixes(self) -> bool:
        return self._mixes

    def problems(self) -> list[str]:
        """What of the books does not hold."""
        with self._connect() as connection:
            return [
                f"{name}: {found[:3]}"
                for name, text in BOOKS.items()
                if (found := connection.execute(text.encode()).fetchall())
            ]


class _Clerk:
    """One client."""

    def __init__(self, shop: Shop, number: int, seed: int) -> None:
        self._shop, self._dice = shop, random.Random(f"{seed} {number}")
        self._home = number % shop.warehouses + 1
        self.done: Counter[str] = Counter()
        self.retried = 0
        self.problem: Exception | None = None

    def run(self, each: int, until: float | None) -> None:
        try:
            with self._shop.connect() as connection:
                count = 0
                while time.monotonic() < until if until else count < each:
                    self._one(connection, self._dice.choice(MIX))
                    count += 1
        except Exception as problem:
            self.problem = problem

    def _one(self, connection: psycopg.Connection[Any], kind: str) -> None:
        state = self._dice.getstate()
        while True:
            self._dice.setstate(state)  # the same again
            try:
                with connection.transaction():
                    getattr(self, f"_{kind}")(connection)
                self.done[kind] += 1
                return
            except psycopg.errors.SerializationFailure:
                self.retried += 1

    def _district(self) -> int:
        return self._dice.randint(1, DISTRICTS)

    def _new_order(self, connection: psycopg.Connection[Any]) -> None:
        home, district = self._home, self._district()
        client = self._dice.randint(1, CUSTOMERS)
        goods = self._dice.sample(range(1, ITEMS + 1), self._dice.randint(3, 8))
        connection.execute(
            "SELECT c_discount, w_tax FROM client c JOIN warehouse w ON w.w_id = c.w_id"
            " WHERE c.w_id = %s AND c.d_id = %s AND c.c_id = %s",
            (home, district, client),
        ).fetchone()
        [order] = connection.execute(
            "UPDATE district SET d_next_o_id = d_next_o_id + 1 WHERE w_id = %s AND d_id = %s"
            " RETURNING d_next_o_id - 1",
            (home, district),
        ).fetchone() or [0]
        connection.execute(
            "INSERT INTO orders VALUES (%s, %s, %s, %s, now(), NULL, %s)",
            (home, district, order, client, len(goods)),
        )
        connection.execute("INSERT INTO new_order VALUES (%s, %s, %s)", (home, district, order))
        for number, item in enumerate(goods, 1):
            supplier, quantity = home, self._dice.randint(1, 10)
            if self._shop.mixes and self._dice.random() < 0.01:
                supplier = self._dice.randint(1, self._shop.warehouses)
            [price] = connection.execute(
                "SELECT i_price FROM item WHERE i_id = %s", (item,)
            ).fetchone() or [0]
            connection.execute(
                "UPDATE stock SET s_quantity = CASE WHEN s_quantity >= %s + 10 THEN s_quantity - %s"
                " ELSE s_quantity - %s + 91 END, s_ytd = s_ytd + %s, s_order_cnt = s_order_cnt + 1"
                " WHERE w_id = %s AND i_id = %s",
                (quantity, quantity, quantity, quantity, supplier, item),
            )
            connection.execute(
                "INSERT INTO order_line VALUES (%s, %s, %s, %s, %s, %s, %s, %s, NULL)",
                (home, district, order, number, item, supplier, quantity, price * quantity),
            )

    def _payment(self, connection: psycopg.Connection[Any]) -> None:
        home, district = self._home, self._district()
        amount = self._dice.randint(100, 500_000) / 100
        where = (home, district)
        connection.execute(
            "UPDATE warehouse SET w_ytd = w_ytd + %s::numeric WHERE w_id = %s", (str(amount), home)
        )
        connection.execute(
            "UPDATE district SET d_ytd = d_ytd + %s::numeric WHERE w_id = %s AND d_id = %s",
            (str(amount), *where),
        )
        client = self._dice.randint(1, CUSTOMERS)
        if self._dice.random() < 0.6:  # by name: the one in the middle
            found = connection.execute(
                "SELECT c_id FROM client WHERE w_id = %s AND d_id = %s AND c_last = %s"
                " ORDER BY c_id",
                (*where, f"name {client % 5}"),
            ).fetchall()
            client = found[len(found) // 2][0]
        connection.execute(
            "UPDATE client SET c_balance = c_balance - %s::numeric, c_ytd_payment = c_ytd_payment"
            " + %s::numeric, c_payment_cnt = c_payment_cnt + 1"
            " WHERE w_id = %s AND d_id = %s AND c_id = %s",
            (str(amount), str(amount), *where, client),
        )
        connection.execute(
            "INSERT INTO payment VALUES (%s, %s, %s, gen_random_uuid(), %s::numeric, now())",
            (*where, client, str(amount)),
        )

    def _status(self, connection: psycopg.Connection[Any]) -> None:
        where = (self._home, self._district(), self._dice.randint(1, CUSTOMERS))
        found = connection.execute(
            "SELECT o_id, o_entry_d, o_carrier_id FROM orders WHERE w_id = %s AND d_id = %s"
            " AND o_c_id = %s ORDER BY o_id DESC LIMIT 1",
            where,
        ).fetchone()
        if found:
            connection.execute(
                "SELECT ol_i_id, ol_supply_w_id, ol_quantity, ol_amount, ol_delivery_d"
                " FROM order_line WHERE w_id = %s AND d_id = %s AND o_id = %s",
                (*where[:2], found[0]),
            ).fetchall()

    def _delivery(self, connection: psycopg.Connection[Any]) -> None:
        carrier = self._dice.randint(1, 10)
        for district in range(1, DISTRICTS + 1):
            where = (self._home, district)
            [order] = connection.execute(
                "SELECT min(o_id) FROM new_order WHERE w_id = %s AND d_id = %s", where
            ).fetchone() or [None]
            if order is None:
                continue
            one = (*where, order)
            connection.execute(
                "DELETE FROM new_order WHERE w_id = %s AND d_id = %s AND o_id = %s", one
            )
            [client] = connection.execute(
                "UPDATE orders SET o_carrier_id = %s WHERE w_id = %s AND d_id = %s AND o_id = %s"
                " RETURNING o_c_id",
                (carrier, *one),
            ).fetchone() or [0]
            connection.execute(
                "UPDATE order_line SET ol_delivery_d = now()"
                " WHERE w_id = %s AND d_id = %s AND o_id = %s",
                one,
            )
            connection.execute(
                "UPDATE client SET c_balance = c_balance + (SELECT sum(ol_amount) FROM order_line"
                " WHERE w_id = %s AND d_id = %s AND o_id = %s), c_delivery_cnt = c_delivery_cnt + 1"
                " WHERE w_id = %s AND d_id = %s AND c_id = %s",
                (*one, *where, client),
            )

    def _level(self, connection: psycopg.Connection[Any]) -> None:
        where = (self._home, self._district())
        connection.execute(
            "SELECT count(DISTINCT s.i_id) FROM district d JOIN order_line l ON l.w_id = d.w_id"
            " AND l.d_id = d.d_id AND l.o_id BETWEEN d.d_next_o_id - 20 AND d.d_next_o_id - 1"
            " JOIN stock s ON s.w_id = l.w_id AND s.i_id = l.ol_i_id"
            " WHERE d.w_id = %s AND d.d_id = %s AND s.s_quantity < %s",
            (*where, self._dice.randint(10, 20)),
        ).fetchone()
