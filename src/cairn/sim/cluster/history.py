"""What happens in one seed: who starts when, what fails, who is thrown out, and the calm after."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import msgspec

from cairn.model.errors import CairnError
from cairn.model.members.topology import Tier
from cairn.model.rpc import Empty, ExpelRequest
from cairn.sim.cluster.checks import Violation
from cairn.sim.cluster.node import SimNode
from cairn.sim.cluster.world import World

BUCKETS = 30


@dataclass
class Result:
    """What one seed did."""

    seed: int
    about: str = ""
    failure: str | None = None
    notes: list[str] = field(default_factory=list)
    virtual_s: float = 0.0
    messages: int = 0
    entries: int = 0
    faults: int = 0
    trace: str = ""  # equal for two runs of one seed


class History:
    """One seed, drawn and carried out."""

    def __init__(self, seed: int) -> None:
        chance = self.chance = random.Random(seed)
        self.size = chance.randint(1, 6)
        self.factor = chance.randint(1, 3)
        tiers = [Tier("default", self.factor, bucket_count=BUCKETS, is_default=True)]
        if chance.random() < 0.3:
            can_vote = chance.random() < 0.5
            buckets = chance.choice((0, BUCKETS))
            tiers.append(
                Tier("extra", chance.randint(1, 2), can_vote=can_vote, bucket_count=buckets)
            )
        self.world = World(seed, tuple(tiers))
        self.world.wire.delay_s = chance.choice((0.0005, 0.001, 0.005, 0.02))
        self.fault_s = chance.choice((0.0, 8.0, 15.0, 30.0))
        self.eagerness = chance.uniform(0.5, 4.0)  # mean seconds between faults
        self.expelled: set[str] = set()
        self.done: list[str] = []
        self._joined = self.size
        self._draw_nodes(tiers)

    def _draw_nodes(self, tiers: list[Tier]) -> None:
        """Peers lists share the first node's address; every listed one is started."""
        names = [f"n{number}" for number in range(1, self.size + 1)]
        for at, name in enumerate(names):
            others = [other for other in names[1:] if self.chance.random() < 0.5]
            peers = tuple(dict.fromkeys(f"{other}:3301" for other in (names[0], *others)))
            tier = tiers[0] if at == 0 or self.chance.random() < 0.7 else tiers[-1]
            self._add(name, peers, tier.name)

    def _add(self, name: str, peers: tuple[str, ...], tier: str) -> SimNode:
        named = self.chance.random() < 0.8
        domain = {"DC": self.chance.choice("ABC")} if self.size > 3 else {}
        return self.world.add(
            name,
            peers,
            tier=tier,
            instance_name=name if named else None,
            failure_domain=domain,
        )

    def describe(self) -> str:
        tiers = ", ".join(f"{tier.name} rf {tier.replication_factor}" for tier in self.world.tiers)
        return f"{self.size} nodes, {tiers}, faults for {self.fault_s:g} s"

    # --- the run ----------------------------------------------------------------------------------

    def run(self) -> Result:
        result = Result(self.world.seed, self.describe())
        try:
            self.world.run(self._live)
        except Violation as broken:
            result.failure = str(broken)
        result.virtual_s = self.world.loop.time()
        result.messages = self.world.wire.messages
        result.entries = self.world.checks.last_index
        result.faults = len(self.done)
        result.notes = self.done
        result.trace = f"{result.virtual_s:.6f} {result.messages} {self._trace()}"
        return result

    def _trace(self) -> str:
        digests = sorted((index, each[1].hex()) for index, each in self.world.checks.tables.items())
        return "" if not digests else f"{digests[-1]}"

    async def _live(self) -> None:
        starts = [asyncio.ensure_future(self._start(node)) for node in self.world.nodes.values()]
        if self.chance.random() < 0.5:
            await asyncio.gather(*starts)
        end = self.world.loop.time() + self.fault_s
        while self.world.loop.time() < end:
            await asyncio.sleep(self.chance.expovariate(1 / self.eagerness))
            await self._fault()
        await asyncio.gather(*starts)
        await self._calm()

    async def _start(self, node: SimNode) -> None:
        await asyncio.sleep(self.chance.choice((0.0, 0.0, 0.3, 1.5)) * self.chance.random())
        if not node.is_running and not node.lives:
            node.start()

    async def _calm(self) -> None:
        """Everything heals and everybody comes back; then the wished topology must be reached."""
        self._note("calm")
        world = self.world
        await asyncio.sleep(0.5)
        world.wire.heal()
        world.wire.delay_s = min(world.wire.delay_s, 0.005)
        for node in world.nodes.values():
            node.resume()
        deadline = world.loop.time() + 15.0
        while world.loop.time() < deadline and any(node.is_leaving for node in self._all()):
            await asyncio.sleep(0.1)
        await self._tell_newcomers()
        for node in self._all():
            if not node.is_running and node.exit_code != 5:
                self._start_again(node)
        await world.settled()
        await asyncio.sleep(3.0)  # and it stays so
        why = world.why_unsettled()
        if why is not None:
            raise Violation(f"it did not stay settled: {why}")

    async def _tell_newcomers(self) -> None:
        """Whoever is no member yet is started anew with addresses that exist."""
        peers = tuple(node.config.advertise for node in self._all() if node.exit_code != 5)
        for node in self._all():
            if not (node.dir / "raft.db").exists() and len(peers) > 1:
                if node.is_running and node.instance is None and self._moved(node):
                    node.crash()
                node.config = msgspec.structs.replace(node.config, peers=peers)

    def _moved(self, node: SimNode) -> bool:
        known = {each.config.advertise for each in self._all() if each.exit_code != 5}
        return bool(set(node.config.peers) - known)

    def _all(self) -> list[SimNode]:
        return list(self.world.nodes.values())

    def _note(self, what: str) -> None:
        self.done.append(f"{self.world.loop.time():8.3f} {what}")

    # --- faults -----------------------------------------------------------------------------------

    async def _fault(self) -> None:
        kinds: list[tuple[int, Callable[[], Awaitable[None]]]] = [
            (4, self._kill),
            (3, self._restart),
            (3, self._pause),
            (3, self._cut_one_way),
            (2, self._isolate),
            (2, self._split),
            (3, self._mend),
            (2, self._reset),
            (3, self._stop),
            (1, self._expel),
            (1, self._join),
        ]
        chosen = self.chance.choices([k for _, k in kinds], [w for w, _ in kinds])[0]
        await chosen()

    def _some(self, condition: Callable[[SimNode], bool]) -> SimNode | None:
        fit = [node for node in self._all() if condition(node)]
        return self.chance.choice(fit) if fit else None

    async def _kill(self) -> None:
        node = self._some(lambda each: each.is_running)
        leader = self.world.leader()
        if leader is not None and self.chance.random() < 0.3:
            node = leader
        if node is not None:
            power = self.chance.random() < 0.4
            self._note(f"{'power cut of' if power else 'kill'} {node}")
            node.crash(power=power)

    async def _restart(self) -> None:
        node = self._some(lambda each: bool(each.lives) and not each.is_running)
        if node is None or node.exit_code == 5:
            return
        is_member = (node.dir / "raft.db").exists()  # before that, its peers wait for the old one
        if is_member and self.chance.random() < 0.3:
            port = 3301 + node.lives
            address = f"{node.name}:{port}"
            node.config = msgspec.structs.replace(
                node.config, listen=address, advertise=address, instance_name=None
            )
        self._note(f"start {node} at {node.config.advertise}")
        self._start_again(node)

    def _start_again(self, node: SimNode) -> None:
        """As an administrator would: a member is told where the others are now."""
        if (node.dir / "raft.db").exists():
            peers = tuple(each.config.advertise for each in self._all() if each.exit_code != 5)
            node.config = msgspec.structs.replace(node.config, peers=peers)
        node.start()

    async def _pause(self) -> None:
        node = self._some(lambda each: each.is_running and not each.is_paused)
        if node is not None:
            seconds = self.chance.choice((0.3, 1.2, 3.0, 8.0))
            self._note(f"pause {node} for {seconds} s")
            node.pause()
            self.world.loop.call_later(seconds, node.resume)

    async def _cut_one_way(self) -> None:
        one, other = self._some(lambda _: True), self._some(lambda _: True)
        if one is not None and other is not None and one is not other:
            self._note(f"cut {one} → {other}")
            self.world.wire.cut(one.name, other.name)

    async def _isolate(self) -> None:
        node = self._some(lambda _: True)
        assert node is not None
        self._note(f"isolate {node}")
        for other in self._all():
            if other is not node:
                self.world.wire.cut(node.name, other.name)
                self.world.wire.cut(other.name, node.name)

    async def _split(self) -> None:
        side = {node.name for node in self._all() if self.chance.random() < 0.5}
        self._note(f"split {sorted(side)} from the rest")
        for one in self._all():
            for other in self._all():
                if (one.name in side) != (other.name in side):
                    self.world.wire.cut(one.name, other.name)

    async def _mend(self) -> None:
        self._note("mend all links")
        self.world.wire.heal()

    async def _reset(self) -> None:
        self._note("reset some connections")
        self.world.wire.reset_some(self.chance.random())

    async def _stop(self) -> None:
        node = self._some(lambda each: each.is_running and not each.is_leaving)
        if node is not None:
            self._note(f"stop {node}")
            node.stop()

    async def _expel(self) -> None:
        """Asked of a running instance, for a named one; refusals are its right."""
        victim = self._some(lambda each: bool(each.lives) and each.name not in self.expelled)
        asker = self._some(lambda each: each.instance is not None and not each.is_paused)
        if victim is None or asker is None or asker.instance is None or asker.process is None:
            return
        if len(self.expelled) + 2 > len(self.world.nodes):
            return
        uuid_file = victim.dir / "instance_uuid"
        if not uuid_file.exists():
            return
        uuid = uuid_file.read_text().strip()
        self._note(f"expel {victim}, asked at {asker}")
        instance = asker.instance
        request = ExpelRequest(instance.identity.cluster_uuid, uuid, self.chance.random() < 0.3)
        self.expelled.add(victim.name)

        async def ask() -> None:
            try:
                await instance.leader.ask("expel", request, Empty, 10.0)
            except CairnError as problem:
                self._note(f"expel {victim}: {problem}")

        self.world.loop.create_task(ask(), context=asker.process.context)

    async def _join(self) -> None:
        if self._joined >= self.size + 2:
            return
        self._joined += 1
        name = f"n{self._joined}"
        known = self._some(lambda each: bool(each.lives))
        if known is None:
            return
        self._note(f"join {name} through {known}")
        tier = self.chance.choice(self.world.tiers).name
        self._add(name, (known.config.advertise,), tier).start()


def run_seed(seed: int) -> Result:
    return History(seed).run()
