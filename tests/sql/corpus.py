"""Tables, rows and statements written by hand, each with one answer whoever is asked."""

# ruff: noqa: E501 (a statement is one line)

from __future__ import annotations

#: (Cairn's DDL, PostgreSQL's DDL)
TABLES = [
    (
        "CREATE TABLE item (id INT PRIMARY KEY, grp INT, n INT, s TEXT, d DECIMAL, f DOUBLE, "
        "ok BOOLEAN, at DATETIME, u UUID) DISTRIBUTED BY (id)",
        "CREATE TABLE item (id BIGINT PRIMARY KEY, grp BIGINT, n BIGINT, s TEXT, d NUMERIC, "
        "f DOUBLE PRECISION, ok BOOLEAN, at TIMESTAMPTZ, u UUID)",
    ),
    (
        "CREATE TABLE part (item_id INT, no INT, price DECIMAL, note TEXT, "
        "PRIMARY KEY (item_id, no)) DISTRIBUTED BY (item_id)",
        "CREATE TABLE part (item_id BIGINT, no BIGINT, price NUMERIC, note TEXT, "
        "PRIMARY KEY (item_id, no))",
    ),
    (
        "CREATE TABLE pair (a INT, b TEXT, v INT, PRIMARY KEY (a, b)) DISTRIBUTED BY (b, a)",
        "CREATE TABLE pair (a BIGINT, b TEXT, v BIGINT, PRIMARY KEY (a, b))",
    ),
    (
        "CREATE TABLE money (k DECIMAL PRIMARY KEY, x DOUBLE) DISTRIBUTED BY (k)",
        "CREATE TABLE money (k NUMERIC PRIMARY KEY, x DOUBLE PRECISION)",
    ),
    (
        "CREATE TABLE event (at DATETIME PRIMARY KEY, what TEXT) DISTRIBUTED BY (at)",
        "CREATE TABLE event (at TIMESTAMPTZ PRIMARY KEY, what TEXT)",
    ),
    (
        "CREATE TABLE kind (id INT PRIMARY KEY, name TEXT, factor DECIMAL) DISTRIBUTED GLOBALLY",
        "CREATE TABLE kind (id BIGINT PRIMARY KEY, name TEXT, factor NUMERIC)",
    ),
    (
        "CREATE TABLE spare (id INT PRIMARY KEY, n INT, s TEXT, d DECIMAL) DISTRIBUTED BY (id)",
        "CREATE TABLE spare (id BIGINT PRIMARY KEY, n BIGINT, s TEXT, d NUMERIC)",
    ),
    (
        "CREATE TABLE note (id INT PRIMARY KEY, tag TEXT, n INT) DISTRIBUTED BY (tag)",
        "CREATE TABLE note (id BIGINT PRIMARY KEY, tag TEXT, n BIGINT)",
    ),
]

ROWS = [
    "INSERT INTO item VALUES "
    "(1, 1, 10, 'apple', 1.50, 0.5, true, '2024-01-01 00:00:00+00', "
    "'102be9bf-215f-4180-b4c9-cc11983e988d'),"
    "(2, 1, NULL, 'Banana', 2.5, 1.0, false, '2024-06-01 12:30:00+02', NULL),"
    "(3, 2, -7, NULL, -0.001, -0.0, NULL, NULL, '00000000-0000-0000-0000-000000000000'),"
    "(4, 2, 10, 'cherry', 100, 2.5, true, '2023-12-31 23:59:59.999999+00', NULL),"
    "(5, 3, 0, '', NULL, NULL, false, '1969-07-20 20:17:40+00', NULL),"
    "(6, NULL, 42, 'a%b_c', 12345678901234567890.123456789, 1e300, true, NULL, NULL),"
    "(7, 3, 7, 'apple', 1.5, 3.0, true, '2024-01-01 02:00:00+02', NULL),"
    "(8, 1, 3, 'żółć', 0, -2.5, false, '2030-01-01 00:00:00+00', NULL),"
    "(9, 2, 1000000, 'Apple pie', 7, 1e-5, NULL, '2024-02-29 00:00:00+00', NULL),"
    "(10, 3, -1, '  pad ', -1.5, 0.1, true, NULL, 'ffffffff-ffff-ffff-ffff-ffffffffffff')",
    "INSERT INTO part VALUES (1, 1, 0.10, 'x'), (1, 2, 0.20, NULL), (2, 1, 5, 'y'), "
    "(3, 1, NULL, 'x'), (4, 1, 1.25, 'z'), (4, 2, 1.75, 'z'), (4, 3, 3.00, 'x'), "
    "(11, 1, 9.99, 'orphan'), (12, 5, 0.01, 'orphan')",
    "INSERT INTO pair VALUES (1, 'x', 1), (1, 'y', 2), (2, 'x', 3), (2, 'z', NULL), (3, 'y', 5)",
    "INSERT INTO money VALUES (1.5, 0.5), (2, 2), (-3.25, NULL), (0, 0), (1e0::decimal, 1)",
    "INSERT INTO event VALUES ('2024-01-01 00:00:00+00', 'a'), ('2024-01-01 03:00:00+02', 'b'), "
    "('2024-05-05 05:05:05.5+00', 'c')",
    "INSERT INTO kind VALUES (1, 'one', 1.0), (2, 'two', 0.5), (3, 'three', NULL), (9, 'nine', 2)",
    "INSERT INTO note VALUES (1, 'x', 1), (2, 'y', 2), (3, NULL, 3), (4, 'x', 4)",
]

