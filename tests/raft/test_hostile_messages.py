"""Whatever passes for a Raft message: the core takes it, drops it or refuses it, and goes on."""

from __future__ import annotations

import random

import msgspec
import pytest

from cairn.model.errors import CairnError
from cairn.raft.types import ConfState, Entry, Message, MsgKind, Snapshot, SnapshotMeta
from cairn.raft.wire import decode_message, encode_message
from tests.raft.script import Script

SEEDS = range(40)
NUMBERS = (0, 1, 2, 3, 4, 5, 7, 100, 2**31, 2**62)


def any_message(chance: random.Random, kind: MsgKind) -> Message:
    def number() -> int:
        return chance.choice(NUMBERS)

    def entries() -> list[Entry]:
        first = number()
        return [
            Entry(number(), first + at, chance.randrange(2), chance.randbytes(3))
            for at in range(chance.randrange(4))
        ]

    conf = ConfState(tuple(sorted({1, chance.choice((2, 3, 99))})))
    return Message(
        kind=kind,
        from_=chance.choice((2, 3, 9)),
        to=1,
        term=number(),
        index=number(),
        log_term=number(),
        entries=entries(),
        commit=number(),
        reject=chance.random() < 0.5,
        reject_hint=number(),
        reject_term=number(),
        read_seq=number(),
        context=chance.randbytes(chance.randrange(5)),
        snapshot=Snapshot(SnapshotMeta(number(), number(), conf)) if chance.randrange(2) else None,
        force=chance.random() < 0.2,
        commit_term=number(),
    )


@pytest.mark.parametrize("seed", SEEDS)
def test_no_message_makes_the_core_fail(seed: int) -> None:
    chance = random.Random(seed)
    script = Script(3)
    script.elect(1 if seed % 2 else 2)
    script.propose(1 if seed % 2 else 2, b"x")
    core = script[1]
    script.nodes[1].hold_apply = True  # what an entry says is the leader's matter
    taken = 0
    for _ in range(1_000):
        kind = chance.choice(list(MsgKind))
        data = bytearray(encode_message(any_message(chance, kind)))
        if chance.random() < 0.2:
            data[chance.randrange(len(data))] = chance.randrange(256)
        try:
            core.step(decode_message(bytes(data)))
            taken += 1
        except CairnError:
            continue
        if chance.random() < 0.1:
            core.tick()
            script.nodes[1].work()
    assert taken, "no message was good enough to be taken"
    assert msgspec.msgpack.encode(core.status())
