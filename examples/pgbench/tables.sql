-- The tables of pgbench for Cairn: with their keys from the start, and rows of one account together.
-- Instead of "pgbench -i":   psql -f examples/pgbench/tables.sql && pgbench -i -I g
DROP TABLE IF EXISTS pgbench_accounts, pgbench_branches, pgbench_history, pgbench_tellers;

CREATE TABLE pgbench_branches (bid INT PRIMARY KEY, bbalance INT, filler CHAR(88));
CREATE TABLE pgbench_tellers (tid INT PRIMARY KEY, bid INT, tbalance INT, filler CHAR(84));
CREATE TABLE pgbench_accounts (aid INT PRIMARY KEY, bid INT, abalance INT, filler CHAR(84));

-- pgbench gives its history no key. This one lies beside the account: a transaction of pgbench -N is
-- about one replicaset.
CREATE TABLE pgbench_history (
    tid INT, bid INT, aid INT, delta INT, mtime TIMESTAMP, filler CHAR(22),
    id UUID DEFAULT gen_random_uuid(),
    PRIMARY KEY (aid, id)
) DISTRIBUTED BY (aid);
