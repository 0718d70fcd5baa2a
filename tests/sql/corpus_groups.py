"""ROLLUP, CUBE and GROUPING SETS: what both databases are asked."""

# ruff: noqa: E501 (a statement is one line)

GROUPINGS = """
SELECT grp, ok, count(*) FROM item GROUP BY ROLLUP (grp, ok)
SELECT grp, ok, count(*), sum(n) FROM item GROUP BY CUBE (grp, ok)
SELECT grp, ok, sum(d), grouping(grp, ok) FROM item GROUP BY GROUPING SETS ((grp), (ok), ())
SELECT grp, ok, s, count(*) FROM item GROUP BY ROLLUP (grp, (ok, s))
SELECT grp, ok, s, count(*) FROM item GROUP BY grp, ROLLUP (ok, s)
SELECT grp, ok, count(*) FROM item GROUP BY ROLLUP (grp), CUBE (ok)
SELECT grp, ok, count(*) FROM item GROUP BY GROUPING SETS (ROLLUP (grp, ok), (ok), CUBE (ok))
SELECT grp FROM item GROUP BY GROUPING SETS ((grp), ())
SELECT grp FROM item WHERE id < 0 GROUP BY GROUPING SETS ((grp), ())
SELECT 7 FROM item WHERE id < 0 GROUP BY ()
SELECT count(*), min(s) FROM item GROUP BY ()
SELECT count(*) FROM item WHERE id < 0 GROUP BY ROLLUP (grp)
SELECT grp + 1 AS k, count(*) FROM item GROUP BY ROLLUP (grp + 1) HAVING count(*) > 1
SELECT grp, max(n) FROM item GROUP BY ROLLUP (grp) HAVING grp IS NULL
SELECT grp, max(n) FROM item GROUP BY ROLLUP (grp) HAVING grouping(grp) = 1
SELECT DISTINCT count(*) FROM item GROUP BY CUBE (grp, ok)
SELECT i.grp, k.name, count(*), sum(p.price) FROM item i JOIN part p ON p.item_id = i.id LEFT JOIN kind k ON k.id = i.grp GROUP BY ROLLUP (i.grp, k.name)
SELECT coalesce(grp, -1) + 1, count(*) FROM item GROUP BY CUBE (grp)
SELECT grp, sum(grp), count(grp) FROM item GROUP BY CUBE (grp, ok)
SELECT grp, count(*) FILTER (WHERE grp > 1) FROM item GROUP BY ROLLUP (grp)
SELECT grp, (SELECT max(price) FROM part WHERE item_id = item.grp) FROM item GROUP BY ROLLUP (grp)
SELECT x.c, count(*) FROM (SELECT grp, count(*) AS c FROM item GROUP BY ROLLUP (grp)) AS x GROUP BY x.c
SELECT 1, grp, count(*) FROM item GROUP BY 1, ROLLUP (2)
SELECT grp AS g, count(DISTINCT s) FROM item GROUP BY ROLLUP (g)
SELECT grp, count(*) FROM item GROUP BY ROLLUP (grp) UNION ALL SELECT 0, 0
SELECT grp, count(*) FROM item GROUP BY grp, ROLLUP (grp)
WITH w AS (SELECT grp, ok FROM item) SELECT grp, ok, count(*) FROM w GROUP BY CUBE (grp, ok)
SELECT CASE WHEN grouping(grp) = 1 THEN 'all' ELSE 'one' END, count(*) FROM item GROUP BY ROLLUP (grp)
SELECT id FROM item WHERE id IN (SELECT count(*) FROM item GROUP BY ROLLUP (grp))
"""

ORDERED = """
SELECT grp, ok, count(*) FROM item GROUP BY ROLLUP (grp, ok) ORDER BY grp NULLS FIRST, ok NULLS FIRST, count(*)
SELECT grp, sum(n) FROM item GROUP BY ROLLUP (grp) ORDER BY grouping(grp) DESC, grp LIMIT 2
SELECT grp, sum(n) AS s FROM item GROUP BY ROLLUP (grp) ORDER BY s NULLS LAST, grp OFFSET 1
SELECT grp FROM item GROUP BY CUBE (grp) ORDER BY count(*), grp
"""

#: Same SQLSTATE as PostgreSQL.
WRONG = """
SELECT grp, n FROM item GROUP BY ROLLUP (grp)
SELECT grouping(n) FROM item GROUP BY ROLLUP (grp)
SELECT id, s FROM item GROUP BY ROLLUP (id)
SELECT nothing FROM item GROUP BY CUBE (grp)
SELECT grp FROM item GROUP BY ROLLUP (sum(n))
"""

