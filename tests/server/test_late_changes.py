"""A schema change that is not over when its time is: nobody knows whether it will be made."""

from __future__ import annotations

import psycopg

from tests.cluster.harness import Cluster, eventually


def test_it_says_that_the_outcome_is_unknown(cluster: Cluster) -> None:
    told = set()
    with cluster["i1"].connect() as sql:
        for at in range(10):  # now and then a change is quick
            try:
                sql.execute(f"CREATE TABLE late_{at} (id INT PRIMARY KEY) OPTION (TIMEOUT = 0.001)")
            except psycopg.Error as problem:
                told.add(problem.sqlstate)
            made = f"CREATE TABLE IF NOT EXISTS late_{at} (id INT PRIMARY KEY)"
            eventually(lambda m=made: sql.execute(m) is not None, "the end of it")  # type: ignore[misc]
            sql.execute(f"DROP TABLE late_{at}")
            if told:
                break
    assert told == {"40003"}
