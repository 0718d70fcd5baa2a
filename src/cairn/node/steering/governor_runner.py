"""The governor's loop on the leader: take a view, plan, carry out one action, look again.

It remembers nothing but which subjects back off. A failed action is logged with its subject and
planned anew from a fresh view; the next subject speaks meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from cairn.governor.actions import (
    Action,
    ApplySchemaChange,
    ChangeVoters,
    ConfigureReplication,
    HandOverLeadership,
    Idle,
    Propose,
    RunOperation,
    SealAndName,
    SwitchMaster,
    SyncRaft,
)
from cairn.governor.plan import plan
from cairn.governor.rules.rising import raised
from cairn.governor.view import ClusterView, QueuedOperation
from cairn.model.errors import CairnError, CasRetry, NotLeader, TimedOut
from cairn.model.log import ops
from cairn.model.log.ranges import Predicate, one_key
from cairn.model.members.topology import Grade, Instance, Replicaset
from cairn.model.rpc import DamageReport, Empty, GovernorStatus, LinkReport
from cairn.model.tables.system_tables import PICO_GOVERNOR_QUEUE, PICO_INSTANCE
from cairn.node.consensus.upgrades import operations
from cairn.node.steering.governor_steps import Steps
from cairn.node.waiting import signalled
from cairn.raft.types import ConfChangeSingle, ConfChangeV2, ProposalDropped
from cairn.replication.graph import edges_of, unreached

log = logging.getLogger("cairn.governor")

FIRST_PAUSE_S, LAST_PAUSE_S = 0.25, 30.0
REPORT_S = 5.0  # how long a report of stopped links is believed; it is repeated every second
IDLE_LOOK_S = 1.0  # an idle governor looks again even if nobody woke it


def cut_off(graph: str, replicaset: Replicaset, members: list[Instance]) -> list[str]:
    """Who gets no rows of its master: there is no path at all, or none of instances that live."""
    master = replicaset.current_master_name
    names = [each.name for each in members]
    alive = [each.name for each in members if each.target_state.grade is Grade.ONLINE]
    edges = edges_of(graph, names)
    lost = unreached(edges, master, names)
    found = [
        f"{name} gets no rows of {master}: replication_graph has no path to it" for name in lost
    ]
    if edges is None or master not in alive:
        return found
    living = {edge for edge in edges if edge[0] in alive and edge[1] in alive}
    away = ", ".join(name for name in names if name not in alive)
    found += [
        f"{name} gets no rows of {master}: every path of replication_graph to it runs through "
        f"{away}; start it, or change replication_graph"
        for name in unreached(living, master, alive)
        if name not in lost
    ]
    return found


class GovernorRunner:
    def __init__(self, steps: Steps, on_status: Callable[[GovernorStatus], None]) -> None:
        self.steps, self._on_status = steps, on_status
        self.status = GovernorStatus()
        self._wake = asyncio.Event()
        self._backoff: dict[tuple[str, str], tuple[float, float]] = {}  # → (until, pause)
        self._stopped: dict[str, tuple[float, tuple[str, ...]]] = {}  # instance → (until, why)
        self._damage: dict[str, tuple[float, DamageReport]] = {}  # likewise

    def wake(self) -> None:
        self._wake.set()

    async def run(self) -> None:
        while True:
            if not self.steps.runner.committed_in_term:
                self._show("not a leader", "")
                self._backoff.clear()
                await self._pause(IDLE_LOOK_S)
                continue
            try:
                view = self.view()
                action = plan(view)
            except Exception as bug:
                # Ours, and every next leader would die of it: the cluster goes on ungoverned.
                await self._cannot_plan(bug)
                continue
            self._show(action.step, action.subject)
            try:
                await self._carry_out(action, view)
                self._backoff.pop((action.step, action.subject), None)
                self.status.steps_done += 1
                if not isinstance(action, Idle):
                    self.status.last_error = None
            except (CasRetry, NotLeader) as problem:
                log.debug("%s %s: %s", action.step, action.subject, problem)
                await asyncio.sleep(0.01)  # somebody was quicker: plan again from the new picture
            except (CairnError, ProposalDropped) as problem:
                self._back_off(action.step, action.subject, problem)

    def view(self) -> ClusterView:
        steps = self.steps
        conf = steps.runner.conf
        now = asyncio.get_running_loop().time()
        return ClusterView(
            cluster=steps.state.cluster,
            leader=steps.runner.raft_id,
            voters=frozenset(conf.voters),
            learners=frozenset(conf.learners) | frozenset(conf.learners_next),
            is_joint=bool(conf.voters_outgoing),
            silent=steps.runner.silent((*conf.voters, *conf.learners, *conf.learners_next)),
            sharded_tiers=steps.state.catalog.sharded_tiers,
            waiting=frozenset(key for key, (until, _) in self._backoff.items() if until > now),
            pending_ddl=steps.state.pending_ddl(),
            has_queue=PICO_GOVERNOR_QUEUE.name in steps.state.catalog.tables,
            queue=steps.state.queue(),
            upgrade=self._missing_upgrade(),
            stopped_links=self._stopped_links(now) + self._cut_off() + self._damages(now),
            damaged=frozenset(
                name
                for until, report in self._damage.values()
                if until > now
                for name in report.damaged
            ),
            locks=steps.state.locks,
            closing=steps.state.closing,
            keeps_locks=steps.keeps_locks(),
            version=str(steps.state.cluster.properties.get("cluster_version", "")),
        )

    def note_links(self, report: LinkReport) -> Empty:
        """An instance cannot follow an upstream. Nothing the governor could mend; it says so."""
        if not self.steps.runner.is_leader:
            raise NotLeader(leader=self.steps.runner.leader_id or None)
        until = asyncio.get_running_loop().time() + REPORT_S
        changed = self._stopped.get(report.instance, (0.0, ()))[1] != report.stopped
        self._stopped[report.instance] = (until, report.stopped)
        if changed:
            self.wake()
        return Empty()

    def note_damage(self, report: DamageReport) -> Empty:
        """Files of an instance are damaged. Another master is all that the governor can do."""
        if not self.steps.runner.is_leader:
            raise NotLeader(leader=self.steps.runner.leader_id or None)
        until = asyncio.get_running_loop().time() + REPORT_S
        before = self._damage.get(report.instance)
        self._damage[report.instance] = (until, report)
        if before is None or before[1] != report:
            self.wake()
        return Empty()

    def _damages(self, now: float) -> tuple[str, ...]:
        found = [report.problems for until, report in self._damage.values() if until > now]
        return tuple(sorted(line for lines in found for line in lines))

    def _stopped_links(self, now: float) -> tuple[str, ...]:
        found = [why for until, why in self._stopped.values() if until > now]
        return tuple(sorted(line for lines in found for line in lines))

    def _cut_off(self) -> tuple[str, ...]:
        """Instances to which `replication_graph` leaves no way: nothing comes to them."""
        state = self.steps.state
        text = str(state.setting("replication_graph", "") or "")
        found: list[str] = []
        for replicaset in state.cluster.replicasets.values() if text else ():
            found += cut_off(text, replicaset, state.cluster.members(replicaset.name))
        return tuple(sorted(found))

    def _missing_upgrade(self) -> tuple[QueuedOperation, ...]:
        """Operations of versions after the catalogue's that are not in the queue yet."""
        state = self.steps.state
        properties = state.cluster.properties
        catalog = str(properties.get("system_catalog_version") or "0")
        cluster = str(properties.get("cluster_version") or "0")
        if catalog == cluster:
            return ()
        batches, last_id = state.queue_batches()
        wanted = operations(catalog, cluster, last_id + 1)
        return tuple(each for each in wanted if each.batch_id not in batches)

    async def _cannot_plan(self, bug: Exception) -> None:
        self._show("cannot plan", "")
        told = f"{type(bug).__name__}: {bug}"
        if self.status.last_error != told:
            log.error("the governor cannot plan", exc_info=bug)
            self.status.last_error = told
            self.status.blocked_by = (f"a fault of the governor itself, please report it: {told}",)
            self._on_status(self.status)
        await self._pause(IDLE_LOOK_S)

    # --- doing --------------------------------------------------------------------------------

    async def _carry_out(self, action: Action, view: ClusterView) -> None:
        steps = self.steps
        match action:
            case Idle(blocked_by=blocked):
                if blocked != self.status.blocked_by:
                    self.status.blocked_by = blocked
                    self._on_status(self.status)
                await self._pause(IDLE_LOOK_S)
            case Propose():
                await steps.propose(action, view)
                if action.say:
                    log.info("%s", action.say)
            case ChangeVoters():
                await self._change_voters(action)
            case HandOverLeadership(to=to):
                log.info("handing leadership over to %s", action.subject)
                await steps.hand_over(to)
            case SyncRaft(instances=names):
                done = await steps.caught_up(names)
                await self._raise(view, done, names, Grade.RAFT_SYNCED, action.step)
            case ConfigureReplication(instances=names):
                done = await steps.have_rows(names)
                await self._raise(view, done, names, Grade.REPLICATED, action.step)
            case SwitchMaster():
                await steps.switch_master(action, view)
            case SealAndName():
                await steps.seal_and_name(action, view)
            case ApplySchemaChange():
                await steps.apply_schema_change(action, view)
            case RunOperation():
                await steps.operate(action)
            case _:
                raise AssertionError(f"no such action: {action}")

    async def _raise(
        self,
        view: ClusterView,
        done: dict[str, CairnError | None],
        asked: tuple[str, ...],
        grade: Grade,
        step: str,
    ) -> None:
        """One entry for all that are ready; each of the others backs off by itself."""
        ready = [view.cluster.instances[name] for name in asked if done.get(name, 0) is None]
        if ready:
            await self.steps.proposer.cas(
                ops.Batch(tuple(raised(instance, grade) for instance in ready)),
                Predicate(
                    view.position.index,
                    self.steps.runner.term,
                    tuple(one_key(PICO_INSTANCE.id, (instance.name,)) for instance in ready),
                ),
            )
            log.info("%s: %s", grade, ", ".join(instance.name for instance in ready))
        for name in asked:
            problem = done.get(name, TimedOut("no answer yet"))
            if problem is not None:
                self._back_off(step, name, problem)
            else:
                self._backoff.pop((step, name), None)

    async def _change_voters(self, action: ChangeVoters) -> None:
        changes = tuple(
            [ConfChangeSingle("add_voter", raft_id) for raft_id in action.add_voters]
            + [ConfChangeSingle("add_learner", raft_id) for raft_id in action.add_learners]
            + [ConfChangeSingle("remove", raft_id) for raft_id in action.remove]
        )
        log.info(
            "raft configuration: voters +%s, learners +%s, out %s",
            list(action.add_voters),
            list(action.add_learners),
            list(action.remove),
        )
        await self.steps.change_configuration(ConfChangeV2(changes=changes))

    # --- waiting ------------------------------------------------------------------------------

    def _back_off(self, step: str, subject: str, problem: BaseException) -> None:
        now = asyncio.get_running_loop().time()
        _, pause = self._backoff.get((step, subject), (0.0, FIRST_PAUSE_S / 2))
        pause = min(pause * 2, LAST_PAUSE_S)
        self._backoff[(step, subject)] = (now + pause, pause)
        self.status.last_error = f"{step}: {subject}: {problem}"
        self.status.next_retry_s = pause
        self._on_status(self.status)
        log.warning("%s: %s: %s (again in %.1f s)", step, subject, problem, pause)

    def _show(self, step: str, subject: str) -> None:
        status = self.status
        is_first = not status.since  # of this life: what an earlier one showed is still there
        if is_first or (status.step, status.subject) != (step, subject):
            status.step, status.subject = step, subject
            status.blocked_by = ()
            status.next_retry_s = None
            status.since = self.steps.timestamp()
            self._on_status(status)

    async def _pause(self, seconds: float) -> None:
        """Until woken, or until a subject may be tried again, or `seconds`."""
        now = asyncio.get_running_loop().time()
        dues = [until - now for until, _ in self._backoff.values() if until > now]
        await signalled(self._wake, max(min([seconds, *dues]), 0.01))
        self._wake.clear()