#: Compared as lists: their ORDER BY is total.
ORDERED = """
SELECT id, s FROM item ORDER BY id
SELECT id FROM item ORDER BY n, id
SELECT id FROM item ORDER BY n DESC, id DESC
SELECT id FROM item ORDER BY n NULLS FIRST, id
SELECT id FROM item ORDER BY n DESC NULLS LAST, id
SELECT id FROM item ORDER BY s, id
SELECT id FROM item ORDER BY d, id
SELECT id FROM item ORDER BY d DESC, id LIMIT 3
SELECT id FROM item ORDER BY f, id LIMIT 4 OFFSET 2
SELECT id FROM item ORDER BY at, id
SELECT id, at FROM item ORDER BY at DESC, id LIMIT 5
SELECT id FROM item ORDER BY u, id
SELECT id FROM item ORDER BY ok, id
SELECT s AS id2, id FROM item ORDER BY id2, id
SELECT id, n + 1 AS m FROM item ORDER BY m, id
SELECT id FROM item ORDER BY -n, id
SELECT id FROM item ORDER BY id % 3, id DESC
SELECT id FROM item ORDER BY id LIMIT 0
SELECT id FROM item ORDER BY id OFFSET 8
SELECT id FROM item ORDER BY id LIMIT ALL OFFSET 7
SELECT DISTINCT grp FROM item ORDER BY grp
SELECT DISTINCT grp FROM item ORDER BY grp DESC LIMIT 2
SELECT DISTINCT s, d FROM item ORDER BY s, d
SELECT grp, count(*) FROM item GROUP BY grp ORDER BY grp
SELECT grp, count(*) AS c FROM item GROUP BY grp ORDER BY c DESC, grp LIMIT 2
SELECT grp, sum(n), avg(n), min(s), max(s) FROM item GROUP BY grp ORDER BY 1
SELECT grp, sum(d), avg(d) FROM item GROUP BY grp ORDER BY grp NULLS FIRST
SELECT id, count(*) FROM item GROUP BY id ORDER BY id
SELECT id, s, count(*) FROM item GROUP BY id ORDER BY id
SELECT s, count(*) FROM item GROUP BY s HAVING count(*) > 1 ORDER BY s
SELECT grp + 1 AS g1, count(n) FROM item GROUP BY grp + 1 ORDER BY g1
SELECT i.id, p.no, p.price FROM item i JOIN part p ON i.id = p.item_id ORDER BY i.id, p.no
SELECT i.id, p.no FROM item i LEFT JOIN part p ON i.id = p.item_id ORDER BY i.id, p.no
SELECT p.item_id, p.no, i.s FROM item i RIGHT JOIN part p ON i.id = p.item_id ORDER BY 1, 2
SELECT i.id, p.item_id, p.no FROM item i FULL JOIN part p ON i.id = p.item_id ORDER BY 1, 2, 3
SELECT i.id, k.name FROM item i JOIN kind k ON i.grp = k.id ORDER BY i.id
SELECT i.id, k.name FROM item i LEFT JOIN kind k ON i.grp = k.id ORDER BY i.id
SELECT k.id, i.id FROM kind k LEFT JOIN item i ON i.grp = k.id ORDER BY 1, 2
SELECT a.id, b.id FROM item a JOIN item b ON a.n = b.n AND a.id < b.id ORDER BY 1, 2
SELECT a.id, b.no FROM item a JOIN part b ON a.n = b.no ORDER BY 1, 2
SELECT i.id, p.no, k.name FROM item i JOIN part p ON i.id = p.item_id JOIN kind k ON k.id = i.grp ORDER BY 1, 2
SELECT i.id FROM item i, part p WHERE i.id = p.item_id AND p.price > 1 ORDER BY i.id, p.no
SELECT i.id, x.total FROM item i JOIN (SELECT item_id, sum(price) AS total FROM part GROUP BY item_id) x ON x.item_id = i.id ORDER BY i.id
SELECT id FROM item i WHERE EXISTS (SELECT 1 FROM part p WHERE p.item_id = i.id) ORDER BY id
SELECT id FROM item i WHERE NOT EXISTS (SELECT 1 FROM part p WHERE p.item_id = i.id) ORDER BY id
SELECT id FROM item WHERE id IN (SELECT item_id FROM part) ORDER BY id
SELECT id FROM item WHERE id NOT IN (SELECT item_id FROM part) ORDER BY id
SELECT id FROM item WHERE n NOT IN (SELECT n FROM item WHERE id < 3) ORDER BY id
SELECT id FROM item WHERE grp IN (SELECT id FROM kind WHERE name LIKE 't%') ORDER BY id
SELECT id FROM item WHERE n > (SELECT avg(n) FROM item) ORDER BY id
SELECT id, (SELECT count(*) FROM part p WHERE p.item_id = item.id) AS c FROM item ORDER BY id
SELECT id, (SELECT max(price) FROM part p WHERE p.no = item.grp) AS c FROM item ORDER BY id
SELECT id, (SELECT name FROM kind WHERE kind.id = item.grp) FROM item ORDER BY id
SELECT id FROM item WHERE (grp, n) IN ((1, 10), (2, -7)) ORDER BY id
SELECT id FROM item WHERE (grp, n) > (1, 5) ORDER BY id
SELECT id FROM item WHERE (grp, n) = (1, 10) ORDER BY id
SELECT id FROM item WHERE (grp, n) IN (SELECT grp, n FROM item WHERE id < 5) ORDER BY id
WITH x AS (SELECT grp, count(*) AS c FROM item GROUP BY grp) SELECT * FROM x WHERE c > 1 ORDER BY grp
WITH x AS (SELECT id, grp FROM item), y AS (SELECT grp FROM x WHERE id = 1) SELECT x.id FROM x JOIN y ON x.grp = y.grp ORDER BY 1
WITH x(a, b) AS (VALUES (1, 'p'), (2, 'q')) SELECT a, b, s FROM x JOIN item ON item.id = x.a ORDER BY a
SELECT id FROM item UNION SELECT item_id FROM part ORDER BY 1
SELECT id FROM item UNION ALL SELECT item_id FROM part ORDER BY 1
SELECT id FROM item EXCEPT SELECT item_id FROM part ORDER BY id
SELECT id FROM item INTERSECT SELECT item_id FROM part ORDER BY id DESC
SELECT grp FROM item UNION SELECT id FROM kind ORDER BY 1 LIMIT 3
SELECT id, d FROM item WHERE id < 3 UNION ALL SELECT no, price FROM part ORDER BY 1, 2
(SELECT id FROM item ORDER BY id DESC LIMIT 2) UNION ALL (SELECT id FROM kind ORDER BY id LIMIT 1) ORDER BY 1
SELECT x.id FROM (SELECT id FROM item ORDER BY id DESC LIMIT 3) x ORDER BY x.id
SELECT x.g, x.c FROM (SELECT grp AS g, count(*) AS c FROM item GROUP BY grp) AS x ORDER BY x.g
SELECT id, row_number() OVER (ORDER BY id) FROM item ORDER BY id
SELECT id, row_number() OVER (PARTITION BY grp ORDER BY id DESC) AS r FROM item ORDER BY id
SELECT id, sum(n) OVER (ORDER BY id) FROM item ORDER BY id
SELECT id, sum(d) OVER (PARTITION BY grp ORDER BY id ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) FROM item ORDER BY id
SELECT id, avg(n) OVER (PARTITION BY grp) FROM item ORDER BY id
SELECT id, count(*) OVER () FROM item ORDER BY id
SELECT id, last_value(s) OVER (PARTITION BY grp ORDER BY id ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) FROM item ORDER BY id
SELECT id, rank() OVER w, dense_rank() OVER w FROM item WINDOW w AS (ORDER BY n) ORDER BY id
SELECT id, sum(id) OVER (w ORDER BY id) FROM item WINDOW w AS (PARTITION BY n) ORDER BY id
SELECT id, sum(id) OVER (w ROWS 1 PRECEDING) FROM item WINDOW w AS (ORDER BY id) ORDER BY id
SELECT id, sum(id) OVER (ORDER BY id ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING EXCLUDE CURRENT ROW) FROM item ORDER BY id
SELECT id, count(*) OVER (ORDER BY n ROWS BETWEEN 2 PRECEDING AND 1 FOLLOWING EXCLUDE GROUP) >= 0 FROM item ORDER BY id
SELECT id, sum(id) OVER (ORDER BY id GROUPS BETWEEN 1 PRECEDING AND CURRENT ROW EXCLUDE TIES) FROM item ORDER BY id
SELECT id, sum(id) OVER (ORDER BY id ROWS BETWEEN 1 PRECEDING AND CURRENT ROW EXCLUDE NO OTHERS) FROM item ORDER BY id
SELECT id, lag(s) OVER (ORDER BY id), lead(n, 2, 0) OVER (ORDER BY id) FROM item ORDER BY id
SELECT id, count(n) FILTER (WHERE n > 0) OVER (ORDER BY id) FROM item ORDER BY id
SELECT grp, rank() OVER (ORDER BY count(*) DESC, grp) FROM item GROUP BY grp ORDER BY grp
SELECT id, CASE WHEN n > 5 THEN 'big' WHEN n IS NULL THEN 'none' ELSE 'small' END FROM item ORDER BY id
SELECT id, CASE grp WHEN 1 THEN 1.5 WHEN 2 THEN 2 END FROM item ORDER BY id
SELECT id, coalesce(n, grp, 0), nullif(n, 10), greatest(n, id), least(n, id, NULL) FROM item ORDER BY id
SELECT id, n IS NULL, ok IS TRUE, ok IS NOT FALSE, ok IS UNKNOWN FROM item ORDER BY id
SELECT id, n IS DISTINCT FROM 10, n IS NOT DISTINCT FROM NULL FROM item ORDER BY id
SELECT id, s || '!' , s || n, id || s FROM item ORDER BY id
SELECT id, lower(s), upper(s), length(s), trim(s), trim(both 'ae' from s) FROM item WHERE id <> 8 ORDER BY id
SELECT id, substr(s, 2), substr(s, 2, 3), substring(s from 3 for 2), substring(s, -1, 4) FROM item ORDER BY id
SELECT id, replace(s, 'p', 'PP'), left(s, 3), right(s, 2), position('p' in s), reverse(s) FROM item ORDER BY id
SELECT id FROM item WHERE s LIKE 'a%' ORDER BY id
SELECT id FROM item WHERE s LIKE '%\\%b\\_c' ORDER BY id
SELECT id FROM item WHERE s LIKE 'a!%b%' ESCAPE '!' ORDER BY id
SELECT id FROM item WHERE s ILIKE 'APP%' ORDER BY id
SELECT id FROM item WHERE s NOT LIKE '%p%' ORDER BY id
SELECT id FROM item WHERE s SIMILAR TO '(apple|cherry)%' ORDER BY id
SELECT id FROM item WHERE s SIMILAR TO '[ab]%' ORDER BY id
SELECT id, n::text, d::text IS NULL, f::int, d::int, ok::text, id::double FROM item WHERE id NOT IN (6) ORDER BY id
SELECT id, '12'::int + id, '1.5'::decimal * id, cast('2.5' AS double precision) + id FROM item ORDER BY id
SELECT id, abs(n), abs(d), n % 3, d % 2, round(d, 1), floor(d), ceil(d) FROM item ORDER BY id
SELECT id FROM item WHERE n <> 0 AND 100 / n > 5 ORDER BY id
SELECT id, CASE WHEN n = 0 THEN 0 ELSE 100 / n END FROM item ORDER BY id
SELECT grp, sum(100 / n) FILTER (WHERE n <> 0) FROM item GROUP BY grp ORDER BY grp
SELECT i.id FROM item i JOIN part p ON p.no = i.grp AND i.n <> 0 WHERE 10 / i.n > 0 ORDER BY 1, p.item_id
SELECT id, n / 3, n / 3.0, d / 3, f / 2 FROM item ORDER BY id
SELECT id, d + n, d * 2.50, d - f, n * f FROM item WHERE id <> 6 ORDER BY id
SELECT id FROM item WHERE d = 1.50 ORDER BY id
SELECT id FROM item WHERE d > 1 AND d <= 2.5 ORDER BY id
SELECT id FROM item WHERE f = 0 ORDER BY id
SELECT id FROM item WHERE f > n ORDER BY id
SELECT id FROM item WHERE d > f ORDER BY id
SELECT id FROM item WHERE n BETWEEN 1 AND 10 ORDER BY id
SELECT id FROM item WHERE n NOT BETWEEN 1 AND 10 ORDER BY id
SELECT id FROM item WHERE at = '2024-01-01 01:00:00+01' ORDER BY id
SELECT id FROM item WHERE at > '2024-01-01' ORDER BY id
SELECT id FROM item WHERE u = '102BE9BF-215F-4180-B4C9-CC11983E988D' ORDER BY id
SELECT id FROM item WHERE ok ORDER BY id
SELECT id FROM item WHERE NOT ok ORDER BY id
SELECT id FROM item WHERE ok AND n > 5 OR s = 'apple' ORDER BY id
SELECT id FROM item WHERE id = 3 OR id = 7 OR id = 99 ORDER BY id
SELECT id FROM item WHERE id IN (1, 2, 3, NULL) ORDER BY id
SELECT id FROM item WHERE id NOT IN (1, 2, NULL) ORDER BY id
SELECT a, b, v FROM pair WHERE a = 1 AND b = 'y' ORDER BY 1, 2
SELECT a, b, v FROM pair WHERE a IN (1, 2) AND b IN ('x', 'z') ORDER BY 1, 2
SELECT p.a, q.a FROM pair p JOIN pair q ON p.b = q.b AND p.a = q.a ORDER BY 1, 2
SELECT p.a, q.a, p.b FROM pair p JOIN pair q ON p.b = q.b ORDER BY 1, 2, 3
SELECT k FROM money WHERE k = 1.50 ORDER BY k
SELECT k FROM money WHERE k = 2.000 ORDER BY k
SELECT k, x FROM money WHERE k IN (0.0, -3.250) ORDER BY k
SELECT k FROM money WHERE k = 2 ORDER BY k
SELECT what FROM event WHERE at = '2024-01-01 01:00:00+00' ORDER BY 1
SELECT what FROM event WHERE at = '2024-01-01 02:00:00+02' ORDER BY 1
SELECT t.id, t.tag, u.id FROM note t JOIN note u ON t.tag = u.tag ORDER BY 1, 3
SELECT id, tag, count(*) FROM note GROUP BY id, tag ORDER BY id
SELECT max(n), tag FROM note GROUP BY tag ORDER BY tag
SELECT i.grp, count(p.no), sum(p.price) FROM item i LEFT JOIN part p ON p.item_id = i.id GROUP BY i.grp ORDER BY i.grp
SELECT grp, count(DISTINCT n), sum(DISTINCT n), avg(DISTINCT d) FROM item GROUP BY grp ORDER BY grp
SELECT grp, count(*) FILTER (WHERE ok), sum(n) FILTER (WHERE n > 0) FROM item GROUP BY grp ORDER BY grp
SELECT grp, string_agg(s, ',' ORDER BY id) FROM item GROUP BY grp ORDER BY grp
SELECT note, string_agg(DISTINCT note, '-') FROM part GROUP BY note ORDER BY note
SELECT DISTINCT ok, grp FROM item WHERE n > -5 ORDER BY grp, ok
SELECT column1, column2 FROM (VALUES (1, 'a'), (2, NULL)) v ORDER BY 1
SELECT id FROM item WHERE grp = (SELECT grp FROM item WHERE id = 4) ORDER BY id
SELECT id FROM item i WHERE n = (SELECT max(n) FROM item j WHERE j.grp = i.grp) ORDER BY id
SELECT i.id, (SELECT string_agg(note, '+' ORDER BY no) FROM part p WHERE p.item_id = i.id) FROM item i ORDER BY 1
SELECT id FROM item i WHERE EXISTS (SELECT 1 FROM part p JOIN kind k ON k.id = p.no WHERE p.item_id = i.id AND k.name = 'two') ORDER BY id
SELECT x.id, y.c FROM item x LEFT JOIN (SELECT item_id, count(*) AS c FROM part GROUP BY item_id) y ON y.item_id = x.id ORDER BY 1
SELECT coalesce(x.c, 0) AS c, i.id FROM item i LEFT JOIN (SELECT note, count(*) AS c FROM part GROUP BY note) x ON x.note = i.s ORDER BY i.id
SELECT id, at FROM item WHERE at IS NOT NULL ORDER BY at, id
SELECT i.id, p.no FROM item i JOIN part p USING (id) ORDER BY 1
""".replace("\\\\", "\\").replace(
    "SELECT i.id, p.no FROM item i JOIN part p USING (id) ORDER BY 1\n", ""
)

