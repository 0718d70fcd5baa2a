// The console: asks its instance once a second and draws what it says. When the instance dies, it
// goes on at another one.
import { h, draw, by } from "./dom.js";
import { banner, figures, cluster, bucketMap, links } from "./cluster.js";
import { History, charts, timeAt } from "./charts.js";
import { TABS, question, tab, queryBox, signalSql, shapeSql, sheet, errorText } from "./tabs.js";
import { Events, history } from "./events.js";

const PARTS = { "": "Overview", links: "Links", tables: "Tables", sessions: "Sessions", statements: "Statements",
  slow: "Slow", migrations: "Queue", settings: "Settings", history: "History", query: "Query" };
const LOOK_MS = 1000, SAMPLES_MS = 5000, PATIENCE = 2;

const state = {
  overview: null, problem: null, needsLogin: false, loginError: "", came: "", failures: 0, isSearching: false,
  history: new History(), events: new Events(), window: 15, only: "", cursor: null, moment: null,
  answers: {}, asked: {}, filters: {}, orders: {}, isAsking: false,
};

// --- asking ---------------------------------------------------------------------------------------

class Refused extends Error {
  constructor(status, error) { super(error.message); this.status = status; this.error = error; }
}

async function ask(path, body, stop = new AbortController()) {
  const timer = setTimeout(() => stop.abort(), body ? 40000 : 6000);
  try {
    const answer = await fetch(path, {
      signal: stop.signal, cache: "no-store", credentials: "same-origin",
      ...(body && { method: "POST", body: JSON.stringify(body), headers: { "content-type": "application/json", "x-cairn": "console" } }),
    });
    const told = await answer.json();
    if (!answer.ok) throw new Refused(answer.status, told.error ?? { message: answer.statusText, sqlstate: "" });
    return told;
  } finally { clearTimeout(timer); }
}

async function sql(text, stop) {
  try {
    return await ask("/api/v1/query", { sql: text }, stop);
  } catch (problem) {
    if (problem.name === "AbortError") return { error: { message: "stopped", sqlstate: "57014" } };
    if (!(problem instanceof Refused)) return { error: { message: "no answer", sqlstate: "08006" } };
    if (problem.status === 401) state.needsLogin = true;
    return { error: problem.error };
  }
}

async function look() {
  try {
    const told = await ask("/api/v1/overview");
    if (state.needsLogin && told.me === null && !needsUser(part())) state.needsLogin = false;
    Object.assign(state, { overview: told, failures: 0, problem: null });
    if (told.me) state.needsLogin = false;
  } catch (problem) {
    if (problem instanceof Refused && problem.status === 401) {
      Object.assign(state, { needsLogin: true, overview: null, failures: 0 });
    } else {
      state.failures += 1;
      state.problem = `${state.overview?.here ?? "The instance"} does not answer`;
      if (state.failures >= PATIENCE) await goElsewhere();
    }
  }
  show();
  setTimeout(look, document.hidden ? 5 * LOOK_MS : LOOK_MS);
}

async function takeSamples() {
  if (state.overview && !document.hidden && part() === "") {
    try { state.history.take(await ask(`/api/v1/samples?since=${state.history.since}`)); show(); } catch { /* the next time */ }
  }
  setTimeout(takeSamples, state.history.since ? SAMPLES_MS : 300);
}

async function takeEvents() {
  if (state.overview && !document.hidden && part() === "history") {
    try {
      let came = state.events.list.length ? await ask(`/api/v1/events?after=${state.events.after}`) : await ask("/api/v1/events?after=0:0");
      for (let turn = 0; came.length && turn < 10; turn++) {
        const isAtEnd = state.moment === null;
        state.events.take(came);
        const slider = by("moment");
        if (slider && isAtEnd) { slider.max = state.events.list.length; slider.value = slider.max; }
        else if (slider) slider.max = state.events.list.length;
        came = came.length < 500 ? [] : await ask(`/api/v1/events?after=${state.events.after}`);
      }
      show();
    } catch { /* the next time */ }
  }
  setTimeout(takeEvents, LOOK_MS);
}

