"""How long a plain client waits when the master of its rows dies or stands still.

`KILLS=20 python bench/failover.py`: three instances, three copies. A client of an instance that
stays sends one INSERT after another; the master is killed with -9 or stopped (SIGSTOP), in turns,
whether it leads Raft or not. The figure is the longest time between two answers that said yes.
"""

from __future__ import annotations

import os
import signal
import threading
import time

import psycopg
from clients_common import head, load

from cluster import Demo, quantile, wait_all_online

KILLS = int(os.environ.get("KILLS", "20"))
WATCH_S = 6.0
INSERT = "INSERT INTO waits VALUES (%s, 'x')"


class Client(threading.Thread):
    def __init__(self, dsn: str, first: int) -> None:
        super().__init__(daemon=True)
        self._dsn, self._next = dsn, first
        self.longest_s = 0.0
        self.errors: list[str] = []
        self.ending = threading.Event()
        self.is_writing = threading.Event()

    def run(self) -> None:
        with psycopg.connect(self._dsn, autocommit=True) as connection:
            since = time.monotonic()
            while not self.ending.is_set():
                self._next += 1
                try:
                    connection.execute(INSERT, (self._next,))
                except psycopg.Error as problem:
                    self.errors.append(f"{problem.sqlstate}")
                    continue
                now = time.monotonic()
                self.longest_s = max(self.longest_s, now - since)
                since = now
                self.is_writing.set()


def master_of(demo: Demo, via: str) -> str:
    return str(demo.rows(via, "SELECT current_master_name FROM _pico_replicaset")[0][0])


def one(demo: Demo, how: str, first: int) -> tuple[float, bool]:
    names = demo.names()
    master = master_of(demo, names[0])
    others = [name for name in names if name != master]
    leads = demo.leader(others[0]) == master
    [dsn] = [each["dsn"] for each in demo.facts["instances"] if each["name"] == others[-1]]
    client = Client(dsn, first)
    client.start()
    client.is_writing.wait(10)
    time.sleep(0.5)
    pids = demo.pids(master)
    if how == "kill":
        start_again = demo.kill_and_start_later(master)
    else:
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
    time.sleep(WATCH_S)
    client.ending.set()
    client.join(30)
    if how == "kill":
        start_again()
    else:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
    wait_all_online(demo, names, via=others[0])
    return client.longest_s, leads


def main() -> None:
    head("failover as a plain client sees it")
    demo = Demo(3, 3, 21_700)
    found: dict[tuple[str, bool], list[float]] = {}
    try:
        names = demo.names()
        wait_all_online(demo, names)
        demo.rows(names[0], "CREATE TABLE waits (id INT PRIMARY KEY, x TEXT) DISTRIBUTED BY (id)")
        for number in range(2 * KILLS):
            how = ("kill", "stop")[number % 2]
            longest, leads = one(demo, how, number * 1_000_000)
            found.setdefault((how, leads), []).append(longest)
            print(f"{number + 1}: {how}, leader {leads}: {longest:.2f} s", flush=True)
    finally:
        demo.close()
    for how in ("kill", "stop"):
        values = [each for (one_, _), list_ in found.items() if one_ == how for each in list_]
        print(
            f"{how} of a master: p50 {quantile(values, 0.5):.2f} s, "
            f"p95 {quantile(values, 0.95):.2f} s, longest {max(values):.2f} s of {len(values)}"
        )
    print(load())


if __name__ == "__main__":
    main()
