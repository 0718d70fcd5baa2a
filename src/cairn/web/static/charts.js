// Charts of the last hour, drawn as SVG. Each has its last values in words below it.
import { h, short, bytes, ms, percent, clock } from "./dom.js";

const KINDS = ["select_point", "select_wide", "insert", "update", "delete", "copy", "ddl", "other"];
const W = 320, H = 120, LEFT = 46, BOTTOM = 16;

// of: how several instances make one line (or each its own)
const CHARTS = [
  { title: "Statements per second", of: "sum", unit: short, lines: KINDS.map((kind) => [kind.replace("_", " "), `${kind}_per_s`]) },
  { title: "Latency", of: "max", unit: ms, lines: [["p50", "p50_ms"], ["p95", "p95_ms"], ["p99", "p99_ms"]] },
  { title: "Errors per second", of: "sum", unit: short, lines: [["errors", "errors_per_s"]] },
  { title: "Rows and hops per second", of: "sum", unit: short, lines: [["rows", "rows_per_s"], ["hops", "hops_per_s"]] },
  { title: "Rows replicated per second", of: "each", unit: short, name: "replicated_per_s" },
  { title: "Replication lag, rows", of: "each", unit: short, name: "lag_rows" },
  { title: "Sessions", of: "each", unit: short, name: "sessions" },
  { title: "CPU", of: "each", unit: percent, name: "cpu_percent" },
  { title: "Memory", of: "each", unit: bytes, name: "memory_bytes" },
  { title: "Disk used", of: "each", unit: bytes, name: "disk_used_bytes" },
  { title: "Raft entries per second", of: "max", unit: short, lines: [["entries", "raft_per_s"]] },
  { title: "Event loop lag, worst of 5 s", of: "each", unit: ms, name: "loop_lag_ms" },
];

export class History {
  constructor() { this.names = []; this.rows = {}; this.since = 0; }

  take({ names, instances }) {
    this.names = names;
    let newest = this.since;
    for (const [name, rows] of Object.entries(instances)) {
      const kept = (this.rows[name] ??= []);
      const last = kept.length ? kept[kept.length - 1][0] : 0;
      for (const row of rows) if (row[0] > last) { kept.push(row); newest = Math.max(newest, row[0]); }
      while (kept.length > 720) kept.shift();
    }
    this.since = Math.max(newest - 10, 0); // clocks of instances differ a little
  }

  /** Lines of a chart: [label, [[time, value], …]] */
  lines(chart, only, from) {
    const chosen = Object.keys(this.rows).sort().filter((name) => !only || name === only);
    const at = (name) => this.names.indexOf(name);
    if (chart.of === "each") {
      return chosen.map((name) => [name, this.rows[name].filter((row) => row[0] >= from).map((row) => [row[0], row[at(chart.name)]])]);
    }
    return chart.lines.map(([label, name]) => {
      const place = at(name), slots = new Map();
      for (const instance of chosen) for (const row of this.rows[instance]) {
        if (row[0] < from) continue;
        const slot = Math.round(row[0] / 5) * 5, [before, count] = slots.get(slot) ?? [0, 0];
        slots.set(slot, [chart.of === "sum" ? before + row[place] : Math.max(before, row[place]), count + 1]);
      }
      const points = [...slots].sort((a, b) => a[0] - b[0]).map(([time, [value, count]]) => [time, value, count]);
      // Of the newest moment not everybody has told yet.
      if (points.length > 1 && points.at(-1)[2] < points.at(-2)[2]) points.pop();
      return [label, points];
    });
  }
}