async function takeTab() {
  const name = part(), now = Date.now();
  if (TABS[name] && state.overview?.me && !document.hidden && now - (state.asked[name] ?? 0) >= TABS[name].every * 1000) {
    state.asked[name] = now;
    state.answers[name] = await sql(question(name, state));
    show();
  }
  setTimeout(takeTab, 250);
}

/** Another instance that lives: it is told by a ticket who we are. */
async function goElsewhere() {
  const consoles = Object.entries(state.overview?.consoles ?? {}).filter(([name]) => name !== state.overview.here);
  const lives = async ([name, url]) => {
    await fetch(`${url}/api/v1/health/live`, { mode: "no-cors", cache: "no-store", signal: AbortSignal.timeout(2000) });
    return [name, url];
  };
  try {
    const [, url] = await Promise.any(consoles.map(lives));
    const from = encodeURIComponent(state.overview.here), ticket = encodeURIComponent(state.overview.me?.ticket ?? "");
    location.replace(`${url}/#/${part()}?from=${from}&ticket=${ticket}`);
  } catch { state.isSearching = true; }
}

async function arrive() {
  const [place, given] = location.hash.split("?");
  const found = new URLSearchParams(given ?? "");
  if (!given) return;
  window.history.replaceState(null, "", place || "#/");
  state.came = found.get("from") ?? "";
  if (found.get("ticket")) {
    try { await ask("/api/v1/login", { ticket: found.get("ticket") }); } catch { /* then by password */ }
  }
}

// --- drawing --------------------------------------------------------------------------------------

