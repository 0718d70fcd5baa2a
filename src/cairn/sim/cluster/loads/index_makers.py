"""Some who make and drop indexes of the same tables at once, while rows of these come and go.

One table is that of the families; the other one is theirs alone, and is renamed, emptied, widened
and made anew under their hands. Its rows lie together, so one statement can compare what an index
finds with what the rows say.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import Any

from cairn.sim.cluster.checks import Violation
from cairn.sim.cluster.loads.banking.bank_texts import CHANGER_TOLD
from cairn.sim.cluster.node import SimNode

Asked = Callable[..., Awaitable[tuple[str, Any]]]

MAKERS = 3
MADE = "CREATE TABLE pile (id INT PRIMARY KEY, a INT, b TEXT) DISTRIBUTED BY ()"
INDEXES = (
    "CREATE INDEX x{n} ON pile (a)",
    "CREATE INDEX x{n} ON pile (a, b)",
    "CREATE INDEX x{n} ON pile (b) WHERE a > 3",
    "CREATE INDEX x{n} ON pile (abs(a))",
    "CREATE UNIQUE INDEX x{n} ON pile (a, id)",
    "CREATE UNIQUE INDEX x{n} ON pile (a) WHERE b IS NULL",
    "CREATE INDEX y{n} ON child (open, p)",
    "CREATE UNIQUE INDEX y{n} ON child (p, id)",
    "CREATE UNIQUE INDEX y{n} ON child (p) WHERE open",
)
CHANGES = (
    *("DROP INDEX x{n}", "DROP INDEX y{n}") * 4,
    *("ALTER TABLE pile ADD COLUMN c{n} INT DEFAULT 7", "ALTER TABLE pile DROP COLUMN c{n}"),
    *("ALTER TABLE pile RENAME TO heap", "ALTER TABLE heap RENAME TO pile") * 2,
    *("ALTER TABLE pile RENAME COLUMN a TO z", "ALTER TABLE pile RENAME COLUMN z TO a") * 2,
    *("TRUNCATE pile", "DROP TABLE pile", MADE, MADE),
)
ROWS = (
    "INSERT INTO pile (id, a, b) SELECT g, g % 7, NULLIF(g % 3, 0)::text "
    "FROM generate_series({n}, {n} + 9) AS g (g) ON CONFLICT (id) DO UPDATE SET a = pile.a + 1",
    "UPDATE pile SET a = a + 1, b = NULL WHERE id = {n}",
    "UPDATE pile SET id = id + 20 WHERE id = {n}",
    "DELETE FROM pile WHERE id BETWEEN {n} AND {n} + 3",
    "DELETE FROM pile WHERE a = {n}",
)
#: Found by an index, and without one.
BOTH_WAYS = (
    "SELECT (SELECT count(*) FROM pile WHERE a > 3), (SELECT count(*) FROM pile WHERE a + 0 > 3), "
    "(SELECT count(*) FROM pile WHERE abs(a) < 3), (SELECT count(*) FROM pile WHERE abs(a + 0) < 3)"
)


class IndexMakers:
    """`asked` is how the load asks, with codes that it is not surprised by."""

    def __init__(self, asked: Asked, chance: random.Random) -> None:
        self._asked, self._chance = asked, chance
        self.made = 0

    async def step(self, whose: int, node: SimNode) -> tuple[str, str]:
        """The outcome, and what was done."""
        draw = self._chance.random()
        if draw < 0.2:
            return await self._compare(whose, node), "compare"
        texts: tuple[str, ...] = INDEXES if draw < 0.5 else ROWS
        way = "index" if draw < 0.5 else "rows"
        if draw > 0.8:
            texts, way = CHANGES, "change"
        text = self._chance.choice(texts).format(
            n=self._chance.randrange(4 if way != "rows" else 40)
        )
        outcome, _ = await self._asked(whose, node, text, also=CHANGER_TOLD | {"23505"})
        self.made += way == "index" and outcome == "done"
        return outcome, way

    async def _compare(self, whose: int, node: SimNode) -> str:
        outcome, rows = await self._asked(whose, node, BOTH_WAYS, also=CHANGER_TOLD)
        if outcome == "done" and (rows[0][0] != rows[0][1] or rows[0][2] != rows[0][3]):
            raise Violation(f"{node} finds by an index and without one: {rows[0]}")
        return outcome
