"""Once a second: what this instance knows is shown in its tables, and what is wrong is told to
the leader."""

from __future__ import annotations

import logging

from cairn.model.errors import CairnError
from cairn.model.rpc import DamageReport, Empty, LinkReport
from cairn.node.consensus.leader import Leader
from cairn.node.rows.local_tables import LocalTables
from cairn.node.rows.mesh import BEAT_S
from cairn.node.rows.replication import Replication
from cairn.node.rows.upkeep.backups import Backups
from cairn.node.rows.upkeep.health import Health
from cairn.node.runtime import spawn
from cairn.node.steering.moves_shown import MovesShown

log = logging.getLogger("cairn.instance")


class Beat:
    """Problems are told as long as there are any, and once more when there are none."""

    def __init__(
        self,
        name: str,
        local: LocalTables,
        leader: Leader,
        moves_shown: MovesShown,
        backups: Backups,
    ) -> None:
        self._name, self._local, self._leader = name, local, leader
        self._moves_shown, self._backups = moves_shown, backups
        self._told_stopped = self._told_damage = False

    def tell(self, replication: Replication, health: Health) -> None:
        links = replication.follower.links
        self._local.write_links(links, replication.relay.sent)
        self._moves_shown.beat()
        self._backups.drop_idle()
        stopped = tuple(
            f"{self._name} stopped following {link.upstream}: {link.problem}"
            for _, link in sorted(links.items())
            if link.state == "stopped"
        )
        if stopped or self._told_stopped:
            self._told_stopped = bool(stopped)
            spawn(self._report("report_links", LinkReport(self._name, stopped)), "link report")
        damage = health.report()
        if damage.problems or self._told_damage:
            self._told_damage = bool(damage.problems)
            spawn(self._report("report_damage", damage), "damage report")

    async def _report(self, method: str, report: LinkReport | DamageReport) -> None:
        try:
            await self._leader.ask(method, report, Empty, BEAT_S)
        except CairnError as problem:
            log.debug("%s: the leader was not told: %s", method, problem)
