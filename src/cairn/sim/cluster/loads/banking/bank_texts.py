"""What clients of the bank say, and what they may be told."""

from __future__ import annotations

from cairn.model.tables.schema import Column, Table
from cairn.model.types.values import ColumnType
from cairn.sim.cluster.loads.banking.bank_books import CUSTOMERS
from cairn.sim.cluster.loads.load import TABLE
from cairn.sim.cluster.sessions import UNKNOWN

#: Global, and made before the others: its number is behind those of tables that come and go.
NAMES = Table(
    id=TABLE.id + 110,
    name="cust",
    columns=(Column("id", ColumnType.INTEGER, nullable=False), Column("name", ColumnType.STRING)),
    primary_key=("id",),
    sharding=None,
)
SCHEMA = (
    "CREATE TABLE acc (cust INT, no INT, bal INT, tags TEXT, PRIMARY KEY (cust, no)) "
    "DISTRIBUTED BY (cust)",
    "CREATE TABLE owner (cust INT PRIMARY KEY, tags TEXT) DISTRIBUTED BY (cust)",
    "CREATE TABLE ev (id INT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, t TEXT)",
    "CREATE TABLE side (id INT PRIMARY KEY, t TEXT) DISTRIBUTED BY (id)",
    "CREATE SEQUENCE numbers INCREMENT 3",
)
#: Its table keeps all of its columns, so some banks have none.
VIEW = "CREATE VIEW per_cust AS SELECT cust, sum(bal) AS s, count(*) AS n FROM acc GROUP BY cust"
OF_VIEW = "SELECT sum(s), sum(n) FROM per_cust"
SUMS = (
    "SELECT sum(bal), count(*) FROM acc",
    "SELECT sum(s), sum(n) FROM (SELECT cust, sum(bal) s, count(*) n FROM acc GROUP BY cust) q",
    "SELECT sum(a.bal), count(*) FROM acc a JOIN cust c ON c.id = a.cust",
    "SELECT sum(a.bal), count(*) FROM acc a JOIN owner o ON o.cust = a.cust",
    f"SELECT sum(a.bal) / {CUSTOMERS}, count(*) / {CUSTOMERS} FROM acc a JOIN acc b ON a.no = b.no",
    "SELECT sum(bal), count(*) FROM (SELECT bal, cust, no FROM acc ORDER BY bal, cust, no) z",
)
SCANS = (
    "SELECT cust, no, bal, tags FROM acc",
    "SELECT cust, no, bal, tags FROM acc ORDER BY tags, cust, no",
    "SELECT a.cust, a.no, a.bal, a.tags FROM acc a JOIN cust c ON c.id = a.cust ORDER BY a.no",
)
OTHERS = " OPTION (read_preference = any)"  # a replica's moment may be old, and is one
CHANGES = (
    *("ALTER TABLE acc ADD COLUMN c{n} INT DEFAULT 7", "ALTER TABLE acc DROP COLUMN c{n}") * 2,
    *("CREATE INDEX i{n} ON acc (bal)", "DROP INDEX i{n}"),
    *("ALTER TABLE owner ADD COLUMN c{n} INT DEFAULT 7", "ALTER TABLE owner DROP COLUMN c{n}") * 2,
    *("ALTER TABLE side ADD COLUMN c{n} INT DEFAULT 7", "CREATE INDEX j{n} ON ev (t)"),
    *("ALTER TABLE cust ADD COLUMN c{n} INT", "CREATE TABLE o{n} (a INT PRIMARY KEY)"),
    *("DROP TABLE o{n}", "CREATE INDEX u{n} ON owner (tags)", "ALTER TABLE ev ADD COLUMN c{n} INT"),
)
#: What a client may be told under blows, and who changes tables beside that: it draws names anew.
TOLD = frozenset({"40001", UNKNOWN, "57P01", "57P03", "PC002", "PC003", "58000", "53100"})
CHANGER_TOLD = TOLD | {
    "42701",
    "42703",
    "42704",
    "42710",
    "42P07",
    "42P01",
    "PC004",
    "55000",
    "2BP01",
}
ALL = "SELECT no, bal, tags FROM acc WHERE cust = $1"
MOVE = "UPDATE acc SET bal = bal + $3, tags = tags || $4 WHERE cust = $1 AND no = $2"
SET = "UPDATE acc SET bal = $3, tags = $4 WHERE cust = $1 AND no = $2"
BOTH = (
    "UPDATE acc SET bal = CASE no WHEN $2 THEN bal - $4 ELSE bal + $4 END, "
    "tags = CASE no WHEN $2 THEN tags || $5 ELSE tags || $6 END "
    "WHERE cust = $1 AND no IN ($2, $3)"
)
