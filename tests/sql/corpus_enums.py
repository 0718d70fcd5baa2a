"""Enums: statements for both databases, line by line. `{…}` is how the table is distributed."""

SCRIPT = """
CREATE TYPE mood AS ENUM ('sad', 'ok', 'happy')
CREATE TYPE empty AS ENUM ()
CREATE TYPE other AS ENUM ('ok', 'sad')
CREATE TYPE mood AS ENUM ('a')
CREATE TYPE twice AS ENUM ('a', 'a')
CREATE TYPE long AS ENUM ('aaaaaaaaaabbbbbbbbbbccccccccccddddddddddeeeeeeeeeeffffffffffgggg')
CREATE TYPE "Mixed" AS ENUM ('B', 'a')
CREATE TABLE people (id BIGINT, m mood NOT NULL DEFAULT 'ok', x "Mixed", PRIMARY KEY (id, m)) {}
INSERT INTO people VALUES (1, 'happy', 'a'), (2, 'sad', 'B'), (3, 'ok', NULL), (4, 'sad', 'a')
INSERT INTO people (id) VALUES (5)
INSERT INTO people (id, m) VALUES (6, 'angry')
INSERT INTO people (id, m) VALUES (6, NULL)
INSERT INTO people (id, m) VALUES (6, 7)
INSERT INTO people (id, m) VALUES (6, 'ok'::text)
INSERT INTO people (id, m) SELECT 6, 'happy'
INSERT INTO people (id, m) SELECT 7, 'furious'
INSERT INTO people (id, m) SELECT id + 10, m FROM people WHERE id < 3
INSERT INTO people (id, m) SELECT id + 20, x FROM people WHERE id < 3
INSERT INTO people (id, m) SELECT 30, 'o' || 'k'
INSERT INTO people (id, m) SELECT 30, ('o' || 'k')::mood
SELECT id, m, x FROM people ORDER BY m, id
SELECT id, m FROM people ORDER BY m DESC, id DESC
SELECT id, m FROM people ORDER BY 2, 1 LIMIT 3
SELECT m, count(*) FROM people GROUP BY m ORDER BY m
SELECT m, count(*) FROM people GROUP BY m HAVING m >= 'ok' ORDER BY count(*) DESC, m DESC
SELECT DISTINCT m FROM people ORDER BY m
SELECT DISTINCT m FROM people ORDER BY m DESC LIMIT 1
SELECT DISTINCT ON (m) m, id FROM people ORDER BY m, id
SELECT min(m), max(m), min(x), max(x) FROM people
SELECT id % 2, min(m), max(m) FROM people GROUP BY 1 ORDER BY 1
SELECT min(m) FILTER (WHERE id > 3), max(m) FILTER (WHERE id > 100) FROM people
SELECT id FROM people WHERE m > 'sad' ORDER BY id
SELECT id FROM people WHERE m >= 'happy' ORDER BY id
SELECT id FROM people WHERE m > 'happy' ORDER BY id
SELECT id FROM people WHERE 'ok' > m ORDER BY id
SELECT id FROM people WHERE NOT m > 'happy' ORDER BY id
SELECT id FROM people WHERE m BETWEEN 'sad' AND 'ok' ORDER BY id
SELECT id FROM people WHERE x > 'B' ORDER BY id
SELECT id FROM people WHERE (m, id) > ('sad', 2) ORDER BY id
SELECT id FROM people WHERE m = 'sad' ORDER BY id
SELECT id FROM people WHERE id = 2 AND m = 'sad'
SELECT id FROM people WHERE m <> 'sad' ORDER BY id
SELECT id FROM people WHERE m IN ('sad', 'happy') ORDER BY id
SELECT id FROM people WHERE m NOT IN ('sad', 'happy') ORDER BY id
SELECT id FROM people WHERE m IN (SELECT m FROM people WHERE id = 1) ORDER BY id
SELECT id FROM people WHERE m = ANY (ARRAY['sad', 'ok']::mood[]) ORDER BY id
SELECT id FROM people WHERE m = ANY ('{sad,ok}'::mood[]) ORDER BY id
SELECT id FROM people WHERE m = ANY ('{sad,mad}'::mood[])
SELECT id FROM people WHERE m <> ALL ('{sad,ok}') ORDER BY id
SELECT id FROM people WHERE m = (SELECT max(m) FROM people) ORDER BY id
SELECT id FROM people WHERE m > (SELECT min(m) FROM people) ORDER BY id
SELECT id FROM people WHERE m = 'angry'
SELECT id FROM people WHERE m > 'angry'
SELECT id FROM people WHERE m IN ('sad', 'angry')
SELECT id FROM people WHERE m = 'sad'::text
SELECT id FROM people WHERE m = x
SELECT id FROM people WHERE m = 1
SELECT id FROM people WHERE m::text = 'sad' ORDER BY id
SELECT id FROM people WHERE m::text = x::text ORDER BY id
SELECT id FROM people WHERE m::text > 'ok' ORDER BY id
SELECT id, m::text FROM people ORDER BY m::text, id
SELECT 'sad'::mood, 'sad'::mood < 'ok'::mood, 'happy'::mood < 'ok'::mood, NULL::mood
SELECT 'sad'::mood::text, CAST('ok' AS mood), pg_typeof('ok'::mood)
SELECT 'cross'::mood
SELECT 'sad'::mood::int
SELECT 5::mood
SELECT 'sad'::nobody
SELECT 'sad'::mood = 'sad'::other
SELECT 'a' || 'sad'::mood
SELECT CASE WHEN id = 1 THEN m ELSE 'sad' END AS c FROM people ORDER BY c, id
SELECT CASE WHEN id = 1 THEN m ELSE 'none' END FROM people
SELECT CASE m WHEN 'sad' THEN 1 WHEN 'ok' THEN 2 ELSE 3 END AS n FROM people ORDER BY id
SELECT coalesce(x, 'B') AS c FROM people ORDER BY c, id
SELECT coalesce(x, 'C') AS c FROM people
SELECT greatest(m, 'ok'), least(m, 'ok'), nullif(m, 'ok') FROM people ORDER BY id
SELECT id, row_number() OVER (ORDER BY m DESC, id) FROM people ORDER BY id
SELECT id, rank() OVER (PARTITION BY m ORDER BY id) FROM people ORDER BY id
SELECT id, max(m) OVER (ORDER BY id), min(m) OVER (PARTITION BY x) FROM people ORDER BY id
SELECT id, lag(m) OVER (ORDER BY m, id) AS l FROM people ORDER BY l NULLS FIRST, id
SELECT string_agg(id::text, ',' ORDER BY m DESC, id) FROM people
SELECT string_agg(m::text, ',' ORDER BY m, id) FROM people
SELECT m FROM people UNION SELECT 'ok'::mood ORDER BY m
SELECT m FROM people UNION ALL SELECT m FROM people ORDER BY 1 DESC LIMIT 4
SELECT m FROM people EXCEPT SELECT 'sad'::mood ORDER BY 1 DESC
SELECT m FROM people UNION SELECT 'ok' ORDER BY m
SELECT 'ok' UNION SELECT m FROM people ORDER BY 1
SELECT m, id FROM people UNION ALL SELECT NULL, 9 ORDER BY 1 DESC, 2
SELECT DISTINCT m FROM people INTERSECT SELECT 'sad' UNION SELECT 'happy' ORDER BY 1 DESC
(SELECT m FROM people ORDER BY id LIMIT 2) UNION SELECT 'happy' ORDER BY 1 DESC
SELECT m FROM people UNION SELECT 'none'
SELECT m FROM people EXCEPT SELECT 'none'
SELECT m FROM people UNION SELECT m::text FROM people
SELECT max(u.m) FROM (SELECT m FROM people UNION SELECT 'ok') AS u
VALUES ('sad'::mood), ('happy'), ('ok') ORDER BY 1 DESC
SELECT * FROM (VALUES ('sad'::mood, 1), ('happy', 2), ('ok', 3)) AS v (m, n) ORDER BY m
WITH w AS (SELECT m, id FROM people) SELECT * FROM w ORDER BY m, id
SELECT a.id, b.id FROM people a JOIN people b ON a.m = b.m AND a.id < b.id ORDER BY a.m, a.id, b.id
SELECT a.id, b.id FROM people a JOIN people b ON a.m < b.m ORDER BY a.m DESC, a.id, b.m, b.id
SELECT a.id FROM people a LEFT JOIN people b ON b.m > a.m WHERE b.id IS NULL ORDER BY a.id
SELECT id, (SELECT count(*) FROM people b WHERE b.m <= a.m) AS n FROM people a ORDER BY id
SELECT enum_first(NULL::mood), enum_last(NULL::mood), enum_first(NULL::empty)
SELECT enum_range(NULL::mood)::text
SELECT enum_range('ok'::mood, NULL)::text, enum_range(NULL, 'ok'::mood)::text
SELECT u::text FROM unnest(enum_range(NULL::mood)) AS u
SELECT enum_range(1)
SELECT m FROM people GROUP BY ROLLUP (m) ORDER BY m NULLS LAST
UPDATE people SET x = 'B' WHERE id = 3
UPDATE people SET x = 'C' WHERE id = 3
UPDATE people SET x = m WHERE id = 3
UPDATE people SET x = 'a'::text WHERE id = 3
UPDATE people SET x = DEFAULT, m = DEFAULT WHERE id = 4
UPDATE people SET m = CASE WHEN id = 5 THEN 'sad'::mood ELSE m END WHERE id IN (4, 5)
SELECT id, m, x FROM people ORDER BY m, x NULLS FIRST, id
DELETE FROM people WHERE m < 'ok' RETURNING id, m
DELETE FROM people WHERE m = 'none'
ALTER TYPE mood ADD VALUE 'furious' BEFORE 'sad'
ALTER TYPE mood ADD VALUE 'fine' AFTER 'ok'
ALTER TYPE mood ADD VALUE 'elated'
ALTER TYPE mood ADD VALUE 'ok'
ALTER TYPE mood ADD VALUE IF NOT EXISTS 'ok'
ALTER TYPE mood ADD VALUE 'x' AFTER 'nobody'
ALTER TYPE nobody ADD VALUE 'x'
INSERT INTO people (id, m) VALUES (50, 'furious'), (51, 'fine'), (52, 'elated'), (53, 'sad')
SELECT id, m FROM people ORDER BY m, id
SELECT id FROM people WHERE m < 'ok' ORDER BY id
SELECT min(m), max(m) FROM people
SELECT enum_range(NULL::mood)::text
CREATE TABLE copied (id BIGINT PRIMARY KEY, m mood)
INSERT INTO copied SELECT id, m FROM people
SELECT * FROM copied WHERE m >= 'fine' ORDER BY m DESC
INSERT INTO copied VALUES (1, 'bad')
ALTER TABLE copied ADD COLUMN again mood DEFAULT 'sad'
SELECT id, again FROM copied WHERE again < 'ok' ORDER BY id LIMIT 2
ALTER TABLE copied ADD COLUMN wrong mood DEFAULT 'bad'
ALTER TABLE copied ALTER COLUMN again TYPE text
INSERT INTO copied VALUES (1, 'ok', 'free text')
SELECT again FROM copied WHERE id = 1
DROP TYPE mood
DROP TYPE nobody
DROP TYPE IF EXISTS nobody
ALTER TYPE other RENAME TO another
SELECT 'ok'::another
DROP TYPE another
SELECT 'ok'::another
CREATE TABLE refused (id BIGINT PRIMARY KEY, m nobody)
CREATE TABLE checked (id BIGINT PRIMARY KEY, m mood CHECK (m <> 'sad'))
INSERT INTO checked VALUES (1, 'sad')
INSERT INTO checked VALUES (1, 'ok')
CREATE TABLE refused (id BIGINT PRIMARY KEY, m mood CHECK (m <> 'none'))
CREATE UNIQUE INDEX checked_m ON checked (id, m)
DROP TABLE checked
DROP TABLE copied
DROP TABLE people
DROP TYPE mood
DROP TYPE empty
DROP TYPE "Mixed"
"""