STATISTICS = """
SELECT corr(f, n), covar_pop(f, n), covar_samp(f, n), regr_count(f, n) FROM item WHERE f < 1e9
SELECT regr_avgx(f, n), regr_avgy(f, n), regr_sxx(f, n), regr_syy(f, n), regr_sxy(f, n) FROM item WHERE f < 1e9
SELECT regr_slope(f, n), regr_intercept(f, n), regr_r2(f, n) FROM item WHERE f < 1e9
SELECT grp, corr(d, n), regr_slope(n, id), regr_r2(n, id), regr_intercept(id, n), regr_count(d, f) FROM item GROUP BY grp
SELECT grp, covar_samp(n, n), covar_pop(n, grp), corr(n, grp), regr_r2(grp, n), regr_slope(1, n) FROM item GROUP BY grp
SELECT corr(n, f), regr_count(n, f), covar_samp(n, f), regr_avgx(n, f) FROM item WHERE id < 0
SELECT ok, corr(f, id) FILTER (WHERE id > 2), regr_count(f, NULL), regr_sxx(2.5, 3) FROM item WHERE f < 1e9 GROUP BY ROLLUP (ok)
SELECT a.grp, corr(a.n, p.price), count(*) FROM item a JOIN part p ON p.item_id = a.id GROUP BY a.grp HAVING regr_count(a.n, p.price) > 1
SELECT id, corr(f, id) OVER (ORDER BY id), regr_slope(n, id) OVER (PARTITION BY grp ORDER BY id), covar_pop(f, id) OVER (ORDER BY id ROWS BETWEEN 2 PRECEDING AND CURRENT ROW) FROM item WHERE f < 1e9
SELECT regr_slope(x, y), corr(x, y), covar_samp(x, y) FROM (VALUES (1e10, 1), (1e10 + 1, 2), (1e10 + 2, 3.5)) AS v (x, y)
SELECT bit_and(n), bit_or(n), bit_xor(n) FROM item
SELECT grp, bit_and(id), bit_or(n), bit_xor(id), bit_xor(DISTINCT n), bit_or(DISTINCT n) FROM item GROUP BY grp
SELECT bit_and(-id), bit_or(-id), bit_xor(-id), bit_and(n) FILTER (WHERE id < 0) FROM item
SELECT id, bit_or(id) OVER (ORDER BY id ROWS BETWEEN 1 PRECEDING AND CURRENT ROW), bit_and(id) OVER (ORDER BY id ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING), bit_xor(n) OVER (PARTITION BY grp) FROM item
SELECT stddev(DISTINCT n), var_pop(DISTINCT id), variance(DISTINCT f), stddev_pop(DISTINCT grp) FROM item
SELECT grp, stddev(DISTINCT n) FILTER (WHERE id > 1), var_samp(DISTINCT n) FROM item GROUP BY grp
SELECT rank(3) WITHIN GROUP (ORDER BY n), dense_rank(3) WITHIN GROUP (ORDER BY n), percent_rank(3) WITHIN GROUP (ORDER BY n), cume_dist(3) WITHIN GROUP (ORDER BY n) FROM item
SELECT rank(3) WITHIN GROUP (ORDER BY n DESC), dense_rank(3) WITHIN GROUP (ORDER BY n DESC), percent_rank(3) WITHIN GROUP (ORDER BY n DESC NULLS LAST), cume_dist(3) WITHIN GROUP (ORDER BY n NULLS FIRST) FROM item
SELECT rank(NULL) WITHIN GROUP (ORDER BY n), rank(NULL) WITHIN GROUP (ORDER BY n DESC), dense_rank(NULL) WITHIN GROUP (ORDER BY n), cume_dist(NULL) WITHIN GROUP (ORDER BY n) FROM item
SELECT grp, rank('m') WITHIN GROUP (ORDER BY s), cume_dist(1.5) WITHIN GROUP (ORDER BY d), rank(2, 'x') WITHIN GROUP (ORDER BY n, s DESC), percent_rank(2, 3) WITHIN GROUP (ORDER BY n, id) FROM item GROUP BY grp
SELECT rank(3) WITHIN GROUP (ORDER BY n) FILTER (WHERE ok), percent_rank(0) WITHIN GROUP (ORDER BY n) FILTER (WHERE id < 0) FROM item
SELECT percentile_cont(ARRAY[0, 0.25, 0.5, 1]) WITHIN GROUP (ORDER BY f), percentile_disc(ARRAY[0.5, 0.9, NULL]) WITHIN GROUP (ORDER BY n), percentile_disc('{0.1,1}'::float8[]) WITHIN GROUP (ORDER BY s) FROM item
SELECT grp, percentile_cont(ARRAY[0.5]) WITHIN GROUP (ORDER BY n) FROM item GROUP BY grp
"""

WRONG_STATISTICS = """
SELECT corr(s, n) FROM item
SELECT corr(n) FROM item
SELECT bit_and(s) FROM item
SELECT bit_or(f) FROM item
SELECT rank(3, 4) WITHIN GROUP (ORDER BY n) FROM item
SELECT rank('x') WITHIN GROUP (ORDER BY n) FROM item
SELECT percentile_cont(ARRAY[0.5, 2]) WITHIN GROUP (ORDER BY n) FROM item
SELECT n FROM item WHERE corr(n, id) > 1
"""
