// Parts that are SQL: each is a statement, run with the rights of whoever is logged in.
import { h, short, bytes, ms, ago } from "./dom.js";

const quote = (text) => `'${String(text).replaceAll("'", "''")}'`;

export const TABS = {
  tables: {
    title: "Tables", every: 10,
    sql: "SELECT table_name, coalesce(tier, 'global') AS tier, sum(rows) AS rows, sum(bytes) AS bytes, sum(index_bytes) AS index_bytes, max(skew) AS skew, "
      + "string_agg(coalesce(replicaset, 'all') || ': ' || rows, ', ' ORDER BY replicaset) AS parts FROM _cairn_table_stats GROUP BY table_name, tier",
    order: ["bytes", -1],
    columns: [["table_name", "Table", null, "", "name"], ["tier", "Tier"], ["rows", "Rows", short], ["bytes", "Bytes", bytes], ["index_bytes", "Of indexes", bytes],
      ["skew", "Skew", short, "the fullest replicaset against an even share: 1 is even"], ["parts", "Rows by replicaset", (text) => text.replaceAll(": ", ":\u00a0"), "", "parts"]],
    row: (row) => h("button", { type: "button", class: "small", "data-action": "shape", "data-table": row.table_name }, "Columns"),
    empty: "There are no tables that you may read.",
  },
  sessions: {
    title: "Sessions", every: 2,
    sql: "SELECT instance, pid, usename, application_name, client_addr, state, query_start, query FROM _cairn_sessions",
    order: ["query_start", -1],
    columns: [["instance", "Instance"], ["pid", "Number"], ["usename", "User"], ["application_name", "Application"], ["client_addr", "From"],
      ["state", "State"], ["query_start", "Began", ago], ["query", "Statement", null, "", "text"]],
    row: (row) => row.query === "<insufficient privilege>" ? null : [
      h("button", { type: "button", class: "small", "data-action": "signal", "data-what": "cancel", "data-instance": row.instance, "data-pid": row.pid, disabled: row.state !== "active" }, "Cancel"), " ",
      h("button", { type: "button", class: "small", "data-action": "signal", "data-what": "terminate", "data-instance": row.instance, "data-pid": row.pid }, "End")],
    empty: "Nobody is connected over PostgreSQL's protocol.",
  },
  statements: {
    title: "Statements", every: 5, most: 200,
    sql: (find) => "SELECT query, kind, sum(calls) AS calls, sum(errors) AS errors, sum(total_ms) AS total_ms, sum(total_ms) / sum(calls) AS mean_ms, max(max_ms) AS max_ms, "
      + "sum(rows) AS rows, sum(hops) AS hops, sum(bytes) AS bytes FROM _cairn_statements WHERE query <> '<insufficient privilege>' AND query NOT LIKE '%\_cairn\_%'"
      + (find && ` AND position(lower(${quote(find)}) IN lower(query || ' ' || kind)) > 0`) + " GROUP BY query, kind ORDER BY 5 DESC LIMIT 200",
    order: ["total_ms", -1],
    columns: [["query", "Statement", null, "", "text"], ["kind", "Kind"], ["calls", "Calls", short], ["errors", "Errors", short], ["total_ms", "Total", ms],
      ["mean_ms", "Mean", ms], ["max_ms", "Longest", ms], ["rows", "Rows", short], ["hops", "Hops", short, "questions to other instances"],
      ["bytes", "Bytes", bytes]],
    row: (row) => /^(select|insert|update|delete)/.test(row.kind) && h("button", { type: "button", class: "small", "data-action": "explain", "data-sql": row.query }, "Plan"),
    empty: "No statement has run yet.",
  },
  slow: {
    title: "Slow", every: 5,
    sql: "SELECT ended_at, instance, usename, took_ms, rows, hops, query, plan FROM _cairn_slow_statements",
    order: ["ended_at", -1],
    columns: [["ended_at", "Ended", ago], ["instance", "Instance"], ["usename", "User"], ["took_ms", "Took", ms], ["rows", "Rows", short], ["hops", "Hops", short],
      ["query", "Statement", null, "", "text"], ["plan", "Plan", null, "", "text"]],
    empty: "No statement took longer than slow_statement_ms lately.",
  },
  migrations: {
    title: "Queue", every: 3,
    sql: "SELECT id, status, kind, batch_id, description, op, status_description FROM _pico_governor_queue ORDER BY id DESC LIMIT 500",
    order: ["id", -1],
    columns: [["id", "Number"], ["status", "Status"], ["kind", "Kind"], ["batch_id", "File"], ["description", "What"], ["op", "Statement", null, "", "text"], ["status_description", "Why"]],
    empty: "Nothing was ever queued. `cairn migrate` queues migrations.",
  },
  settings: {
    title: "Settings", every: 10,
    sql: "SELECT key, scope, value FROM _pico_db_config",
    order: ["key", 1],
    columns: [["key", "Setting"], ["scope", "Tier"], ["value", "Value", null, "", "text"]],
    empty: "There are no settings.",
  },
};

