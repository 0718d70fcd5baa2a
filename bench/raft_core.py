"""How fast the Raft core is by itself: three nodes on one core, in memory, without a network.

`python bench/raft_core.py [entries per Ready ...]` prints entries per second.
"""

from __future__ import annotations

import random
import sys
import time

from cairn.raft.core import RaftCore
from cairn.raft.memory import MemoryStorage
from cairn.raft.types import Config, ConfState

NODES = (1, 2, 3)
PAYLOAD = b"x" * 64
SECONDS = 3.0
GOAL = 50_000  # entries/s at 16 entries per Ready


class Cluster:
    def __init__(self) -> None:
        conf = ConfState(NODES)
        self.stores = {node: MemoryStorage(conf) for node in NODES}
        self.cores = {
            node: RaftCore(Config(node, rng=random.Random(node)), store)
            for node, store in self.stores.items()
        }
        self.cores[1].campaign()
        self.settle()

    def settle(self) -> None:
        """Until nobody has anything to do."""
        while self.turn():
            pass

    def turn(self) -> bool:
        """Carry out one Ready of every node that has one, as a driver's loop does."""
        busy = False
        cores = self.cores
        for node, core in cores.items():
            if not core.has_ready():
                continue
            busy = True
            ready = core.ready()
            for message in ready.messages:
                cores[message.to].step(message)
            store = self.stores[node]
            store.append(ready.entries)
            if ready.hard_state is not None:
                store.hard_state = ready.hard_state
            core.persisted(ready.number)
            if ready.committed:
                core.applied(ready.committed[-1].index)
            for message in ready.messages_after_persist:
                cores[message.to].step(message)
        return busy


def measure(batch: int, *, steady: bool) -> float:
    """Entries per second that all three nodes applied.

    Under a `steady` load the next batch comes while the last one is under way, and a commit
    travels with it; otherwise each batch is applied everywhere before the next one comes.
    """
    cluster = Cluster()
    leader = cluster.cores[1]
    payloads = [PAYLOAD] * batch
    started = time.perf_counter()
    before = leader.log.applied
    proposed = 0
    while time.perf_counter() - started < SECONDS:
        for _ in range(20):
            leader.propose(payloads)
            proposed += batch
            if steady:
                cluster.turn()
            else:
                cluster.settle()
    cluster.settle()
    seconds = time.perf_counter() - started
    assert all(core.log.applied == before + proposed for core in cluster.cores.values())
    return proposed / seconds


def main() -> None:
    batches = [int(word) for word in sys.argv[1:]] or [1, 16, 64]
    print(f"raft core, {len(NODES)} nodes on one core, {len(PAYLOAD)}-byte entries, entries/s")
    for batch in batches:
        steady, single = measure(batch, steady=True), measure(batch, steady=False)
        goal = f"  (goal {GOAL:,})" if batch == 16 else ""
        print(f"  {batch:4} per Ready: {steady:9,.0f} steady, {single:9,.0f} one by one{goal}")


if __name__ == "__main__":
    main()
