"""What people write against PostgreSQL: JSON, ordered sets, rows from functions."""

# ruff: noqa: E501 (a statement is one line)

USUAL = r"""
SELECT json_agg(n ORDER BY id), jsonb_agg(s ORDER BY id DESC) FROM item
SELECT grp, json_agg(d ORDER BY id) FILTER (WHERE n > 2) FROM item GROUP BY grp
SELECT json_agg(item ORDER BY id) FROM item WHERE id < 3
SELECT json_object_agg(id, s ORDER BY id) FROM item WHERE s IS NOT NULL
SELECT grp, jsonb_object_agg(id, ok) FROM item GROUP BY grp
SELECT json_agg(id) FROM item WHERE id < 0
SELECT id, to_json(s), to_jsonb(n), to_json(d), to_json(f), to_json(ok), to_json(u) FROM item
SELECT to_json(at AT TIME ZONE 'UTC') FROM item
SELECT row_to_json(x) FROM (SELECT id, s, d FROM item) x
SELECT row_to_json(p) FROM part p
SELECT to_jsonb(p) ->> 'note', to_jsonb(p) -> 'no' FROM part p
SELECT json_build_object('id', id, 'n', n, 'in', json_build_array(s, ok, NULL, 1.50)) FROM item
SELECT jsonb_build_object('all', json_agg(json_build_object('id', p.item_id, 'no', p.no) ORDER BY p.item_id, p.no)) FROM part p
SELECT i.id, (SELECT json_agg(p.no ORDER BY p.no) FROM part p WHERE p.item_id = i.id) FROM item i
SELECT json_build_object('a', NULL, 'b', 'x"y', 'c', '{"d": [1]}'::jsonb), json_build_array(), array_to_json(ARRAY[1, NULL, 3]), to_json(ARRAY['a', 'b']), to_json(ARRAY[true, false]), to_json(ARRAY[1.50, 2])
SELECT json_array_length('[1, 2, 3]'), jsonb_typeof('{}'), jsonb_typeof('[]'), jsonb_typeof('1'), jsonb_typeof('"x"'), jsonb_typeof('true'), jsonb_typeof('null')
SELECT '{"a": {"b": [1, 2]}}'::jsonb #> '{a,b}', '{"a": {"b": [1, "x"]}}'::jsonb #>> '{a,b,1}', '{"a": 1}'::jsonb #> '{x}'
SELECT '{"a": 1, "b": [1, 2]}'::jsonb @> '{"b": [2]}', '{"a": 1}'::jsonb @> '{"a": 2}', '[1, 2, 3]'::jsonb @> '1', '{"a": 1}'::jsonb <@ '{"a": 1, "b": 2}'::jsonb
SELECT '{"a": 1}'::jsonb || '{"b": 2}', '[1]'::jsonb || '[2]', '[1]'::jsonb || '"x"', '{"a": 1, "b": 2}'::jsonb - 'a', '["a", "b"]'::jsonb - 'a', '["a", "b"]'::jsonb - 0, '["a", "b"]'::jsonb - (-1)
SELECT jsonb_set('{"a": 1, "b": [1, 2]}', '{b,1}', '9'), jsonb_set('{"a": 1}', '{c}', '"x"'), jsonb_set('{"a": 1}', '{c}', '"x"', false), jsonb_set('{"a": {"b": 1}}', '{a,b}', 'null'), jsonb_strip_nulls('{"a": null, "b": {"c": null, "d": 1}}')
SELECT value FROM json_array_elements('[1, "x", {"a": 2}]')
SELECT * FROM jsonb_array_elements_text('["a", 2, null, [1]]') AS e
SELECT e, count(*) FROM json_array_elements_text('["a", "b", "a"]') AS e GROUP BY e
SELECT * FROM jsonb_each('{"a": 1, "b": [2]}')
SELECT key, value FROM json_each_text('{"a": "x", "b": 2, "c": null}')
SELECT * FROM json_object_keys('{"a": 1, "b": 2}')
SELECT * FROM unnest(ARRAY['x', 'y', NULL]) WITH ORDINALITY
SELECT v, n FROM unnest(ARRAY[5, 6]) WITH ORDINALITY AS t (v, n)
SELECT i.id, g.n, g.o FROM item i JOIN generate_series(3, 1, -1) WITH ORDINALITY AS g (n, o) ON g.n = i.id
SELECT generate_series(1, 3)
SELECT unnest(ARRAY['a', 'b']) AS x
SELECT id, generate_series(1, 2) AS g FROM item WHERE id < 3
SELECT * FROM generate_series('2024-01-30'::timestamp, '2024-03-01'::timestamp, '1 day') AS d
SELECT ARRAY(SELECT id FROM item ORDER BY id DESC), ARRAY(SELECT id FROM item WHERE id < 0), ARRAY(SELECT s FROM item ORDER BY n NULLS FIRST, id LIMIT 3)
SELECT i.id, ARRAY(SELECT p.no FROM part p WHERE p.item_id = i.id ORDER BY p.no DESC) FROM item i
SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY n), percentile_disc(0.5) WITHIN GROUP (ORDER BY n), mode() WITHIN GROUP (ORDER BY n) FROM item
SELECT grp, percentile_cont(0.25) WITHIN GROUP (ORDER BY n DESC), percentile_disc(0.9) WITHIN GROUP (ORDER BY s), mode() WITHIN GROUP (ORDER BY s DESC) FROM item GROUP BY grp
SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY d) FILTER (WHERE id > 2), percentile_cont(0) WITHIN GROUP (ORDER BY f) FROM item
SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY n), mode() WITHIN GROUP (ORDER BY n) FROM item WHERE id < 0
SELECT grp, id FROM item ORDER BY grp FETCH FIRST 2 ROWS WITH TIES
SELECT n FROM item ORDER BY n DESC NULLS LAST OFFSET 1 FETCH NEXT 2 ROWS WITH TIES
SELECT grp, count(*) FROM item GROUP BY grp ORDER BY 2 FETCH FIRST ROW WITH TIES
SELECT string_to_array('a,b,,c', ','), string_to_array('abc', NULL), string_to_array('', ','), string_to_array('a,b', ',', 'b'), string_to_array('ab', '')
SELECT regexp_split_to_array('a1b22c', '[0-9]+'), regexp_split_to_array('abc', ''), regexp_match('foobar', '(o+)(b)'), regexp_match('foobar', 'o+'), regexp_match('x', 'y'), regexp_count('foobar', 'o')
SELECT * FROM string_to_table('a b c', ' ')
SELECT * FROM regexp_split_to_table('a1b2', '[0-9]')
SELECT to_hex(255), to_hex(0), format('%s-%I-%L-%%-%2$s', 'a', 'b c', 'd''e'), format('%5s|%-5s|', 'a', 'b'), format('x'), format('%s', NULL)
SELECT ARRAY[1, 2, 3] @> ARRAY[2], ARRAY[1, 2] @> ARRAY[3], ARRAY[1, 2] && ARRAY[2, 3], ARRAY['a'] <@ ARRAY['a', 'b'], ARRAY[1] && ARRAY[NULL]::int[]
SELECT id FROM item WHERE id = 1 FOR UPDATE
SELECT id FROM item ORDER BY id LIMIT 2 FOR SHARE OF item NOWAIT
SELECT scale(1.50), min_scale(1.50), trim_scale(1.500), scale(d), avg(n) OVER (), n / 4.0 FROM item
SELECT extract(second FROM at), extract(epoch FROM at), extract(milliseconds FROM at), extract(year FROM at) FROM item
WITH RECURSIVE r(n) AS (SELECT 1.50 UNION SELECT n + 1.5 FROM r WHERE n < 6) SELECT count(*), sum(n)::int FROM r
WITH RECURSIVE r(n) AS (SELECT d FROM item WHERE id < 4 UNION ALL SELECT n * 1.0 FROM r WHERE scale(n) < 5) SELECT n FROM r
SELECT t1.no FROM part t1 RIGHT JOIN pair t2 ON t1.item_id = t2.v AND (t1.item_id <= 2) WHERE (abs(t2.v) = coalesce(t1.no, 3))
SELECT t2.a, t1.no FROM pair t2 LEFT JOIN part t1 ON t1.item_id = t2.v WHERE t2.v = CASE WHEN t1.no IS NULL THEN 3 ELSE t1.no END
"""

WRONG = """
SELECT json_build_object('a')
SELECT json_build_object(NULL, 1)
SELECT json_array_length('{}')
SELECT * FROM json_array_elements('{"a": 1}')
SELECT '{"a": 1}'::jsonb - 1
SELECT percentile_cont(1.5) WITHIN GROUP (ORDER BY n) FROM item
SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY s) FROM item
SELECT id FROM item FETCH FIRST 2 ROWS WITH TIES
SELECT format('%d', 1)
SELECT format('%s %s', 1)
SELECT mode() WITHIN GROUP (ORDER BY n, id) FROM item
SELECT id FROM item WHERE mode() WITHIN GROUP (ORDER BY n) = 1
SELECT ARRAY(SELECT id, n FROM item)
"""