/** What a part asks. Where not all can be shown, the cluster does the finding. */
export const question = (name, state) => typeof TABS[name].sql === "string" ? TABS[name].sql : TABS[name].sql(state.filters[name] ?? "");

const shown = (value) => value === null || value === undefined ? "" : typeof value === "object" ? JSON.stringify(value) : String(value);

export function tab(name, state) {
  const { title, columns, row: tools, empty } = TABS[name], answer = state.answers[name];
  const filter = (state.filters[name] ?? "").toLowerCase();
  return [
    h("h1", {}, title),
    h("div", { class: "tools" },
      h("label", {}, "Find ", h("input", { type: "search", id: `find-${name}`, "data-input": "filter", "data-tab": name, "data-keep": true })),
      h("details", { class: "more" }, h("summary", {}, "This is SQL"), h("pre", { class: "wide" }, question(name, state)))),
    answer?.error && h("p", { class: "error", role: "alert" }, errorText(answer.error)),
    !answer && h("p", { class: "mute" }, "Asking …"),
    answer?.rows && (answer.rows.length === 0 ? h("p", {}, empty) : table(name, columns, objects(answer), tools, state, filter)),
  ];
}

export const objects = ({ columns, rows }) => rows.map((row) => Object.fromEntries(columns.map(({ name }, at) => [name, row[at]])));

export const errorText = ({ message, sqlstate, detail, hint }) =>
  [`${message} (${sqlstate})`, detail, hint && `Hint: ${hint}`].filter(Boolean).join("\n");

function table(name, columns, rows, tools, state, filter) {
  const [key, sign] = state.orders[name] ?? TABS[name].order;
  const found = rows.filter((row) => !filter || columns.some(([column]) => shown(row[column]).toLowerCase().includes(filter)));
  found.sort((a, b) => {
    const [x, y] = [a[key], b[key]];
    if (x === y) return 0;
    if (x === null) return 1;
    if (y === null) return -1;
    return (typeof x === "number" && typeof y === "number" ? x - y : shown(x).localeCompare(shown(y), undefined, { numeric: true })) * sign;
  });
  const isNumber = (column) => rows.some((row) => typeof row[column] === "number");
  return h("div", { class: "wide", tabindex: 0, role: "region", "aria-label": `${TABS[name].title}, table` }, h("table", {},
    h("caption", {}, rows.length === TABS[name].most ? `the ${rows.length} that took the most time` : `${found.length} of ${rows.length}`),
    h("thead", {}, h("tr", {}, columns.map(([column, title, , about, kind]) =>
      h("th", { scope: "col", class: !kind && isNumber(column) ? "n" : "", "aria-sort": column === key ? (sign > 0 ? "ascending" : "descending") : "none", title: about || null },
        h("button", { type: "button", "data-action": "order", "data-tab": name, "data-column": column }, title, column === key ? (sign > 0 ? "\u00a0▲" : "\u00a0▼") : ""))),
      tools && h("th", { scope: "col" }, h("span", { class: "hidden" }, "Do")))),
    h("tbody", {}, found.map((row) => h("tr", {}, columns.map(([column, , show, , kind]) =>
      h("td", { class: kind ?? (typeof row[column] === "number" ? "n" : "") }, show && row[column] !== null ? show(row[column]) : shown(row[column]))),
      tools && h("td", { class: "whole" }, tools(row)))))));
}

