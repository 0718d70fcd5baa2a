"""Two instances with their HTTP ports; a test that kills one makes its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster.harness import Cluster, eventually, free_ports
from tests.web.browsing import Browser


class Watched(Cluster):
    """A cluster whose instances serve HTTP; `http` has the ports by name."""

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        self.http: dict[str, int] = {}

    def begin(self, *names: str, host: str = "127.0.0.1") -> Watched:
        for name in names:
            self.add(name)
            [self.http[name]] = free_ports(1)
        self.peers = ",".join(self[name].peer for name in names)
        try:
            for name in names:
                self.revive(name, host)
            self.wait_online(*names)
            for name in names:
                eventually(lambda n=name: self.browser(n).get("/api/v1/health/ready")[0], "HTTP")  # type: ignore[misc]
        except BaseException:
            self.close()
            raise
        return self

    def revive(self, name: str, host: str = "127.0.0.1") -> None:
        self[name].start("--http-listen", f"{host}:{self.http[name]}")

    def browser(self, name: str) -> Browser:
        return Browser(self.http[name])


@pytest.fixture(scope="session")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    made = Watched(tmp_path_factory.mktemp("web"), "web").begin("i1", "i2")
    try:
        yield made
    finally:
        made.close()
