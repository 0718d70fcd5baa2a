"""Aggregates in sub-queries that belong to the query around them."""

# ruff: noqa: E501 (a statement is one line)

from __future__ import annotations

QUERIES = """
SELECT (SELECT count(i.id) FROM kind LIMIT 1) FROM item i
SELECT (SELECT max(i.n)) FROM item i
SELECT 'one' FROM item ORDER BY sum(1) DESC
SELECT 'one' FROM item WHERE id > 100000 ORDER BY count(*) DESC, max(n) LIMIT 1
SELECT 7 FROM item i HAVING max(i.n) > 0 ORDER BY min(i.n)
SELECT (SELECT sum(i.n) FROM kind WHERE kind.id = 1) FROM item i
SELECT (SELECT sum(i.n) FROM part p WHERE p.item_id = 1 AND p.no = 1) FROM item i
SELECT i.grp, (SELECT sum(i.n) FROM kind k WHERE k.id = i.grp) FROM item i GROUP BY i.grp
SELECT i.grp, (SELECT k.name FROM kind k WHERE k.id = count(i.n)) FROM item i GROUP BY i.grp
SELECT i.grp, count(*), (SELECT max(k.factor) * sum(i.n) FROM kind k) FROM item i GROUP BY i.grp
SELECT i.grp FROM item i GROUP BY i.grp HAVING EXISTS (SELECT 1 FROM kind k WHERE k.id = count(i.id))
SELECT i.grp FROM item i GROUP BY i.grp HAVING count(*) > (SELECT min(k.id) FROM kind k WHERE k.id <= max(i.id))
SELECT i.grp, min(i.id) FROM item i GROUP BY i.grp ORDER BY (SELECT sum(i.id) FROM kind k WHERE k.id = 1), 1
SELECT i.grp + 1, (SELECT avg(i.n) FROM kind k WHERE k.id = 1) FROM item i GROUP BY i.grp + 1
SELECT DISTINCT (SELECT count(i.id) FROM kind k WHERE k.id = 1) FROM item i GROUP BY i.grp
SELECT (SELECT count(i.id) FILTER (WHERE i.ok) FROM kind k WHERE k.id = 2) FROM item i
SELECT (SELECT string_agg(DISTINCT i.s, ',' ORDER BY i.s) FROM kind k WHERE k.id = 2) FROM item i
SELECT (SELECT sum(i.n + k.id) FROM kind k) FROM item i WHERE i.id < 4
SELECT (SELECT count(p.no) FROM part p WHERE p.item_id = max(i.id)) FROM item i
SELECT x.g, (SELECT sum(x.m) FROM kind k WHERE k.id = 1) FROM (SELECT grp AS g, max(n) AS m FROM item GROUP BY grp) x GROUP BY x.g
SELECT (SELECT (SELECT max(i.id) FROM kind a WHERE a.id = 1) FROM kind k WHERE k.id = 2) FROM item i
SELECT i.grp, (SELECT count(*) FROM part p WHERE p.no < count(i.id)) FROM item i GROUP BY i.grp
SELECT i.grp, sum(i.n), (SELECT sum(i.n)) FROM item i GROUP BY i.grp HAVING sum(i.n) > 0
SELECT (SELECT max(i.d) FROM kind k WHERE k.id = 1), (SELECT min(i.d) FROM kind k WHERE k.id = 1) FROM item i WHERE i.id > 1000
SELECT (SELECT count(*) FROM part p WHERE p.no > min(i.id)), count(*) FROM item i
SELECT i.grp, (SELECT count(1) FROM part p WHERE p.no > min(i.id)), count(1), (SELECT 7 WHERE count(i.n) > 1) FROM item i GROUP BY i.grp, 7 + 0
SELECT i.id, i.s, (SELECT count(p.no + i.id) FROM part p WHERE p.item_id = i.id) FROM item i
SELECT i.id, (SELECT max(i.n) FROM kind k WHERE k.id = 1), i.s FROM item i GROUP BY i.id
"""

WRONG = """
SELECT i.id FROM item i WHERE (SELECT count(i.id) FROM kind k WHERE k.id = 1) > 0
SELECT i.s, (SELECT max(i.n) FROM kind k WHERE k.id = 1) FROM item i
SELECT count((SELECT max(i.n) FROM kind k WHERE k.id = 1)) FROM item i
SELECT (SELECT k.id FROM kind k WHERE count(k.id) > 1) FROM item i
SELECT i.id FROM item i JOIN part p ON (SELECT max(i.n)) = p.no
UPDATE spare SET n = (SELECT max(spare.id))
"""
