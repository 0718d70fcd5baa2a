"""Planted bugs of the data plane: each is caught by a script that passes without it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from cairn.model.log.records import Vclock
from cairn.model.rpc import LeaseRequest, LeaseResponse, PromiseRequest, VclockResponse
from cairn.node.boot import first_entries
from cairn.node.boot.steps import Boot
from cairn.node.instance import Instance
from cairn.node.rows import data_plane, leases
from cairn.node.rows.relay import Relay
from cairn.node.steering import governor_steps
from cairn.replication.relay import Rows, Subscribe
from cairn.sim.cluster.checks import Violation
from cairn.storage.data_db import row_log
from cairn.storage.data_db.data_store import DataStore
from tests.sim_cluster.scenes import Triple, answer_anew

Patch = pytest.MonkeyPatch


class Slow(Boot):
    """Has its rows and its links for a while before it asks to be Online."""

    async def activate(self, instance: Instance, reason: str) -> None:
        await asyncio.sleep(3.0)
        await super().activate(instance, reason)


# --- the scripts ----------------------------------------------------------------------------------


async def a_record_arrives_after_the_seal(scene: Triple, patch: Patch) -> None:
    """Rule 1: the old master still reaches a replica that has told its vclock already."""
    await scene.ready()
    sealed = asyncio.Event()
    promise = data_plane.DataPlane.promise

    async def noticed(self: data_plane.DataPlane, request: PromiseRequest) -> VclockResponse:
        answer = await promise(self, request)
        sealed.set()
        return answer

    patch.setattr(data_plane.DataPlane, "promise", noticed)
    name = governor_steps.Steps._name_master

    async def late(self: Any, *arguments: Any) -> None:
        await asyncio.sleep(2.0)  # the naming takes its time
        await name(self, *arguments)

    patch.setattr(governor_steps.Steps, "_name_master", late)
    master, leader, third = scene.master, scene.leader, scene.third
    for node in (master, leader, third):  # handlers hold the function they were made with
        assert node.instance is not None
        answer_anew(node.instance)
    scene.cut(master, third)
    scene.cut(master, leader)
    writing = scene.load.write(master, 2)
    await asyncio.wait_for(sealed.wait(), 20.0)
    await asyncio.sleep(0.2)
    scene.mend(master, third)
    await asyncio.sleep(3.0)
    await scene.calm()
    assert writing.done()


async def a_promised_member_loses_power(scene: Triple, patch: Patch) -> None:
    """Rule 1: the promise was answered, so it outlives whatever happens to who gave it."""
    await scene.ready()
    master, leader, third = scene.master, scene.leader, scene.third
    named = governor_steps.Steps._name_master
    sealed = asyncio.Event()

    async def late(self: Any, *arguments: Any) -> None:
        sealed.set()
        await asyncio.sleep(2.5)  # the naming takes its time
        await named(self, *arguments)

    patch.setattr(governor_steps.Steps, "_name_master", late)
    scene.cut(master, third)
    scene.cut(master, leader)
    writing = scene.load.write(master, 2)
    await asyncio.wait_for(sealed.wait(), 20.0)
    third.crash(power=True)
    third.boot_class = Slow  # before it asks to be Online, which would void the naming
    scene.mend(master, third)
    third.start()
    await asyncio.sleep(6.0)
    await scene.calm()
    assert writing.done()


async def a_tail_comes_back(scene: Triple, patch: Patch) -> None:
    """Rule 2: rows that only the old master had belong to no history."""
    await scene.ready()
    master = scene.master
    scene.cut(master, scene.leader)
    scene.cut(master, scene.third)
    await scene.load.write(master, 2)
    master.crash()
    heir = await scene.renamed()
    await scene.write(3, heir)
    await scene.calm(may_lose=True)


async def an_answer_is_late(scene: Triple, patch: Patch) -> None:
    """Rule 9: the master stands still between its question and the answer, then hears no more."""
    patch.setitem(first_entries.SETTINGS, "governor_auto_offline_timeout", 0.5)
    await scene.ready()
    master, leader = scene.master, scene.leader
    asked = asyncio.Event()
    assert leader.instance is not None
    grant = leader.instance.lease_giver.grant

    async def noticed(request: LeaseRequest) -> LeaseResponse:
        answer = await grant(request)
        if not asked.is_set() and request.instance == master.name:
            asked.set()
            master.pause()
            scene.world.loop.call_later(0.05, scene.cut, master, leader)
            scene.world.loop.call_later(0.05, scene.cut, master, scene.third)
            scene.world.loop.call_later(0.95, master.resume)
        return answer

    leader.instance.lease_giver.grant = noticed  # type: ignore[method-assign]
    answer_anew(leader.instance)
    await asyncio.wait_for(asked.wait(), 10.0)
    heir = await scene.renamed()
    await scene.write(2, heir)
    for _ in range(100):
        scene.load.read(master)
        await asyncio.sleep(0.01)
    await scene.calm()


async def a_demoted_master_restarts(scene: Triple, patch: Patch) -> None:
    """Rule 6: the final lsn was told, then the process came back."""
    await scene.ready()
    master, leader = scene.master, scene.leader
    told = asyncio.Event()
    name = governor_steps.Steps._name_master

    async def held(self: Any, *arguments: Any) -> None:
        told.set()
        await asyncio.sleep(1.5)
        await name(self, *arguments)

    patch.setattr(governor_steps.Steps, "_name_master", held)
    master.stop()
    await asyncio.wait_for(told.wait(), 20.0)
    master.crash()
    master.boot_class = Slow
    master.start()
    end = scene.world.loop.time() + 3.0
    key = 10
    while scene.world.loop.time() < end:
        await asyncio.sleep(0.1)
        if master.instance is not None:
            scene.load.write(master, key)
            key += 1
    await asyncio.sleep(3.0)
    await scene.calm()
    assert leader.is_running


# --- the bugs -------------------------------------------------------------------------------------


def no_seal(patch: Patch) -> None:
    def promise(self: DataStore, epoch: int) -> tuple[int, Vclock]:
        return self.last_epoch, dict(self.vclock)

    patch.setattr(DataStore, "promise", promise)


def promise_in_memory(patch: Patch) -> None:
    def promise(self: DataStore, epoch: int) -> tuple[int, Vclock]:
        self.promised = max(self.promised, epoch)
        return self.last_epoch, dict(self.vclock)

    patch.setattr(DataStore, "promise", promise)


def refused_records_are_acknowledged(patch: Patch) -> None:
    """The relay counts what it has sent, not what the subscriber has durably."""
    rows = Relay._rows

    def eager(self: Relay, request: Subscribe) -> Rows:
        answer = rows(self, request)
        self._acks.vclocks[request.subscriber] = answer.vclock
        self._acks.release()
        return answer

    patch.setattr(Relay, "_rows", eager)


def no_cut(patch: Patch) -> None:
    patch.setattr(row_log, "diverged", lambda *arguments: {})


def lease_from_receipt(patch: Patch) -> None:
    ask = leases.LeaseHolder._ask

    async def late(self: leases.LeaseHolder) -> None:
        before = self._until
        await ask(self)
        if self._until != before:
            self._until = self._runtime.boot_clock() + leases.LEASE_S * leases.MARGIN

    patch.setattr(leases.LeaseHolder, "_ask", late)


def demotion_in_memory(patch: Patch) -> None:
    """The master stops when it is asked for its last lsn, and forgets that by restarting."""
    fence_of = data_plane.DataPlane._fence_of
    position = data_plane.DataPlane.position

    def wrong(self: Any, cluster: Any) -> Any:
        import msgspec

        fence = fence_of(self, cluster)
        is_master = fence.master == self._name and not getattr(self, "stopped", False)
        return msgspec.structs.replace(fence, is_master=is_master)

    async def stopping(self: Any, request: Any) -> VclockResponse:
        if request.index and self.fence.is_master and not request.reach:
            self.stopped = True
            self.follow(self._state.cluster)
        return await position(self, request)

    patch.setattr(data_plane.DataPlane, "_fence_of", wrong)
    patch.setattr(data_plane.DataPlane, "position", stopping)
    patch.setattr(DataStore, "check_master", lambda self: _only_fence(self))
    patch.setattr(leases.LeaseHolder, "is_held", lambda self, epoch: True)


def _only_fence(store: DataStore) -> None:
    from cairn.model.errors import NoMaster

    if not store.fence.is_master:
        raise NoMaster("not the master")


Script = Callable[[Triple, Patch], Awaitable[None]]
SCRIPTS: dict[str, tuple[str, Script]] = {
    "a record arrives after the seal": ("sync", a_record_arrives_after_the_seal),
    "a promised member loses power": ("sync", a_promised_member_loses_power),
    "a tail comes back": ("async", a_tail_comes_back),
    "an answer is late": ("sync", an_answer_is_late),
    "a demoted master restarts": ("async", a_demoted_master_restarts),
}
BUGS: dict[str, tuple[str, Callable[[Patch], None]]] = {
    "no seal": ("a record arrives after the seal", no_seal),
    "promise in memory": ("a promised member loses power", promise_in_memory),
    "ack of refused records": ("a record arrives after the seal", refused_records_are_acknowledged),
    "no cut": ("a tail comes back", no_cut),
    "lease from receipt": ("an answer is late", lease_from_receipt),
    "demotion in memory": ("a demoted master restarts", demotion_in_memory),
}


def play(name: str, patch: Patch) -> None:
    mode, script = SCRIPTS[name]
    scene = Triple(mode)
    scene.world.run(lambda: script(scene, patch))


@pytest.mark.parametrize("script", sorted(SCRIPTS))
def test_the_script_passes_without_a_bug(script: str, monkeypatch: Patch) -> None:
    play(script, monkeypatch)


@pytest.mark.parametrize("bug", sorted(BUGS))
def test_the_planted_bug_is_caught(bug: str, monkeypatch: Patch) -> None:
    script, plant = BUGS[bug]
    plant(monkeypatch)
    with pytest.raises(Violation):
        play(script, monkeypatch)
