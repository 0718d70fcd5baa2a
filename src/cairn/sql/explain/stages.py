"""What was measured, stage by stage and instance by instance."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from cairn.model.measured import Run, Stage, Work
from cairn.sql.plans import ExplainOptions, Plan, PointRead, ScatterRead, Step


def stages_lines(plan: Plan, run: Run, asked: ExplainOptions) -> list[str]:
    found = ["stages:"]
    for label, stage in stages(plan, run.stage):
        if stage.works:
            moved = f" bytes={stage.bytes}" if stage.bytes else ""
            found.append(f"    {label}: rows={stage.rows}{moved}{_time(stage.time_s, asked)}")
            found += [f"        {_work(work, asked)}" for work in stage.works.values()]
        if stage.merged_rows is not None:
            took = _time(stage.merge_s, asked)
            found.append(f"    merge at {run.instance}: rows={stage.merged_rows}{took}")
    found += [f"rows: {run.rows}", f"hops: {run.hops}"]
    if asked.has_summary:
        found.append(f"Execution Time: {run.time_s * 1e3:.3f} ms")
    return found


def _work(work: Work, asked: ExplainOptions) -> str:
    place = f"{work.instance} ({work.replicaset})" if work.replicaset else work.instance
    if work.is_here:
        moved = f" bytes={work.bytes}" if work.bytes else ""  # rows that went to others
        return f"{place}, here: rows={work.rows}{moved}{_time(work.time_s, asked)}"
    said = f"rows={work.rows} bytes={work.bytes}"
    said += f" requests={work.asked}" if work.asked else ""
    return f"{place}: {said}{_time(work.time_s, asked)}"


def _time(time_s: float, asked: ExplainOptions) -> str:
    """Nothing where the asker did not wait itself: rows that went from one owner to another."""
    return f" time={time_s * 1e3:.3f} ms" if asked.has_times and time_s else ""


def measured(stage: Stage | None, asked: ExplainOptions) -> tuple[str, dict[str, Any]]:
    """For the node of a part: words and facts."""
    if stage is None or not stage.works:
        return "", {}
    facts: dict[str, Any] = {"Actual Rows": stage.rows, "Bytes": stage.bytes}
    if asked.has_times:
        facts["Actual Time"] = _ms(stage.time_s)
    took = _time(stage.time_s, asked)
    return f" (actual rows={stage.rows} bytes={stage.bytes}{took})", facts


def stages_json(plan: Plan, run: Run, asked: ExplainOptions) -> dict[str, Any]:
    found: list[dict[str, Any]] = []
    for label, stage in stages(plan, run.stage):
        if stage.works:
            instances = [_work_json(work, asked) for work in stage.works.values()]
            told = {"Stage": label, "Rows": stage.rows, "Bytes": stage.bytes}
            found.append(told | _time_json(stage.time_s, asked) | {"Instances": instances})
        if stage.merged_rows is not None:
            told = {"Stage": f"merge at {run.instance}", "Rows": stage.merged_rows}
            found.append(told | _time_json(stage.merge_s, asked))
    summary = {"Execution Time": _ms(run.time_s)} if asked.has_summary else {}
    return {"Stages": found, "Rows": run.rows, "Hops": run.hops, **summary}


def _work_json(work: Work, asked: ExplainOptions) -> dict[str, Any]:
    return {
        "Instance": work.instance,
        "Replicaset": work.replicaset,
        "Here": work.is_here,
        "Requests": work.asked,
        "Rows": work.rows,
        "Bytes": work.bytes,
    } | _time_json(work.time_s, asked)


def _time_json(time_s: float, asked: ExplainOptions) -> dict[str, Any]:
    return {"Time": _ms(time_s)} if asked.has_times else {}


def _ms(time_s: float) -> float:
    return round(time_s * 1e3, 3)


def stages(plan: Any, root: Stage) -> Iterator[tuple[str, Stage]]:
    """In the order in which they are begun: what has to be known first, reads, writes."""
    read = getattr(plan, "read", None)
    if read is not None:  # a write that looks first
        yield from _of(read, root.of(read), "")
    if isinstance(plan, (PointRead, ScatterRead)):
        yield from _of(plan, root, "")
    else:
        yield from _of_steps(getattr(plan, "steps", ()), root)
        yield "write", root


def _of(plan: Any, stage: Stage, prefix: str) -> Iterator[tuple[str, Stage]]:
    yield from _of_steps(getattr(plan, "steps", ()), stage)
    for number, fragment in enumerate(getattr(plan, "fragments", ()), 1):
        yield f"{prefix}motion {number}", stage.of(fragment)
    for meeting in getattr(plan, "meetings", ()):
        label = f"{prefix}motion {meeting.stays + 1}, met by the others"
        for fragment in meeting.plan.fragments:
            if fragment.sent:
                yield label, stage.of(fragment)
    for exchange in getattr(plan, "exchanges", ()):
        joining = exchange.plan.fragments[-1]
        for split in joining.splits:
            yield f"{prefix}motion {split.table + 1}, dealt out", stage.of(split.fragment)
        yield f"{prefix}join in parts", stage.of(joining)
    yield f"{prefix}read", stage


def as_run(plan: ScatterRead, stage: Stage) -> ScatterRead:
    """The way that it took."""
    for meeting in plan.meetings:
        for fragment in meeting.plan.fragments:
            found = stage.found(fragment) if fragment.sent else None
            if found is not None and found.works:
                return meeting.plan
    for exchange in plan.exchanges:
        found = stage.found(exchange.plan.fragments[-1])
        if found is not None and found.works:
            return exchange.plan
    return plan


def _of_steps(steps: tuple[Step, ...], root: Stage) -> Iterator[tuple[str, Stage]]:
    for step in steps:
        yield from _of(step.plan, root.of(step.plan), f"subquery ${step.number}, ")
