"""node's `pg` and pgjdbc, each with a small program of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.clients

Run = Callable[..., str]
PG_VERSION = "8"
MAVEN = Path.home() / ".m2/repository/org/postgresql/postgresql"

NODE = """
const { Client, Pool } = require('pg')
async function main() {
  const table = process.argv[2]
  const client = new Client({ connectionString: process.env.CAIRN_DSN })
  await client.connect()
  await client.query(`INSERT INTO ${table} VALUES ($1, $2, $3)`, [1, 'one', '1.50'])
  await client.query({ name: 'put', text: `INSERT INTO ${table} VALUES ($1, $2, $3)`,
                       values: [2, 'two', null] })
  const read = { name: 'get', text: `SELECT name, price FROM ${table} WHERE id = $1` }
  for (const id of [1, 2]) {
    const { rows } = await client.query({ ...read, values: [id] })
    console.log(JSON.stringify(rows))
  }
  try {
    await client.query('SELEC 1')
  } catch (problem) { console.log(problem.code, problem.position) }
  const { rows } = await client.query('SELECT true AS b, 1.5::double AS d')
  console.log(JSON.stringify(rows))
  await client.end()
  const pool = new Pool({ connectionString: process.env.CAIRN_DSN, max: 3 })
  const found = await Promise.all([1, 2, 1, 2].map(
    id => pool.query(`SELECT id FROM ${table} WHERE id = $1`, [id])))
  console.log(found.map(each => each.rows[0].id).join(' '))
  await pool.end()
}
main().catch(problem => { console.log('FAILED', problem); process.exit(1) })
"""

JAVA = """
import java.math.BigDecimal;
import java.sql.*;

public class Session {
  public static void main(String[] a) throws Exception {
    String table = a[1];
    try (Connection c = DriverManager.getConnection(a[0])) {
      String insert = "INSERT INTO " + table + " VALUES (?, ?, ?)";
      try (PreparedStatement put = c.prepareStatement(insert)) {
        for (long id = 1; id <= 20; id++) {
          put.setLong(1, id);
          put.setString(2, "n" + id);
          put.setBigDecimal(3, new BigDecimal("1.50"));
          put.addBatch();
        }
        System.out.println("batch " + put.executeBatch().length);
      }
      String select = "SELECT name, price FROM " + table + " WHERE id = ?";
      try (PreparedStatement get = c.prepareStatement(select)) {
        for (int id = 1; id <= 10; id++) {  // past five it is prepared on the server, in binary
          get.setLong(1, id);
          ResultSet rows = get.executeQuery();
          rows.next();
          if (id == 10) System.out.println(rows.getString(1) + " " + rows.getBigDecimal(2));
        }
      }
      try (Statement s = c.createStatement()) {
        s.executeQuery("SELEC 1");
      } catch (SQLException problem) {
        System.out.println(problem.getSQLState());
      }
      try (Statement s = c.createStatement()) {
        ResultSet rows = s.executeQuery("SELECT count(*) FROM " + table);
        rows.next();
        System.out.println("count " + rows.getLong(1));
      }
      c.setAutoCommit(false);
      try (Statement s = c.createStatement()) {
        s.setFetchSize(7);
        ResultSet rows = s.executeQuery("SELECT id FROM " + table + " ORDER BY id");
        int seen = 0;
        while (rows.next()) seen++;
        System.out.println("fetched " + seen);
      }
      c.commit();
    }
  }
}
"""


@pytest.fixture(scope="module")
def node_modules() -> Path:
    """`pg` in a directory of its own, kept for the next run; nothing is installed elsewhere."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip("node and npm are not installed")
    directory = Path(tempfile.gettempdir()) / f"cairn-node-pg-{os.getuid()}"
    if not (directory / "node_modules/pg/package.json").exists():
        directory.mkdir(exist_ok=True)
        command = ["npm", "install", "--no-audit", "--no-fund", f"pg@{PG_VERSION}"]
        try:
            done = subprocess.run(command, cwd=directory, capture_output=True, timeout=60)
        except subprocess.TimeoutExpired:
            pytest.skip("npm could not fetch pg in time")
        if done.returncode:
            pytest.skip("npm could not fetch pg")
    return directory


def test_node_pg_runs_a_session(run: Run, node_modules: Path, fresh: str) -> None:
    program = node_modules / "session.js"
    program.write_text(NODE)
    shown = run("node", str(program), fresh, cwd=node_modules)
    assert shown.splitlines() == [
        '[{"name":"one","price":"1.50"}]',
        '[{"name":"two","price":null}]',
        "42601 1",
        '[{"b":true,"d":1.5}]',
        "1 2 1 2",
    ]


@pytest.mark.parametrize("mode", ["extended", "simple"])
def test_pgjdbc_runs_a_session(run: Run, dsn: str, fresh: str, mode: str, tmp_path: Path) -> None:
    jars = sorted(MAVEN.glob("*/postgresql-*.jar"))
    if not jars:
        pytest.skip(f"no pgjdbc in {MAVEN}")
    program = tmp_path / "Session.java"
    program.write_text(JAVA)
    rest = dsn.removeprefix("postgresql://")
    login, _, address = rest.partition("@")
    user, _, password = login.partition(":")
    url = f"jdbc:postgresql://{address}?user={user}&password={password}&preferQueryMode={mode}"
    shown = run("java", "-Xmx128m", "-cp", str(jars[-1]), str(program), url, fresh)
    assert shown.splitlines() == ["batch 20", "n10 1.50", "42601", "count 20", "fetched 20"]
