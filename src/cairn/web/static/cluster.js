// The cluster drawn: who is there, who owns what, who follows whom.
import { h, short, bytes, ms, percent, count } from "./dom.js";

const word = (grade) => grade.split("(")[0];
const LEVELS = { good: "✓", info: "i", warning: "!", critical: "✕" };

export function banner(health) {
  const one = ({ level, title, action }) => h("div", { class: `problem ${level}`, "data-key": title },
    h("span", { class: "mark", "aria-hidden": true }, LEVELS[level]),
    h("div", {}, h("strong", {}, h("span", { class: "hidden" }, `${level}: `), title), action && h("span", { class: "do" }, words(action))));
  const [first, ...rest] = health;
  return [one(first), rest.length > 0 && h("details", { class: "more" },
    h("summary", {}, `${rest.length} more`), rest.map(one))];
}

/** Commands stand between `backticks`. */
const words = (text) => text.split("`").map((part, at) => at % 2 ? h("code", {}, part) : part);

/** The state of an instance as it is now: one that does not answer is not Online, whatever the last word of Raft. */
export function standing(row) {
  const current = word(row.current_state), target = word(row.target_state);
  if (!row.answers && current === "Online") return ["✕ no answer", "no"];
  if (current === "Online" && target === "Online") return ["● Online", "ok"];
  if (current === target) return [`○ ${current}`, "no"];
  return [`◐ ${current} → ${target}`, "wait"];
}

export function figures(state) {
  const last = Object.values(state.overview.last);
  const sum = (name) => last.reduce((total, sample) => total + sample[name], 0);
  const most = (name) => Math.max(0, ...last.map((sample) => sample[name]));
  const all = last.reduce((total, sample) => total + Object.entries(sample).filter(([name]) =>
    /^(select|insert|update|delete|copy|ddl|other)/.test(name)).reduce((part, [, value]) => part + value, 0), 0);
  const cards = [
    ["Statements/s", short(all)], ["p99, slowest", ms(most("p99_ms"))], ["Errors/s", short(sum("errors_per_s"))],
    ["Sessions", short(sum("sessions"))], ["CPU, busiest", percent(most("cpu_percent"))],
    ["Least disk free", bytes(last.length ? Math.min(...last.map((sample) => sample.disk_free_bytes)) : null)],
  ];
  return h("dl", { class: "figures" }, cards.map(([name, value]) =>
    h("div", { class: "card", "data-key": name }, h("dt", {}, name), h("dd", {}, value))));
}

export function cluster(state) {
  const { status } = state.overview;
  const colours = colouring(status.replicasets);
  const governor = status.governor;
  return [
    h("h2", {}, "Instances"),
    h("p", { class: "mute" }, `Raft leader ${status.raft.leader ?? "none"} · term ${status.raft.term} · entry ${status.raft.index} · `
      + `governor: ${status.raft.leader ? governor.step : "none"}${governor.subject ? ` (${governor.subject})` : ""}`),
    status.tiers.map((tier) => h("section", { "aria-label": `tier ${tier.name}`, "data-key": tier.name },
      status.tiers.length > 1 && h("h3", {}, `Tier ${tier.name}`),
      h("p", { class: "mute" }, `${tier.replication_factor} ${tier.replication_factor === 1 ? "copy" : "copies"} of each row · `
        + `${tier.replication_mode} replication · ${tier.bucket_count} buckets`),
      h("div", { class: "grid sets" }, status.replicasets.filter((each) => each.tier === tier.name).map((each) =>
        replicaset(each, status.instances, colours, state))))),
  ];
}

function replicaset(row, instances, colours, state) {
  const members = instances.filter((each) => each.replicaset === row.name);
  const isSilent = members.length > 0 && !members.some((each) => each.answers);
  const hasMaster = members.some((each) => each.name === row.master && each.answers);
  const trouble = isSilent ? "nobody answers" : row.master && !hasMaster ? "its master does not answer" : "";
  return h("article", { class: `card replicaset k${colours[row.name]}`, "data-key": row.name, "aria-label": `replicaset ${row.name}` },
    h("div", { class: "row" }, h("h3", {}, row.name),
      h("span", { class: "mute" }, `${row.buckets} buckets · weight ${row.weight} · epoch ${row.epoch}`, !trouble && ` · ${row.state}`),
      trouble && h("span", { class: "state no" }, trouble)),
    members.map((each) => instance(each, row, state)));
}

