"""Blows that fall at one moment exactly: inside a piece of work that is hard to hit by chance.

While a trial runs, the functions in `MOMENTS` tell when they are reached. One moment can be armed
at a time: whoever reaches it next, in whatever instance, gets the blow there. Work of a writer is
struck inside its transaction, which is rolled back if it fails; all other work between two steps.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import apsw
import msgspec

from cairn.node.consensus.proposals import Proposer
from cairn.node.rows.data_plane import DataPlane
from cairn.node.rows.leases import LeaseGiver
from cairn.node.rows.moves.giving import Giving
from cairn.node.rows.moves.moving import Moving
from cairn.node.steering.governor_steps import Steps
from cairn.node.steering.membership import Membership
from cairn.sim.cluster.loop import PROCESS
from cairn.sim.cluster.node import SimNode
from cairn.sim.cluster.world import World
from cairn.storage.data_db import moving_in
from cairn.storage.data_db.full_copy import CopyTarget
from cairn.storage.data_db.operations import Operations
from cairn.storage.raft_db.state_machine import StateMachine


class Moment(msgspec.Struct, frozen=True):
    """A function of `owner`; `provoked` names blows of the nemesis after which it is called."""

    owner: Any
    function: str
    provoked: tuple[str, ...]
    is_after: bool = False  # the blow falls when it has returned
    is_writing: bool = False  # it runs inside a transaction of a writer


_COPY = ("lag",)
MOMENTS: dict[str, Moment] = {
    "a master is named": Moment(Steps, "_name_master", ("kill", "pause")),
    "a master was named": Moment(Steps, "_name_master", ("kill", "pause"), is_after=True),
    "a switch begins": Moment(Steps, "switch_master", ("switch",)),
    "a member promises": Moment(DataPlane, "promise", ("kill", "pause")),
    "a member has promised": Moment(DataPlane, "promise", ("kill", "pause"), is_after=True),
    "a lease is given": Moment(LeaseGiver, "grant", ("switch",), is_after=True),
    "an entry is proposed": Moment(Proposer, "cas", ("switch", "weigh", "alter")),
    "an entry was proposed": Moment(Proposer, "cas", ("switch", "weigh", "alter"), is_after=True),
    "a grade is asked for": Moment(Membership, "update", ("lag", "stop")),
    "a schema change is made": Moment(DataPlane, "change_schema", ("alter",)),
    "a schema change was made": Moment(DataPlane, "change_schema", ("alter",), is_after=True),
    "moving rows are given": Moment(Giving, "handle_delta", ("weigh",)),
    "moving rows were given": Moment(Giving, "handle_delta", ("weigh",), is_after=True),
    "a target reports": Moment(Moving, "_report", ("weigh",)),
    "a target has reported": Moment(Moving, "_report", ("weigh",), is_after=True),
    "a snapshot is installed": Moment(StateMachine, "install", ("lag",), is_writing=True),
    "a copy begins": Moment(CopyTarget, "begin", _COPY, is_writing=True),
    "a copy goes on": Moment(CopyTarget, "rows", _COPY, is_writing=True),
    "a copy ends": Moment(CopyTarget, "finish", _COPY, is_writing=True),
    "moving rows are written": Moment(moving_in, "_put_progress", ("weigh",), is_writing=True),
    "an operation is done": Moment(Operations, "keep", ("switch",), is_writing=True),
}
#: Between a commit and its acknowledgement: told by the virtual disk itself.
COMMITTED = "a group of rows is committed"
Strike = Callable[[SimNode, str], bool]  # whether the work fails


class Moments:
    """`armed` is the moment that is waited for."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.armed = ""
        self._strike: Strike = lambda node, name: False

    def arm(self, name: str, strike: Strike) -> None:
        """Who reaches it next is struck there."""
        self.armed, self._strike = name, strike

    @contextlib.contextmanager
    def told(self) -> Iterator[None]:
        """While this lasts, functions tell that they were reached."""
        before = self._world.on_step
        originals = {moment: getattr(moment.owner, moment.function) for moment in MOMENTS.values()}
        by_function: dict[tuple[Any, str], dict[str, Moment]] = {}
        for name, moment in MOMENTS.items():
            by_function.setdefault((moment.owner, moment.function), {})[name] = moment
        for (owner, function), named in by_function.items():
            original = getattr(owner, function)
            is_writing = any(moment.is_writing for moment in named.values())
            wrap = self._written if is_writing else self._awaited
            setattr(owner, function, wrap(original, named))
        self._world.on_step = self._stepped
        try:
            yield
        finally:
            self._world.on_step = before
            for moment, original in originals.items():
                setattr(moment.owner, moment.function, original)

    def _stepped(self, node: SimNode, what: str) -> None:
        if self.armed == COMMITTED and what == "after a synced group of the data writer":
            self._reached(COMMITTED)

    def _written(
        self, original: Callable[..., Any], named: dict[str, Moment]
    ) -> Callable[..., Any]:
        def work(*arguments: Any, **options: Any) -> Any:
            if self.armed in named and self._reached(self.armed):
                raise apsw.FullError("database or disk is full")
            return original(*arguments, **options)

        return work

    def _awaited(
        self, original: Callable[..., Awaitable[Any]], named: dict[str, Moment]
    ) -> Callable[..., Awaitable[Any]]:
        async def work(*arguments: Any, **options: Any) -> Any:
            if self.armed in named and not named[self.armed].is_after:
                self._reached(self.armed)
                await asyncio.sleep(0)  # who is dead or stands still does not go on
            found = await original(*arguments, **options)
            if self.armed in named and named[self.armed].is_after:
                self._reached(self.armed)
                await asyncio.sleep(0)
            return found

        return work

    def _reached(self, name: str) -> bool:
        process = PROCESS.get()
        node = None if process is None else self._world.nodes.get(process.name)
        if node is None or node.process is not process or node.is_paused or not node.is_running:
            return False
        self.armed = ""
        return self._strike(node, name)