export const signalSql = (what, instance, pid) => `CALL cairn_${what}(${quote(instance)}, ${Number(pid)})`;

/** What is asked to show one table: its columns, its indexes, where its rows are. */
export const shapeSql = (table) => ({
  Columns: `SELECT column_name, data_type, is_nullable FROM information_schema.columns WHERE table_name = ${quote(table)} ORDER BY ordinal_position`,
  Indexes: `SELECT indexname, indexdef FROM pg_catalog.pg_indexes WHERE tablename = ${quote(table)}`,
  Rows: `SELECT replicaset, instance, rows, bytes, index_bytes, share FROM _cairn_table_stats WHERE table_name = ${quote(table)} ORDER BY replicaset`,
});

export function sheet(title, answers) {
  return [
    h("div", { class: "row" }, h("h1", { id: "sheet-title" }, title), h("span", { class: "space" }),
      h("button", { type: "button", "data-action": "close" }, "Close")),
    Object.entries(answers).map(([name, answer]) => [h("h2", {}, name),
      answer.error ? h("p", { class: "error" }, errorText(answer.error)) : results(answer)]),
  ];
}

// --- the query box --------------------------------------------------------------------------------

export function queryBox(state) {
  const answer = state.answers.query;
  return [
    h("h1", {}, "Query"),
    h("label", { for: "sql" }, "A statement, run as ", h("strong", {}, state.overview.me?.name ?? ""), " on ", state.overview.here, " (Ctrl+Enter runs it)"),
    h("textarea", { id: "sql", "data-keep": true, spellcheck: "false", autocapitalize: "off" }),
    h("div", { class: "tools" },
      h("button", { type: "button", class: "main", "data-action": "run", disabled: state.isAsking }, "Run"),
      h("button", { type: "button", "data-action": "plan", disabled: state.isAsking }, "Explain"),
      h("button", { type: "button", "data-action": "stop", disabled: !state.isAsking }, "Stop"),
      h("span", { class: "mute", role: "status" }, state.isAsking ? "running …" : answer?.took_ms !== undefined ? `${answer.tag} · ${ms(answer.took_ms)}${answer.is_all ? "" : " · the first rows only"}` : "")),
    answer?.error && h("p", { class: "error", role: "alert" }, errorText(answer.error)),
    (answer?.notices ?? []).map((notice) => h("p", { class: "mute" }, notice)),
    answer?.rows && (isPlan(answer) ? plan(answer.rows.map((row) => row[0])) : results(answer)),
  ];
}

const isPlan = (answer) => answer.columns.length === 1 && answer.columns[0].name === "QUERY PLAN";

function results({ columns, rows }) {
  return h("div", { class: "wide", tabindex: 0, role: "region", "aria-label": "Answer" }, h("table", {},
    h("caption", {}, `${rows.length} rows`),
    h("thead", {}, h("tr", {}, columns.map(({ name, type }) => h("th", { scope: "col", title: type }, name)))),
    h("tbody", {}, rows.map((row) => h("tr", {}, row.map((value) =>
      value === null ? h("td", { class: "mute" }, "null") : h("td", { class: typeof value === "number" ? "n" : "text" }, shown(value))))))));
}

/** Lines that are indented become a tree. */
export function plan(lines) {
  const root = h("ul", { class: "plan" }), open = [[-1, root]];
  for (const line of lines) {
    const depth = line.length - line.trimStart().length, item = h("li", {}, line.trim());
    while (open.at(-1)[0] >= depth) open.pop();
    let [, place] = open.at(-1);
    if (place.nodeName === "LI") place = place.querySelector(":scope > ul") ?? place.appendChild(h("ul", {}));
    place.append(item);
    open.push([depth, item]);
  }
  return h("div", { class: "card" }, root);
}
