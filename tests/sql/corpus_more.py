"""What people type beyond the reference's SQL, each with one answer whoever is asked."""

# ruff: noqa: E501 (a statement is one line)

from __future__ import annotations

#: The order of rows is part of the answer.
MORE_ORDERED = """
SELECT id FROM item ORDER BY id FETCH FIRST 3 ROWS ONLY
SELECT id FROM item ORDER BY id FETCH FIRST ROW ONLY
SELECT id FROM item ORDER BY id OFFSET 2 ROWS FETCH NEXT 2 ROWS ONLY
SELECT id, date_trunc('month', at), date_trunc('day', at), date_trunc('hour', at) FROM item ORDER BY id
SELECT id, date_trunc('week', at), date_trunc('quarter', at), date_trunc('year', at) FROM item ORDER BY id
SELECT id, date_trunc('decade', at), date_trunc('century', at), date_trunc('milliseconds', at) FROM item ORDER BY id
SELECT id, extract(dow FROM at), extract(isodow FROM at), extract(doy FROM at), extract(week FROM at) FROM item ORDER BY id
SELECT id, extract(quarter FROM at), extract(century FROM at), extract(decade FROM at), extract(epoch FROM at) FROM item ORDER BY id
SELECT id, extract(second FROM at), extract(milliseconds FROM at), extract(microseconds FROM at), extract(isoyear FROM at) FROM item ORDER BY id
SELECT id, date_part('year', at), date_part('second', at) FROM item ORDER BY id
SELECT id, at + interval '1 day', at - interval '2 hours 30 minutes', at + interval '1 month' FROM item ORDER BY id
SELECT id, at + '1 year 2 mons 3 days 04:05:06'::interval, at - interval '1' day FROM item ORDER BY id
SELECT id FROM item WHERE at > '2024-01-02'::timestamptz - interval '1 day' ORDER BY id
SELECT id FROM item WHERE at BETWEEN '2024-01-01'::timestamptz - interval '5 days ago' AND '2025-01-01' ORDER BY id
SELECT n FROM generate_series(1, 5) AS n ORDER BY n
SELECT * FROM generate_series(10, 1, -3) ORDER BY 1
SELECT * FROM generate_series(10, 1)
SELECT * FROM generate_series(1, 10, -1)
SELECT * FROM generate_series(NULL::bigint, 3)
SELECT * FROM generate_series(1, 10, 4)
SELECT * FROM generate_series(9223372036854775800, 9223372036854775807, 5)
SELECT * FROM generate_series(-9223372036854775800, -9223372036854775807, -5)
SELECT * FROM generate_series(-9223372036854775808, 9223372036854775807, 9223372036854775807)
SELECT * FROM generate_series(1, 3, 0)
SELECT n, m FROM generate_series(1, 2) n, generate_series(1, n) m ORDER BY 1, 2
SELECT n, at FROM generate_series(5, 7) WITH ORDINALITY AS g(n, at)
SELECT count(*) FROM generate_series(1, 1200000)
SELECT a.n, b.n FROM generate_series(1, 3) a(n) LEFT JOIN generate_series(2, 4) b(n) ON a.n = b.n ORDER BY 1
SELECT g.x * 2 FROM generate_series(1, 3) AS g(x) ORDER BY 1
SELECT n, s FROM generate_series(0, 4) AS n LEFT JOIN item ON item.id = n ORDER BY n
SELECT i.id, n FROM item i JOIN generate_series(1, 3) AS n ON n = i.grp ORDER BY 1, 2
SELECT n, (SELECT count(*) FROM item WHERE grp = n) FROM generate_series(1, 4) AS n ORDER BY n
SELECT u FROM unnest(ARRAY['b', 'a', NULL]) AS u ORDER BY u
SELECT id FROM item WHERE id = ANY(ARRAY[1, 3, 99]) ORDER BY id
SELECT id FROM item WHERE id = ANY('{2,4,NULL}') ORDER BY id
SELECT id FROM item WHERE id = ANY('{2,4}'::bigint[]) OR id = 9 ORDER BY id
SELECT id FROM item WHERE s = ANY('{apple,"a%b_c"}'::text[]) ORDER BY id
SELECT id FROM item WHERE d = ANY('{1.5,100,-0.0010}'::numeric[]) ORDER BY id
SELECT id FROM item WHERE d = ANY(ARRAY[100, 7]) ORDER BY id
SELECT id FROM item WHERE at = ANY('{"2024-01-01 01:00:00+01"}'::timestamptz[]) ORDER BY id
SELECT id FROM item WHERE u = ANY('{102BE9BF-215F-4180-B4C9-CC11983E988D}'::uuid[]) ORDER BY id
SELECT id FROM item WHERE id <> ALL('{1,2,3}'::bigint[]) ORDER BY id
SELECT id FROM item WHERE NOT id = ANY('{1,2,NULL}'::bigint[]) ORDER BY id
SELECT id FROM item WHERE NOT (n = ANY('{}'::bigint[])) ORDER BY id
SELECT id FROM item WHERE n < ANY(ARRAY[0, 5]) ORDER BY id
SELECT id FROM item WHERE n > ALL(ARRAY[0, 5]) ORDER BY id
SELECT id FROM item WHERE s LIKE ANY(ARRAY['a%', '%rry']) ORDER BY id
SELECT a, b FROM pair WHERE a = ANY('{1,2}'::bigint[]) AND b = ANY('{x,y}'::text[]) ORDER BY a, b
SELECT grp, array_agg(id ORDER BY id) FROM item GROUP BY grp ORDER BY grp
SELECT grp, array_agg(s ORDER BY id DESC), array_agg(d ORDER BY id) FROM item GROUP BY grp ORDER BY grp
SELECT grp, stddev(n), variance(n), stddev_pop(n), var_pop(n), var_samp(d) FROM item WHERE id <> 6 GROUP BY grp ORDER BY grp
SELECT stddev(f), var_pop(f), stddev_samp(id), stddev(d) FROM item WHERE id <> 6 ORDER BY 1
SELECT id, stddev(id) OVER (ORDER BY id) FROM item ORDER BY id
SELECT grp, bool_and(ok), bool_or(ok), every(ok) FROM item GROUP BY grp ORDER BY grp
SELECT grp, string_agg(s, '/' ORDER BY s) FROM item GROUP BY grp ORDER BY grp
SELECT id, percent_rank() OVER (ORDER BY id), cume_dist() OVER (ORDER BY id), nth_value(s, 2) OVER (ORDER BY id) FROM item ORDER BY id
SELECT id, n & 6, n | 1, n # 3, ~n, n << 2, n >> 1 FROM item ORDER BY id
SELECT id, 2 ^ id, |/ id FROM item ORDER BY id
SELECT i.id, p.no FROM item i NATURAL JOIN part p ORDER BY 1, 2
SELECT id, split_part(s, 'p', 2), initcap(s), md5(s), octet_length(s) FROM item WHERE id <> 8 ORDER BY id
SELECT id, btrim(s), ltrim(s), rtrim(s), btrim(s, 'ae') FROM item ORDER BY id
SELECT id, concat_ws('-', s, n, NULL, id), translate(s, 'ap', 'xy'), starts_with(s, 'a') FROM item ORDER BY id
SELECT id, regexp_replace(s, 'p+', '<\\&>'), regexp_replace(s, '[aeiou]', '', 'g') FROM item ORDER BY id
SELECT DISTINCT ON (grp) grp, id, s FROM item ORDER BY grp, id DESC
SELECT DISTINCT ON (grp) id FROM item ORDER BY grp, n NULLS FIRST, id LIMIT 2 OFFSET 1
SELECT DISTINCT ON (i.grp, p.no) i.grp, p.no, p.price FROM item i JOIN part p ON p.item_id = i.id ORDER BY i.grp, p.no, p.price DESC
SELECT DISTINCT ON (grp) grp, count(*) AS c FROM item GROUP BY grp, ok ORDER BY grp, c DESC
SELECT DISTINCT ON (id) id, s FROM item WHERE id = 3 ORDER BY id
SELECT g FROM generate_series('2024-01-30'::timestamptz, '2024-04-02', interval '1 month') AS g ORDER BY g
SELECT g FROM generate_series('2024-01-02'::timestamptz, '2024-01-01', interval '-6 hours') AS g ORDER BY g
SELECT id, to_char(at, 'FMDay, DDth FMMonth YYYY'), to_char(at, 'Day DY month MON'), to_char(at, 'HH24:MI:SS.MS') FROM item ORDER BY id
SELECT id, to_char(at, 'D DDD Q WW IW IYYY ID CC YYY YY Y J W'), to_char(at, 'HH12 a.m. HH PM TZ OF "at" SSSS US') FROM item ORDER BY id
SELECT id, to_char(at, 'DD Mon YYYY'), to_char(at, 'HH12:MI AM'), to_char(at, 'YY-MM-DD') FROM item ORDER BY id
"""

