"""Statements that took long: `slow.log`, and the last of them in memory, each with its plan.

What is told has no values of the statement in it, only its shape. A plan is made afterwards, one at
a time: when many statements are slow, there is no time to explain each.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from pathlib import Path
from time import time

import msgspec

from cairn.model.errors import CairnError
from cairn.model.unexpected import owned
from cairn.model.watched import SlowStatement
from cairn.node.runtime import spawn
from cairn.node.statements.executor import Executor
from cairn.node.watching.statistics import Seen, Statistics
from cairn.server.line_log import LineLog
from cairn.sql.plans import Prepared

NAME = "slow.log"
PLAN_LINES = 200
_VALUE = re.compile(r"(?:'[^']*(?:''[^']*)*'|-?\d+(?:\.\d+)?)(?=::)|'[^']*(?:''[^']*)*'")


class SlowLog:
    """`user_name` names a user by its id."""

    def __init__(
        self,
        directory: Path,
        limits: Callable[[], tuple[int, int]],
        statistics: Statistics,
        executor: Executor,
        user_name: Callable[[int], str],
    ) -> None:
        self._lines = LineLog(directory / NAME, limits)
        self._statistics, self._executor, self._user_name = statistics, executor, user_name
        self._is_explaining = False
        statistics.on_slow.append(self._slow)

    def set_threshold(self, milliseconds: float) -> None:
        """0: none is slow."""
        self._statistics.slow_s = milliseconds / 1000 if milliseconds > 0 else float("inf")

    def close(self) -> None:
        self._statistics.slow_s = float("inf")
        self._lines.close()

    def _slow(self, seen: Seen, took_s: float, rows: int, hops: int) -> None:
        told = SlowStatement(
            int(time() * 1e6),
            seen.user_id,
            self._user_name(seen.user_id),
            seen.query,
            took_s,
            rows,
            hops,
        )
        cached = seen.plan()
        if cached is None or cached.prepared.bound is None or self._is_explaining:
            self._tell(told, ())
            return
        self._is_explaining = True
        spawn(self._explain(told, cached.prepared), "the plan of a slow statement")

    async def _explain(self, told: SlowStatement, prepared: Prepared) -> None:
        plan: tuple[str, ...] = ()
        try:
            lines = await asyncio.to_thread(self._executor.explain, prepared)
            plan = tuple(_VALUE.sub("…", line) for line in lines[:PLAN_LINES])
        except CairnError as problem:
            plan = (f"it cannot be explained: {problem.message}",)
        except Exception as problem:
            owned(problem, "the plan of a slow statement")
        finally:
            self._is_explaining = False
        self._tell(told, plan)

    def _tell(self, told: SlowStatement, plan: tuple[str, ...]) -> None:
        self._statistics.slow.append(msgspec.structs.replace(told, plan=plan))
        self._lines.write(
            {
                "user": told.user,
                "took_ms": round(told.took_s * 1000, 3),
                "rows": told.rows,
                "hops": told.hops,
                "statement": told.query,
                "plan": plan,
            }
        )