#: Compared as multisets, or giving a single row.
PLAIN = """
SELECT * FROM item
SELECT item.* FROM item WHERE id = 4
SELECT i.*, p.* FROM item i JOIN part p ON i.id = p.item_id
SELECT * FROM item CROSS JOIN kind
SELECT count(*) FROM item
SELECT count(n), count(DISTINCT n), count(DISTINCT grp) FROM item
SELECT sum(n), avg(n), min(n), max(n) FROM item
SELECT sum(d), avg(d), min(d), max(d) FROM item
SELECT sum(f), avg(f), min(f), max(f) FROM item WHERE id <> 6
SELECT min(at), max(at) FROM item
SELECT sum(n), count(*), avg(d), max(s) FROM item WHERE id > 1000
SELECT count(*) FROM item WHERE id = 5
SELECT sum(n) FROM item WHERE id = 1
SELECT count(*), sum(price) FROM part WHERE item_id = 4
SELECT count(*) FROM item WHERE 1 = 2
SELECT count(*) FROM item i JOIN part p ON i.id = p.item_id
SELECT count(*) FROM item i, part p
SELECT sum(i.n * p.no) FROM item i JOIN part p ON i.id = p.item_id
SELECT avg(x.c) FROM (SELECT count(*) AS c FROM item GROUP BY grp) x
SELECT max(c) FROM (SELECT grp, count(*) AS c FROM item GROUP BY grp) AS y
SELECT 1
SELECT 1 + 1, 7 / 2, -7 / 2, 7 % -3, -7 % 3
SELECT 1.5 + 1, 10 / 4.0, 1.10 * 3, 2 - 0.1
SELECT 1e3, 1e3 + 1, 1.5e0 * 2
SELECT 'a' || 'b', 'it''s', ''
SELECT NULL, NULL IS NULL, NOT NULL IS NULL
SELECT true, false, true AND NULL, false AND NULL, true OR NULL
SELECT 1 WHERE 1 > 2
SELECT 'x' = 'x', 'a' < 'B', 'a' <> 'b'
SELECT '2024-01-01 00:00:00+00'::timestamptz
SELECT cast('102be9bf-215f-4180-b4c9-cc11983e988d' AS uuid)
SELECT cast(1.5 AS int), cast(2.5 AS int), cast(-1.5 AS int), cast('2.5'::double precision AS int)
SELECT cast('  42 ' AS int), cast('t' AS boolean), cast('1e3' AS double precision)
SELECT 0.1 + 0.2, 0.1 + 0.2 = 0.3
SELECT 100000000000000000000000000000000000 + 1
SELECT 1.0 / 3, 2.0 / 3, 10.0 / 3, 1 / 3.0, 1000000 / 7.0, 0.00001 / 3
SELECT 2.0 / 0.0000003, 1 / 7000.0, 123456 / 0.007, 0.0000000001 / 3, 99999999 / 3.0, 5 / 10000.0
SELECT 123456789.123 / 0.0001, 0.9999 / 9999, 10000 / 3.0, 9999 / 10000.0, -1 / 3.0, 1.23456789 * 9.87654321
SELECT 10.5 % 3, -10.5 % 3, 10 % 2.5, round(0.5), round(1.005, 2), round(-0.45, 1), trunc(-1.99, 1)
SELECT a, b FROM (SELECT 1 AS a, 2 AS b UNION ALL SELECT 3, 4) x WHERE NOT (a = 1 AND b = 2)
SELECT /*+ hint */ id /* a /* nested */ one */ FROM item -- the end
SELECT count(*) FROM item WHERE s ~ '^a.*e$'
SELECT count(*) FROM item WHERE s !~ 'p' OR s ~* '^BAN'
SELECT count(*) FROM item WHERE s OPERATOR(pg_catalog.~) '^(apple)$' COLLATE pg_catalog.default
SELECT count(*) FROM item WHERE n = ANY(ARRAY[10, 7]) AND pg_catalog.length(s) > 1
SELECT id::pg_catalog.int8, s COLLATE "C" FROM item
SELECT count(*) FROM item WHERE s NOT LIKE 'a!%%' ESCAPE '!'
SELECT count(*) FROM item WHERE n NOT IN (SELECT no FROM part WHERE no IS NOT NULL)
SELECT NULL FROM item HAVING count(*) > 5
SELECT 1 FROM item HAVING count(*) > 500
SELECT round(2.5), round(-2.5), round(2.345, 2), round(1234.5, -2), trunc(2.7), trunc(-2.7)
SELECT floor(-1.5), ceil(-1.5), floor(1.5e0), ceil(1.2e0), abs(-3), abs(-1.5)
SELECT coalesce(NULL, 2), coalesce(NULL, NULL, 'x'), nullif(1, 1), nullif(1, 2)
SELECT greatest(1, 2.5, NULL), least(3, 1, 2)
SELECT lower('ABC'), upper('abc'), length('żółć'), trim('  x '), trim(leading 'x' from 'xxax')
SELECT substr('hello', 2, 3), substring('hello' from 2), substring('hello' for 2), substr('hello', 0, 3)
SELECT 'abc' LIKE 'a_c', 'abc' LIKE 'A%', 'abc' ILIKE 'A%', 'a%c' LIKE 'a\\%c'
SELECT 5 BETWEEN 1 AND 10, 5 BETWEEN 10 AND 1, 5 BETWEEN SYMMETRIC 10 AND 1
SELECT 1 IN (1, 2), 3 IN (1, 2), 3 IN (1, NULL), NULL IN (1)
SELECT CASE WHEN 1 = 1 THEN 'yes' END, CASE 2 WHEN 1 THEN 'a' ELSE 'b' END
SELECT EXISTS (SELECT 1 FROM item WHERE n > 100), EXISTS (SELECT 1 FROM item WHERE n > 10000000)
SELECT (SELECT max(n) FROM item), (SELECT count(*) FROM part)
SELECT (SELECT s FROM item WHERE id = 1)
SELECT (SELECT s FROM item WHERE id = 1000)
SELECT 1 UNION SELECT 1
SELECT 1 UNION ALL SELECT 1
SELECT 1 UNION SELECT 1.5
SELECT NULL UNION SELECT 1
VALUES (1, 'a'), (2, 'b')
VALUES (1, 1.5), (2.5, 2)
SELECT * FROM (VALUES (1, 'a'), (2, 'b')) AS v(x, y) WHERE x > 1
SELECT grp, n FROM item EXCEPT SELECT 1, 10
SELECT note FROM part INTERSECT SELECT s FROM item
SELECT n FROM item UNION SELECT price FROM part
SELECT DISTINCT n FROM item
SELECT DISTINCT d FROM item
SELECT DISTINCT at FROM item
SELECT DISTINCT i.grp FROM item i JOIN part p ON i.id = p.item_id
SELECT grp FROM item GROUP BY grp HAVING sum(n) > 5
SELECT grp FROM item GROUP BY grp HAVING count(*) = (SELECT max(id) FROM kind WHERE id < 4)
SELECT count(*) FROM item HAVING count(*) > 100
SELECT count(*) FROM item HAVING count(*) > 5
SELECT ok, count(*) FROM item GROUP BY ok
SELECT n > 5, count(*) FROM item GROUP BY n > 5
SELECT at, count(*) FROM item GROUP BY at
SELECT d, count(*) FROM item GROUP BY d
SELECT f, count(*) FROM item GROUP BY f
SELECT grp, ok, count(*), sum(d) FROM item GROUP BY grp, ok
SELECT count(*) FROM (SELECT DISTINCT grp, ok FROM item) x
SELECT count(DISTINCT note), count(note), min(note) FROM part
SELECT p.note, count(DISTINCT i.grp) FROM item i JOIN part p ON i.id = p.item_id GROUP BY p.note
SELECT k.name, count(i.id) FROM kind k LEFT JOIN item i ON i.grp = k.id GROUP BY k.name
SELECT * FROM kind WHERE id = 2
SELECT name, factor * 2 FROM kind WHERE factor IS NOT NULL
SELECT sum(factor), count(*) FROM kind
SELECT k.name FROM kind k WHERE EXISTS (SELECT 1 FROM item i WHERE i.grp = k.id AND i.n > 100)
SELECT k.name, (SELECT count(*) FROM item i WHERE i.grp = k.id) FROM kind k
SELECT * FROM item WHERE id = 1 AND id = 2
SELECT * FROM item WHERE id = NULL
SELECT * FROM item WHERE id = 1 + 1
SELECT * FROM item WHERE id = (SELECT 3)
SELECT * FROM part WHERE item_id = 4 AND no > 1
SELECT i.s, p.note FROM item i JOIN part p ON i.id = p.item_id WHERE i.id = 4
SELECT i.s, p.note FROM item i LEFT JOIN part p ON i.id = p.item_id WHERE i.id = 5
SELECT i.s FROM item i WHERE i.id = 4 AND EXISTS (SELECT 1 FROM part p WHERE p.item_id = i.id)
SELECT i.s FROM item i WHERE i.id = 4 AND i.id IN (SELECT item_id FROM part)
WITH x AS (SELECT * FROM item WHERE id = 4) SELECT x.s, p.no FROM x JOIN part p ON p.item_id = x.id
SELECT * FROM (SELECT id, s FROM item) x WHERE id = 7
SELECT extract(year from at), extract(month from at) FROM item WHERE at IS NOT NULL
SELECT to_char(at, 'YYYY-MM-DD HH24:MI:SS') FROM item
SELECT 9223372036854775807, -9223372036854775807
SELECT min(u::text), max(u::text) FROM item
SELECT string_agg(s, ',' ORDER BY id) FROM item
SELECT count(*) FROM item a JOIN item b ON a.id = b.id JOIN item c ON b.id = c.id
SELECT count(*) FROM item a LEFT JOIN item b ON a.id = b.n
SELECT count(*), count(b.id) FROM item a LEFT JOIN item b ON a.id = b.n LEFT JOIN part p ON p.item_id = b.id
SELECT count(*) FROM item a FULL JOIN part b ON a.id = b.no AND a.n > 1
SELECT a.id FROM item a JOIN part p ON p.item_id = a.id AND p.no = 1 WHERE p.note = 'x'
SELECT a.id, p.no FROM item a LEFT JOIN part p ON p.item_id = a.id AND p.no = 1 WHERE p.note IS NULL
SELECT a.id, p.no FROM item a LEFT JOIN part p ON p.item_id = a.id AND a.n > 5
SELECT x.c FROM (SELECT count(*) AS c FROM item WHERE grp = 1) x, (SELECT count(*) AS c FROM part) y WHERE x.c < y.c
SELECT sum(x) FROM (SELECT n AS x FROM item UNION ALL SELECT no FROM part) u
SELECT count(*) FROM (SELECT grp FROM item UNION SELECT no FROM part) u
SELECT id FROM item WHERE id < 5 AND (SELECT count(*) FROM part WHERE part.item_id = item.id) > 1
SELECT sum(CASE WHEN ok THEN n ELSE -n END), count(CASE WHEN ok THEN 1 END) FROM item
SELECT max(n) - min(n), sum(n) / count(n), count(*) * 2 FROM item
""".replace("\\\\", "\\")