MORE_PLAIN = """
SELECT ARRAY[1, 2, 3], ARRAY['a', NULL], (ARRAY[5, 6])[2], (ARRAY[5, 6])[9]
SELECT cardinality(ARRAY[1, 2]), array_length(ARRAY[1, 2], 1), array_length('{}'::bigint[], 1), array_to_string(ARRAY[1, NULL, 3], ',')
SELECT '{1,2}'::bigint[]::text, '{"a b",c}'::text[]
SELECT array_agg(n) FROM item WHERE id < 0
SELECT array_agg(DISTINCT grp), array_agg(DISTINCT s), string_agg(DISTINCT s, ',') FROM item
SELECT count(*) FROM item, generate_series(1, 3) AS n
SELECT sum(n) FROM generate_series(1, 100) AS n
SELECT max(x) FROM unnest('{3,9,4}'::bigint[]) AS x
SELECT 2 ^ 10, -2 ^ 2, 2 ^ 0.5, pow(2, 3)
SELECT 5 & 3, 5 | 3, 5 # 3, ~5, 1 << 3, -8 >> 1
SELECT gcd(12, 18), lcm(4, 6), div(7, 2), div(-7, 2)
SELECT exp(1.0::float8), ln(2.0::float8), log(100.0::float8), pi(), sin(1), cos(1), tan(1), atan2(1, 2), degrees(1)
SELECT chr(65), ascii('A'), translate('abc', 'ab', 'x'), overlay('abcdef' placing 'xx' from 2 for 3)
SELECT split_part('a,b,c', ',', 2), split_part('a,b,c', ',', -1), split_part('a', ',', 5)
SELECT quote_literal('a''b'), quote_ident('A b'), quote_ident('ab'), initcap('hello wORLD-x')
SELECT to_timestamp(0), to_timestamp(1700000000.5), to_timestamp('2024-01-02', 'YYYY-MM-DD')
SELECT to_char('2024-03-05 14:07:09+00'::timestamptz, 'YYYY/MM/DD HH24:MI:SS')
SELECT '2024-01-31'::timestamptz + interval '1 month', '2024-03-31'::timestamptz - interval '1 month'
SELECT greatest(1, 2, 3), least(1, 2, NULL), position('b' in 'abc')
SELECT 5 BETWEEN SYMMETRIC 10 AND 1, 5 NOT BETWEEN SYMMETRIC 10 AND 1, NULL IS DISTINCT FROM 1
SELECT count(*) FROM item JOIN item AS j USING (id)
SELECT now() > '2020-01-01', current_timestamp > '2020-01-01', now() - interval '1 hour' < now()
SELECT '{"a": {"b": "x"}}'::json -> 'a' ->> 'b', '{"a": 1}'::json ->> 'a', '[1, 2]'::json ->> 1
SELECT pg_typeof(1.5), pg_typeof('a'::text), pg_typeof(true)
SELECT count(*) FROM item WHERE random() >= 0 AND gen_random_uuid() IS NOT NULL
"""

