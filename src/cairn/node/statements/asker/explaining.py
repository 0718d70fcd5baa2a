"""EXPLAIN at the instance that was asked: its plan, who does what of it, and what that took."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from time import perf_counter
from typing import Any

import apsw
import msgspec

from cairn.model.errors import CairnError
from cairn.model.measured import Run, Stage
from cairn.model.tables.schema import TEMP_TIER
from cairn.node.consensus.global_state import GlobalState
from cairn.node.statements.asker.reading import Reads
from cairn.node.statements.blocks.asking import Statement
from cairn.node.statements.context import Context
from cairn.sql import plans
from cairn.sql.plan.places import NotYet, known
from cairn.sql.plans import Prepared
from cairn.storage.files.pieces import Row

Params = Sequence[Any]
Options = dict[str, int]
Where = tuple[str, dict[str, Any]]


class Inner(msgspec.Struct):
    """The statement inside EXPLAIN ANALYZE: it is run like any other."""

    prepared: Prepared
    sharded: dict[int, int]
    oids: tuple[int, ...]


class Explaining:
    def __init__(self, state: GlobalState, reads: Reads) -> None:
        self._state, self._reads = state, reads

    async def measured(
        self,
        statement: Statement,
        context: Context,
        run: Callable[[Statement, Context], Awaitable[Any]],
    ) -> Run:
        """Run the statement inside to its end. Its rows are counted, and nobody is told them."""
        plan = statement.prepared.plan
        assert isinstance(plan, plans.ExplainPlan)
        inner = Inner(plan.inner, statement.sharded, statement.oids)
        stage = Stage()
        context = msgspec.structs.replace(context, stage=stage, takes_pieces=True)
        begun, hops = perf_counter(), context.travelled.hops  # a loop counts in milliseconds
        outcome = await run(inner, context)
        count = outcome.count
        if (more := outcome.more) is not None:
            try:
                while part := await context.watched(more.next(context)):
                    count += len(part)
            finally:
                more.close()
        took_s, hops = perf_counter() - begun, context.travelled.hops - hops
        here = self._reads.owners.name_of(self._reads.owners.raft_id)
        return Run(stage, count, hops, took_s, here)

    def rows(
        self,
        plan: plans.ExplainPlan,
        values: Params | None,
        options: Options,
        context: Context,
        run: Run | None = None,
    ) -> list[Row]:
        """The answer; on a thread."""
        inner = plan.inner.plan
        block = inner.write if isinstance(inner, plans.TempWrite) else inner
        if isinstance(block, plans.BlockPlan):
            return self._merge(plan, block, options, context)
        from cairn.sql.explain.show import Shown  # brings sqlglot along: not before it is needed

        preference = str(plan.inner.options.get("read_preference", context.preference))
        reader = self._reads.owners.execution.reads.plan_reader()
        try:
            shown = Shown(
                self._as_run(plan.inner, values, run),
                values,
                options=options,
                query_plan=lambda sql, args: _query_plan(reader, sql, args),
                catalog=self._state.catalog,
                where=lambda part: self._where(part, plan.inner, values, preference),
                run=run,
            )
            if plan.options.is_json:
                return [(shown.json(plan.options),)]
            return [(line,) for line in shown.lines(plan.options)]
        finally:
            reader.close()

    def _as_run(self, prepared: Prepared, values: Params | None, run: Run | None) -> Prepared:
        """With its reads by one replicaset alone, where that is, or was, the way."""
        plan: Any = prepared.plan
        if isinstance(plan, plans.ScatterRead):
            return replace(prepared, plan=self._way(plan, values, run))
        if isinstance(read := getattr(plan, "read", None), plans.ScatterRead):
            return replace(prepared, plan=replace(plan, read=self._way(read, values, run)))
        return prepared

    def _way(
        self, plan: plans.ScatterRead, values: Params | None, run: Run | None
    ) -> plans.ScatterRead:
        if plan.alone is None or values is None:
            return plan
        [fragment] = plan.alone.fragments
        if run is not None:
            found = run.stage.found(fragment)
            return plan if found is None or not found.works else plan.alone
        try:
            is_alone = self._reads.owners.whole(fragment, values) is not None
        except CairnError:
            return plan
        return plan.alone if is_alone else plan

    def _merge(
        self, plan: plans.ExplainPlan, block: plans.BlockPlan, options: Options, context: Context
    ) -> list[Row]:
        """What MERGE reads for each WHEN, and then what it changes, in the order of both."""
        found: list[Row] = []
        for step in block.steps:
            done = "change" if step.kind == "merge" else "read"
            found.append((f"{done} for WHEN {step.number}:",))
            part = plans.ExplainPlan(step.prepared, plan.options)
            lines = self.rows(part, None, options, context)
            told = [line for (line,) in lines]
            end = next((at for at, line in enumerate(told) if line.startswith("execution")), None)
            found += [(f"    {line}",) for line in told[:end]]
        return found

    # --- who does what ----------------------------------------------------------------------------

    def _where(
        self, part: Any, prepared: Prepared, values: Params | None, preference: str
    ) -> Where:
        if isinstance(part, plans.GlobalWrite):
            return " through raft", {"Through": "raft"}
        if values is None:
            return "", {}
        if getattr(part, "tier", getattr(getattr(part, "fragment", None), "tier", "")) == TEMP_TIER:
            return " in the temporary tables of this session", {"At": "this session"}
        first = len(prepared.param_types) + prepared.uses_now
        missing = frozenset(range(first, first + prepared.hidden))
        try:
            return self._at(part, known(values, missing), preference)
        except NotYet:
            return " where a subquery will tell", {}
        except CairnError as problem:
            return f" where nobody can tell now: {problem.message}", {}

    def _at(self, part: Any, values: Params, preference: str) -> Where:
        match part:
            case plans.PointRead(bucket=bucket, tier=tier) if bucket is not None:
                return self._shown("at", self._owners(str(tier), [bucket(values)], preference))
            case plans.PointWrite(bucket=bucket, tier=tier):
                return self._shown("at", self._owners(tier, [bucket(values)], "leader"))
            case plans.ScatterWrite(fragment=fragment):
                owners = list(self._reads.owners.targets(fragment, values))
                return self._shown("at", self._instances(owners, "leader"))
            case plans.Fragment():
                owners = list(self._reads.owners.targets(part, values))
                words, facts = self._shown("from", self._instances(owners, preference))
                buckets = part.bucket_set(values)
                if buckets is not None:
                    facts["Buckets"] = sorted(buckets)
                    words += f" of {len(buckets)} bucket{'s' * (len(buckets) != 1)}"
                return words, facts
        return "", {}

    def _owners(self, tier: str, buckets: Sequence[int], preference: str) -> list[tuple[str, str]]:
        return self._instances(list(self._reads.owners.routes.group(tier, buckets)), preference)

    def _instances(self, replicasets: list[str], preference: str) -> list[tuple[str, str]]:
        reads = self._reads
        reader = reads.owners.routes.reader
        return [
            (each, reads.owners.name_of(reader(each, preference, reads.owners.raft_id)))
            for each in replicasets
        ]

    def _shown(self, word: str, found: list[tuple[str, str]]) -> Where:
        shown = ", ".join(f"{instance} ({replicaset})" for replicaset, instance in found)
        facts = [{"Replicaset": replicaset, "Instance": each} for replicaset, each in found]
        return f" {word} {shown}", {word.capitalize(): facts}


def _query_plan(reader: apsw.Connection, sql: str, args: Params) -> list[Row]:
    try:
        return list(reader.execute(f"EXPLAIN QUERY PLAN {sql}", args))
    except apsw.Error:
        return []  # the tables of this instance are behind or ahead of the plan
