"""Whatever the parser understood of a statement is used or refused.

The parser's tree is watched: each part of it that nobody has looked at when a statement was
accepted has been ignored in silence, and what the statement says is not what is done.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from sqlglot import exp

from cairn.model.errors import CairnError
from cairn.sql import compile as compiling
from cairn.sql.api import prepare

from .corpus import ORDERED, PLAIN, TABLES, WRITES, lines
from .corpus_more import MORE_ORDERED, MORE_PLAIN
from .harness import Cluster

#: Says nothing, or nothing that matters here.
IDLE = {
    ("Div", "typed"),
    ("DPipe", "safe"),
    ("DataType", "nested"),
    ("Fetch", "direction"),
    ("JSONExtract", "only_json_types"),
    ("JSONExtractScalar", "only_json_types"),
    ("LimitOptions", "rows"),
    ("Literal", "is_string"),
    ("Table", "only"),  # nothing is inherited
    ("Var", "this"),  # DO UPDATE, where what is updated is looked at
    ("Window", "over"),
    # Read by walking down the tree, not by name.
    *((kind, side) for kind in ("And", "Or", "DPipe") for side in ("this", "expression")),
}

#: What PostgreSQL has, what other dialects have, and what people mistake for SQL.
ODD = """
SELECT sum(id) OVER (ORDER BY id ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING EXCLUDE TIES) FROM item
SELECT sum(id) OVER (w ORDER BY id) FROM item WINDOW w AS (PARTITION BY grp)
SELECT first_value(id) RESPECT NULLS OVER (ORDER BY id) FROM item
SELECT ntile(2) OVER (PARTITION BY grp ORDER BY id DESC NULLS LAST) FROM item
SELECT * FROM generate_series(1, 3) WITH ORDINALITY
SELECT * FROM generate_series(1, 3) WITH ORDINALITY AS g(x, no)
SELECT id FROM ONLY item
SELECT a FROM item AS i (a, b)
SELECT * FROM item TABLESAMPLE BERNOULLI (10)
SELECT id FROM item FOR SYSTEM_TIME AS OF '2020-01-01'
SELECT id FROM item WITH (NOLOCK)
SELECT id FROM item PIVOT (sum(n) FOR grp IN (1, 2))
SELECT i.id FROM item i JOIN part p
SELECT i.id FROM item i CROSS JOIN part p ON i.id = p.no
SELECT i.id FROM item i NATURAL JOIN part p ON i.id = p.no
SELECT i.id FROM item i ASOF JOIN part p ON i.id = p.no
SELECT i.id FROM item i SEMI JOIN part p ON i.id = p.no
SELECT i.id FROM item i ANTI JOIN part p ON i.id = p.no
SELECT i.id FROM item i LEFT OUTER JOIN part p ON true
SELECT i.id FROM item i, part p
SELECT i.id FROM item i, LATERAL (SELECT 1) x
SELECT * EXCEPT (id) FROM item
SELECT * REPLACE (1 AS id) FROM item
SELECT id FROM item QUALIFY row_number() OVER (ORDER BY id) = 1
SELECT id FROM item CLUSTER BY id
SELECT id FROM item SORT BY id
SELECT id FROM item LIMIT 1 BY id
SELECT id FROM item LIMIT 10 PERCENT
SELECT id FROM item ORDER BY id FETCH FIRST 2 ROWS WITH TIES
SELECT id FROM item ORDER BY id WITH FILL
SELECT id FROM item FOR UPDATE SKIP LOCKED
SELECT id INTO copied FROM item
SELECT DISTINCT ON (grp) grp, id FROM item ORDER BY grp, id
SELECT grp FROM item GROUP BY DISTINCT grp
SELECT grp, count(*) FROM item GROUP BY ROLLUP (grp)
SELECT grp, count(*) FROM item GROUP BY grp WITH TOTALS
SELECT grp, count(*) FROM item GROUP BY ALL
SELECT count(DISTINCT id) FILTER (WHERE id > 1) FROM item
SELECT string_agg(DISTINCT s, ',') FROM item
SELECT string_agg(s, ',' ORDER BY id DESC NULLS FIRST) FROM item
SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY id) FROM item
SELECT id FROM item UNION ALL BY NAME SELECT id FROM item
SELECT id FROM item INTERSECT ALL SELECT id FROM item
SELECT id FROM item EXCEPT ALL SELECT id FROM item
WITH x AS NOT MATERIALIZED (SELECT 1 AS a) SELECT * FROM x
WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 3) SELECT * FROM r
WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n FROM r) SEARCH DEPTH FIRST BY n SET o TABLE r
INSERT INTO item AS x (id) VALUES (1) ON CONFLICT (id) DO UPDATE SET n = 1 WHERE x.n > 1 RETURNING n
INSERT INTO item (id) VALUES (1) ON CONFLICT (id) WHERE id > 0 DO NOTHING
INSERT OR REPLACE INTO item (id) VALUES (1)
INSERT INTO item (id) OVERRIDING SYSTEM VALUE VALUES (1)
INSERT INTO item DEFAULT VALUES
UPDATE item SET (n, grp) = (1, 2) WHERE id = 1
UPDATE item SET n = DEFAULT WHERE id = 1
UPDATE item SET n = 1 WHERE id = 1 ORDER BY id LIMIT 1
UPDATE item AS i SET n = 1 FROM part p WHERE p.item_id = i.id RETURNING i.*
DELETE FROM item AS i USING part p WHERE p.item_id = i.id
DELETE FROM item WHERE id = 1 LIMIT 1
SELECT cast(id AS varchar(3)) FROM item
SELECT try_cast(s AS int) FROM item
SELECT cast(s AS int DEFAULT 0 ON CONVERSION ERROR) FROM item
SELECT (ARRAY[1, 2, 3])[1:2]
SELECT at AT TIME ZONE 'UTC' FROM item
SELECT interval '1' YEAR, interval '1-2' YEAR TO MONTH
SELECT timestamp(3) '2020-01-01 00:00:00.123456', current_timestamp(2)
SELECT s COLLATE "de_DE" FROM item
SELECT s COLLATE nowhere."C" FROM item
SELECT id::nowhere.int8 FROM item
SELECT id::pg_catalog.int8 FROM item
SELECT s LIKE 'a!_' ESCAPE '!' FROM item
SELECT id BETWEEN SYMMETRIC 2 AND 1 FROM item
SELECT trim(LEADING 'x' FROM s), substring(s FROM 2 FOR 3) FROM item
VALUES (1, 2), (3, 4) ORDER BY 1 LIMIT 1
"""


class Watched(dict[str, Any]):
    """The parts of a node, and which of them were asked for by name."""

    def __init__(self, parts: dict[str, Any]) -> None:
        super().__init__(parts)
        self.asked: set[str] = set()

    def get(self, key: str, default: Any = None) -> Any:
        self.asked.add(key)
        return super().get(key, default)

    def __getitem__(self, key: str) -> Any:
        self.asked.add(key)
        return super().__getitem__(key)


@pytest.fixture(scope="module")
def cluster() -> Cluster:
    made = Cluster()
    for ours, _ in TABLES:
        made.run(ours)
    return made


@pytest.fixture
def trees(monkeypatch: pytest.MonkeyPatch) -> list[exp.Expr]:
    """Those that were made so far."""
    found: list[exp.Expr] = []
    parse = compiling.parse_query

    def watched(*given: Any) -> exp.Expr:
        tree = parse(*given)
        for node in tree.walk():
            node.args = Watched(node.args)
        found.append(tree)
        return tree

    monkeypatch.setattr(compiling, "parse_query", watched)
    return found


def ignored(tree: exp.Expr) -> Iterator[tuple[str, str]]:
    """Parts that nobody asked for, of those parts that somebody asked for."""
    for node in tree.walk(prune=lambda each: not isinstance(each.args, Watched)):
        if not isinstance(node.args, Watched):
            continue
        for key, value in node.args.items():
            name = type(node).__name__, key
            if value and key not in node.args.asked and name not in IDLE:
                yield name


def test_each_part_of_an_accepted_statement_was_looked_at(
    cluster: Cluster, trees: list[exp.Expr]
) -> None:
    texts = [*lines(ORDERED), *lines(PLAIN), *lines(MORE_ORDERED), *lines(MORE_PLAIN), *lines(ODD)]
    wrong, accepted = [], 0
    for text in [*texts, *(write for write, _ in WRITES)]:
        trees.clear()
        try:
            prepare(text, cluster.catalog, user_id=1)
        except CairnError:
            continue
        accepted += 1
        wrong += [f"{'.'.join(name)} of {text}" for tree in trees for name in ignored(tree)]
    assert not wrong, "\n".join(wrong)
    assert accepted > 400
