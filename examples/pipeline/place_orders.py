"""Customers that order: rows go into Cairn, some each second, through the smart driver.

    python place_orders.py --count 600 --per-second 20

An order that got no clear answer (a master died) is asked for by its id before it is sent again.
"""

from __future__ import annotations

import argparse
import os
import random
import time
from datetime import UTC, datetime

from cairn.client.sync import connect

INSERT = "INSERT INTO shop_orders VALUES (%s, %s, %s, %s)"
PATIENCE_S = 60.0


def place(connection: object, order: tuple[int, str, int, datetime]) -> None:
    """One order, once, whatever happens to the master."""
    cursor = connection.cursor()  # type: ignore[attr-defined]
    until = time.monotonic() + PATIENCE_S
    is_again = False
    while True:
        try:
            if is_again:
                cursor.execute("SELECT 1 FROM shop_orders WHERE id = %s", (order[0],))
                if cursor.fetchone():
                    return
            cursor.execute(INSERT, order)
            return
        except Exception:
            if time.monotonic() > until:
                raise
            is_again = True
            time.sleep(0.2)


def main() -> None:
    words = argparse.ArgumentParser()
    words.add_argument("--count", type=int, default=600)
    words.add_argument("--per-second", type=float, default=20.0)
    words.add_argument("--customers", type=int, default=10)
    given = words.parse_args()
    chance = random.Random()
    with connect(os.environ["CAIRN_DSN"]) as connection:
        cursor = connection.cursor()
        cursor.execute("SELECT coalesce(max(id), 0) FROM shop_orders")
        last = cursor.fetchone()[0]
        for number in range(last + 1, last + 1 + given.count):
            customer = f"customer {chance.randrange(given.customers)}"
            place(connection, (number, customer, chance.randrange(100, 9000), datetime.now(UTC)))
            time.sleep(1 / given.per_second)


if __name__ == "__main__":
    main()
