"""Statements that other people's test suites send, and types that they need: each with one answer."""

# ruff: noqa: E501 (a statement is one line)

TABLES = r"""
CREATE TABLE opening (id bigint PRIMARY KEY, at time, until time(0), seal bytea, times time[], seals bytea[], day date)
INSERT INTO opening VALUES (1,'09:30','17:00:00.4','\x00ff10','{09:00,12:30:00.25,NULL}','{"\\x00","\\xff",NULL}','2024-03-01'),(2,'9:05:07.5 PM','23:59:59','abc','{}','{}','2024-02-29'),(3,NULL,NULL,NULL,NULL,NULL,NULL),(4,'00:00','00:00:00.5','','{23:59:59.999999}','{"\\x6162"}','2023-12-31'),(5,'09:30:00','12:00','a\\001\\\\b',NULL,NULL,'2024-03-01')
"""

#: Rows, names and types as of PostgreSQL.
ASKED = r"""
SELECT user = current_user AS same
SELECT int4 '7' + int2 '1' AS n, float8 '1.5' AS f, varchar 'a' || text 'b' AS s, bool 't' AS b, int4 '3'::text AS t
SELECT regexp_replace('AAA', '^|$', 'Z', 'g'), regexp_replace('AAA', 'A*', 'Z', 'g'), regexp_count('AAA', '$')
SELECT substring('abcdefg' SIMILAR 'a*#"%#"g*' ESCAPE '#'), substring('abcdefg' SIMILAR 'a#"(b)(c)#"%' ESCAPE '#'), substring('abcdefg' SIMILAR 'a#"%g' ESCAPE '#')
SELECT 'abc' SIMILAR TO 'a#"b#"c#"' ESCAPE '#'
SELECT rank() OVER (ORDER BY id), count(*) FROM opening GROUP BY 1
SELECT (SELECT max(o.id) FILTER (WHERE count(o.at) > 0) FROM opening i) FROM opening o
SELECT (id + 1) * 2 AS x, count(*) FROM opening GROUP BY GROUPING SETS (id + 1, day) ORDER BY 1
SELECT day, id, count(*) FROM opening GROUP BY DISTINCT ROLLUP (day, id), ROLLUP (day) ORDER BY 1, 2, 3
SELECT (WITH c (x) AS (VALUES (o.id)) SELECT (SELECT x FROM c)) AS y FROM opening o ORDER BY 1
SELECT (SELECT max(x) FROM (VALUES (o.id), (length(o.seal)), (2)) AS c (x)) AS y FROM opening o ORDER BY o.id
SELECT ROW() = ROW()
SELECT * FROM unnest(ARRAY[1,2,3], ARRAY['a','b']) AS t(n, s)
SELECT * FROM unnest('{1.5,2}'::numeric[], '{a,NULL,c}'::text[], NULL::date[], '{t}'::boolean[])
SELECT n, s, o FROM unnest(ARRAY['2024-01-01'::date], ARRAY['x','y']) WITH ORDINALITY AS t(n, s, o) ORDER BY o
SELECT o.id, t.a, t.b FROM opening o, unnest(o.times, o.seals) AS t(a, b) ORDER BY 1, 2, 3
SELECT o.id, t.b FROM opening o LEFT JOIN LATERAL unnest(o.times, o.seals) AS t(a, b) ON true ORDER BY 1, 2
SELECT * FROM unnest(ARRAY[]::int[], ARRAY[]::text[])
SELECT '12:30:45'::time, '12:30'::time, '4:05 am'::time, '2024-01-01 10:20:30'::time, '10:00:00.123456789'::time
SELECT id, at, until, at::text, until::text FROM opening ORDER BY id
SELECT id FROM opening WHERE at > '09:30' ORDER BY at
SELECT id, at FROM opening ORDER BY at DESC NULLS LAST, id
SELECT at, count(*) FROM opening GROUP BY at ORDER BY at NULLS FIRST
SELECT DISTINCT at FROM opening ORDER BY 1
SELECT min(at), max(until), sum(at), avg(at), count(DISTINCT at) FROM opening
SELECT extract(hour FROM at), extract(minute FROM at), extract(second FROM at), extract(milliseconds FROM at), extract(microseconds FROM at), extract(epoch FROM at) FROM opening ORDER BY id
SELECT date_part('hour', at), date_part('second', at) FROM opening ORDER BY id
SELECT extract(day FROM time '10:00')
SELECT extract(wibble FROM time '10:00')
SELECT date_trunc('hour', at), date_trunc('minute', at) FROM opening ORDER BY id
SELECT at + interval '15 hours', at - interval '1 day 1 minute', interval '90 minutes' + at, at - time '10:00', until - at FROM opening ORDER BY id
SELECT day + at, at + day, timestamp '2024-01-01' + time '10:00', timestamp '2024-01-01 12:00' - time '10:00', timestamptz '2024-01-01 00:00+00' + time '01:00' FROM opening ORDER BY id
SELECT at::interval, interval '26 hours 5 minutes'::time, interval '-1 hour'::time, timestamp '2024-01-01 10:11:12.5'::time, timestamptz '2024-01-01 10:11:12+02'::time FROM opening ORDER BY id
SELECT to_char(at, 'HH24:MI:SS'), to_char(at, 'HH12:MI AM') FROM opening ORDER BY id
SELECT make_time(8, 15, 23.5), '10:00:00.6'::time(0), '10:00:00.123456'::time(3), CAST('10:00' AS time without time zone)
SELECT timestamp '2024-01-01 10:00'::date, date '2024-01-01'::text, time '10:00'::interval, interval '1 hour'::text, date '2024-01-01'::timestamp::text, '{1,2}'::int[], int '7'::text
SELECT to_char(interval '13 hours', 'HH12 AM'), to_char(interval '1 hour', 'HH am'), to_char(time '12:00', 'HH12 pm')
SELECT ('{"a": "b", "c": [1, "x"]}'::json -> 'a')::text, ('{"a":"b"}'::jsonb -> 'a')::text = '"b"', CAST('"x"'::json AS varchar), ('{"a":"b"}'::json ->> 'a')::text, to_json('x'::text)::text
SELECT v::text FROM json_array_elements('["a",1,null]') AS v
SELECT id, to_jsonb(at)::text || '!' FROM opening ORDER BY id
SELECT timestamptz '2024-01-01 10:00+00' + '1 day', '2 hours' + timestamp '2024-01-01 10:00', timestamp '2024-01-01' + '1 month -1 day'
SELECT cot(1.0::float8), cot(-0.5::float8), log(2, 64)::float8, log(10.0, 1000)::float8
SELECT log(1, 5)
SELECT log(0, 1)
SELECT make_time(8, 60, 0)
SELECT '25:00'::time
SELECT '10:61'::time
SELECT 'x10'::time
SELECT pg_typeof(time '10:00')::text, pg_typeof('a'::bytea)::text, pg_typeof(ARRAY[time '10:00'])::text
SELECT id FROM opening WHERE at BETWEEN '09:00' AND '10:00' ORDER BY id
SELECT id FROM opening WHERE at IN ('09:30', '00:00') ORDER BY id
SELECT coalesce(at, '12:34'), greatest(at, '12:00'::time), nullif(at, '09:30') FROM opening ORDER BY id
SELECT times[1], times[2], cardinality(times), array_to_string(times, ',') FROM opening ORDER BY id
SELECT array_agg(at ORDER BY id), array_agg(seal ORDER BY id) FROM opening
SELECT to_json(at), to_jsonb(seal), json_build_object('at', at) FROM opening ORDER BY id
SELECT lag(at) OVER (ORDER BY id), first_value(seal) OVER (ORDER BY id) FROM opening ORDER BY id
SELECT a.id, b.id FROM opening a JOIN opening b ON a.at = b.at ORDER BY 1, 2
SELECT a.id, b.id FROM opening a JOIN opening b ON a.seal = b.seal ORDER BY 1, 2
SELECT id, seal, seal::text FROM opening ORDER BY id
SELECT id FROM opening WHERE seal = '\x00ff10' OR seal = 'abc'::bytea ORDER BY id
SELECT id, seal FROM opening ORDER BY seal NULLS FIRST, id
SELECT id FROM opening WHERE seal > 'a' AND seal <= '\xff' ORDER BY id
SELECT seal, count(*) FROM opening GROUP BY seal ORDER BY seal NULLS LAST
SELECT length(seal), octet_length(seal), bit_length(seal), md5(seal) FROM opening ORDER BY id
SELECT encode(seal, 'hex'), encode(seal, 'base64'), encode(seal, 'escape') FROM opening ORDER BY id
SELECT encode(decode(repeat('6162', 50), 'hex'), 'base64')
SELECT decode('616263', 'hex'), decode('YWJj', 'base64'), decode('a\\000b', 'escape')
SELECT decode('6z', 'hex')
SELECT encode('a', 'wibble')
SELECT seal || '\x01'::bytea, 'a'::bytea || 'b' || 'c' FROM opening ORDER BY id
SELECT substring(seal from 2 for 1), substring(seal from 2), substr(seal, 1, 2), substr(seal, -1, 3) FROM opening ORDER BY id
SELECT get_byte('abc'::bytea, 1), set_byte('abc'::bytea, 0, 66)
SELECT get_byte('abc'::bytea, 3)
SELECT sha224('abc'), sha256('abc'::bytea), sha384('abc'), sha512('abc')
SELECT convert_to('żó', 'UTF8'), convert_from('\xc3a9'::bytea, 'UTF8')
SELECT convert_from('\xff'::bytea, 'UTF8')
SELECT 'abc'::text::bytea, '\x6162'::bytea, '\x 61 62'::bytea, E'\\x61'::bytea, ''::bytea
SELECT '\x6'::bytea
SELECT '\xzz'::bytea
SELECT 'a\1'::bytea
SELECT seals[2], seals, cardinality(seals), seals = '{"\\x00","\\xff",NULL}' FROM opening ORDER BY id
SELECT length('abc'), md5('abc'), octet_length('żó'), substring('abc' from 2)
SELECT CASE WHEN at IS NULL THEN 'closed' ELSE at::text END FROM opening ORDER BY id
SELECT ascii('x'), chr(65), md5('abc'), encode('abc'::bytea, 'hex'), quote_ident('Foo bar'), quote_literal('O''Reilly'), quote_nullable(NULL), to_hex(2147483647)
SELECT at FROM opening UNION SELECT until FROM opening ORDER BY 1
SELECT seal FROM opening EXCEPT SELECT 'abc' ORDER BY 1
VALUES (time '10:00', 'a'::bytea), ('11:00', 'b')
"""

#: Not there: refused by name.
REFUSED = r"""
SELECT json_each('{"a": 1}')
SELECT id, jsonb_each_text('{"a": 1}') FROM opening
SELECT jsonb_object_agg(DISTINCT 'a', 'b')
SELECT '10:00'::timetz
SELECT '10:00'::time with time zone
SELECT current_time
SELECT '1'::bit(3)
SELECT '{1,2}'::int4range
"""
