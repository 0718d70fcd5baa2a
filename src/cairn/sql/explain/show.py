"""EXPLAIN in the layout that drivers parse: a tree by indentation, options, one `buckets` line.

With ANALYZE what was measured follows. FORMAT JSON has the same facts under names.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from cairn.model.measured import Run
from cairn.model.tables.catalog import Catalog
from cairn.sql.explain.access import QueryPlan, access_paths
from cairn.sql.explain.nodes import Node
from cairn.sql.explain.raw import buckets_shown, raw_lines, raw_sections, sources
from cairn.sql.explain.stages import as_run, measured, stages_json, stages_lines
from cairn.sql.explain.tree import Tree, Where, Wheres, nowhere
from cairn.sql.plans import (
    ExplainOptions,
    PointRead,
    PointWrite,
    Prepared,
    Returning,
    TempRead,
    TempWrite,
)

DEFAULT_OPTIONS = {"sql_vdbe_opcode_max": 0, "sql_motion_row_max": 0}
_RULE = "─" * 70


class Shown:
    """One statement and all that is known of how it is run.

    `values` are those of its parameters, or None when it is explained without them. `query_plan`
    asks SQLite, `where` tells which instances do a part of the plan.
    """

    def __init__(
        self,
        prepared: Prepared,
        values: Sequence[Any] | None,
        *,
        options: dict[str, int] | None = None,
        query_plan: QueryPlan | None = None,
        catalog: Catalog | None = None,
        where: Wheres = nowhere,
        run: Run | None = None,
    ) -> None:
        if isinstance(prepared.plan, TempRead):
            prepared = replace(prepared, plan=prepared.plan.read)
        if isinstance(prepared.plan, TempWrite):
            prepared = replace(prepared, plan=prepared.plan.write)
        if isinstance(prepared.plan, Returning):
            prepared = replace(prepared, plan=prepared.plan.write)
        self._prepared, self._values, self._run = prepared, values, run
        self._options = {**DEFAULT_OPTIONS, **(options or {})}
        self._query_plan, self._catalog, self._where = query_plan, catalog, where

    def lines(self, asked: ExplainOptions) -> list[str]:
        parts: list[tuple[str, list[str]]] = []
        for facet in asked.facets or ("logical", "buckets"):
            match facet:
                case "logical":
                    tail = ["execution options:"]
                    tail += [f"    {name} = {value}" for name, value in self._options.items()]
                    parts.append(("Logical plan", self._tree(asked).lines() + tail))
                case "buckets":
                    parts.append(("Buckets", [f"buckets = {self._buckets()}"]))
                case "raw":
                    parts.append(("Raw", self._raw()))
                case "context":
                    parts.append(("Context", [f"{n} = {v}" for n, v in self._options.items()]))
                case "forward":
                    parts.append(("Forward", self._forward()))
        if not asked.facets or len(parts) == 1:
            found = [line for _, lines in parts for line in lines]
        else:
            found = [
                line
                for title, lines in parts
                for line in (_RULE, f" # {title}".ljust(70), _RULE, "", *lines)
            ]
        if asked.is_verbose:
            found += ["", *self._raw()]
        if self._run is not None:
            found += stages_lines(self._prepared.plan, self._run, asked)
        return found

    def json(self, asked: ExplainOptions) -> str:
        found: dict[str, Any] = {
            "Plan": self._tree(asked).as_json(),
            "Execution Options": self._options,
            "Buckets": self._buckets(),
        }
        if asked.is_verbose:
            found["Queries"] = [
                {"Where": where, "SQL": sql}
                for where, sql, _ in raw_sections(self._prepared, self._values)
            ]
        if self._run is not None:
            found |= stages_json(self._prepared.plan, self._run, asked)
        return json.dumps([found], indent=2, ensure_ascii=False)

    def _tree(self, asked: ExplainOptions) -> Node:
        where, ran = self._where, None
        if (run := self._run) is not None:
            ran = partial(as_run, stage=run.stage)

            def where(part: Any) -> Where:
                words, facts = self._where(part)
                more, found = measured(run.stage.found(part), asked)
                return words + more, facts | found

        paths: dict[int, str] = {}
        if self._query_plan is not None and self._values is not None:
            for node, sql, bind in sources(self._prepared, self._values, ran):
                rows = self._query_plan(sql, bind(self._values))
                paths |= access_paths(node, rows, self._catalog)
        return Tree(paths, where, ran).statement(self._prepared.plan, self._prepared.bound)

    def _buckets(self) -> str:
        return buckets_shown(self._prepared, self._values, self._catalog)

    def _raw(self) -> list[str]:
        return raw_lines(self._prepared, self._values, self._query_plan)

    def _forward(self) -> list[str]:
        plan = self._prepared.plan
        local = isinstance(plan, PointRead) and plan.bucket is None
        is_point = isinstance(plan, (PointRead, PointWrite))
        best = "off" if local else "ro_to_rw" if is_point else "on"
        return ["forward analysis (on > ro_to_rw > off):", f"  forward = {best}"]
