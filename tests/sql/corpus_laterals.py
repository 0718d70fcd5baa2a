"""LATERAL: what both databases are asked."""

# ruff: noqa: E501 (a statement is one line)

LATERALS = """
SELECT i.id, x.price FROM item i, LATERAL (SELECT price FROM part p WHERE p.item_id = i.id) x
SELECT i.id, x.price FROM item i LEFT JOIN LATERAL (SELECT price, no FROM part p WHERE p.item_id = i.id AND p.no > i.grp) x ON x.no < 3
SELECT i.id, x.* FROM item i CROSS JOIN LATERAL (SELECT no, price FROM part p WHERE p.item_id = i.id ORDER BY no DESC LIMIT 1) x
SELECT i.id, x.* FROM item i LEFT JOIN LATERAL (SELECT no, price FROM part p WHERE i.id = p.item_id ORDER BY no LIMIT 2 OFFSET 1) AS x (a, b) ON true
SELECT i.id, x.c, x.s FROM item i, LATERAL (SELECT count(*) AS c, sum(price) AS s FROM part p WHERE p.item_id = i.id) x
SELECT i.id, x.c + 1 FROM item i LEFT JOIN LATERAL (SELECT count(*) AS c, coalesce(max(no), -1) AS m FROM part p WHERE p.item_id = i.id AND no > 1) x ON true WHERE x.m < 3
SELECT i.id, x.grp, x.c FROM item i, LATERAL (SELECT j.grp, count(*) AS c FROM item j WHERE j.grp = i.grp AND j.id < 6 GROUP BY j.grp) x
SELECT i.id, x.s FROM item i, LATERAL (SELECT DISTINCT s FROM item j WHERE j.grp = i.grp) x
SELECT k.id, x.id FROM kind k, LATERAL (SELECT id FROM item i WHERE i.grp = k.id ORDER BY n DESC NULLS LAST, id LIMIT 2) x
SELECT k.id, k.name, x.id, x.n FROM kind k JOIN LATERAL (SELECT id, n + 1 AS n FROM item i WHERE i.grp = k.id) x ON x.n > 10
SELECT i.id, x.y FROM item i, LATERAL (SELECT 1 AS y) x
SELECT i.id, x.n, z.c FROM item i, LATERAL (SELECT n AS n FROM note WHERE note.id = i.id) x, LATERAL (SELECT count(*) AS c FROM part p WHERE p.no = x.n) z
SELECT sum(x.c) FROM item i, LATERAL (SELECT count(*) AS c FROM part p WHERE p.item_id = i.id) x GROUP BY x.c > 0
SELECT i.id FROM item i WHERE EXISTS (SELECT 1 FROM kind k, LATERAL (SELECT p.no FROM part p WHERE p.item_id = k.id) x WHERE x.no = i.grp)
SELECT i.id, x.d FROM item i, LATERAL (SELECT d FROM item j WHERE j.n = i.n) x
SELECT i.id, x.price FROM item i, part p, LATERAL (SELECT price FROM part q WHERE q.item_id = p.item_id AND q.no = p.no) x WHERE p.item_id = i.id
SELECT x.* FROM item i, LATERAL (SELECT * FROM part p WHERE p.item_id = i.id) x
SELECT i.id, x.c FROM item i, LATERAL (SELECT count(*) AS c FROM part p WHERE p.item_id = i.id LIMIT 1) x
SELECT i.id, x.m FROM item i, LATERAL (SELECT max(p.price) AS m FROM part p JOIN kind k ON k.id = p.no WHERE p.item_id = i.id AND k.factor > 0) x
WITH w AS (SELECT id, grp FROM item) SELECT w.id, x.c FROM w, LATERAL (SELECT count(*) AS c FROM w AS v WHERE v.grp = w.grp) x
"""

#: Refused by name: our own limits.
REFUSED = """
SELECT i.id, x.y FROM item i, LATERAL (SELECT i.n + 1 AS y) x
SELECT i.id, x.c FROM item i, LATERAL (SELECT count(*) AS c FROM part p WHERE p.item_id < i.id) x
SELECT i.id, x.c FROM item i, LATERAL (SELECT 1 AS c UNION ALL SELECT i.id) x
SELECT i.id, x.no FROM item i, LATERAL (SELECT DISTINCT no FROM part p WHERE p.item_id = i.id LIMIT 1) x
SELECT i.id, x.c FROM item i LEFT JOIN LATERAL (SELECT count(*) AS c FROM part p WHERE p.item_id = i.id) x ON x.c > 1
"""
