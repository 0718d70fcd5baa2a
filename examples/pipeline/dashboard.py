"""What a dashboard asks: the last minutes, and the best customers in them. No Spark needed."""

from __future__ import annotations

import os
import sys

from cairn.client.sync import connect

MINUTES = """
SELECT minute, sum(orders), sum(cents) FROM orders_per_minute
GROUP BY minute ORDER BY minute DESC LIMIT 10
"""
BEST = """
SELECT customer, sum(cents) AS spent FROM orders_per_minute
GROUP BY customer ORDER BY spent DESC, customer LIMIT 5
"""


def main() -> None:
    with connect(os.environ["CAIRN_DSN"]) as connection:
        cursor = connection.cursor()
        cursor.execute(MINUTES)
        for minute, orders, cents in cursor.fetchall():
            sys.stdout.write(f"{minute:%Y-%m-%d %H:%M}  {orders:6} orders  {cents / 100:12.2f}\n")
        cursor.execute(BEST)
        for customer, cents in cursor.fetchall():
            sys.stdout.write(f"{customer:20} {cents / 100:12.2f}\n")


if __name__ == "__main__":
    main()
