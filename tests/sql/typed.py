"""The same statements on PostgreSQL and on three replicasets, compared to the last letter.

Rows are compared as the texts that clients get, with the type of each column, so `1.50` differs
from `1.5` and a date from its midnight.
"""

from __future__ import annotations

from typing import Any

import psycopg

from cairn.model.errors import CairnError
from cairn.model.types.values import OIDS
from cairn.pgwire.values.formats import text_encoder
from cairn.sql.api import prepare

from .harness import Cluster

#: Types that Cairn has one wider form of.
_WIDER = {21: 20, 23: 20, 700: 701, 1005: 1016, 1007: 1016, 1021: 1022, 1042: 25, 1043: 25}
_WIDER |= {1015: 1009, 1014: 1009, 26: 20, 19: 25, 18: 25}
Answer = tuple[str, list[int], list[Any]]


class Pair:
    """One statement, two databases; `differences` collects what they do not agree on."""

    def __init__(self, postgres: Any) -> None:
        self.cluster, self.postgres = Cluster(), postgres
        self.differences: list[str] = []

    def both(self, script: str, *, ordered: bool = True) -> None:
        """Every line of `script` on both; what `--` begins is passed over."""
        for line in script.strip().splitlines():
            text = line.strip()
            if text and not text.startswith("--"):
                self.one(text, ordered=ordered)

    def one(self, text: str, *, ordered: bool = True) -> None:
        theirs, ours = self.theirs(text), self.ours(text)
        if not ordered:
            theirs, ours = (
                (state, types, sorted(rows, key=repr)) for state, types, rows in (theirs, ours)
            )
        if ours != theirs:
            self.differences.append(f"{text}\n  ours   {ours}\n  theirs {theirs}")

    def theirs(self, text: str) -> Answer:
        try:
            cursor = self.postgres.execute(text.encode())
        except psycopg.Error as error:
            return str(error.sqlstate), [], []
        result = cursor.pgresult
        if not cursor.description:
            counted = result.command_tuples is not None
            return "", [], [result.command_status.decode()] if counted else []
        types = [_WIDER.get(each.type_code, each.type_code) for each in cursor.description]
        shown = [
            [result.get_value(row, at) for at in range(len(types))] for row in range(result.ntuples)
        ]
        return "", types, shown

    def ours(self, text: str) -> Answer:
        try:
            prepared = prepare(text, self.cluster.catalog, user_id=1)
            found = self.cluster.execute(prepared)
        except CairnError as error:
            return error.sqlstate, [], []
        except Exception as error:  # a bug of ours: shown with its statement
            return f"crash {error!r}", [], []
        if not prepared.columns:
            return "", [], [prepared.complete(found)] if isinstance(found, int) else []
        types = [OIDS[column.type] for column in prepared.columns]
        encoders = [text_encoder(oid) for oid in types]
        shown = [
            [None if v is None else encode(v) for encode, v in zip(encoders, row, strict=True)]
            for row in found
        ]
        return "", types, shown

    def check(self) -> None:
        assert not self.differences, "\n\n".join(self.differences)
