"""What goes wrong in one run. Each seed switches whole classes of faults on or off ("swarm")."""

from __future__ import annotations

import random
from dataclasses import asdict, dataclass

MS = 1_000  # virtual time is counted in microseconds
SECOND = 1_000 * MS

# Where a node may be stopped dead: between any two steps of its driver.
CRASH_POINTS = (
    "before_send",
    "after_send_before_append",
    "after_append_before_fsync",
    "after_fsync_before_answer",
    "before_apply",
    "after_apply",
    "on_commit",
    "on_become_leader",
    "on_snapshot",
)

CRASH_CHANCES = {  # of points that are passed seldom
    "before_apply": (0.01, 0.05),
    "after_apply": (0.01, 0.05),
    "on_commit": (0.02, 0.15),
    "on_become_leader": (0.1, 0.5),
    "on_snapshot": (0.1, 0.5),
}


@dataclass(slots=True)
class Profile:
    """The mix of faults of one seed; a value of 0 or False switches its class off."""

    voters: int
    learners: int
    clients: int
    fault_time_us: int
    calm_time_us: int
    tick_us: int
    pre_vote: bool
    check_quorum: bool
    # the network
    loss: float
    duplication: float
    zombies: float  # copies that arrive seconds late
    jitter: bool  # messages overtake each other
    slow_links: bool
    partitions: bool
    one_way: bool
    bridges: bool
    swizzle: bool
    resets: bool
    lost_answers: bool  # clients may not hear what came of a request
    # the disks
    slow_disks: bool
    disk_errors: bool
    disk_full: bool
    keep_prefix: bool  # a crash may keep some of what was not synced, the last of it torn
    # the nodes
    crashes: bool
    crash_points: dict[str, float]
    power_loss: bool
    pauses: bool
    slow_apply: bool
    max_readies: int  # Readies handed to the disk at once
    max_inflight: int
    max_msg_bytes: int
    # what people do
    membership: bool
    transfers: bool
    compaction: bool
    nemesis_every_us: int

    def describe(self) -> str:
        """The settings that are on, on one line."""
        shown = {name: value for name, value in asdict(self).items() if value not in (0, False)}
        return ", ".join(f"{name}={value}" for name, value in shown.items())


def draw_profile(rng: random.Random, *, nodes: int | None = None) -> Profile:
    """A mix for one seed; `nodes` fixes the number of voters."""

    def on(chance: float = 0.5) -> bool:
        return rng.random() < chance

    voters = rng.choice((1, 2, 3, 3, 3, 3, 4, 5, 5, 5, 5, 6, 7))
    learners = rng.choice((0, 0, 0, 1, 1, 2, 3))
    pre_vote = on(0.85)
    points = {}
    if on(0.6):
        for name in rng.sample(CRASH_POINTS, rng.randint(1, 3)):
            low, high = CRASH_CHANCES.get(name, (0.002, 0.02))
            points[name] = rng.uniform(low, high)
    return Profile(
        voters=voters if nodes is None else nodes,
        learners=learners if nodes is None else 0,
        clients=rng.randint(2, 4),
        fault_time_us=14 * SECOND,
        calm_time_us=6 * SECOND,
        tick_us=50 * MS,
        pre_vote=pre_vote,
        # Without leases only pre-votes keep removed members from disturbing for ever.
        check_quorum=on(0.8) or not pre_vote,
        loss=rng.choice((0.01, 0.05, 0.15, 0.3)) if on() else 0.0,
        duplication=rng.uniform(0.01, 0.2) if on() else 0.0,
        zombies=rng.uniform(0.005, 0.05) if on() else 0.0,
        jitter=on(0.6),
        slow_links=on(0.3),
        partitions=on(0.6),
        one_way=on(0.3),
        bridges=on(0.3),
        swizzle=on(0.2),
        resets=on(0.3),
        lost_answers=on(0.5),
        slow_disks=on(0.4),
        disk_errors=on(0.3),
        disk_full=on(0.2),
        keep_prefix=on(0.6),
        crashes=on(0.7),
        crash_points=points,
        power_loss=on(0.4),
        pauses=on(0.5),
        slow_apply=on(0.3),
        max_readies=rng.choice((1, 2, 4, 16)),
        max_inflight=rng.choice((1, 2, 8, 256)),
        max_msg_bytes=rng.choice((1, 16, 64, 4096)),
        membership=on(0.5),
        transfers=on(0.4),
        compaction=on(0.6),
        nemesis_every_us=rng.choice((150, 300, 600, 1200)) * MS,
    )
