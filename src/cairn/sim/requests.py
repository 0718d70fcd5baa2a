"""What clients of the simulator ask for, and the state machine that answers: registers."""

from __future__ import annotations

from dataclasses import dataclass

from cairn.raft.cas import KeyRange, Predicate
from cairn.sim.disk import State


@dataclass(slots=True)
class Op:
    """What a client asks for: (r)ead, (w)rite, (c)as by value, write under a (p)redicate."""

    id: int
    client: int
    kind: str
    register: int
    start: int
    value: int = 0
    expected: int = 0
    predicate: Predicate | None = None
    floor: int = 0  # of a read: what was committed when it was asked

    @property
    def data(self) -> bytes:
        return self.id.to_bytes(4, "big")

    @property
    def touched(self) -> tuple[KeyRange, ...]:
        return (KeyRange.point("registers", bytes([self.register])),)


def apply_op(state: State, op: Op) -> tuple[State, int]:
    """The state machine: registers. What it is afterwards, and the answer."""
    if op.kind == "c" and state[op.register] != op.expected:
        return state, 0
    return (*state[: op.register], op.value, *state[op.register + 1 :]), 1