#: Statements that fail, with PostgreSQL as the judge of the SQLSTATE's class.
ERRORS = """
SELECT 1 / 0
SELECT id / (n - n) FROM item WHERE n IS NOT NULL
SELECT 1 % 0
SELECT 1.5 / 0
SELECT 1e0 / 0
SELECT 9223372036854775807 + id FROM item
SELECT 9223372036854775807 * n FROM item WHERE n > 1
SELECT 1e308 * 10 * f FROM item WHERE f = 1.0
SELECT cast('abc' AS int)
SELECT cast('1.5' AS int)
SELECT cast(s AS int) FROM item WHERE id = 1
SELECT cast('99999999999999999999' AS bigint)
SELECT cast(1e30 AS bigint)
SELECT cast('maybe' AS boolean)
SELECT cast('zz' AS uuid)
SELECT cast('yesterday-ish' AS timestamptz)
SELECT nope FROM item
SELECT item.nope FROM item
SELECT x.id FROM item
SELECT id FROM nowhere
SELECT id FROM item, part, item
SELECT id FROM item a JOIN item b ON a.id = b.id
SELECT no FROM part p JOIN pair q ON p.nope = q.a
SELECT grp, n FROM item GROUP BY grp
SELECT n FROM item HAVING count(*) > 1
SELECT sum(count(*)) FROM item
SELECT id FROM item WHERE count(*) > 1
SELECT id FROM item WHERE row_number() OVER () > 1
SELECT nosuchfunction(1)
SELECT lower(1)
SELECT sum(s) FROM item
SELECT id FROM item WHERE s
SELECT id FROM item WHERE n
SELECT id FROM item WHERE s = 1
SELECT id FROM item WHERE id = 'abc'
SELECT 'a' + 1
SELECT s + 1 FROM item
SELECT ok + 1 FROM item
SELECT -s FROM item
SELECT NOT n FROM item
SELECT 1 UNION SELECT 'a'
SELECT 1, 2 UNION SELECT 1
SELECT id FROM item ORDER BY 5
SELECT id FROM item ORDER BY nope
SELECT DISTINCT id FROM item ORDER BY n
SELECT id FROM item LIMIT -1
SELECT (SELECT id FROM item)
SELECT (SELECT id, n FROM item)
SELECT id FROM item WHERE id = (SELECT item_id FROM part)
SELECT id FROM item WHERE id IN (SELECT item_id, no FROM part)
SELECT CASE WHEN 1 THEN 2 END
SELECT CASE WHEN true THEN 1 ELSE 'x' END
SELECT coalesce(1, 'x')
SELECT substr('abc', 1, -1)
SELECT * FROM (VALUES (1), (2, 3)) v
INSERT INTO item (id, id) VALUES (1, 2)
INSERT INTO item (nope) VALUES (1)
INSERT INTO item (id) VALUES (1, 2)
INSERT INTO item (id, n) VALUES (100)
INSERT INTO item (id, n) VALUES (100, 'abc')
INSERT INTO item (id, ok) VALUES (100, 5)
INSERT INTO item (id) VALUES (1)
INSERT INTO item (id) VALUES (NULL)
INSERT INTO item (n) VALUES (1)
INSERT INTO kind (id) VALUES (1)
INSERT INTO kind (name) VALUES ('x')
INSERT INTO nowhere VALUES (1)
UPDATE item SET nope = 1
UPDATE item SET n = 'x' WHERE id = 1
UPDATE item SET n = n / 0 WHERE id = 1
UPDATE item SET n = 1, n = 2
UPDATE nowhere SET a = 1
DELETE FROM nowhere
DELETE FROM item WHERE nope = 1
SELECT FROM WHERE
SELECT 1 +
SELEC 1
SELECT id FROM item WHERE
SELECT (1
SELECT 'abc
SELECT a FROM item GROUP
INSERT INTO item
UPDATE item
""".replace("\\\\", "\\")

