"""Plays a script and writes down everything the members do: Readies, messages, states.

A script is a text file. Lines that begin with `#` tell the story. Lines that begin with `>` are
commands. All other lines are what followed; `python -m tests.raft.transcripts` writes them anew.
The commands are the methods of `Teller` that begin with `do_`; each says what it does.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from cairn.raft.types import (
    ConfChangeSingle,
    ConfChangeV2,
    ConfState,
    Message,
    NotLeader,
    ProposalDropped,
    Ready,
)
from tests.raft.script import Script, ScriptNode

from .words import KINDS, conf_said, entries_said, kinds, said

SCRIPTS = sorted(Path(__file__).parent.glob("*.txt"))
MAX_ROUNDS = 200  # a cluster that is not at rest by then never will be


def retell(text: str) -> str:
    """`text` with its comments and commands, and with what follows each command now."""
    teller, lines = Teller(), []
    for line in text.splitlines():
        if line.startswith(">"):
            lines.append(line)
            lines += ["    " + news for news in teller.obey(line[1:].split())]
        elif line.startswith("#") or not line:
            lines.append(line)
    return "\n".join(lines) + "\n"


class Teller:
    """A small cluster (`tests.raft.script`) and the lines that tell what it does."""

    script: Script

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.dropped: dict[int, Counter[str]] = {}
        self.confs: dict[int, ConfState] = {}

    def obey(self, words: list[str]) -> list[str]:
        self.lines = []
        command = getattr(self, "do_" + words[0].replace("-", "_"))
        try:
            command(*words[1:])
        except (NotLeader, ProposalDropped) as refusal:
            why = getattr(refusal, "reason", "not the leader")
            self.tell(f"refused: {why}")
        return self.lines

    def tell(self, line: str) -> None:
        self.lines.append(line)

    # --- the cluster

    def do_cluster(self, *options: str) -> None:
        """cluster voters=3 learners=0 pre_vote=no ...: members that know each other, no leader."""
        self.script = Script(**{name: _value(text) for name, text in _pairs(options)})
        for number, node in self.script.nodes.items():
            self._meet(number, node)

    def do_add(self, number: str) -> None:
        """add 4: an instance that knows nothing."""
        self.script.add(int(number))
        self._meet(int(number), self.script.nodes[int(number)])

    def _meet(self, number: int, node: ScriptNode) -> None:
        self.dropped[number] = Counter()
        self.confs[number] = node.core.conf

    def do_cut(self, *numbers: str) -> None:
        """cut 3: the links between these members and all others lose what is sent."""
        self.script.cut(*map(int, numbers))

    def do_heal(self) -> None:
        """heal: all links work."""
        self.script.heal()

    def do_crash(self, number: str) -> None:
        """crash 2: the power is gone, and with it all that was not synced."""
        self.script.crash(int(number))

    def do_restart(self, number: str) -> None:
        """restart 2: it starts again from its disk."""
        self.script.restart(int(number))
        self._meet(int(number), self.script.nodes[int(number)])

    def do_hold(self, what: str, number: str) -> None:
        """hold disk 2, or hold apply 2: its syncs, or its state machine, stand still."""
        self._hold(what, number, True)

    def do_free(self, what: str, number: str) -> None:
        """free disk 2: the end of `hold`."""
        self._hold(what, number, False)

    def _hold(self, what: str, number: str, held: bool) -> None:
        node = self.script.nodes[int(number)]
        if what == "disk":
            node.hold_disk = held
        else:
            node.hold_apply = held

    def do_compact(self, number: str) -> None:
        """compact 1: it drops all applied entries from its log, and has a snapshot instead."""
        self.script.compact(int(number))

    # --- what members are asked

    def do_campaign(self, number: str) -> None:
        """campaign 1: it tries to become leader now."""
        self.script[int(number)].campaign()
        self._tell_news(int(number))

    def do_propose(self, number: str, *data: str) -> None:
        """propose 1 a b: two entries."""
        index, term = self.script[int(number)].propose([word.encode() for word in data])
        self.tell(f"{number} appends from {index} on in term {term}")

    def do_change(self, number: str, *words: str) -> None:
        """change 1 [explicit|implicit] add_voter=4 remove=2; without changes: leave joint."""
        transition: Any = "auto"
        if words and "=" not in words[0]:
            transition, words = words[0], words[1:]
        changes = [ConfChangeSingle(kind, int(node)) for kind, node in _pairs(words)]  # type: ignore[arg-type]
        change = ConfChangeV2(transition, tuple(changes))
        index, term = self.script[int(number)].propose_conf_change(change)
        self.tell(f"{number} appends the change at {index} in term {term}")

    def do_transfer(self, number: str, to: str) -> None:
        """transfer 1 2: member 1 is asked to hand leadership to 2."""
        self.script[int(number)].transfer_leader(int(to))
        self._tell_news(int(number))

    def do_read(self, number: str, token: str) -> None:
        """read 1 x: member 1 is asked for an index at which a read named x may be answered."""
        self.script[int(number)].read_index(token.encode())
        self._tell_news(int(number))

    def do_unreachable(self, number: str, peer: str) -> None:
        """unreachable 1 3: the driver of 1 tells that messages to 3 may be lost."""
        self.script[int(number)].report_unreachable(int(peer))

    def do_snapshot_ended(self, number: str, peer: str, how: str) -> None:
        """snapshot-ended 1 3 well|badly: the driver of 1 tells how the transfer to 3 went."""
        self.script[int(number)].report_snapshot(int(peer), how == "well")

    # --- time

    def do_tick(self, who: str, count: str = "1") -> None:
        """tick 2 5, or tick all 5: time passes. After each tick everything settles."""
        numbers = [int(who)] if who != "all" else list(self.script.nodes)
        for _ in range(int(count)):
            for number in numbers:
                if number not in self.script.down:
                    self.script[number].tick()
                    self._tell_news(number)
            self.do_settle()

    def do_clock(self, number: str, count: str = "1") -> None:
        """clock 2 5: time passes for one member, and nothing else happens yet."""
        for _ in range(int(count)):
            self.script[int(number)].tick()
        self._tell_news(int(number))

    def do_pass(self, who: str, count: str) -> None:
        """pass all 20: like `tick`, but only what changed in the end is told."""
        self._quietly(self.do_tick, who, count)

    def do_settle(self) -> None:
        """settle: Readies are carried out and messages delivered until all are at rest."""
        for _ in range(MAX_ROUNDS):
            busy = self._drive_all()
            if not busy and not self.script.wire:
                return
            for _ in range(len(self.script.wire)):
                self._deliver(self.script.wire.popleft())
        raise AssertionError("the cluster does not come to rest")

    def do_run(self) -> None:
        """run: like `settle`, but only what changed in the end is told."""
        self._quietly(self.do_settle)

    def _quietly(self, command: Any, *words: str) -> None:
        before, told = self._states(), len(self.lines)
        command(*words)
        self.lines[told:] = [line for line in self.lines[told:] if " new configuration" in line]
        for number, state in self._states().items():
            if before.get(number) != state:
                self.tell(state)

    def do_elect(self, number: str) -> None:
        """elect 1: it campaigns, and all settle. For the beginning of a story."""
        self._quietly(self._elect, number)

    def _elect(self, number: str) -> None:
        self.do_campaign(number)
        self.do_settle()

    # --- step by step

    def do_ready(self, number: str) -> None:
        """ready 1: its next Ready is written, not synced. What may leave at once is on its way."""
        node = self.script.nodes[int(number)]
        if not node.core.has_ready():
            self.tell(f"{number} has nothing to do")
            return
        self._take_ready(node)
        self._collect(node)

    def do_sync(self, number: str) -> None:
        """sync 1: what it has written is durable now. Its answers leave."""
        node = self.script.nodes[int(number)]
        node.sync()
        self._collect(node)
        self._tell_news(int(number))

    def do_apply(self, number: str) -> None:
        """apply 1: its state machine takes what was handed to it."""
        self.script.nodes[int(number)].apply()
        self._tell_news(int(number))

    def do_deliver(self, link: str, kind: str = "") -> None:
        """deliver 1->2 [append]: the messages of this link arrive, all or those of one kind."""
        for message in self._take_from_wire(link, kind):
            self._deliver(message)

    def do_lose(self, link: str, kind: str = "") -> None:
        """lose 1->2 [append]: the messages of this link are lost."""
        for message in self._take_from_wire(link, kind):
            self.tell(f"{said(message)}  LOST")

    def _take_from_wire(self, link: str, kind: str) -> list[Message]:
        sender, _, receiver = link.partition("->")
        taken = [
            message
            for message in self.script.wire
            if sender in ("*", str(message.from_))
            and receiver in ("*", str(message.to))
            and kind in ("", KINDS[message.kind])
        ]
        for message in taken:
            self.script.wire.remove(message)
        return taken

    def do_wire(self) -> None:
        """wire: the messages that are on their way."""
        for message in self.script.wire:
            self.tell(said(message))

    # --- looking in

    def do_states(self) -> None:
        """states: every member in a line."""
        for state in self._states().values():
            self.tell(state)

    def do_progress(self, number: str) -> None:
        """progress 1: what the leader knows of the others."""
        for node, known in self.script[int(number)].status().progress.items():
            if node != int(number):
                flags = [name for name in _FLAGS if getattr(known, name)]
                where = f"{known.state}, match {known.match}, next {known.next}"
                self.tell(" ".join([f"{node}: {where}", *flags]))

    def do_data(self, number: str) -> None:
        """data 2: what its state machine has seen in this life."""
        self.tell(
            " ".join(data.decode() for data in self.script.nodes[int(number)].data) or "nothing"
        )

    def _states(self) -> dict[int, str]:
        return {n: self._state(n) for n in self.script.nodes}

    def _state(self, number: int) -> str:
        if number in self.script.down:
            return f"{number} is down"
        status = self.script[number].status()
        role = status.role.name.lower().replace("_", "-")
        follows = f" of {status.leader}" if status.role == 0 and status.leader else ""
        voted = f", voted for {status.vote}" if status.vote else ""
        log = f"log {status.first_index}..{status.last_index}"
        if status.first_index > status.last_index:
            log = f"log empty after {status.last_index}"
        return (
            f"{number} is {role}{follows} in term {status.term}{voted}; {log},"
            f" committed {status.commit}, applied {status.applied}"
        )

    # --- driving

    def _drive_all(self) -> bool:
        busy = False
        for number, node in self.script.nodes.items():
            if number not in self.script.down:
                busy |= self._drive(node)
                self._collect(node)
        return busy

    def _drive(self, node: ScriptNode) -> bool:
        busy = False
        while node.core.has_ready():
            busy = True
            self._take_ready(node)
        if node.disk.unsynced and not node.hold_disk:
            busy = True
            node.sync()
        if node.waiting and not node.hold_apply:
            busy = True
            node.apply()
        self._tell_news(node.id)
        return busy

    def _take_ready(self, node: ScriptNode) -> None:
        self._tell_ready(node.id, node.take_ready())

    def _collect(self, node: ScriptNode) -> None:
        self.script.wire.extend(node.outbox)
        node.outbox.clear()

    def _deliver(self, message: Message) -> None:
        lost = len(self.script.lost)
        self.script.deliver(message)
        self.tell(said(message) + ("  LOST" if len(self.script.lost) > lost else ""))
        self._tell_news(message.to)

    def _tell_ready(self, number: int, ready: Ready) -> None:
        parts = []
        if ready.soft_state is not None:
            role = ready.soft_state.role.name.lower().replace("_", "-")
            parts.append(f"is {role}, leader {ready.soft_state.leader or 'unknown'}")
        if ready.hard_state is not None:
            hard = ready.hard_state
            parts.append(f"state: term {hard.term} vote {hard.vote} commit {hard.commit}")
        if ready.snapshot is not None:
            meta = ready.snapshot.meta
            parts.append(f"install the snapshot {meta.index}@{meta.term}")
        if ready.entries:
            parts.append(f"write {entries_said(ready.entries)}")
        if ready.must_sync:
            parts.append("sync")
        if ready.committed:
            parts.append(f"apply {entries_said(ready.committed)}")
        parts += [f"read {read.token.decode()} at {read.index}" for read in ready.read_states]
        parts += [f"read {token.decode()} failed" for token in ready.failed_reads]
        if ready.messages:
            parts.append(f"send {kinds(ready.messages)}")
        if ready.messages_after_persist:
            parts.append(f"after that send {kinds(ready.messages_after_persist)}")
        self.tell(f"{number} ready {ready.number}: {'; '.join(parts) or 'nothing'}")

    def _tell_news(self, number: int) -> None:
        """What no Ready says: messages that were dropped, and a new configuration."""
        node = self.script.nodes.get(number)
        if node is None:
            return
        core = node.core
        for reason, count in core.dropped.items():
            if count > self.dropped[number][reason]:
                self.dropped[number][reason] = count
                self.tell(f"{number} drops it: {reason}")
        if core.conf != self.confs[number]:
            self.confs[number] = core.conf
            self.tell(f"{number} has a new configuration: {conf_said(core.conf)}")


_FLAGS = ("paused", "recent_active", "is_learner")


def _pairs(words: tuple[str, ...] | list[str]) -> list[tuple[str, str]]:
    return [(name, value) for name, _, value in (word.partition("=") for word in words)]


def _value(text: str) -> int | bool:
    return {"yes": True, "no": False}[text] if text in ("yes", "no") else int(text)
