"""ROLLUP, CUBE and GROUPING SETS: what both databases are asked."""

# ruff: noqa: E501 (a statement is one line)

GROUPINGS = """
SELECT grp, ok, count(*) FROM item GROUP BY ROLLUP (grp, ok)
SELECT grp, ok, count(*), sum(n) FROM item GROUP BY CUBE (grp, ok)
SELECT grp, ok, sum(d), grouping(grp, ok) FROM item GROUP BY GROUPING SETS ((grp), (ok), ())
SELECT grp, ok, s, count(*) FROM item GROUP BY ROLLUP (grp, (ok, s))
SELECT grp, ok, s, count(*) FROM item GROUP BY grp, ROLLUP (ok, s)
SELECT grp, ok, count(*) FROM item GROUP BY ROLLUP (grp), CUBE (ok)
SELECT grp, ok, count(*) FROM item GROUP BY GROUPING SETS (ROLLUP (grp, ok), (ok), CUBE (ok))
SELECT grp FROM item GROUP BY GROUPING SETS ((grp), ())
SELECT grp FROM item WHERE id < 0 GROUP BY GROUPING SETS ((grp), ())
SELECT 7 FROM item WHERE id < 0 GROUP BY ()
SELECT count(*), min(s) FROM item GROUP BY ()
SELECT count(*) FROM item WHERE id < 0 GROUP BY ROLLUP (grp)
SELECT grp + 1 AS k, count(*) FROM item GROUP BY ROLLUP (grp + 1) HAVING count(*) > 1
SELECT grp, max(n) FROM item GROUP BY ROLLUP (grp) HAVING grp IS NULL
SELECT grp, max(n) FROM item GROUP BY ROLLUP (grp) HAVING grouping(grp) = 1
SELECT DISTINCT count(*) FROM item GROUP BY CUBE (grp, ok)
SELECT i.grp, k.name, count(*), sum(p.price) FROM item i JOIN part p ON p.item_id = i.id LEFT JOIN kind k ON k.id = i.grp GROUP BY ROLLUP (i.grp, k.name)
SELECT coalesce(grp, -1) + 1, count(*) FROM item GROUP BY CUBE (grp)
SELECT grp, sum(grp), count(grp) FROM item GROUP BY CUBE (grp, ok)
SELECT grp, count(*) FILTER (WHERE grp > 1) FROM item GROUP BY ROLLUP (grp)
SELECT grp, (SELECT max(price) FROM part WHERE item_id = item.grp) FROM item GROUP BY ROLLUP (grp)
SELECT x.c, count(*) FROM (SELECT grp, count(*) AS c FROM item GROUP BY ROLLUP (grp)) AS x GROUP BY x.c
SELECT 1, grp, count(*) FROM item GROUP BY 1, ROLLUP (2)
SELECT grp AS g, count(DISTINCT s) FROM item GROUP BY ROLLUP (g)
SELECT grp, count(*) FROM item GROUP BY ROLLUP (grp) UNION ALL SELECT 0, 0
SELECT grp, count(*) FROM item GROUP BY grp, ROLLUP (grp)
WITH w AS (SELECT grp, ok FROM item) SELECT grp, ok, count(*) FROM w GROUP BY CUBE (grp, ok)
SELECT CASE WHEN grouping(grp) = 1 THEN 'all' ELSE 'one' END, count(*) FROM item GROUP BY ROLLUP (grp)
SELECT id FROM item WHERE id IN (SELECT count(*) FROM item GROUP BY ROLLUP (grp))
"""

ORDERED = """
SELECT grp, ok, count(*) FROM item GROUP BY ROLLUP (grp, ok) ORDER BY grp NULLS FIRST, ok NULLS FIRST, count(*)
SELECT grp, sum(n) FROM item GROUP BY ROLLUP (grp) ORDER BY grouping(grp) DESC, grp LIMIT 2
SELECT grp, sum(n) AS s FROM item GROUP BY ROLLUP (grp) ORDER BY s NULLS LAST, grp OFFSET 1
SELECT grp FROM item GROUP BY CUBE (grp) ORDER BY count(*), grp
"""

#: Same SQLSTATE as PostgreSQL.
WRONG = """
SELECT grp, n FROM item GROUP BY ROLLUP (grp)
SELECT grouping(n) FROM item GROUP BY ROLLUP (grp)
SELECT id, s FROM item GROUP BY ROLLUP (id)
SELECT nothing FROM item GROUP BY CUBE (grp)
SELECT grp FROM item GROUP BY ROLLUP (sum(n))
"""
