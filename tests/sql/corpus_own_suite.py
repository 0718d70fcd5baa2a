"""What PostgreSQL's own test suite found, in statements of our own: each with one answer."""

# ruff: noqa: E501 (a statement is one line)

TABLES = r"""
CREATE TABLE plant (id bigint PRIMARY KEY, height bigint, kind text, seen timestamp, care jsonb)
INSERT INTO plant VALUES (1,7,'fern','2024-03-01 09:05:07','{"water":[1,"two",null,{"by":"can"}],"1":"one"}'),(2,3,'moss','2023-12-31 23:59:59.25','[10,20,[30,40]]'),(3,9,'fern','2021-01-04 00:00:00','"dry"'),(4,1,'oak',NULL,NULL),(5,5,'moss','1999-07-08 12:30:00','{}'),(6,8,'oak','2000-02-29 15:45:30','{"water":{"0":"zero"}}')
"""

#: Rows, names and types as of PostgreSQL.
ASKED = r"""
SELECT div(99999999999999999999::numeric, 100000000000000000000) AS a, div(-99999999999999999999::numeric, 10000000000000000000) AS b, div(7.5, 2) AS c
SELECT div(1::numeric, 0)
SELECT id, care['water'][1] AS a, care['water']['3']['by'] AS b, care[2][0] AS c, care[-1] AS d, care['1'] AS e, care[1] AS f, care[NULL] AS g FROM plant ORDER BY id
SELECT care['water'][0:1] FROM plant
SELECT (care->'water')['0'] AS x FROM plant WHERE care['water']['0'] = '"zero"'
SELECT interval '3' year to month AS a, interval '4' hour to second AS b, interval '2.345' second(1) AS c, '2.355'::interval(2) AS d, '-0.5'::interval(0) AS e, interval '6' minute AS f
SELECT to_timestamp('24-March 3 9:05 p.m.', 'YY-FMMonth DD HH12:MI P.M.')::text AS a, to_timestamp('2024$03!04 05_06_07', 'YYYY-MM-DD HH24:MI:SS')::text AS b, to_timestamp('1985 \ 12', 'YYYY \ MM')::text AS c
SELECT to_date('4Q24 day 60 of 2024', '"xQxx day "DDD" of "YYYY') AS a, to_date('2024 60', 'YYYY DDD') AS b, to_date('20240305', 'YYYYMMDD') AS c, to_date('5th of May, 24', 'DDth "of" Month, YY') AS d
SELECT to_date('2024-09', 'IYYY-IW') AS a, to_date('2024-09-3', 'IYYY-IW-ID') AS b, to_date('2460000', 'J') AS c, to_date('21 24', 'CC YY') AS d, to_date('2,024', 'Y,YYY') AS e, to_date('XI 2020', 'RM YYYY') AS f
SELECT to_timestamp('2024-03-04 05:06:07.25 +02:30', 'YYYY-MM-DD HH24:MI:SS.MS TZH:TZM')::text AS a, to_timestamp('3661 2020', 'SSSS YYYY')::text AS b, to_timestamp('12 AM 2020', 'HH AM YYYY')::text AS c
SELECT to_timestamp('20240304050607', 'YYYYMMDDHH24MISS')::text AS a, to_timestamp('2024-03-04   05', 'YYYY-MM-DD HH24')::text AS b, to_timestamp('97/2/16 8:14:30', 'FMYYYY/FMMM/FMDD FMHH:FMMI:FMSS')::text AS c
SELECT to_timestamp('2024-03-04 05:06 -02:30', 'YYYY-MM-DD HH24:MI TZH:TZM')::text AS a, to_timestamp('2024 -10', 'YYYY TZH')::text AS b, to_timestamp('2024 10', 'YYYY TZH')::text AS c
SELECT d, to_timestamp('2024-03-04 05:06:07.98765', 'YYYY-MM-DD HH24:MI:SS.FF' || d)::text AS t FROM generate_series(1, 6) AS d ORDER BY d
SELECT to_date('2023 366', 'YYYY DDD')
SELECT to_date('2023-02-30', 'YYYY-MM-DD')
SELECT to_timestamp('2024-Jan-02-03', 'YYYY-Mon-MM-DD')
SELECT to_timestamp('14:00 PM', 'HH:MI PM')
SELECT to_date('Foo 2020', 'Mon YYYY')
SELECT to_date('2024-09-03', 'YYYY-IW-DD')
SELECT to_timestamp('202', 'YYYYMM')
SELECT to_char(seen, '"HH24 is" HH24 "\"quoted\"" \"MI\" MI') AS t FROM plant WHERE id < 3 ORDER BY id
SELECT to_char(42.5, '"N\"o" 99D9') AS a, to_char(42, 'a\"x99') AS b, to_char(42, 'a\x99') AS c
SELECT '1e-330'::float8
SELECT E'\u00e4\U0001F600' AS a
SELECT E'\u00e'
SELECT 1 AS
SELECT * FROM plant AS p (a, b, c, d, e, f)
SELECT b FROM plant AS p (a, b) WHERE a = 3
SELECT jsonb_set(care, '{water,NULL}', '1') FROM plant WHERE id = 1
SELECT jsonb_build_object(care, 1) FROM plant
SELECT jsonb_path_query(care, '$ ? (@.water == $what)') FROM plant WHERE id = 6
SELECT v FROM jsonb_path_query('["ab\ncd", "abxcd", "x\nab"]', '$[*] ? (@ like_regex "b.c")') AS v ORDER BY v
SELECT v FROM jsonb_path_query('["ab\ncd", "abxcd", "x\nab"]', '$[*] ? (@ like_regex "^ab" flag "m")') AS v ORDER BY v
SELECT v FROM jsonb_path_query('["ab\ncd", "abxcd", "x\nab"]', '$[*] ? (@ like_regex "b.c" flag "s")') AS v ORDER BY v
SELECT regexp_replace(E'a\nb', 'a.b', 'x', 'p') AS p, regexp_replace(E'a\nb', '^b', 'x', 'w') AS w, regexp_replace(E'a\nb', '^b', 'x', 'm') AS m, regexp_replace(E'a\nb', 'a.b', 'x', 'ns') AS ns
SELECT count(*) OVER w FROM plant WINDOW w AS (ORDER BY id), w AS (ORDER BY height)
SELECT array_agg(id) FROM (SELECT id FROM plant ORDER BY height) AS p
SELECT kind, string_agg(id::text, ',') AS ids, array_agg(height) AS heights FROM (SELECT * FROM plant ORDER BY height DESC) AS p GROUP BY kind ORDER BY kind
SELECT jsonb_agg(id) AS j FROM (SELECT id FROM plant ORDER BY kind, height) AS p
SELECT id FROM (SELECT id, height FROM plant ORDER BY height) AS p LIMIT 3 -- ORDER BY
SELECT id FROM (SELECT id, height FROM plant ORDER BY height) AS p WHERE height > 3 OFFSET 1 -- ORDER BY
SELECT id FROM (SELECT id FROM plant ORDER BY height LIMIT 4) AS p -- ORDER BY
WITH p AS (SELECT id, height FROM plant ORDER BY 2 DESC) SELECT id FROM p LIMIT 2 -- ORDER BY
SELECT id, row_number() OVER () AS n, lag(id) OVER () AS before FROM (SELECT id FROM plant ORDER BY height) AS p -- ORDER BY
SELECT id, first_value(id) OVER () AS a, last_value(id) OVER () AS b, count(*) OVER () AS n FROM (SELECT id FROM plant ORDER BY height) AS p ORDER BY id
SELECT id, count(*) OVER (ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) AS n, array_agg(id) OVER (ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) AS ids FROM (SELECT id FROM plant ORDER BY height) AS p ORDER BY id
SELECT x FROM (SELECT id AS x FROM plant UNION ALL SELECT height FROM plant ORDER BY 1 DESC) AS p LIMIT 4 -- ORDER BY
SELECT array(SELECT id FROM (SELECT id FROM plant ORDER BY height) AS p) AS ids
SELECT kind FROM (SELECT kind, count(*) FROM plant GROUP BY kind ORDER BY count(*), max(height) DESC) AS p -- ORDER BY
SELECT * FROM (SELECT * FROM (SELECT id, kind FROM plant ORDER BY kind DESC, height) AS a) AS b LIMIT 3 -- ORDER BY
"""

#: What PostgreSQL has, and what would have been answered wrongly.
REFUSED = r"""
SELECT DISTINCT ON (kind) kind, generate_series(1, 2) FROM plant ORDER BY kind, id
SELECT kind, rank(kind) WITHIN GROUP (ORDER BY kind) FROM plant GROUP BY ROLLUP (kind)
SELECT CAST(kind AS interval(2)) FROM plant WHERE id = 0
SELECT to_timestamp('2024 CET', 'YYYY TZ')
SELECT to_char(0, 'B99')
"""
