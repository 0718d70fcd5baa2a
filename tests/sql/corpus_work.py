"""Statements that people bring along, over tables of a small shop. Each with one answer."""

# ruff: noqa: E501 (a statement is one line)

TABLES = r"""
CREATE TABLE customers (id bigint PRIMARY KEY, name varchar(50) NOT NULL, email text, created_at timestamp DEFAULT '2024-01-01', active boolean DEFAULT true, balance numeric(12,2) DEFAULT 0, tags text[], meta jsonb)
CREATE TABLE orders (id bigint PRIMARY KEY, customer_id bigint NOT NULL, placed timestamptz, total numeric(10,2), status text DEFAULT 'new', ship_date date, lead interval)
CREATE TABLE order_items (order_id bigint, line bigint, product text, qty bigint, price numeric, PRIMARY KEY (order_id, line))
CREATE TABLE emp (id bigint PRIMARY KEY, name text, boss bigint, dept text, salary double precision, hired date)
CREATE TABLE kv (k text PRIMARY KEY, v text, n bigint DEFAULT 0)
CREATE TABLE nums (a bigint PRIMARY KEY, b bigint, c numeric, d double precision)
INSERT INTO customers VALUES (1,'Ann','ann@x.org','2024-01-15 10:30:00',true,100.50,'{red,green}','{"age": 30, "tags": ["a","b"], "addr": {"city": "Oslo"}}'),(2,'Bob',NULL,'2024-02-20 23:59:59.5',false,0,'{}','{"age": 41.5, "x": null}'),(3,'Cid','cid@y.com','2023-12-31 00:00:00',true,-5.25,NULL,NULL),(4,'Dee O''Neil','DEE@X.ORG','2024-02-29 12:00:00',NULL,99999.99,'{blue,NULL,"a b"}','[1, 2.50, "three"]')
INSERT INTO orders VALUES (10,1,'2024-03-01 08:00:00+00',20.00,'new','2024-03-05','2 days'),(11,1,'2024-03-02 09:15:30.25+02',35.50,'paid',NULL,NULL),(12,2,'2024-03-10 00:00:00+00',0.99,'paid','2024-03-11','1 mon 3 days 04:05:06'),(13,3,NULL,NULL,'void',NULL,'-1 days'),(14,1,'2024-04-01 12:00:00+00',100,'new','2024-04-30','12:30:00')
INSERT INTO order_items VALUES (10,1,'pen',3,1.50),(10,2,'pad',1,15.5),(11,1,'pen',1,1.5),(12,1,'cup',2,0.495),(14,1,'lamp',1,100),(14,2,'pen',10,1.05)
INSERT INTO emp VALUES (1,'Zed',NULL,'ops',9000.5,'2010-05-01'),(2,'Yan',1,'ops',7000,'2012-07-15'),(3,'Xia',1,'dev',8000,'2015-02-28'),(4,'Wil',3,'dev',6500.25,'2020-02-29'),(5,'Vic',3,'dev',6500.25,'2021-11-30'),(6,'Uma',2,NULL,NULL,NULL)
INSERT INTO kv VALUES ('a','1',1),('b','2',2),('c',NULL,3)
INSERT INTO nums VALUES (1,10,1.50,0.1),(2,-3,2.25,1e10),(3,NULL,-0.5,-2.5),(4,7,NULL,NULL),(5,0,1e-5,3)
"""

