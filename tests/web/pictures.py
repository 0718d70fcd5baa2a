"""Pictures of the console in five states, for docs/: `python -m tests.web.pictures [directory]`."""

from __future__ import annotations

import random
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import psycopg

from tests.cluster.harness import PASSWORD, eventually
from tests.web.chromium import Page, chromium
from tests.web.conftest import Watched

PICTURES = Path(__file__).resolve().parents[2] / "docs" / "pictures"
SIZES = {"desktop": (1200, 860), "phone": (390, 780)}


class Load:
    """Some clients who read and write orders until they are told to stop."""

    def __init__(self, cluster: Watched, names: list[str]) -> None:
        self._cluster, self._is_over = cluster, threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(name,)) for name in names]
        for thread in self._threads:
            thread.start()

    def _run(self, name: str) -> None:
        while not self._is_over.is_set():
            try:
                with self._cluster[name].connect(application_name="shop") as connection:
                    self._work(connection)
            except psycopg.OperationalError:
                time.sleep(0.3)

    def _work(self, connection: psycopg.Connection[Any]) -> None:
        chance = random.Random(7)
        for turn in range(1_000_000):
            if self._is_over.is_set():
                return
            key = chance.randrange(100_000)
            try:
                for _ in range(4):
                    connection.execute("SELECT * FROM orders WHERE id = %s", (key,)).fetchall()
                connection.execute("UPDATE orders SET amount = amount + 1 WHERE id = %s", (key,))
                if turn % 5 == 0:
                    insert = "INSERT INTO orders VALUES (%s, %s, 1) ON CONFLICT DO NOTHING"
                    connection.execute(insert, (key + 100_000, "new"))
                if turn % 40 == 0:
                    connection.execute("SELECT customer, count(*) FROM orders GROUP BY customer")
            except psycopg.OperationalError:
                raise
            except psycopg.Error:
                pass  # it shows in the chart of errors
            time.sleep(0.01)

    def stop(self) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join()


class Pictures:
    def __init__(self, cluster: Watched, directory: Path, opened: Any) -> None:
        self._cluster, self._directory = cluster, directory
        self._pages: dict[str, Page] = {}
        for size, (width, height) in SIZES.items():
            port, scheme = cluster.http["i1"], "dark" if size == "phone" else "light"
            page = opened(
                f"http://127.0.0.1:{port}/#/query",
                viewport={"width": width, "height": height},
                color_scheme=scheme,
            )
            page.log_in(PASSWORD)
            page.page.locator("#sql").wait_for()
            page.page.evaluate("location.hash = '#/'")
            self._pages[size] = page

    def take(
        self, name: str, text: str = "", part: str = "", size: str = "", heading: str = ""
    ) -> None:
        """When the banner has the text; from this heading on."""
        for each, page in self._pages.items():
            if size not in ("", each):
                continue
            page.page.bring_to_front()
            page.page.evaluate("part => location.hash = `#/${part}`", part)
            if text:
                page.wait(text, "#banner", 90)
            page.page.wait_for_timeout(6_000)
            page.page.evaluate(
                "text => { scrollTo(0, 0); [...document.querySelectorAll('h2')]"
                ".find(e => e.textContent === text)?.scrollIntoView() }",
                heading,
            )
            path = self._directory / f"console-{name}-{each}.png"
            page.page.screenshot(path=path)
            print(path, path.stat().st_size)


def main(directory: Path) -> None:
    with tempfile.TemporaryDirectory() as place, chromium() as opened:
        cluster = Watched(Path(place), "shop", "--init-replication-factor", "2")
        load: Load | None = None
        try:
            cluster.begin("i1", "i2", "i3", "i4")
            first = cluster["i1"]
            first.sql(
                "CREATE TABLE orders (id INT PRIMARY KEY, customer TEXT, amount INT) "
                "DISTRIBUTED BY (id)"
            )
            with (
                first.connect() as connection,
                connection.cursor().copy("COPY orders FROM STDIN") as copy,
            ):
                for key in range(100_000):
                    copy.write(f"{key}\tcustomer {key % 1000}\t{key % 97}\n")
            pictures = Pictures(cluster, directory, opened)
            time.sleep(30)
            pictures.take("quiet", "All is well")
            load = Load(cluster, ["i1", "i2", "i4", "i1"])
            time.sleep(60)
            pictures.take("load", "All is well", size="desktop")
            pictures.take("charts", "All is well", heading="The last hour")
            pictures.take("statements", part="statements", size="desktop")
            pictures.take("sessions", part="sessions", size="desktop")
            pictures.take("history", part="history", size="desktop")
            masters = [row["master"] for row in first.status()["replicasets"]]
            victim = next(name for name in masters if name != "i1")
            cluster[victim].kill()
            pictures.take("failover", f"{victim} is Offline")
            cluster.revive(victim)
            cluster.wait_online(victim, via="i1")
            first.sql("ALTER SYSTEM SET rebalance_rows_per_s = 500")
            for name in ("i5", "i6"):
                cluster.add(name)
                cluster.http[name] = cluster[name].pg_port + 1
                cluster.revive(name)
            eventually(lambda: first.status()["moves"], "moves", 120)
            eventually(lambda: first.status()["moves"][0]["rows"], "rows that move", 120)
            pictures.take("moving", "Buckets are moving", heading="Buckets")
            load.stop()
            for name in ("i3", "i4", "i2", "i5", "i6"):
                cluster[name].kill()
            pictures.take("no-quorum", "No quorum")
        finally:
            if load is not None:
                load.stop()
            cluster.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else PICTURES)