#: A write or one with RETURNING, and the table that shows what it did; run in order.
MORE_WRITES = [
    ("INSERT INTO spare (id, n, s) VALUES (1, 10, 'a') RETURNING id, n, s, d", "spare"),
    ("INSERT INTO spare (id, n) VALUES (2, 20), (3, 30), (4, 40) RETURNING *", "spare"),
    (
        "INSERT INTO spare (id, n) VALUES (4, 41), (5, 50) ON CONFLICT DO NOTHING RETURNING id",
        "spare",
    ),
    ("INSERT INTO spare (id, n) VALUES (4, 41) ON CONFLICT (id) DO NOTHING RETURNING id", "spare"),
    (
        "INSERT INTO spare (id, n) SELECT id + 10, n FROM item WHERE id < 5 RETURNING id, n + 1 AS m",
        "spare",
    ),
    (
        "INSERT INTO spare (id, n, s) VALUES (1, 11, 'b') ON CONFLICT (id) DO UPDATE SET n = EXCLUDED.n, s = spare.s || EXCLUDED.s",
        "spare",
    ),
    (
        "INSERT INTO spare (id, n) VALUES (1, 5), (50, 6) ON CONFLICT (id) DO UPDATE SET n = spare.n + EXCLUDED.n RETURNING id, n",
        "spare",
    ),
    (
        "INSERT INTO spare (id, n) VALUES (2, 5) ON CONFLICT (id) DO UPDATE SET n = 0 WHERE spare.n > 100 RETURNING id",
        "spare",
    ),
    (
        "INSERT INTO spare (id, n) VALUES (2, 5), (2, 6) ON CONFLICT (id) DO UPDATE SET n = 0",
        "spare",
    ),
    (
        "INSERT INTO spare AS x (id, n) VALUES (2, 5) ON CONFLICT (id) DO UPDATE SET n = x.n * 2 RETURNING x.n",
        "spare",
    ),
    (
        "INSERT INTO spare (id, n) SELECT id, 7 FROM item WHERE id < 4 ON CONFLICT (id) DO UPDATE SET n = EXCLUDED.n + 100 RETURNING *",
        "spare",
    ),
    (
        "INSERT INTO spare (id, d) VALUES (3, 1.5) ON CONFLICT ON CONSTRAINT spare_pkey DO UPDATE SET (d, s) = (EXCLUDED.d * 2, 'two')",
        "spare",
    ),
    ("UPDATE spare SET n = n + 1 WHERE id = 1 RETURNING id, n", "spare"),
    ("UPDATE spare SET s = 'u' || id WHERE n > 0 RETURNING id, s, n * 2 AS twice", "spare"),
    (
        "UPDATE spare SET s = kind.name FROM kind WHERE kind.id = spare.id RETURNING spare.id, spare.s",
        "spare",
    ),
    (
        "UPDATE spare SET s = i.s FROM item i WHERE i.n = spare.n AND i.n < 0 RETURNING spare.id, spare.s",
        "spare",
    ),
    ("UPDATE spare SET (n, s) = (1, 'both') WHERE id = 2", "spare"),
    ("DELETE FROM spare WHERE id = 1 RETURNING *", "spare"),
    ("DELETE FROM spare USING kind WHERE kind.id = spare.id RETURNING spare.id", "spare"),
    ("DELETE FROM spare USING item i WHERE i.id + 10 = spare.id AND i.n > 5", "spare"),
    ("DELETE FROM spare WHERE id = ANY('{4,5,6}'::bigint[]) RETURNING id", "spare"),
    ("DELETE FROM spare RETURNING id, upper(s)", "spare"),
    ("INSERT INTO kind VALUES (30, 'thirty', 1) RETURNING id, name || '!' AS loud", "kind"),
    (
        "INSERT INTO kind VALUES (30, 'x', 2), (31, 'y', 3) ON CONFLICT (id) DO UPDATE SET name = kind.name || EXCLUDED.name RETURNING *",
        "kind",
    ),
    (
        "INSERT INTO kind VALUES (30, 'z', 2) ON CONFLICT (id) DO UPDATE SET factor = 9 WHERE kind.id > 100 RETURNING id",
        "kind",
    ),
    (
        "INSERT INTO kind VALUES (32, 'x', 2), (32, 'y', 3) ON CONFLICT (id) DO UPDATE SET factor = 9",
        "kind",
    ),
    ("UPDATE kind SET factor = factor * 2 WHERE id >= 30 RETURNING id, factor", "kind"),
    ("DELETE FROM kind WHERE id >= 30 RETURNING *", "kind"),
    ("UPDATE note SET tag = tag || '!' RETURNING id, tag", "note"),
    ("UPDATE note SET tag = 'all' RETURNING id, tag, n", "note"),
    ("DELETE FROM note WHERE tag = 'all' RETURNING id", "note"),
]