WORK = r"""
SELECT date_trunc('month', placed) AS m, count(*), sum(total) FROM orders GROUP BY 1 ORDER BY 1 NULLS LAST
SELECT date_trunc('quarter', created_at), date_trunc('week', created_at), date_trunc('hour', created_at), date_trunc('decade', created_at) FROM customers ORDER BY id
SELECT date_trunc('month', ship_date) FROM orders ORDER BY id
SELECT extract(dow FROM ship_date), extract(isodow FROM ship_date), extract(doy FROM ship_date), extract(week FROM ship_date), extract(isoyear FROM ship_date), extract(quarter FROM ship_date) FROM orders WHERE ship_date IS NOT NULL ORDER BY id
SELECT extract(epoch FROM lead), extract(day FROM lead), extract(hour FROM lead), extract(month FROM lead) FROM orders WHERE lead IS NOT NULL ORDER BY id
SELECT date_part('year', placed), date_part('epoch', placed) FROM orders ORDER BY id
SELECT age('2024-03-01'::timestamp, '2023-12-15'::timestamp), age(date '2024-02-29', date '2020-02-29')
SELECT to_char(placed, 'YYYY-MM-DD HH24:MI:SS'), to_char(placed, 'Dy DD Mon YYYY'), to_char(placed, 'FMMonth FMDDth'), to_char(placed, 'IYYY-IW'), to_char(placed, 'HH12:MI AM') FROM orders ORDER BY id
SELECT to_char(total, 'FM999,990.00'), to_char(total, '9999.9'), to_char(total, '00000') FROM orders ORDER BY id
SELECT to_char(interval '15h 2m 12s', 'HH24:MI:SS')
SELECT to_date('05 Dec 2000', 'DD Mon YYYY'), to_timestamp('05 Dec 2000 13:14:15', 'DD Mon YYYY HH24:MI:SS'), to_timestamp(1700000000), to_timestamp(1700000000.5)
SELECT generate_series('2024-01-01'::date, '2024-01-05'::date, '1 day')::date AS d
SELECT d::date, extract(dow FROM d) FROM generate_series('2024-02-27'::timestamp, '2024-03-02', interval '1 day') d
SELECT '2024-01-31'::date + interval '1 month', '2024-01-31'::date + 1, '2024-03-01'::date - '2024-02-01'::date, date '2024-01-01' - interval '1 hour'
SELECT timestamp '2024-01-01 00:00' - timestamp '2023-12-25 12:30', timestamptz '2024-01-01 00:00+00' + interval '1 day 2 hours'
SELECT make_date(2024, 2, 29), make_timestamp(2024, 1, 2, 3, 4, 5.5), make_interval(days => 10), make_interval(1, 2, 3, 4, 5, 6, 7.5)
SELECT justify_days(interval '35 days'), justify_hours(interval '27 hours'), justify_interval(interval '1 mon -1 hour')
SELECT interval '1 day' * 2, interval '1 hour' / 4, -interval '1 mon', interval '1 year 2 months' + interval '3 days'
SELECT interval '1 day' > interval '23 hours', interval '30 days' = interval '1 month'
SELECT sum(lead), avg(lead), min(lead), max(lead) FROM orders
SELECT placed AT TIME ZONE 'Europe/Berlin', placed AT TIME ZONE 'UTC' FROM orders ORDER BY id
SELECT timestamp '2024-07-01 12:00' AT TIME ZONE 'America/New_York'
SELECT isfinite(date '2024-01-01'), date_bin('15 minutes', timestamp '2024-02-11 15:44:17', timestamp '2001-01-01')
SELECT placed::date, placed::timestamp, ship_date::timestamp, created_at::date FROM orders o JOIN customers c ON c.id = o.customer_id ORDER BY o.id
SELECT regexp_replace('foobarbaz', 'b..', 'X'), regexp_replace('foobarbaz', 'b..', 'X', 'g'), regexp_replace('foobarbaz', 'b(..)', 'X\1Y', 'g'), regexp_replace('Thomas', '.[mN]a.', 'M', 'i')
SELECT regexp_match('abc-123', '(\w+)-(\d+)'), (regexp_match('abc-123', '(\w+)-(\d+)'))[2]
SELECT regexp_substr('foobar', 'o.b'), regexp_instr('foobar', 'b'), regexp_like('foobar', 'OB', 'i')
SELECT regexp_split_to_array('a b  c', '\s+'), regexp_split_to_table('a,b', ',')
SELECT split_part('a,b,c', ',', 2), split_part('a,b,c', ',', -1), split_part('abc', ',', 2)
SELECT format('Hello %s, %1$s %L %I', 'World', 'x y')
SELECT string_agg(name, ', ' ORDER BY name DESC), string_agg(DISTINCT status, '|' ORDER BY status) FROM customers c JOIN orders o ON o.customer_id = c.id
SELECT overlay('Txxxxas' placing 'hom' from 2 for 4), position('om' in 'Thomas'), substring('Thomas' from 2 for 3), substring('Thomas' from '...$'), substring('Thomas' from '%#"o_a#"_' for '#')
SELECT trim(both 'xyz' from 'yxTomxx'), trim(leading '0' from '0012'), ltrim('zzzytest', 'xyz'), rtrim('testxxzx', 'xyz'), btrim(' a ')
SELECT hashtext(''), hashtext('a'), hashtext('twelve bytes'), hashtext('thirteen byte'), hashtext('żółć and more than twelve')
SELECT initcap('hi THOMAS'), lower('ABC'), upper('abc'), length('żółć'), char_length('abc'), octet_length('żółć'), bit_length('abc')
SELECT left('abcde', 2), left('abcde', -2), right('abcde', 2), right('abcde', -2), lpad('hi', 5, 'xy'), rpad('hi', 5), repeat('ab', 3), reverse('abc')
SELECT translate('12345', '143', 'ax'), replace('abcdef', 'cd', 'XX'), strpos('high', 'ig'), starts_with('alphabet', 'alph'), concat('a', NULL, 1, true), concat_ws(',', 'a', NULL, 'b')
SELECT 'abc' LIKE 'a%', 'abc' NOT LIKE '_b', 'ABC' ILIKE 'a_c', 'abc' SIMILAR TO '%(b|d)%', 'a%c' LIKE 'a\%c', 'a%c' LIKE 'a!%c' ESCAPE '!'
SELECT 'abc' ~ '^a', 'abc' ~* 'B', 'abc' !~ 'x', 'abc' !~* 'B', 'abc' ~~ 'a%', 'abc' !~~* 'A%'
SELECT 'a' || 'b' || 1, 1 || 'x', 'x' || NULL, 'a' || true
SELECT 'abc'::char(2), 'abc'::varchar(2), 'abc'::name, CAST('x' AS character varying)
SELECT name FROM customers ORDER BY name COLLATE "C"
SELECT name FROM customers ORDER BY lower(name) DESC LIMIT 2
SELECT 'a' < 'B', 'a' < 'B' COLLATE "C"
SELECT strpos('abc', ''), position('' in 'abc'), substr('abc', 0, 2), substr('abc', -1, 3), substring('abc', 2), split_part('a', '', 1)
SELECT meta->'age', meta->>'age', meta#>'{addr,city}', meta#>>'{addr,city}', meta->'tags'->0, meta->'tags'->>-1 FROM customers ORDER BY id
SELECT id FROM customers WHERE meta @> '{"age": 30}'
SELECT id FROM customers WHERE meta ? 'age' ORDER BY id
SELECT id FROM customers WHERE meta ?| array['x','nope']
SELECT id FROM customers WHERE (meta->>'age')::numeric > 35
SELECT jsonb_set(meta, '{addr,city}', '"Bergen"') FROM customers WHERE id = 1
SELECT jsonb_build_object('id', id, 'name', name, 'bal', balance) FROM customers ORDER BY id
SELECT jsonb_agg(jsonb_build_object('p', product, 'q', qty) ORDER BY line) FROM order_items WHERE order_id = 10
SELECT key, value FROM jsonb_each('{"a": 1, "b": "x"}')
SELECT c.id, e.key, e.value FROM customers c, jsonb_each(c.meta) e WHERE c.id < 3 ORDER BY 1, 2
SELECT c.id, t FROM customers c, jsonb_array_elements_text(c.meta->'tags') t WHERE c.id = 1
SELECT c.id, t FROM customers c CROSS JOIN LATERAL unnest(c.tags) AS t ORDER BY 1, 2
SELECT c.id, t.x, t.ord FROM customers c, unnest(c.tags) WITH ORDINALITY AS t(x, ord) ORDER BY 1, 3
SELECT c.id, t FROM customers c LEFT JOIN LATERAL unnest(c.tags) t ON true ORDER BY 1, 2
SELECT n.a, g FROM nums n, generate_series(1, n.a) g ORDER BY 1, 2
SELECT o.id, d::date FROM orders o, generate_series(o.ship_date::timestamp, o.ship_date + 2, interval '1 day') d WHERE o.id = 10
SELECT id, unnest(tags) FROM customers ORDER BY 1, 2
SELECT id, jsonb_object_keys(meta) FROM customers WHERE id < 3 ORDER BY 1, 2
SELECT '{"b":1,  "a":2, "a":3}'::json, '{"b":1,  "a":2, "a":3}'::jsonb
SELECT ('{"a": 1.10}'::jsonb->'a')::numeric, ('{"a": 7}'::jsonb->'a')::int, ('{"a": true}'::jsonb->'a')::boolean
SELECT jsonb_insert('{"a": [0,1,2]}', '{a, 1}', '"new"'), '{"a":{"b":1}}'::jsonb #- '{a,b}', jsonb_strip_nulls('{"a":null}')
SELECT jsonb_pretty('{"a":[1,2]}'), jsonb_typeof(meta), jsonb_array_length('[1,2]') FROM customers WHERE id = 1
SELECT '"x"'::jsonb #>> '{}', jsonb_extract_path_text('{"a":{"b":"c"}}', 'a', 'b'), jsonb_extract_path('{"a":[1]}', 'a', '0')
SELECT meta FROM customers ORDER BY id
SELECT '{"a":"\u00e9\n"}'::jsonb, '"a/b"'::json, '{}'::json, '[ 1 , 2 ]'::json
SELECT meta IS NULL, jsonb_typeof(meta->'x') FROM customers ORDER BY id
SELECT array_agg(id ORDER BY id DESC), array_agg(name ORDER BY id) FILTER (WHERE active) FROM customers
SELECT id FROM customers WHERE 'red' = ANY(tags)
SELECT id FROM customers WHERE id = ANY(ARRAY[1,3]) ORDER BY id
SELECT id FROM customers WHERE tags @> ARRAY['green']
SELECT id FROM customers WHERE tags && ARRAY['blue','green'] ORDER BY id
SELECT array_position(ARRAY['a','b','c'], 'b'), array_positions(ARRAY[1,2,1], 1), array_remove(ARRAY[1,2,1], 1), array_replace(ARRAY[1,2,1], 1, 9)
SELECT (ARRAY[1,2,3,4])[2:3], (ARRAY[1,2,3])[:2], (ARRAY[1,2,3])[2:], tags[1], tags[1:1] FROM customers ORDER BY id
SELECT ARRAY[1,2] || 3, 0 || ARRAY[1], ARRAY[1] || ARRAY[2,3], array_cat(ARRAY[1], ARRAY[2]), array_append(NULL::int[], 1)
SELECT array_to_string(ARRAY[1,NULL,3], ','), array_to_string(ARRAY[1,NULL,3], ',', '*'), string_to_array('a-b', '-')
SELECT ARRAY[1,2] < ARRAY[1,3], ARRAY[1,2] = ARRAY[1,2], ARRAY[2] > ARRAY[1,5]
SELECT id, tags FROM customers ORDER BY tags NULLS LAST
SELECT DISTINCT tags FROM customers
SELECT 5 > ALL(ARRAY[1,2]), 5 = ANY('{1,5}'), NULL = ANY(ARRAY[1]), 1 <> ALL(ARRAY[2,NULL])
SELECT array(SELECT a FROM nums ORDER BY a), array_agg(c ORDER BY a) FROM nums
SELECT CASE status WHEN 'new' THEN 1 WHEN 'paid' THEN 2 ELSE 0 END, CASE WHEN total > 30 THEN 'big' END FROM orders ORDER BY id
SELECT COALESCE(email, name, 'x'), NULLIF(name, 'Bob'), GREATEST(1, 2.5, NULL), LEAST('b', 'a') FROM customers ORDER BY id
SELECT 1::smallint, 1::int4, 1::int8, 1.5::real, 1.5::float8, 1.5::numeric(3,1), '1'::text, true::int, 0::boolean, 't'::boolean, 'yes'::bool
SELECT 1/0
SELECT 1.0/0
SELECT 0.1 + 0.2, 0.1::float8 + 0.2::float8, 1e20, 123456789012345678901234567890, 0x1F
SELECT round(2.5), round(-2.5), round(2.5::float8), round(3.5::float8), round(1234.567, -2), round(1.005, 2), trunc(-1.7), ceil(1.1), floor(-1.1), ceiling(2)
SELECT 9223372036854775807 + 1
SELECT 'abc'::int
SELECT '1.5'::int
SELECT ' 12 '::int, '1e3'::float8, '1_000'
SELECT 1.5::int, 2.5::int, -1.5::int, 1.5::float8::int, 2.5::float8::int
SELECT count(*) FILTER (WHERE status = 'new'), sum(total) FILTER (WHERE status = 'paid') FROM orders
SELECT DISTINCT ON (customer_id) customer_id, id, total FROM orders ORDER BY customer_id, total DESC NULLS LAST
VALUES (1, 'a'), (2, 'b')
SELECT * FROM (VALUES (1, 'one'), (2, 'two')) AS t(n, w) ORDER BY n
SELECT * FROM orders ORDER BY id LIMIT 2 OFFSET 1
SELECT id FROM orders ORDER BY id FETCH FIRST 2 ROWS ONLY
SELECT id FROM orders ORDER BY id OFFSET 2 ROWS FETCH NEXT ROW ONLY
SELECT name, (SELECT count(*) FROM orders o WHERE o.customer_id = c.id) AS n FROM customers c ORDER BY id
SELECT name FROM customers c WHERE EXISTS (SELECT 1 FROM orders o WHERE o.customer_id = c.id AND total > 30)
SELECT id FROM orders WHERE total = (SELECT max(total) FROM orders)
SELECT (SELECT id FROM orders)
SELECT id FROM orders WHERE (customer_id, status) IN ((1, 'new'), (2, 'paid')) ORDER BY id
SELECT id FROM orders WHERE (customer_id, status) = (1, 'paid')
SELECT id FROM orders WHERE ROW(customer_id, id) > ROW(1, 11) ORDER BY id
SELECT 1 IS DISTINCT FROM NULL, NULL IS NOT DISTINCT FROM NULL, 2 BETWEEN SYMMETRIC 3 AND 1, 2 NOT BETWEEN 3 AND 1
SELECT true AND NULL, false AND NULL, NULL OR true, NOT NULL::bool, NULL IS UNKNOWN
SELECT name, dept, salary, rank() OVER (PARTITION BY dept ORDER BY salary DESC), row_number() OVER w, dense_rank() OVER w FROM emp WINDOW w AS (PARTITION BY dept ORDER BY salary DESC, id) ORDER BY id
SELECT id, sum(salary) OVER (ORDER BY id ROWS BETWEEN 1 PRECEDING AND CURRENT ROW), lag(name, 1, 'none') OVER (ORDER BY id), lead(id) OVER (ORDER BY id), first_value(name) OVER (ORDER BY id), ntile(2) OVER (ORDER BY id) FROM emp ORDER BY id
SELECT id, count(*) OVER (ORDER BY dept GROUPS BETWEEN 1 PRECEDING AND CURRENT ROW EXCLUDE TIES) FROM emp ORDER BY id
SELECT dept, avg(salary) AS a, sum(avg(salary)) OVER () FROM emp GROUP BY dept ORDER BY dept
SELECT dept, sum(salary), grouping(dept) FROM emp GROUP BY ROLLUP(dept) ORDER BY dept NULLS FIRST, 3
WITH RECURSIVE t(id, name, depth, path) AS (SELECT id, name, 0, ARRAY[id] FROM emp WHERE boss IS NULL UNION ALL SELECT e.id, e.name, t.depth + 1, t.path || e.id FROM emp e JOIN t ON e.boss = t.id) SELECT * FROM t ORDER BY path
WITH a AS (SELECT 1 AS x), b AS MATERIALIZED (SELECT x + 1 AS y FROM a), c AS NOT MATERIALIZED (SELECT 3 AS z) SELECT * FROM a, b, c
WITH RECURSIVE f(a, b) AS (VALUES (0, 1) UNION ALL SELECT b, a + b FROM f WHERE b < 100) SELECT a FROM f
SELECT * FROM kv ORDER BY k
SELECT c.name, o.total FROM customers c LEFT JOIN orders o ON o.customer_id = c.id AND o.status = 'paid' ORDER BY c.id, o.id
SELECT * FROM customers c JOIN orders o USING (id)
SELECT id FROM customers NATURAL JOIN emp ORDER BY id
SELECT c.name, x.total FROM customers c CROSS JOIN LATERAL (SELECT total FROM orders o WHERE o.customer_id = c.id ORDER BY placed DESC NULLS LAST LIMIT 1) x ORDER BY 1
SELECT product, sum(qty * price) AS revenue FROM order_items GROUP BY product HAVING sum(qty) > 1 ORDER BY revenue DESC
SELECT e.name, b.name AS boss FROM emp e LEFT JOIN emp b ON b.id = e.boss ORDER BY e.id
SELECT id FROM customers EXCEPT SELECT customer_id FROM orders
(SELECT id FROM customers ORDER BY id LIMIT 1) UNION ALL (SELECT id FROM orders ORDER BY id DESC LIMIT 1)
SELECT id FROM customers INTERSECT SELECT customer_id FROM orders ORDER BY 1
SELECT "id" AS "Order ID", total AS "Total $" FROM orders ORDER BY 1 LIMIT 1
SELECT customers.* FROM customers WHERE id = 1
SELECT id, id AS id FROM emp WHERE id = 1
SELECT count(*) AS "count(*)" FROM emp
SELECT nope FROM emp
SELECT * FROM nope
SELECT nope(1)
SELECT id, count(*) FROM emp
SELECT id FROM emp WHERE count(*) > 1
SELECT * FROM emp WHERE name = 1
SELECT * FROM emp ORDER BY 99
SELECT 'x' + 1
SELECT max(name, 1) FROM emp
SELECT emp.id FROM emp e
SELECT id FROM emp, orders
SELECT FROM emp WHERE
SELECT 'abc'::date
SELECT '2024-13-01'::date
SELECT '{1,2'::int[]
SELECT '{bad json}'::json
SELECT '123'::uuid
SELECT substring('abc', 1, -1)
SELECT sqrt(-1)
SELECT ln(0)
SELECT chr(0)
SELECT repeat('x', -1), lpad('abc', -1)
SELECT num_nulls(1, NULL), num_nonnulls(1, NULL), 1 IN (1, NULL), 2 IN (1, NULL), 2 NOT IN (1, 3)
SELECT a, b, c, d, a + b, a * c, b / 2, c / 3, d * 2, a::numeric / 3, c::int, d::numeric, b::float8 / 3 FROM nums ORDER BY a
SELECT sum(a), avg(a), sum(c), avg(c), sum(d), avg(d), min(c), max(d), sum(a * c), sum(b)::int FROM nums
SELECT a FROM nums ORDER BY b + 1 NULLS FIRST, a LIMIT ALL
SELECT c::text, d::text, a::text, (c > 1)::text, c::varchar FROM nums ORDER BY a
SELECT bool 'true', int '5', date '2024-01-01', timestamp '2024-01-01 10:00', interval '1 day', numeric '1.50', text 'x', json '{}', float8 '1.5', uuid '00000000-0000-0000-0000-000000000001'
SELECT interval '1-2', interval '3 4:05:06', interval 'P1Y2M3DT4H5M6S', interval '1 day ago', interval '90' second, interval '1.5 hours', interval '2' day
SELECT 1 AS one, 2 two, 3 "Three", 4 AS "a b"
SELECT ALL id FROM emp WHERE id = 1
SELECT DISTINCT dept, count(*) OVER (PARTITION BY dept) FROM emp ORDER BY 1
SELECT max(hired) - min(hired), max(hired)::text, avg(salary)::numeric(10,2), round(avg(salary)::numeric, 1) FROM emp
SELECT name FROM emp WHERE hired BETWEEN '2012-01-01' AND '2020-12-31' AND extract(month FROM hired) = 2 ORDER BY 1
SELECT to_char(hired, 'YYYY') AS y, count(*) FROM emp GROUP BY y ORDER BY y
SELECT dept || '-' || count(*) FROM emp WHERE dept IS NOT NULL GROUP BY dept ORDER BY 1
SELECT string_agg(name, ',' ORDER BY salary DESC NULLS LAST, id) FROM emp
SELECT * FROM emp e WHERE salary > (SELECT avg(salary) FROM emp WHERE dept = e.dept) ORDER BY id
SELECT id FROM emp WHERE salary > ALL (SELECT salary FROM emp WHERE dept = 'dev' AND salary < 7000) ORDER BY id
SELECT id, CASE WHEN salary IS NULL THEN 'n/a' ELSE salary::text END FROM emp ORDER BY id
SELECT e.*, row_number() OVER () IS NOT NULL FROM emp e WHERE id = 1
SELECT x.y FROM (SELECT 1 AS y UNION SELECT 2) x WHERE x.y > 1
SELECT a.n FROM generate_series(1, 3) AS a(n) WHERE a.n NOT IN (SELECT 2)
SELECT g.* FROM generate_series(1, 10, 3) g
SELECT generate_series FROM generate_series(1, 2)
SELECT count(*) FROM generate_series(1, 100) g WHERE g % 7 = 0
SELECT * FROM v1 ORDER BY id LIMIT 1
SELECT installed_rank, version FROM public.flyway_schema_history WHERE installed_rank > 0 ORDER BY installed_rank
SELECT * FROM ONLY emp WHERE id = 1
SELECT id FROM public.emp WHERE public.emp.id = 1
SELECT 1
SELECT 'a'::regtype
TABLE nums
SELECT 1;
SELECT CASE WHEN a > 1 THEN 1 ELSE b END, CASE a WHEN 1 THEN 2 ELSE 3 END, CASE WHEN a > 1 THEN b END, CASE WHEN true THEN 1 ELSE upper('x')::int END FROM nums WHERE a = 1
SELECT CASE WHEN true THEN a ELSE a + 1 END, CASE WHEN true THEN 'x' ELSE lower('y') END FROM nums WHERE a = 1
SELECT *, generate_series(1, 2) FROM kv ORDER BY k
SELECT concat(true, false, NULL), concat_ws('-', a > 1, b), format('%s %s', a > 2, 'x') FROM nums ORDER BY a
SELECT json_build_object('a', 1.50, 'b', c) FROM nums ORDER BY a
SELECT ('{"a": [1.10, 2e2, 12345678901234567890123]}'::jsonb)->'a'->>0, '{"a": 0.0000001}'::jsonb->>'a'
SELECT jsonb_typeof(meta->'x'), jsonb_array_length(meta->'tags') FROM customers WHERE id = 1
SELECT ('{"a": 2.5}'::jsonb->'a')::int, ('{"a": -2.5}'::jsonb->'a')::int, ('{"a": 1e2}'::jsonb->'a')::bigint
SELECT c.id, (SELECT sum(x.total) FROM (SELECT o.total FROM orders o WHERE o.customer_id = c.id ORDER BY o.total DESC NULLS LAST LIMIT 2) x) FROM customers c ORDER BY c.id
SELECT c.id FROM customers c WHERE EXISTS (SELECT 1 FROM (SELECT o.id FROM orders o WHERE o.customer_id = c.id AND o.status = 'paid') x) ORDER BY 1
SELECT c.id, (SELECT count(*) FROM orders o JOIN order_items i ON i.order_id = o.id AND o.customer_id = c.id) FROM customers c ORDER BY 1
SELECT c.name, count(o.id) AS n, coalesce(sum(o.total), 0) AS t FROM customers c LEFT JOIN orders o ON o.customer_id = c.id GROUP BY c.id, c.name ORDER BY t DESC, c.id
SELECT c.id, c.name, c.balance FROM customers c GROUP BY c.id ORDER BY c.id
SELECT status, count(*) FILTER (WHERE total > 10) AS big, avg(total)::numeric(10,2), round(avg(total), 3) FROM orders GROUP BY status ORDER BY status
SELECT date_trunc('day', placed)::date AS day, sum(total) OVER (ORDER BY placed) AS running FROM orders WHERE placed IS NOT NULL ORDER BY placed
SELECT id, total, total - lag(total) OVER (ORDER BY id) AS diff, round(100.0 * total / sum(total) OVER (), 2) AS pct FROM orders ORDER BY id
SELECT id, percent_rank() OVER (ORDER BY total), cume_dist() OVER (ORDER BY total), nth_value(id, 2) OVER (ORDER BY id ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) FROM orders ORDER BY id
SELECT customer_id, array_agg(id ORDER BY placed DESC NULLS LAST) AS ids, string_agg(status, ',' ORDER BY id) FROM orders GROUP BY customer_id HAVING count(*) >= 1 ORDER BY customer_id
SELECT dept, name, salary FROM (SELECT *, row_number() OVER (PARTITION BY dept ORDER BY salary DESC NULLS LAST, id) rn FROM emp) x WHERE rn = 1 ORDER BY dept NULLS LAST
SELECT e.name, m.name AS manager, coalesce(e.salary - m.salary, 0) FROM emp e LEFT JOIN emp m ON e.boss = m.id ORDER BY e.name
SELECT o.id, sum(i.qty * i.price) = o.total AS matches FROM orders o JOIN order_items i ON i.order_id = o.id GROUP BY o.id, o.total ORDER BY o.id
SELECT * FROM (SELECT id, name FROM customers UNION ALL SELECT id, name FROM emp) u ORDER BY name, id LIMIT 5 OFFSET 2
SELECT id FROM orders WHERE placed >= '2024-03-01' AND placed < '2024-04-01'::timestamptz ORDER BY id
SELECT id FROM orders WHERE placed BETWEEN timestamp '2024-03-01' AND timestamp '2024-03-31' ORDER BY id
SELECT id FROM orders WHERE ship_date - interval '2 days' > '2024-03-02' ORDER BY id
SELECT id FROM orders WHERE ship_date = date '2024-03-05' OR ship_date IS NULL ORDER BY id
SELECT id, ship_date + lead, placed + lead, lead * 1.5, extract(epoch FROM lead) / 3600 FROM orders WHERE lead IS NOT NULL ORDER BY id
SELECT id, ship_date - placed::date, ship_date - placed FROM orders WHERE ship_date IS NOT NULL ORDER BY id
SELECT date '2024-03-31' - interval '1 month', date '2024-02-29' + interval '1 year', timestamp '2024-01-31 12:00' + interval '1 month 1 day'
SELECT extract(day FROM timestamp '2024-03-10' - timestamp '2024-03-01'), date_part('month', interval '14 months'), extract(century FROM date '2000-12-31'), extract(millennium FROM date '2001-01-01')
SELECT to_char(date '2024-01-05', 'DD.MM.YYYY'), to_char(timestamp '2024-01-05 15:04:05.678', 'HH12:MI:SS.MS PM'), to_char(date '2024-01-05', 'Day, Month'), to_char(date '2024-01-05', 'Q WW IW J D ID')
SELECT to_char(1234567.891, '9,999,999.99'), to_char(0, '9'), to_char(-5, '99'), to_char(12.5, '00.00'), to_char(1e6::float8, '9999999'), to_char(0.1, '0.9'), to_char(485, '999PL'), to_char(12, 'FM000')
SELECT date_trunc('minute', timestamp '2024-01-01 10:20:30'), date_trunc('year', date '2024-07-01'), date_trunc('week', timestamptz '2024-01-01 00:00+00'), date_trunc('day', interval '3 days 5 hours')
SELECT '2024-01-01'::date < '2024-01-02', '2024-01-01'::timestamp = '2024-01-01'::date, timestamptz '2024-01-01 00:00+02' = timestamp '2023-12-31 22:00'
SELECT '1 day'::interval = '24 hours'::interval, '1 month'::interval > '29 days'::interval, interval '1 day' - interval '25 hours'
SELECT 'a,b,c'::text LIKE '%b%', 'Hello' ~ '^[A-Z]', regexp_replace('2024-01-05', '(\d+)-(\d+)-(\d+)', '\3/\2/\1'), regexp_split_to_array('a1b2c3', '\d')
SELECT upper(substr(name, 1, 1)) || lower(substr(name, 2)), length(name), position('e' in lower(name)), reverse(name) FROM customers ORDER BY id
SELECT split_part(email, '@', 2), left(email, strpos(email, '@') - 1), lower(email) LIKE '%@x.org' FROM customers ORDER BY id
SELECT trim(to_char(id, '000')) || '-' || upper(left(name, 3)) FROM customers ORDER BY id
SELECT coalesce(nullif(trim(email), ''), 'none'), email IS NULL, (email IS NOT NULL)::int FROM customers ORDER BY id
SELECT format('%s has %s', name, balance), format('%10s|%-10s|', name, 'x'), format('%2$s %1$s', 'a', 'b') FROM customers ORDER BY id
SELECT lpad(id::text, 3, '0'), rpad('x', 3, '.'), repeat('-', 3), translate('abc', 'ab', 'xy'), ascii('é'), chr(8364), initcap('o''neil mc-donald')
SELECT 'abc' || NULL || 'd', concat('abc', NULL, 'd'), concat_ws('-', NULL, 'a', '', 'b'), NULL || 'x' IS NULL
SELECT substring('foobar', 'o(.)b'), substring('foobar' from 3), substring('foobar' for 2), substring('hello' from -1 for 3), overlay('abcdef' placing 'X' from 3)
SELECT 'x' = 'x ', 'abc' < 'abd', 'Z' < 'a', '' = '', 'a' > '', 'é' > 'z'
SELECT id FROM customers WHERE name ILIKE 'd%' OR name LIKE '%\_%' OR name SIMILAR TO '(Ann|Bob)' ORDER BY id
SELECT id FROM customers WHERE email ~* '@X\.ORG$' ORDER BY id
SELECT id FROM customers WHERE name IN ('Ann', 'Cid') AND id NOT IN (SELECT customer_id FROM orders WHERE status = 'void') ORDER BY id
SELECT meta->>'age', (meta->>'age')::numeric + 1, meta->'addr'->>'city', meta ? 'tags', meta @> '{"tags": ["a"]}' FROM customers ORDER BY id
SELECT id, jsonb_array_length(meta->'tags') FROM customers WHERE jsonb_typeof(meta->'tags') = 'array'
SELECT c.id, t.value FROM customers c CROSS JOIN LATERAL jsonb_array_elements_text(c.meta->'tags') AS t(value) ORDER BY 1, 2
SELECT c.id, k FROM customers c, jsonb_object_keys(CASE WHEN jsonb_typeof(c.meta) = 'object' THEN c.meta ELSE '{}' END) k ORDER BY 1, 2
SELECT meta || '{"new": true}' FROM customers WHERE id = 2
SELECT meta - 'age', meta #- '{addr,city}', jsonb_set(meta, '{age}', '31'), jsonb_set(meta, '{x,y}', '1', true) FROM customers WHERE id = 1
SELECT jsonb_build_object('a', 1, 'b', NULL, 'c', ARRAY[1,2], 'd', jsonb_build_array('x', 1.5, true)), jsonb_build_object()
SELECT jsonb_object_agg(k, v) FROM kv WHERE v IS NOT NULL
SELECT json_build_object('rows', json_agg(json_build_object('id', id, 'when', placed, 'd', ship_date) ORDER BY id)) FROM orders WHERE id < 12
SELECT '{"a": {"b": [1, {"c": "d"}]}}'::jsonb #>> '{a,b,1,c}', '[1,2,3]'::jsonb -> -1, '[1,2,3]'::jsonb ->> 5, '{"a":1}'::jsonb -> 'b', '{"a":null}'::jsonb ->> 'a', '{"a":null}'::jsonb -> 'a'
SELECT '[1, "a", null, true, {"x": 1}]'::jsonb, '"text"'::jsonb, '3.140'::jsonb, 'null'::jsonb, 'null'::jsonb IS NULL
SELECT jsonb_typeof('null'), jsonb_typeof('1.5'), jsonb_strip_nulls('{"a": null, "b": [null]}'), jsonb '{"a": 1}' = jsonb '{"a": 1.0}', jsonb '[1,2]' <> jsonb '[2,1]'
SELECT to_jsonb('a"b'::text), to_jsonb(true), to_jsonb(1.50::numeric), to_jsonb(date '2024-01-01'), to_jsonb(timestamp '2024-01-01 10:00'), to_jsonb(NULL::int)
SELECT tags, tags[1], tags[2], tags[10], array_length(tags, 1), cardinality(tags) FROM customers ORDER BY id
SELECT id FROM customers WHERE tags = '{}' OR tags IS NULL ORDER BY id
SELECT id, 'blue' = ANY(tags), 'blue' <> ALL(tags), tags && ARRAY['red'], tags @> '{}' FROM customers ORDER BY id
SELECT array_append(tags, 'new'), array_prepend('first', tags), tags || ARRAY['x','y'], array_cat(tags, NULL), array_remove(tags, 'red'), array_to_string(tags, '+', '?') FROM customers ORDER BY id
SELECT t, count(*) FROM customers, unnest(tags) t GROUP BY t ORDER BY t NULLS LAST
SELECT ARRAY[1,2,3] = ARRAY[1,2,3], ARRAY[1,2] < ARRAY[1,2,3], ARRAY['b'] > ARRAY['a','z'], ARRAY[1,NULL] < ARRAY[1,2], ARRAY[]::int[] < ARRAY[1]
SELECT ARRAY(SELECT id FROM emp ORDER BY salary DESC NULLS LAST, id), (ARRAY(SELECT name FROM emp ORDER BY id))[2:3], array_agg(DISTINCT dept ORDER BY dept) FROM emp
SELECT array_position(ARRAY[1,2,NULL], NULL), array_positions(ARRAY['a','b','a'], 'a'), array_replace(ARRAY[1,NULL,3], NULL, 0), trim_array(ARRAY[1,2,3], 2), array_lower(ARRAY[5], 1), array_upper(ARRAY[5,6], 1)
SELECT '{1,2,3}'::int[], '{"a b",c,NULL,"NULL"}'::text[], ARRAY[1.5,2]::numeric[], ARRAY['1','2']::int[], ARRAY[1,2]::text[], '{}'::int[]
SELECT n, n * n AS sq FROM generate_series(1, 4) n WHERE n % 2 = 0 ORDER BY n DESC
SELECT d::date, count(o.id) FROM generate_series(timestamp '2024-03-01', timestamp '2024-03-03', '1 day') d LEFT JOIN orders o ON o.placed::date = d::date GROUP BY d ORDER BY d
SELECT x, y FROM (VALUES (1, 'a'), (2, NULL), (3, 'c')) v(x, y) WHERE y IS NOT NULL ORDER BY x
SELECT (SELECT max(total) FROM orders) - total AS below FROM orders ORDER BY id
SELECT id FROM orders o WHERE total > (SELECT avg(total) FROM orders i WHERE i.customer_id = o.customer_id) ORDER BY id
SELECT id FROM customers c WHERE NOT EXISTS (SELECT FROM orders o WHERE o.customer_id = c.id) ORDER BY id
SELECT id FROM orders WHERE (customer_id, status) IN (SELECT id, 'paid' FROM customers) ORDER BY id
SELECT c.id, (SELECT json_agg(x ORDER BY x.id) FROM (SELECT o.id, o.total FROM orders o WHERE o.customer_id = c.id) x) FROM customers c ORDER BY c.id
WITH t AS (SELECT customer_id, sum(total) s FROM orders GROUP BY customer_id), r AS (SELECT *, rank() OVER (ORDER BY s DESC NULLS LAST) k FROM t) SELECT c.name, r.s, r.k FROM r JOIN customers c ON c.id = r.customer_id ORDER BY r.k, c.id
WITH RECURSIVE chain AS (SELECT id, name, boss, name::text AS path FROM emp WHERE boss IS NULL UNION ALL SELECT e.id, e.name, e.boss, chain.path || '/' || e.name FROM emp e JOIN chain ON e.boss = chain.id) SELECT path FROM chain ORDER BY path
SELECT a, b, c, d FROM nums WHERE c IS NOT NULL AND d IS NOT NULL ORDER BY c * d DESC
SELECT a / 2, a % 2, a::numeric / 2, a / 2.0, b / NULLIF(a - 1, 0), c::int, d::int, c * 1.10, -c, abs(b), sign(c) FROM nums WHERE a <> 2 ORDER BY a
SELECT round(c, 1), round(c), trunc(c, 1), ceil(c), floor(c), round(d), round(d::numeric, 2), c::numeric(10,1), c::text, c::float8 FROM nums WHERE a <> 2 ORDER BY a
SELECT sum(a), sum(b), sum(c), sum(d), avg(a), avg(b), avg(c), avg(d), count(b), count(*), min(c), max(c), sum(a)::int / count(*) FROM nums
SELECT greatest(1, 2.5, NULL), least('b', 'a', NULL), greatest(NULL, NULL), coalesce(NULL, 1.50, 2), nullif(1, 1), nullif(1.0, 1.00), nullif('a', 'b')
SELECT CASE WHEN 1 = 1 THEN 1 ELSE 2.5 END, CASE 3 WHEN 1 THEN 'a' WHEN 3 THEN 'c' END, CASE WHEN NULL THEN 1 ELSE 0 END, CASE WHEN false THEN 1 END
SELECT true::int, 1::bool, 'on'::bool, 'f'::bool, NOT true, true <> false, true > false, bool_and(active), bool_or(active), every(active IS NOT NULL) FROM customers
SELECT 1 = 1.0, 1 = 1::float8, 1.5 = 1.50, 0.1 + 0.2 = 0.3, 0.1::float8 + 0.2::float8 = 0.3::float8, 'a' = 'A', NULL = NULL, NULL IS NOT DISTINCT FROM 1
SELECT count(*), count(DISTINCT status), count(total), count(NULL) FROM orders
SELECT max(placed), min(ship_date), max(status), max(id) - min(id), max(placed) - min(placed) FROM orders
SELECT status, sum(total) FROM orders GROUP BY ROLLUP(status) ORDER BY status NULLS LAST
SELECT customer_id, status, count(*), grouping(customer_id, status) FROM orders GROUP BY GROUPING SETS ((customer_id), (status), ()) ORDER BY 1 NULLS LAST, 2 NULLS LAST
SELECT DISTINCT ON (status) status, id, total FROM orders ORDER BY status, total DESC NULLS LAST
SELECT DISTINCT customer_id, status FROM orders ORDER BY 1, 2
SELECT id FROM customers INTERSECT ALL SELECT customer_id FROM orders ORDER BY 1
SELECT customer_id FROM orders EXCEPT ALL SELECT id FROM customers ORDER BY 1
SELECT 1 AS a UNION SELECT 2.5 UNION SELECT NULL ORDER BY a NULLS FIRST
SELECT 'x' AS s, 1 AS n UNION ALL SELECT name, id FROM emp WHERE id = 1 ORDER BY 2, 1
SELECT id, name FROM customers ORDER BY name DESC LIMIT 2
SELECT id FROM emp ORDER BY dept NULLS FIRST, salary DESC NULLS LAST, id
SELECT id, salary FROM emp ORDER BY salary IS NULL, salary, name
SELECT percentile_disc(0.5) WITHIN GROUP (ORDER BY salary), percentile_cont(0.5) WITHIN GROUP (ORDER BY salary), mode() WITHIN GROUP (ORDER BY dept) FROM emp
SELECT stddev(salary), variance(salary), stddev_pop(salary), var_pop(salary), stddev_samp(a), var_samp(c) FROM emp, nums WHERE emp.id = 1
SELECT width, count(*) FROM (SELECT (salary / 1000)::int * 1000 AS width FROM emp) x GROUP BY width ORDER BY width
SELECT to_char(hired, 'YYYY-MM') AS month, count(*) FROM emp WHERE hired IS NOT NULL GROUP BY month HAVING count(*) > 0 ORDER BY month
SELECT name, age(date '2024-01-01', hired), date_part('year', age(date '2024-01-01', hired)) FROM emp WHERE hired IS NOT NULL ORDER BY id
SELECT id::text || ':' || total::text || ':' || placed::text || ':' || coalesce(ship_date::text, '-') FROM orders WHERE placed IS NOT NULL ORDER BY id
SELECT lead::text, lead::varchar, (lead * 2)::text, '01:02:03'::interval::text, interval '1 year 2 mons 3 days 04:05:06.7'::text FROM orders WHERE lead IS NOT NULL ORDER BY id
SELECT md5(name), length(md5('')), to_hex(id) FROM customers ORDER BY id
SELECT 'abc'::varchar(2), 'ab'::char(3) || '|', 12.345::numeric(4,1), '12.345'::numeric, 99.995::numeric(5,2), '  7 '::int, '0x'::text
SELECT 100.00::numeric, 100.00::float8, 1e-10::numeric, 1e-10::float8, 123456789.123456789::float8, 0.1::float8, 1e15::float8, 1e16::float8, -0.0::float8, 1.0::float8
SELECT 12345678901234567890.12 * 2, 0.000001 * 0.000001, 1 / 3.0, 2 / 3.0 * 3, 10.0 / 3, 1.5 / 0.3, 100 * 1.15, 1234.5678 / 10
SELECT o.*, c.name FROM orders o JOIN customers c ON c.id = o.customer_id WHERE o.id = 10
SELECT orders.id AS order_id, customers.id AS customer_id FROM orders INNER JOIN customers ON orders.customer_id = customers.id WHERE customers.name = 'Ann' ORDER BY orders.id ASC LIMIT 21
SELECT "orders"."id", "orders"."total" FROM "orders" WHERE ("orders"."status" = 'new' AND NOT ("orders"."customer_id" IN (2, 3))) ORDER BY "orders"."id" ASC
SELECT COUNT(*) AS "__count" FROM (SELECT DISTINCT "orders"."customer_id" AS "col1" FROM "orders") subquery
SELECT (1) AS "a" FROM "customers" WHERE "customers"."id" = 1 LIMIT 1
SELECT anon_1.id, anon_1.n FROM (SELECT customers.id AS id, count(orders.id) AS n FROM customers LEFT OUTER JOIN orders ON customers.id = orders.customer_id GROUP BY customers.id) AS anon_1 WHERE anon_1.n > 0 ORDER BY anon_1.id
SELECT CAST(total AS FLOAT) / 2, CAST(id AS VARCHAR), CAST('2024-01-01' AS DATE), CAST(NULL AS INTEGER), CAST(1.6 AS BIGINT) FROM orders WHERE id = 10
SELECT EXTRACT(YEAR FROM orders.placed) AS y, EXTRACT(MONTH FROM orders.placed) AS m, count(*) AS c FROM orders GROUP BY EXTRACT(YEAR FROM orders.placed), EXTRACT(MONTH FROM orders.placed) ORDER BY 1 NULLS LAST, 2
SELECT (placed AT TIME ZONE 'UTC')::date AS d, DATE_TRUNC('month', placed AT TIME ZONE 'America/New_York') FROM orders WHERE placed IS NOT NULL ORDER BY id
SELECT CASE WHEN total IS NULL THEN 'none' WHEN total < 10 THEN '<10' WHEN total BETWEEN 10 AND 50 THEN '10-50' ELSE '>50' END AS bucket, count(*) FROM orders GROUP BY bucket ORDER BY bucket
SELECT id, total FROM orders WHERE total > 10 AND (status = 'new' OR status = 'paid') AND ship_date IS DISTINCT FROM NULL ORDER BY total DESC
SELECT * FROM kv k1 JOIN kv k2 ON k1.n < k2.n ORDER BY 1, 4
SELECT a.id, b.id FROM emp a CROSS JOIN emp b WHERE a.id < b.id AND a.dept = b.dept ORDER BY 1, 2
SELECT e1.name FROM emp e1 WHERE e1.salary >= ALL (SELECT e2.salary FROM emp e2 WHERE e2.salary IS NOT NULL)
SELECT name FROM emp WHERE salary = ANY (SELECT max(salary) FROM emp GROUP BY dept) ORDER BY name
SELECT x.id, y.cnt FROM customers x JOIN LATERAL (SELECT count(*) cnt FROM orders o WHERE o.customer_id = x.id) y ON true ORDER BY x.id
SELECT max(length(name)), min(length(name)), avg(length(name)) FROM customers
SELECT id, row_number() OVER (ORDER BY id DESC) AS rn, count(*) OVER () AS total FROM customers ORDER BY id LIMIT 2
SELECT first_value(name) OVER w, last_value(name) OVER w, sum(salary) OVER w FROM emp WINDOW w AS (PARTITION BY dept ORDER BY id ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) ORDER BY emp.id
SELECT id, avg(salary) OVER (ORDER BY id ROWS 1 PRECEDING), max(salary) OVER (PARTITION BY dept), ntile(3) OVER (ORDER BY id) FROM emp ORDER BY id
SELECT to_char(interval '1 day 02:03:04', 'DD HH24:MI:SS'), justify_interval(interval '40 days 30 hours'), make_interval(hours => 5, mins => 30), date_bin('1 hour', timestamp '2024-01-01 10:40', timestamp '2024-01-01')
SELECT num_nulls(1, NULL, 'a'), num_nonnulls(NULL, 2), quote_nullable(NULL), quote_nullable('a''b'), regexp_like('abc', 'B', 'i'), regexp_substr('abc123', '\d+'), regexp_instr('abc', 'c'), factorial(6)
SELECT jsonb_extract_path_text('{"a": {"b": 1.50}}', 'a', 'b'), jsonb_insert('[1,2]', '{1}', '9'), jsonb_insert('[1,2]', '{1}', '9', true), jsonb_insert('{"a":1}', '{b}', '2')
SELECT sum(interval '1 hour' * qty), avg(interval '1 day' * qty) FROM order_items
SELECT id, tags FROM customers ORDER BY tags DESC NULLS LAST, id
SELECT id FROM customers WHERE tags > ARRAY['a'] ORDER BY id
SELECT min(lead), max(lead) FROM orders
SELECT ('2024-03-01'::date, '2024-03-10'::date) OVERLAPS ('2024-03-05'::date, '2024-03-06'::date)
SELECT a.id, b.id FROM orders a JOIN orders b ON (a.placed, interval '1 day') OVERLAPS (b.placed, interval '1 day') AND a.id < b.id ORDER BY 1, 2
SELECT regexp_matches('foobarbequebaz', 'ba.', 'g')
SELECT id, unnest(tags) || '!', id FROM customers WHERE tags <> '{}' ORDER BY 1, 2
SELECT (regexp_matches('a1b2', '([a-z])(\d)'))[1]
SELECT c.id, m[1] FROM customers c, regexp_matches(c.name, '([a-z])', 'g') AS m ORDER BY c.id, 2
SELECT c.id, m FROM customers c LEFT JOIN LATERAL regexp_matches(c.name, '[A-Z]\w*', 'g') m ON true ORDER BY c.id, 2
SELECT id FROM customers WHERE name ILIKE ANY (ARRAY['a%', '%b%']) ORDER BY id
SELECT id FROM customers WHERE name ILIKE ANY ('{a%,%b%}') ORDER BY id
SELECT id FROM customers WHERE name NOT LIKE ANY ('{A%,%b%}'::text[]) ORDER BY id
SELECT id FROM customers WHERE name NOT LIKE ALL (ARRAY['A%', '%b%']) ORDER BY id
SELECT id FROM customers WHERE name LIKE ANY (tags) OR name <> ALL (tags) ORDER BY id
SELECT id, 2 > ANY (tags::text[]::bigint[]) FROM customers WHERE false
SELECT id, 'b' <= ALL (tags), 'b' > ANY (tags) FROM customers ORDER BY id
SELECT id FROM orders WHERE (customer_id, status) IS DISTINCT FROM (1, 'new') ORDER BY id
SELECT id FROM orders WHERE (ship_date, total) IS NULL OR (ship_date, total) IS NOT NULL ORDER BY id
SELECT * FROM jsonb_to_recordset('[{"a":1,"b":"x"},{"a":2}]') AS t(a int, b text)
SELECT * FROM json_to_record('{"a":1,"b":"x"}') AS t(a int, b text)
SELECT t.a + 1, t.d, t.n FROM jsonb_to_recordset('[{"a": 1.0, "d": "2024-02-29", "n": 1.25, "j": null}, {"d": null, "j": {"x": [1]}}]') AS t(a int, d date, n numeric(4, 1), j jsonb) ORDER BY 1
SELECT e.name, x.salary FROM emp e JOIN jsonb_to_recordset('[{"id": 2, "salary": 7.5}, {"id": 3}]') AS x(id int, salary float8) ON x.id = e.id ORDER BY e.id
SELECT jsonb_to_recordset FROM (SELECT 1 AS jsonb_to_recordset) x
SELECT name COLLATE "C" FROM emp ORDER BY name COLLATE "C" DESC
SELECT j FROM (VALUES ('[]'::jsonb), ('null'), ('"b"'), ('"a"'), ('10'), ('9.5'), ('-1'), ('true'), ('false'), ('[1]'), ('[0, 0]'), ('[2]'), ('{}'), ('{"b": 1}'), ('{"aa": 1}'), ('{"a": 2, "b": 0}'), ('[[]]'), ('[null]'), ('["a", "b"]')) x(j) ORDER BY j
SELECT id FROM customers WHERE meta -> 'age' > '30' OR meta -> 'age' <= '30' ORDER BY meta -> 'age' DESC NULLS LAST, id
SELECT k, v FROM (VALUES ('a', '{"a": 1}'::jsonb), ('b', '["a"]')) x(k, v) WHERE v ? k
SELECT j -> '0', j ->> '1', j -> 0, j -> -1, j #> '{0}' FROM (VALUES ('["a", "b"]'::jsonb), ('{"0": 1, "1": 2}')) x(j)
SELECT substring('12.50 EUR' from '\d+|\d+\.\d+'), regexp_replace('ab', 'a|ab', 'x'), substring('<a><b>' from '<.+?>')
"""

