"""A child that hangs without dying: its supervisor notices, shows where it stands, and ends it.

The child's event loop counts up in a page of memory that both see, so that telling it can never
wait for anybody. The supervisor looks every second. What a false alarm would cost decides what
counts: only time in which the supervisor itself was awake, and in which the child could have run.
By the time a limit is over the cluster has long named another master, so that a restart takes
nothing away that is not lost already. Standard library only.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import signal
import struct
import sys
import time

LOOK_S = 1.0
LAST_WORDS_S = 1.0  # until the threads of one that is ended have been written down
STACKS = signal.SIGQUIT  # the child answers with what its threads do
_FORM = struct.Struct("=Qd")
_TICKS = os.sysconf("SC_CLK_TCK")


class Pulse:
    """How often the child has said that it lives, and how long it may be silent (0: nobody looks).

    Made before the fork; the child writes, the supervisor reads.
    """

    def __init__(self) -> None:
        self._page = mmap.mmap(-1, _FORM.size)

    def beat(self, limit_s: float) -> None:
        count, _ = self.read()
        _FORM.pack_into(self._page, 0, (count + 1) & 0xFFFF_FFFF, limit_s)

    def read(self) -> tuple[int, float]:
        count, limit_s = _FORM.unpack_from(self._page)
        return count, limit_s


class Standing:
    """What the kernel says of the child's first thread, which runs its event loop."""

    def __init__(self, state: str, is_traced: bool, cpu_s: float) -> None:
        self.state, self.is_traced, self.cpu_s = state, is_traced, cpu_s

    @classmethod
    def of(cls, pid: int) -> Standing | None:
        try:
            with open(f"/proc/{pid}/status") as file:
                facts = dict(line.split(":", 1) for line in file if ":" in line)
            with open(f"/proc/{pid}/task/{pid}/stat") as file:
                fields = file.read().rpartition(")")[2].split()
            used = int(fields[11]) + int(fields[12])
            return cls(facts["State"].split()[0], facts["TracerPid"].strip() != "0", used / _TICKS)
        except (OSError, KeyError, ValueError, IndexError):
            return None


class Watch:
    """The silence of one child. Nothing here acts: `looked` says whether it hangs."""

    def __init__(self) -> None:
        self.silent_s = 0.0
        self._count = -1
        self._cpu_s = 0.0

    def looked(self, count: int, limit_s: float, standing: Standing | None, since_s: float) -> bool:
        """`since_s` is the time since the last look; a long one means that we stood still, too."""
        if count != self._count or limit_s <= 0:
            self._count, self.silent_s = count, 0.0
            self._cpu_s = standing.cpu_s if standing is not None else 0.0
            return False
        self.silent_s += self._could_run(standing, min(since_s, LOOK_S))
        return self.silent_s > limit_s

    def _could_run(self, standing: Standing | None, looked_s: float) -> float:
        """Not while it is stopped (T), under a debugger, or waits for the disk (D). One that wants
        to run (R) counts as long as it had a core."""
        if standing is None or standing.is_traced or standing.state in "TtDZX":
            return 0.0
        used_s, self._cpu_s = max(standing.cpu_s - self._cpu_s, 0.0), standing.cpu_s
        return min(used_s, looked_s) if standing.state == "R" else looked_s


class Watchman:
    """Looks after one child, between what it tells."""

    def __init__(self, pid: int, pulse: Pulse) -> None:
        self._pid, self._pulse, self._watch = pid, pulse, Watch()
        self._last = time.monotonic()
        self.has_ended_it = False

    def look(self) -> None:
        now = time.monotonic()
        if self.has_ended_it or now - self._last < LOOK_S / 2:
            return  # it has told something, and was looked at a moment ago
        count, limit_s = self._pulse.read()
        is_hung = self._watch.looked(count, limit_s, Standing.of(self._pid), now - self._last)
        self._last = now
        if is_hung:
            self._end(limit_s)

    def _end(self, limit_s: float) -> None:
        self.has_ended_it = True
        sys.stderr.write(
            f"cairn: the event loop of the instance has stood still for {limit_s:g} s "
            "(--hang-timeout): what its threads do is written below, and it is ended\n"
        )
        sys.stderr.flush()
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid, STACKS)
            time.sleep(LAST_WORDS_S)
            os.kill(self._pid, signal.SIGKILL)