#: DML with the query that shows what it did; run in order on both sides.
WRITES = [
    ("INSERT INTO spare SELECT id, n, s, d FROM item WHERE id <= 5", "spare"),
    ("INSERT INTO spare (id, s) VALUES (100, 'hundred'), (101, 'x' || 'y'), (102, NULL)", "spare"),
    ("UPDATE spare SET n = n + 1 WHERE id = 1", "spare"),
    ("UPDATE spare SET n = n * 2, s = upper(s)", "spare"),
    ("UPDATE spare SET d = d * 1.5 WHERE d > 1", "spare"),
    ("UPDATE spare SET n = kind.id FROM kind WHERE kind.id = spare.id", "spare"),
    ("UPDATE spare SET s = p.note FROM part p WHERE p.item_id = spare.id AND p.no = 1", "spare"),
    ("UPDATE spare SET s = i.s FROM item i WHERE i.n = spare.n", "spare"),
    ("UPDATE spare SET n = (SELECT max(no) FROM part)", "spare"),
    ("UPDATE spare SET n = (SELECT count(*) FROM part WHERE part.item_id = spare.id)", "spare"),
    ("UPDATE spare SET s = NULL WHERE id IN (SELECT item_id FROM part WHERE price < 1)", "spare"),
    ("UPDATE spare SET s = 'in' WHERE n IN (SELECT no FROM part)", "spare"),
    ("DELETE FROM spare WHERE id = 2", "spare"),
    ("DELETE FROM spare WHERE s IS NULL AND id > 100", "spare"),
    ("DELETE FROM spare WHERE id IN (3, 4, 77)", "spare"),
    ("DELETE FROM spare WHERE NOT EXISTS (SELECT 1 FROM item WHERE item.id = spare.id)", "spare"),
    ("DELETE FROM spare WHERE n > (SELECT avg(n) FROM item)", "spare"),
    (
        "INSERT INTO spare (id, n) SELECT grp * 1000, count(*) FROM item WHERE grp > 0 GROUP BY grp",
        "spare",
    ),
    ("INSERT INTO spare (id, d) SELECT 5000, sum(price) FROM part", "spare"),
    ("INSERT INTO spare (id, n) VALUES ((SELECT max(id) FROM item) + 6000, 1)", "spare"),
    ("INSERT INTO spare (id, s) VALUES (1, 'dup') ON CONFLICT DO NOTHING", "spare"),
    ("INSERT INTO spare (id, s) VALUES (9001, 'a'), (9002, 'b') ON CONFLICT DO NOTHING", "spare"),
    ("DELETE FROM spare", "spare"),
    ("INSERT INTO kind VALUES (20, 'twenty', 1.25), (21, NULL, NULL)", "kind"),
    ("INSERT INTO kind VALUES (20, 'again', 0) ON CONFLICT DO NOTHING", "kind"),
    ("INSERT INTO kind (id, name) SELECT id + 100, s FROM item WHERE id < 4", "kind"),
    ("INSERT INTO kind (id, name) SELECT id + 1000, name FROM kind WHERE id < 4", "kind"),
    ("UPDATE kind SET factor = 3 WHERE id = 20", "kind"),
    ("UPDATE kind SET factor = factor + 1, name = name || '+' WHERE id > 2", "kind"),
    ("UPDATE kind SET name = i.s FROM item i WHERE i.id = kind.id", "kind"),
    ("UPDATE kind SET factor = (SELECT sum(price) FROM part) WHERE id = 1", "kind"),
    ("DELETE FROM kind WHERE id = 21", "kind"),
    ("DELETE FROM kind WHERE id IN (SELECT id + 100 FROM item)", "kind"),
    ("DELETE FROM kind WHERE id >= 20", "kind"),
    ("UPDATE note SET tag = 'z' WHERE n > 2", "note"),
    ("UPDATE note SET tag = tag || id", "note"),
    ("UPDATE note SET tag = 'same', n = n + 1 WHERE id = 1", "note"),
    ("UPDATE note SET id = id + 10, n = id WHERE n > 1", "note"),
    ("UPDATE spare SET id = 7 WHERE id <> 7", "spare"),
    ("UPDATE spare SET id = -id, d = d + 0.50 WHERE id IN (SELECT item_id FROM part)", "spare"),
    ("UPDATE part SET no = no + 7 WHERE item_id < 4", "part"),
    ("UPDATE pair SET a = a + 5, b = b || '!' FROM kind k WHERE k.id = pair.a", "pair"),
    ("DELETE FROM note WHERE tag = 'same'", "note"),
]


def lines(text: str) -> list[str]:
    return [line for line in text.strip().splitlines() if line.strip()]