#: Slips of beginners. SQLSTATE and place are PostgreSQL's.
SLIPS = """
SELCT * FROM item
SELECT * FORM item
SELECT nmae FROM kind
SELECT kind.nmae FROM kind
SELECT k.name FROM kind
SELECT name FROM kid
SELECT * FROM item WHERE
SELECT * FROM item WHERE id ==1
SELECT * FROM item WHERE s = "apple"
SELECT * FROM item WHERE id = 'abc'
SELECT id, FROM item
SELECT (id FROM item
SELECT id) FROM item
SELECT count(* FROM item
SELECT upper(s, n FROM item
SELECT lenght(s) FROM item
SELECT length(id) FROM item
SELECT length(s, 2) FROM item
SELECT id FROM item ORDER id
SELECT id FROM item GROUP grp
SELECT grp, n FROM item GROUP BY grp
SELECT id FROM item HAVING count(*) > 1
SELECT sum(n) FROM item WHERE sum(n) > 1
SELECT id FROM item ORDER BY 7
SELECT DISTINCT id FROM item ORDER BY n
SELECT id FROM item LIMIT 'x'
SELECT 'abc
SELECT "abc
SELECT id FROM item i JOIN part p ON i.id = p.itemid
SELECT id FROM item a JOIN item b ON a.id = b.id
SELECT id FROM item WHERE id IN ()
SELECT '2024-13-01'::timestamptz
SELECT count(*) FROM item WHERE at > 'not a date'
SELECT id::strin FROM item
SELECT row_number() FROM item
SELECT DISTINCT ON (grp) id FROM item ORDER BY id
SELECT id FROM item UNION SELECT s FROM item
SELECT id, s FROM item UNION SELECT id FROM item
SELECT * FROM item WHERE n IS NUL
INSERT INTO spare (id, nn) VALUES (1, 2)
INSERT INTO spare (id, n) VALUES (1)
INSERT INTO spare (id) VALUES (1, 2)
INSERT INTO spare (id, n) VALUES (1, lower('x'), 2)
INSERT INTO spare VALUES (1, 'abc')
INSERT INTO spare (id, id) VALUES (1, 1)
INSERT INTO spare VALUE (1)
INSERT INTO nowhere VALUES (1)
UPDATE item SET nope = 1
UPDATE item SET n = 'x'
UPDATE item n = 1
DELETE item WHERE id = 1
DELETE * FROM item
DELETE FROM item WHERE nope = 1
WITH x AS (SELECT 1) SELECT * FROM y
"""

#: What is likely to have been meant.
HINTS = {
    "SELECT nmae FROM kind": 'Perhaps you meant to reference the column "kind.name".',
    "SELECT k.nmae FROM kind k": 'Perhaps you meant to reference the column "k.name".',
    "SELECT name FROM kid": 'Perhaps you meant the table "kind".',
    "SELECT lenght(s) FROM item": 'Perhaps you meant the function "length".',
    "SELECT * FORM item": 'Perhaps you meant "FROM".',
    "SELECT id FROM item WERE id = 1": 'Perhaps you meant "WHERE".',
    "INSERT INTO spare (id, nn) VALUES (1, 2)": 'Perhaps you meant to reference the column "spare.n".',
    "UPDATE item SET grpp = 1": 'Perhaps you meant to reference the column "item.grp".',
    "DELETE item WHERE id = 1": "write DELETE FROM",
    "SELECT * FROM item WHERE id == 1": "write =",
}
