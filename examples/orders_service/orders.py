"""Orders of customers. Everything of one customer is in one bucket, so it can be written as one."""

from __future__ import annotations

import uuid
from typing import Any

from cairn.client import OutcomeUnknown, Pool

PLACE = """
DO $$ BEGIN
    INSERT INTO orders VALUES ('{customer}', '{order}', 'placed');
    {lines}
END $$
"""
TRIES = 5
LINE = "INSERT INTO order_lines VALUES ('{customer}', '{order}', '{item}', {quantity});"


class OrderRefused(Exception):
    """The sentence is for the customer."""


class Orders:
    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def place(self, customer: str, lines: dict[str, int]) -> str:
        """The order's id. All of it is there afterwards, or nothing."""
        if not lines or min(lines.values()) < 1:
            raise OrderRefused("an order needs at least one of something")
        order = str(uuid.uuid4())
        text = PLACE.format(
            customer=_quoted(customer),
            order=order,
            lines=" ".join(
                LINE.format(
                    customer=_quoted(customer), order=order, item=_quoted(item), quantity=count
                )
                for item, count in lines.items()
            ),
        )
        for _ in range(TRIES - 1):
            try:
                await self._pool.execute(text)
                return order
            except OutcomeUnknown:
                # Its master died on the way. The id is ours, so it can be looked for and repeated:
                # two orders with one id there cannot be.
                if await self._is_there(customer, order):
                    return order
        await self._pool.execute(text)
        return order

    async def cancel(self, customer: str, order: str) -> None:
        sql = "UPDATE orders SET state = 'cancelled' WHERE customer = $1 AND id = $2"
        if await self._pool.execute(sql, customer, uuid.UUID(order)) != "UPDATE 1":
            raise OrderRefused(f"there is no order {order}")

    async def of(self, customer: str) -> dict[str, Any]:
        """Every order with its state and what is in it."""
        states = await self._pool.fetch(
            "SELECT id, state FROM orders WHERE customer = $1", customer
        )
        lines = await self._pool.fetch(
            "SELECT order_id, item, quantity FROM order_lines WHERE customer = $1", customer
        )
        found: dict[str, Any] = {
            str(order): {"state": state, "lines": {}} for order, state in states
        }
        for order, item, quantity in lines:
            found[str(order)]["lines"][item] = quantity
        return found

    async def _is_there(self, customer: str, order: str) -> bool:
        sql = "SELECT 1 FROM orders WHERE customer = $1 AND id = $2"
        return bool(await self._pool.fetch(sql, customer, uuid.UUID(order)))


def _quoted(text: str) -> str:
    return text.replace("'", "''")