function nice(most) {
  if (!(most > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(most));
  return [1, 2, 2.5, 5, 10].map((step) => step * power).find((step) => step >= most);
}

function chartFigure(chart, lines, from, to, cursor) {
  const known = lines.filter(([, points]) => points.length);
  const shown = chart.lines?.length > 3 ? known.filter(([, points]) => points.some((point) => point[1] > 0)) : known;
  const most = nice(Math.max(0, ...shown.flatMap(([, points]) => points.map((point) => point[1]))));
  const x = (time) => LEFT + ((time - from) / (to - from || 1)) * (W - LEFT - 4);
  const y = (value) => H - BOTTOM - (value / most) * (H - BOTTOM - 8);
  const value = (points) => cursor === null ? points.at(-1) : points.reduce((best, point) =>
    Math.abs(point[0] - cursor) < Math.abs(best[0] - cursor) ? point : best, points[0]);
  const words = shown.map(([label, points]) => [label, chart.unit(value(points)[1])]);
  const colour = (label) => lines.findIndex((line) => line[0] === label) % 8;
  const title = `${chart.title}: ${words.map((pair) => pair.join(" ")).join(", ") || "nothing yet"}`;
  return h("figure", { class: "card", "data-key": chart.title },
    h("h3", {}, chart.title),
    h("svg", { class: "chart", viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": title, "data-from": from, "data-to": to },
      [0, 0.5, 1].map((part) => [
        h("line", { class: "rule", x1: LEFT, x2: W - 4, y1: y(most * part), y2: y(most * part) }),
        h("text", { x: LEFT - 4, y: y(most * part) + 3, "text-anchor": "end" }, chart.unit(most * part)),
      ]),
      h("text", { x: LEFT, y: H - 3 }, clock(from)),
      h("text", { x: W - 4, y: H - 3, "text-anchor": "end" }, clock(to)),
      shown.map(([label, points]) => h("path", { class: `s${colour(label)}`, d: path(points, x, y) })),
      cursor !== null && h("line", { class: "cursor", x1: x(cursor), x2: x(cursor), y1: 8, y2: H - BOTTOM })),
    h("figcaption", {}, cursor !== null && `${clock(cursor)} `, shown.length ? words.map(([label, text]) => [h("span", { class: "value" },
      h("svg", { class: "dot", viewBox: "0 0 1 1", "aria-hidden": true }, h("rect", { class: `f${colour(label)}`, width: 1, height: 1 })),
      `${label} `, h("b", {}, text)), " "]) : "nothing yet"));
}

function path(points, x, y) {
  let made = "", before = null;
  for (const [time, value] of points) { // a gap where nothing was told
    made += `${before === null || time - before > 16 ? "M" : "L"}${x(time).toFixed(1)} ${y(value).toFixed(1)}`;
    before = time;
  }
  return made;
}

export function charts(state) {
  const to = Math.max(state.history.since + 10, 10);
  // A young cluster fills its charts: they begin with the first sample, two minutes ago at the latest.
  const first = Math.min(to, ...Object.values(state.history.rows).map((rows) => rows[0]?.[0] ?? to));
  const from = Math.max(to - state.window * 60, Math.min(first, to - 120));
  const option = (value, text, chosen) => h("option", { value, selected: value === chosen }, text);
  return [
    h("h2", {}, "The last hour"),
    h("div", { class: "tools" },
      h("label", {}, "Instance ", h("select", { id: "only", "data-change": "only" }, option("", "all", state.only),
        Object.keys(state.history.rows).sort().map((name) => option(name, name, state.only)))),
      h("label", {}, "Time ", h("select", { id: "window", "data-change": "window" },
        [5, 15, 60].map((minutes) => option(minutes, `${minutes} minutes`, state.window))))),
    h("div", { class: "grid", id: "charts" }, CHARTS.map((chart) =>
      chartFigure(chart, state.history.lines(chart, state.only, from), from, to, state.cursor))),
  ];
}

/** The time under the pointer, or null. */
export function timeAt(event) {
  const svg = event.target.closest?.("svg.chart");
  if (!svg) return null;
  const box = svg.getBoundingClientRect(), place = ((event.clientX - box.left) / box.width) * W;
  if (place < LEFT) return null;
  const from = Number(svg.dataset.from), to = Number(svg.dataset.to);
  return from + ((place - LEFT) / (W - LEFT - 4)) * (to - from);
}
