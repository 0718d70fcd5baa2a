"""A cluster as a whole: whoever answers is asked, and another one when that one goes away.

For what is read, and for what may be said twice. The password goes only to hosts of the DSN and to
addresses near them, as the smart driver does it.
"""

from __future__ import annotations

import time
from typing import Any

from cairn.cli.talking import Talk, TalkProblem, Target

LOOK_FOR_S = 15.0
AGAIN_S = 0.2
#: The server ends the connection, it broke, or there is no leader at the moment.
_ELSEWHERE = ("57P01", "57P03", "08006", "PC002", "PC003")

Status = dict[str, Any]


class Anywhere:
    def __init__(self, target: Target) -> None:
        self._target = target
        self._known: list[str] = []  # addresses that the cluster told
        self._talk: Talk | None = Talk(target)  # a wrong DSN or password ends the command here

    def status(self) -> Status:
        found: Status = self.call("CALL cairn_status()")
        self._known = [
            row["addresses"]["pg"]
            for row in found["instances"]
            if row["addresses"]["pg"] and self._target.settings.allows(row["addresses"]["pg"])
        ]
        return found

    def call(self, text: str) -> Any:
        return self._tried(lambda talk: talk.call(text))

    def rows(self, sql: str, params: tuple[Any, ...] = ()) -> list[Any]:
        found: list[Any] = self._tried(lambda talk: talk.rows(sql, params))
        return found

    def _tried(self, ask: Any) -> Any:
        deadline = time.monotonic() + LOOK_FOR_S
        while True:
            try:
                if self._talk is None:
                    self._talk = self._another()
                return ask(self._talk)
            except TalkProblem as problem:
                is_lost = problem.exit_code in (3, 4) or problem.sqlstate in _ELSEWHERE
                if not is_lost or time.monotonic() > deadline:
                    raise
                self.close()
            time.sleep(AGAIN_S)

    def _another(self) -> Talk:
        problem = TalkProblem("nobody of the cluster can be reached", 3)
        for address in dict.fromkeys((*self._target.settings.hosts, *self._known)):
            try:
                return Talk(self._target.at(address))
            except TalkProblem as trouble:
                problem = trouble
        raise problem

    def close(self) -> None:
        if self._talk is not None:
            self._talk.close()
        self._talk = None