#: Not there, and told so: never answered wrongly.
REFUSED = r"""
SELECT to_char(1234.5, 'S9999.99'), to_char(-1234.5, '9999.99MI'), to_char(0.5, 'FM0.99'), to_char(12, 'RN')
SELECT to_number('12,454.8-', '99G999D9S')
SELECT E'tab\there', E'\u00e9', U&'\0041', 'it''s', $$dollar$$, $tag$a$b$tag$
SELECT unistr('\0441'), normalize('é', NFC), string_to_array('1,2,3', ',')::int[]
SELECT jsonb_path_query('{"a":[1,2,3]}', '$.a.keyvalue()')
SELECT json_object('{a,1,b,2}'), jsonb_object_agg(k, n) FROM kv
SELECT unnest(ARRAY[1,2,3]), unnest(ARRAY['a','b'])
SELECT array_length(ARRAY[1,2,3], 1), array_length(ARRAY[]::int[], 1), cardinality(ARRAY[1,2]), array_upper(ARRAY[1,2], 1), array_lower(ARRAY[1,2], 1), array_ndims(ARRAY[1,2]), array_dims(ARRAY[1,2])
SELECT ARRAY[[1,2],[3,4]]
SELECT array_fill(0, ARRAY[3]), trim_array(ARRAY[1,2,3], 1), array_agg(DISTINCT status) FROM orders
SELECT 5 & 3, 5 | 3, 5 # 3, ~5, 1 << 4, 16 >> 2, |/ 25, ||/ 27, @ -5, 5 !
SELECT count(DISTINCT status), count(DISTINCT (customer_id, status)) FROM orders
SELECT id FROM emp TABLESAMPLE BERNOULLI (100) ORDER BY id
SELECT id FROM emp TABLESAMPLE SYSTEM (100) REPEATABLE (1) ORDER BY id
SELECT id, sum(salary) OVER (ORDER BY hired RANGE BETWEEN interval '3 years' PRECEDING AND CURRENT ROW) FROM emp ORDER BY id
SELECT (c).name FROM customers c WHERE id = 3
SELECT ROW(1, 'a', NULL), (1, 2)
SELECT generate_series(1, 2), generate_series(1, 4)
SELECT * FROM ROWS FROM (generate_series(1, 2), generate_series(5, 7)) AS t(a, b)
SELECT * FROM upper('x') AS u
SELECT '192.168.0.1'::inet, '12.34'::money
SELECT int4range(1, 5), '[1,5)'::int4range @> 3
SELECT to_tsvector('english', 'a fat cat') @@ to_tsquery('cat')
SELECT point(1,2)
SELECT generate_series(1, 10, 3) AS n, generate_series(1, 10, 3) * 2 AS m
"""
