"""Joins and sub-queries that are said in another way before they are planned."""

# ruff: noqa: E501 (a statement is one line)

SHAPES = """
SELECT i.id FROM item i WHERE EXISTS (SELECT 1 FROM note t WHERE t.n = i.n)
SELECT i.id FROM item i WHERE NOT EXISTS (SELECT 1 FROM note t WHERE t.n = i.n)
SELECT i.id FROM item i WHERE NOT EXISTS (SELECT * FROM note t WHERE t.tag = i.s AND t.n > 1)
SELECT t.id FROM note t WHERE NOT EXISTS (SELECT 1 FROM pair p WHERE p.b = t.tag AND p.a = t.n)
SELECT t.id FROM note t WHERE EXISTS (SELECT 1 FROM pair p WHERE p.b = t.tag AND p.v = t.n)
SELECT t.id FROM note t WHERE EXISTS (SELECT 1 FROM item i WHERE i.grp = t.n LIMIT 1)
SELECT t.id FROM note t WHERE EXISTS (SELECT 1 FROM item i WHERE i.grp = t.n LIMIT 0)
SELECT t.id FROM note t WHERE NOT EXISTS (SELECT 1 FROM item i WHERE i.d = t.n)
SELECT t.id FROM note t WHERE EXISTS (SELECT max(n) FROM item i WHERE i.grp = t.n)
SELECT t.id FROM note t WHERE EXISTS (SELECT grp FROM item i WHERE i.grp = t.n GROUP BY grp HAVING count(*) > 2)
SELECT t.id FROM note t WHERE EXISTS (SELECT 1 FROM item i WHERE i.grp = t.n AND i.id <> t.id) OR t.id = 3
SELECT t.id FROM note t WHERE (EXISTS (SELECT 1 FROM item i WHERE i.grp = t.n)) IS NOT NULL
SELECT t.id FROM note t WHERE t.n > (SELECT avg(i.n) FROM item i WHERE i.grp = t.id)
SELECT t.id FROM note t WHERE t.n < (SELECT count(*) FROM item i WHERE i.grp = t.id)
SELECT t.id FROM note t WHERE t.id > (SELECT count(*) FROM item i WHERE i.grp = t.id + 1)
SELECT t.id FROM note t WHERE (SELECT sum(i.d) FROM item i WHERE i.grp = t.id) IS NULL
SELECT t.id FROM note t WHERE coalesce((SELECT min(i.n) FROM item i WHERE i.grp = t.id), 0) = 0
SELECT t.id FROM note t WHERE (SELECT max(i.n) FROM item i WHERE i.grp = t.id AND i.s = t.tag) = 1 OR t.tag IS NULL
SELECT t.id, (SELECT count(*) FROM item i WHERE i.grp = t.n) FROM note t
SELECT t.id, (SELECT 0.4 * avg(i.d) FROM item i WHERE i.grp = t.n) AS x FROM note t ORDER BY x, t.id
SELECT t.id, (SELECT coalesce(sum(i.n), 0) + 1 FROM item i WHERE i.grp = t.n AND i.ok) FROM note t
SELECT t.id, (SELECT 10 / sum(i.n) FROM item i WHERE i.grp = t.n AND i.n > 0) FROM note t WHERE t.n < 3
SELECT t.id, (SELECT sum(10 / i.n) FROM item i WHERE i.id = t.n) FROM note t WHERE t.n < 5
SELECT t.id, (SELECT string_agg(i.s, ',' ORDER BY i.id) FROM item i WHERE i.grp = t.n) FROM note t
SELECT t.id, (SELECT count(DISTINCT i.s) FROM item i WHERE i.grp = t.n) + (SELECT count(*) FROM part p WHERE p.no = t.n) FROM note t
SELECT t.tag, count(*) FROM note t WHERE t.n >= (SELECT min(i.grp) FROM item i WHERE i.grp = t.n) GROUP BY t.tag
SELECT t.tag, sum((SELECT count(*) FROM item i WHERE i.grp = t.n)) FROM note t GROUP BY t.tag
SELECT t.id, i.s FROM note t JOIN item i ON i.grp = t.n WHERE i.n > (SELECT avg(p.price) FROM part p WHERE p.no = i.grp)
SELECT t.id, i.id FROM note t LEFT JOIN item i ON i.grp = t.n WHERE (SELECT count(*) FROM part p WHERE p.no = i.grp) = 0
SELECT t.id FROM note t WHERE t.n IN (SELECT i.grp FROM item i WHERE i.n > (SELECT min(p.price) FROM part p WHERE p.no = i.grp))
SELECT i.id FROM item i WHERE i.id IN (SELECT item_id FROM part GROUP BY item_id HAVING count(*) > 1)
SELECT i.id FROM item i WHERE i.id NOT IN (SELECT item_id FROM part GROUP BY item_id HAVING sum(price) > 1)
SELECT i.id FROM item i WHERE i.grp IN (SELECT no FROM part GROUP BY no HAVING count(*) > 1)
SELECT t.id, i.id, p.no FROM note t, item i, part p WHERE t.n = i.grp AND p.item_id = i.id
SELECT t.id, i.id, p.no FROM note t, item i, part p WHERE t.id = i.id AND p.item_id = t.id
SELECT k.name, count(*) FROM note t, item i, part p, kind k WHERE t.n = i.grp AND p.item_id = i.id AND k.id = i.grp GROUP BY k.name
SELECT k.name, t.id, p.price FROM kind k, note t, part p, item i WHERE k.id = p.no AND t.n = p.no AND i.id = p.item_id AND k.factor > 0.6
SELECT t.id, i.id, j.id FROM note t JOIN item i ON i.n = t.n JOIN item j ON j.id = i.id AND j.n = t.n
SELECT t.id, i.id, p.no FROM note t JOIN item i ON i.grp = t.n LEFT JOIN part p ON p.item_id = i.id JOIN part q ON q.item_id = i.id
SELECT i.id, p.no FROM item i, part p WHERE (i.id = p.item_id AND p.no = 1 AND i.grp = 1) OR (i.id = p.item_id AND p.no = 2 AND i.grp = 2)
SELECT i.id, p.no FROM item i, part p WHERE (i.id = p.item_id AND p.no = 1) OR (i.id = p.item_id)
SELECT t.id, i.id FROM item i, note t WHERE (t.tag = 'x' AND i.grp = 1) OR (t.tag = 'y' AND i.grp = 2) OR (t.tag IS NULL AND i.n IN (10, 42))
SELECT t.id, i.id FROM item i, note t WHERE (t.tag = 'x' AND i.n = t.n) OR (i.grp = 2 AND t.n = 3)
SELECT t.id FROM note t WHERE EXISTS (SELECT 1 FROM item i WHERE i.grp = t.n AND EXISTS (SELECT 1 FROM part p WHERE p.no = i.grp))
SELECT t.id FROM note t WHERE EXISTS (SELECT 1 FROM item i WHERE i.grp = t.n AND NOT EXISTS (SELECT 1 FROM part p WHERE p.no = t.n))
SELECT t.id FROM note t WHERE EXISTS (SELECT 1 FROM item i JOIN part p ON p.no = i.grp WHERE i.n = t.n AND p.price > t.id)
SELECT t.id, (SELECT i.s FROM item i WHERE i.id = t.n) FROM note t
SELECT t.id, (SELECT i.s FROM item i WHERE i.grp = t.n) FROM note t
"""
