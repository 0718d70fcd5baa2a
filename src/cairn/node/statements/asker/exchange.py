"""A join whose sides are both large: their owners deal out the rows by what has to be equal, and
every owner of the tier joins one part. Only what they make of it comes here.

It is done in two steps. First the reads are begun at the owners, as every other read is: with the
lease, the map and the schema of that moment, and asked again where ranges move. Then each part is
joined by an instance that fetches it from all of these reads. Both end with the statement.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from contextlib import ExitStack
from typing import NamedTuple

import msgspec

from cairn.model.errors import Unreachable
from cairn.model.rpc import Fetched, PartJoin, PartJoined, PartTable
from cairn.model.sharding.parts import ByBuckets
from cairn.model.sharding.spans import Ranges
from cairn.node.statements.asker.asking import Asking, SplitPart
from cairn.node.statements.asker.gathering import Answer, Gathering, all_told
from cairn.node.statements.asker.joins import Joins
from cairn.node.statements.asker.measuring import opened
from cairn.node.statements.asker.owners import Owners, Params
from cairn.node.statements.asker.streams import Gathered, Part, PartAway, PartHere, piece_bytes
from cairn.node.statements.context import OFF, ON, Context
from cairn.sql import plans
from cairn.sql.render.sent import ByBucket
from cairn.storage.files.pieces import Rows, plain, too_many

KNOWN = 200  # statements whose sides are known to be large
FEW = 1_000  # rows of which that is not true any more
JOIN_S = 3600.0  # nothing is told before all of a part is joined; a silent peer is noticed anyway


class Place(NamedTuple):
    """Where a part is joined."""

    replicaset: str
    raft_id: int
    owned: Ranges


def _buckets(by: ByBucket | None, places: Sequence[Place]) -> ByBuckets | None:
    """Each place is given what its replicaset owns: these rows need not travel. It is no matter of
    right answers whether it still owns them."""
    if by is None:
        return None
    starts = sorted((low, part) for part, place in enumerate(places) for low, _ in place.owned)
    return ByBuckets(
        by.types,
        by.bucket_count,
        by.hash_version,
        tuple(low for low, _ in starts),
        tuple(part for _, part in starts),
    )


def dealt_out(plan: plans.ScatterRead) -> frozenset[int]:
    """Fragments whose rows do not come here."""
    return frozenset(split.table for each in plan.fragments for split in each.splits)


def _statement(plan: plans.ScatterRead, values: Params) -> Hashable:
    return tuple((each.sql, each.bind(values)) for each in plan.fragments)


def _counts(fetched: Sequence[Fetched]) -> Counter[int]:
    """Rows of each table."""
    found: Counter[int] = Counter()
    for table, _, rows, _ in fetched:
        found[table] += rows
    return found


class Exchange:
    def __init__(self, owners: Owners, asking: Asking, gathering: Gathering, joins: Joins) -> None:
        self._owners, self._asking = owners, asking
        self._gathering, self._joins = gathering, joins
        self._large: dict[Hashable, frozenset[int]] = {}  # statements, and which fragments are

    # --- whether to do it -------------------------------------------------------------------------

    def foreseen(
        self, plan: plans.ScatterRead, values: Params, context: Context
    ) -> plans.Exchange | None:
        """Before anything is read: it was asked for, or the same fragments were large before."""
        if context.repartition == OFF or not (self._large or context.repartition == ON):
            return None
        if not plan.exchanges:
            return None
        apart = self._large.get(_statement(plan, values))
        if apart is None and context.repartition == ON:
            apart = plan.exchanges[0].apart
        return None if apart is None else self.of(plan, apart, context)

    def of(
        self, plan: plans.ScatterRead, large: frozenset[int], context: Context
    ) -> plans.Exchange | None:
        """For the fragments of which more has come than can be sent along with others."""
        if context.repartition == OFF:
            return None
        for each in plan.exchanges:
            if each.apart == large and (each.reduces or context.repartition == ON):
                places = self._places(each.plan.fragments[-1].tier, context)
                is_here = [place.raft_id for place in places] == [self._owners.raft_id]
                return None if is_here else each
        return None

    def note(self, plan: plans.ScatterRead, exchange: plans.Exchange, values: Params) -> None:
        """It was found out that these are large; the next time it need not be found out."""
        if len(self._large) >= KNOWN:
            del self._large[next(iter(self._large))]
        self._large[_statement(plan, values)] = exchange.apart

    def _places(self, tier: str, context: Context) -> list[Place]:
        """One instance of each replicaset, with what it owns; nobody else has any of the rows."""
        routes, here = self._owners.routes, self._owners.raft_id
        return [
            Place(each, routes.reader(each, context.preference, here), owned)
            for each, owned in routes.all_ranges(tier).items()
        ]

    async def gather(
        self,
        plan: plans.ScatterRead,
        fragment: plans.Fragment,
        whole: dict[int, Rows],
        values: Params,
        tables: dict[int, int],
        context: Context,
        spill_max: int,
    ) -> Answer:
        """`whole` are rows of other fragments: every part is given all of them.

        All sides are dealt out by the same map, whatever moves until the last of them is begun.
        """
        places = self._places(fragment.tier, context)
        with ExitStack() as begun:
            dealt: dict[int, list[SplitPart]] = {}
            for split in fragment.splits:
                dealt[split.table] = await self._gathering.deal(
                    split,
                    values,
                    tables,
                    context,
                    parts=len(places),
                    buckets=_buckets(split.by, places),
                    spill_max=spill_max,
                )
                for each in dealt[split.table]:
                    begun.callback(each.close)
            given = tuple(
                PartTable(
                    len(each.types),
                    plain(whole.get(at, [])),
                    tuple(part.owner for part in dealt.get(at, ())),
                )
                for at, each in enumerate(plan.fragments)
                if each is not fragment
            )
            request = PartJoin(
                fragment.sql,
                fragment.bind(values),
                given,
                part=0,
                piece_bytes=piece_bytes(len(places)),
                timeout_s=context.left_s(JOIN_S),
                row_max=context.row_max,
                opcode_max=context.opcode_max,
                spill_max=spill_max,
                user=context.user_id,
                is_measured=context.stage is not None,
            )
            answer, fetched = await self._joined(fragment, places, request, context)
        self._measure(fragment, dealt, fetched, context)
        counts = _counts(fetched)
        if min(counts[split.table] for split in fragment.splits) < FEW:
            self._large.pop(_statement(plan, values), None)
        return answer

    async def _joined(
        self,
        fragment: plans.Fragment,
        places: Sequence[Place],
        request: PartJoin,
        context: Context,
    ) -> tuple[Answer, list[Fetched]]:
        """The answers of all places; when they are here, nothing is left to be fetched."""
        fetched: list[Fetched] = []
        inner = context.within(fragment)
        calls = []
        for part, place in enumerate(places):
            asked = msgspec.structs.replace(request, part=part, cursor=self._asking.next_cursor())
            call = self._ask(place, asked, fetched, inner)
            if inner.stage is not None:
                is_here = place.raft_id == self._owners.raft_id
                name = self._owners.name_of(place.raft_id)
                call = opened(inner.stage.at(name, place.replicaset, is_here=is_here), call)
            calls.append(call)
        answers = await all_told(calls)
        parts = [each[1] for each in answers if not isinstance(each, BaseException)]
        rest = [part for part in parts if part is not None]
        problem = next((each for each in answers if isinstance(each, BaseException)), None)
        if problem is None and 0 < context.row_max < max(_counts(fetched).values(), default=0):
            problem = too_many(context.row_max)  # in all parts together
        if problem is not None:
            for part in rest:
                part.close()
            raise problem
        rows = [row for told, _ in answers for row in told]
        return (rows, Gathered(rest, 0, len(rows)) if rest else None), fetched

    async def _ask(
        self, place: Place, request: PartJoin, fetched: list[Fetched], context: Context
    ) -> tuple[Rows, Part | None]:
        if place.raft_id == self._owners.raft_id:
            piece, came, read = await self._joins.join(request)
            fetched += came
            return piece.rows, None if read is None else PartHere(self._owners.execution, read)
        context.travelled.hops += 1
        rest = PartAway(self._owners.peers, place.raft_id, request.cursor)
        try:
            answer = await self._owners.peers.call(
                place.raft_id,
                "join_rows",
                request,
                PartJoined,
                request.timeout_s,
                must_end=True,
            )
        except BaseException as problem:
            rest.close()  # its answer may be on the way
            if isinstance(problem, Unreachable):
                raise self._owners.no_answer(place.replicaset, place.raft_id, problem) from None
            raise
        fetched += answer.fetched
        return answer.rows, rest if answer.cursor else None

    def _measure(
        self,
        fragment: plans.Fragment,
        dealt: dict[int, list[SplitPart]],
        fetched: Sequence[Fetched],
        context: Context,
    ) -> None:
        """What went from owners to where it was joined, for EXPLAIN ANALYZE."""
        if context.stage is None:
            return
        for split in fragment.splits:
            owners = {part.owner[0]: part.replicaset for part in dealt[split.table]}
            stage = context.stage.of(split.fragment)
            for table, owner, rows, size in fetched:
                if table == split.table:
                    is_here = owner == self._owners.raft_id
                    name = self._owners.name_of(owner)
                    stage.at(name, owners[owner], is_here=is_here).came(rows, size)
