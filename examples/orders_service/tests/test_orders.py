"""What a customer sees."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from orders import OrderRefused, Orders

from cairn.testing import Cluster

Run = Callable[[Any], None]


def test_an_order_is_there_with_all_its_lines(run: Run) -> None:
    async def story(orders: Orders) -> None:
        number = await orders.place("ann", {"pen": 2, "ink": 1})
        assert await orders.of("ann") == {
            number: {"state": "placed", "lines": {"pen": 2, "ink": 1}}
        }
        await orders.cancel("ann", number)
        assert (await orders.of("ann"))[number]["state"] == "cancelled"
        assert await orders.of("bob") == {}

    run(story)


def test_an_order_that_fails_leaves_nothing(run: Run) -> None:
    async def story(orders: Orders) -> None:
        with pytest.raises(OrderRefused, match="at least one"):
            await orders.place("ann", {})
        with pytest.raises(Exception, match=r"range"):
            await orders.place("ann", {"pen": 1, "ink": 10**30})
        assert await orders.of("ann") == {}

    run(story)


def test_customers_go_on_when_a_master_dies(run: Run, cairn: Cluster) -> None:
    async def story(orders: Orders) -> None:
        placed = [await orders.place("o'neill", {"pen": 1})]
        master = cairn.master()
        cairn.kill(master)
        placed.append(await orders.place("o'neill", {"ink": 1}))
        assert set(await orders.of("o'neill")) == set(placed)
        assert cairn.master() != master
        cairn.start_again(master)

    run(story)