function instance(row, replicaset, state) {
  const [text, kind] = standing(row), last = state.overview.last[row.name];
  const domain = Object.entries(row.failure_domain).map((pair) => pair.join("=")).join(" ");
  const lag = [row.lag ? `${row.lag} entries behind` : "", row.lag_rows ? `${row.lag_rows} rows behind` : ""].filter(Boolean).join(" · ");
  return h("div", { class: "instance", "data-key": row.name },
    h("div", { class: "row" }, h("strong", {}, row.name), h("span", { class: `state ${kind}` }, text),
      replicaset.master === row.name && h("span", { class: `tag ${row.answers ? "strong" : ""}` }, row.answers ? "master" : "last master"),
      row.leader ? h("span", { class: "tag strong" }, "Raft leader") : h("span", { class: "tag" }, row.voter ? "voter" : "learner"),
      domain && h("span", { class: "tag" }, domain),
      row.name === state.overview.here && h("span", { class: "tag" }, "this console")),
    h("div", { class: "addresses" },
      Object.entries(row.addresses).filter(([, address]) => address).map(([way, address]) =>
        h("span", {}, `${way} `, h("button", { type: "button", "data-action": "copy", "data-text": address, title: "copy" }, address)))),
    last && row.answers && h("div", { class: "mute" }, whole(`CPU ${percent(last.cpu_percent)}`, `${bytes(last.memory_bytes)} memory`, `${bytes(last.disk_used_bytes)} on disk`, count(last.sessions, "session"))),
    lag && h("div", { class: "wait" }, lag),
    row.links.filter((link) => link.state === "stopped").map((link) =>
      h("div", { class: "no" }, `does not follow ${link.upstream}: ${link.problem}`)));
}

export function colouring(replicasets) {
  return Object.fromEntries(replicasets.map((each, at) => [each.name, at % 8]));
}

export function bucketMap(state) {
  const { status, buckets } = state.overview, colours = colouring(status.replicasets);
  return [
    h("h2", {}, "Buckets"),
    status.tiers.filter((tier) => buckets[tier.name]?.length).map((tier) =>
      h("div", { class: "card", "data-key": tier.name },
        status.tiers.length > 1 && h("h3", {}, tier.name),
        map(tier, buckets[tier.name], colours),
        h("ul", { class: "legend" }, status.replicasets.filter((each) => each.tier === tier.name).map((each) =>
          h("li", {}, dot(colours[each.name]), `${each.name}: ${each.buckets}`)),
          status.moves.length > 0 && h("li", {}, "▨ moves")))),
    moves(status.moves),
  ];
}

/** Facts in a line that breaks between them, never inside of one. */
const whole = (...facts) => facts.map((fact) => fact.replaceAll(" ", "\u00a0")).join(" · ");

const dot = (colour) => h("svg", { class: "dot", viewBox: "0 0 1 1", "aria-hidden": true }, h("rect", { class: `f${colour}`, width: 1, height: 1 }));