const part = () => { const name = location.hash.replace(/^#\/?/, "").split("?")[0]; return name in PARTS ? name : ""; };
const needsUser = (name) => name in TABS || name === "query";

function show() {
  const { overview } = state, name = part();
  draw(by("nav"), Object.entries(PARTS).map(([each, title]) => h("li", {}, h("a", { href: `#/${each}`, "aria-current": each === name ? "page" : null }, title))));
  by("name").textContent = overview?.status.cluster.name ?? "Cairn";
  by("where").textContent = overview ? `seen from ${overview.here} · Cairn ${overview.status.cluster.version}` : "";
  document.title = `${overview?.health[0] && overview.health[0].level === "critical" ? "✕ " : ""}${overview?.status.cluster.name ?? "Cairn"} · ${PARTS[name]}`;
  draw(by("who"), overview?.me ? [h("span", {}, overview.me.name, " "), h("button", { type: "button", "data-action": "logout" }, "Log out")]
    : overview && h("button", { type: "button", "data-action": "login" }, "Log in"));
  draw(by("banner"), banners());
  const place = by("view");
  if (state.needsLogin || (overview && needsUser(name) && !overview.me)) draw(place, login());
  else if (!overview) draw(place, h("p", {}, state.problem ?? "Loading …"));
  else if (name === "") draw(place, h("h1", { class: "hidden" }, "Overview"), figures(state), cluster(state), bucketMap(state), charts(state));
  else if (name === "links") draw(place, links(state));
  else if (name === "history") draw(place, history(state));
  else if (name === "query") draw(place, queryBox(state));
  else draw(place, tab(name, state));
}

function banners() {
  if (state.problem && state.failures >= PATIENCE) {
    const action = state.isSearching ? "No other instance answers either. Trying again every second." : "Looking for another instance …";
    return banner([{ level: "critical", title: state.problem, action }]);
  }
  if (!state.overview) return null;
  const came = state.came && h("p", { class: "mute" }, `${state.came} did not answer: you are at ${state.overview.here} now.`);
  return [banner(state.overview.health), came];
}

function login() {
  return h("form", { class: "card login", "data-submit": "login", autocomplete: "on" },
    h("h1", {}, "Log in"),
    h("p", { class: "mute" }, "With a user of the cluster, as in psql."),
    h("label", { for: "user" }, "User"), h("input", { id: "user", name: "user", autocomplete: "username", required: true, "data-keep": true, autocapitalize: "off" }),
    h("label", { for: "password" }, "Password"), h("input", { id: "password", name: "password", type: "password", autocomplete: "current-password", required: true, "data-keep": true }),
    h("p", { class: "error", role: "alert" }, state.loginError),
    h("button", { class: "main", type: "submit" }, "Log in"));
}

// --- what people do -------------------------------------------------------------------------------

const actions = {
  theme() {
    const root = document.documentElement;
    root.dataset.theme = root.dataset.theme === "dark" ? "light" : "dark";
    localStorage.setItem("theme", root.dataset.theme);
  },
  login() { state.needsLogin = true; show(); by("user").focus(); },
  async logout() {
    try { await ask("/api/v1/logout", {}); } catch { /* it is over anyway */ }
    Object.assign(state, { answers: {}, asked: {} });
    if (state.overview) state.overview.me = null;
    show();
  },
  async copy({ text }, element) {
    try { await navigator.clipboard.writeText(text); element.title = "copied"; } catch { getSelection().selectAllChildren(element); }
  },
  order({ tab: name, column }) {
    const [key, sign] = state.orders[name] ?? TABS[name].order;
    state.orders[name] = [column, key === column ? -sign : 1];
    show();
  },
  async signal({ what, instance, pid }) {
    const words = what === "cancel" ? "Cancel the statement" : "End the session";
    if (!confirm(`${words} ${pid} of ${instance}?`)) return;
    const answer = await sql(signalSql(what, instance, pid));
    if (answer.error) alert(errorText(answer.error));
    state.asked.sessions = 0;
  },
  async shape({ table }) {
    const answers = {};
    for (const [name, text] of Object.entries(shapeSql(table))) answers[name] = await sql(text);
    by("sheet").replaceChildren(...sheet(table, answers).flat(Infinity));
    by("sheet").showModal();
  },
  close() { by("sheet").close(); },
  explain({ sql: text }) { toQuery(text); runQuery(`EXPLAIN ${text}`); },
  stop() { state.stop?.abort(); },
  run() { runQuery(by("sql").value); },
  plan() { runQuery(`EXPLAIN ${by("sql").value}`); },
};

function toQuery(text) {
  location.hash = "#/query";
  show();
  by("sql").value = text;
}

async function runQuery(text) {
  if (state.isAsking) return;
  Object.assign(state, { isAsking: true, stop: new AbortController() });
  show();
  state.answers.query = await sql(text, state.stop);
  state.isAsking = false;
  show();
}

document.addEventListener("click", (event) => {
  const element = event.target.closest("[data-action]");
  if (element) actions[element.dataset.action]?.(element.dataset, element);
});
document.addEventListener("keydown", (event) => {
  if (event.target.id === "sql" && event.key === "Enter" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); actions.run(); }
});
document.addEventListener("input", ({ target }) => {
  if (target.dataset.input === "filter") {
    const { tab: name } = target.dataset;
    state.filters[name] = target.value;
    if (TABS[name].most) state.asked[name] = 0;  // asked again at the next turn
  }
  if (target.dataset.input === "moment") state.moment = Number(target.value) === Number(target.max) ? null : Number(target.value);
  if (target.dataset.input) show();
});
document.addEventListener("change", ({ target }) => {
  if (target.dataset.change === "only") state.only = target.value;
  if (target.dataset.change === "window") state.window = Number(target.value);
  if (target.dataset.change) show();
});
document.addEventListener("submit", async (event) => {
  event.preventDefault();
  const { user, password } = event.target.elements;
  try {
    await ask("/api/v1/login", { user: user.value, password: password.value });
    password.value = "";
    Object.assign(state, { needsLogin: false, loginError: "", asked: {}, overview: await ask("/api/v1/overview") });
  } catch (problem) {
    state.loginError = problem instanceof Refused ? [problem.message, problem.error.hint].filter(Boolean).join("\n") : "The instance does not answer.";
  }
  show();
});
document.addEventListener("pointermove", (event) => {
  const time = timeAt(event);
  if (time !== state.cursor) { state.cursor = time; show(); }
});
addEventListener("hashchange", () => {
  Object.assign(state, { needsLogin: false, cursor: null });
  show();
  by("view").focus({ preventScroll: true });
  scrollTo(0, 0);
});

document.documentElement.dataset.theme = localStorage.getItem("theme")
  ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", ({ matches }) => {
  if (!localStorage.getItem("theme")) document.documentElement.dataset.theme = matches ? "dark" : "light";
});
show();
await arrive();
look();
takeSamples();
takeEvents();
takeTab();