function map(tier, ranges, colours) {
  const last = tier.bucket_count, at = (bucket) => ((bucket - 1) / last) * 1000;
  const moving = ranges.filter((range) => range[4]).length;
  const label = `Buckets of tier ${tier.name}: ${ranges.length} ranges, ${moving} of them moving`;
  return [h("svg", { class: "map", viewBox: "0 0 1000 44", preserveAspectRatio: "none", role: "img", "aria-label": label },
    h("defs", {}, h("pattern", { id: "stripes", width: 8, height: 8, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
      h("line", { class: "stripe", x1: 0, y1: 0, x2: 0, y2: 8 }))),
    ranges.map(([start, end, kind, owner, next]) => [
      h("rect", { class: `f${colours[owner] ?? 7}`, x: at(start), y: 4, width: Math.max(at(end + 1) - at(start), 0.6), height: 34 },
        h("title", {}, `${start}–${end} ${owner} ${kind}${next ? ` → ${next}` : ""}`)),
      next && h("rect", { class: "going", x: at(start), y: 4, width: at(end + 1) - at(start), height: 34 }),
      next && h("rect", { class: `f${colours[next] ?? 7}`, x: at(start), y: 38, width: at(end + 1) - at(start), height: 6 }),
    ])),
  h("div", { class: "scale", "aria-hidden": true }, [1, Math.round(last / 2), last].map((bucket) => h("span", {}, bucket)))];
}

function moves(rows) {
  if (!rows.length) return null;
  return h("div", { class: "wide" }, h("table", {},
    h("caption", {}, "Moves under way"),
    h("thead", {}, h("tr", {}, ["Buckets", "From", "To", "Phase", "Rows", "Rate", "Left", "Waits for"].map((name) => h("th", { scope: "col" }, name)))),
    h("tbody", {}, rows.map((move) => h("tr", { "data-key": `${move.tier}${move.start}` },
      h("td", { class: "whole" }, `${move.start}–${move.end}`), h("td", {}, move.source), h("td", {}, move.target), h("td", {}, move.phase),
      h("td", {}, move.rows_to_do === null ? short(move.rows) : [
        h("progress", { max: Math.max(move.rows + move.rows_to_do, 1), value: move.rows, "aria-label": "rows copied" }),
        ` ${short(move.rows)} of ${short(move.rows + move.rows_to_do)}`]),
      h("td", {}, move.rows_per_s ? `${short(move.rows_per_s)}/s` : "–"),
      h("td", {}, move.eta_s === null ? "–" : `${Math.ceil(move.eta_s)} s`),
      h("td", { class: "why" }, move.waits_for))))));
}

/** Who follows whom: an arrow goes with the rows. */
export function links(state) {
  const { status } = state.overview, colours = colouring(status.replicasets);
  const places = {}, many = status.instances.length;
  const near = [...status.instances].sort((a, b) => a.replicaset.localeCompare(b.replicaset) || a.name.localeCompare(b.name, undefined, { numeric: true }));
  near.forEach((row, at) => {
    const angle = (2 * Math.PI * at) / many - Math.PI / 2, wide = many > 1 ? 1 : 0;
    places[row.name] = [260 + wide * 190 * Math.cos(angle), 150 + wide * 105 * Math.sin(angle)];
  });
  const edges = status.instances.flatMap((row) => row.links.filter((link) => places[link.upstream]).map((link) => [link.upstream, row.name, link]));
  const line = ([from, to, link]) => {
    const [x1, y1] = places[from], [x2, y2] = places[to], long = Math.hypot(x2 - x1, y2 - y1) || 1;
    const [dx, dy] = [(x2 - x1) / long, (y2 - y1) / long], side = 5;
    return h("line", { class: link.state === "stopped" ? "stopped" : "", "marker-end": "url(#arrow)", "data-key": `${from}>${to}`,
      x1: x1 + dx * 26 - dy * side, y1: y1 + dy * 26 + dx * side, x2: x2 - dx * 30 - dy * side, y2: y2 - dy * 30 + dx * side },
      h("title", {}, `${to} takes rows from ${from}: ${link.state}`));
  };
  return [
    h("h1", {}, "Links"),
    h("p", { class: "mute" }, "Rows go along the arrows, inside each replicaset. A dashed arrow is a link that was stopped."),
    h("div", { class: "card" }, h("svg", { class: "graph", viewBox: "0 0 520 300", role: "img", "aria-label": `${edges.length} links between ${many} instances; the table below has them` },
      h("defs", {}, h("marker", { id: "arrow", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto-start-reverse" },
        h("path", { class: "arrow", d: "M0 0L8 4L0 8z" }))),
      edges.map(line),
      status.instances.map((row) => h("g", { "data-key": row.name },
        h("circle", { class: `s${colours[row.replicaset] ?? 7}`, cx: places[row.name][0], cy: places[row.name][1], r: 24 }),
        h("text", { x: places[row.name][0], y: places[row.name][1] + 4 }, row.name.length > 8 ? `${row.name.slice(0, 7)}…` : row.name))))),
    h("div", { class: "wide" }, h("table", {}, h("caption", {}, "What each instance says of its links"),
      h("thead", {}, h("tr", {}, ["Takes rows", "From", "State", "Rows behind", "Seconds", "Records", "Bytes", "Problem"].map((name, at) => h("th", { scope: "col", class: at > 2 && at < 7 ? "n" : "" }, name)))),
      h("tbody", {}, edges.map(([from, to, link]) => h("tr", { "data-key": `${from}>${to}` }, h("td", {}, to), h("td", {}, from),
        h("td", { class: link.state === "follow" ? "ok" : "no" }, link.state), h("td", { class: "n" }, short(link.lag_rows)),
        h("td", { class: "n" }, short(link.lag_rows ? link.lag_s : 0)), h("td", { class: "n" }, short(link.records)),
        h("td", { class: "n" }, bytes(link.bytes)), h("td", {}, link.problem ?? "")))))),
    state.overview.routes.length > 0 && h("div", { class: "wide" }, h("table", {},
      h("caption", {}, `_routing, as ${state.overview.here} knows it`),
      h("thead", {}, h("tr", {}, ["Takes rows", "Of", "Through", "Hops"].map((name, at) => h("th", { scope: "col", class: at === 3 ? "n" : "" }, name)))),
      h("tbody", {}, state.overview.routes.map(([subscriber, source, via, depth]) => h("tr", { "data-key": `${subscriber} ${source}` },
        h("td", {}, subscriber), h("td", {}, source), h("td", {}, via === source ? "directly" : via), h("td", { class: "n" }, depth)))))),
  ];
}
