// What happened: the events that smart clients are told, and the cluster as it was at any of them.
import { h, clock } from "./dom.js";
import { colouring } from "./cluster.js";

const MOST = 5000;

export class Events {
  constructor() { this.list = []; }

  take(events) {
    const last = this.list.at(-1);
    const isNew = (each) => !last || each.raft[0] > last.raft[0] || (each.raft[0] === last.raft[0] && each.raft[1] > last.raft[1]);
    this.list.push(...events.filter(isNew));
    if (this.list.length > MOST) this.list.splice(0, this.list.length - MOST);
  }

  get after() { return this.list.at(-1)?.raft.join(":") ?? "0:0"; }

  /** The cluster after the first `count` events. */
  at(count) {
    const picture = { instances: new Map(), replicasets: new Map(), buckets: [] };
    for (const { body } of this.list.slice(0, count)) apply(picture, body);
    return picture;
  }
}

function apply(picture, event) {
  const put = (map, key) => event.op === "delete" ? map.delete(key) : map.set(key, { ...map.get(key), ...event });
  if (event.map === "instance") put(picture.instances, event.instance_uuid);
  else if (event.map === "replicaset") put(picture.replicasets, event.replicaset_uuid);
  else if (event.map === "bucket") {
    const { start, end } = event.bucket_id;
    const kept = picture.buckets.flatMap((range) => range.tier !== event.tier || range.end < start || range.start > end ? [range] : [
      range.start < start && { ...range, end: start - 1 }, range.end > end && { ...range, start: end + 1 }].filter(Boolean));
    if (event.op !== "delete") kept.push({ tier: event.tier, start, end, owner: event.current_replicaset_uuid, state: event.state });
    picture.buckets = kept;
  }
}

function moment(text) {
  const at = new Date(text), isToday = at.toDateString() === new Date().toDateString();
  return isToday ? at.toLocaleTimeString([], { hour12: false }) : at.toLocaleString([], { hour12: false, dateStyle: "short", timeStyle: "medium" });
}

function sentence(event, names) {
  const who = names.get(event.instance_uuid) ?? event.name ?? event.instance_uuid ?? "";
  const set = (uuid) => names.get(uuid) ?? uuid ?? "";
  if (event.map === "instance") {
    if (event.op === "delete") return `${who} is gone`;
    const parts = [event.current_state && `is ${event.current_state}`, event.address && `is at ${event.address}`,
      event.replicaset_uuid && `belongs to ${set(event.replicaset_uuid)}`].filter(Boolean);
    return `${who} ${parts.join(", ")}`;
  }
  if (event.map === "replicaset") {
    if (event.op === "delete") return `${set(event.replicaset_uuid)} is gone`;
    return `${event.name ?? set(event.replicaset_uuid)}: ${event.current_master_uuid ? `master is ${names.get(event.current_master_uuid) ?? event.current_master_uuid}` : "no master yet"}`;
  }
  if (event.map === "bucket") {
    return `buckets ${event.bucket_id.start}–${event.bucket_id.end}: ${event.state ?? "gone"} at ${set(event.current_replicaset_uuid)}${event.next_replicaset_uuid ? `, on the way to ${set(event.next_replicaset_uuid)}` : ""}`;
  }
  if (event.map === "tier") return `tier ${event.tier} has ${event.bucket_count} buckets`;
  return JSON.stringify(event);
}

export function history(state) {
  const { list } = state.events, names = new Map();
  for (const { body } of list) {
    if (body.name && body.map === "instance") names.set(body.instance_uuid, body.name);
    if (body.name && body.map === "replicaset") names.set(body.replicaset_uuid, body.name);
  }
  const count = Math.min(state.moment ?? list.length, list.length), now = list[count - 1];
  return [
    h("h1", {}, "History"),
    list.length === 0 ? h("p", {}, "Nothing has been recorded yet.") : [
      h("label", { for: "moment" }, "The cluster as it was: ",
        h("strong", {}, now ? `${clock(Date.parse(now.at) / 1000)}, Raft ${now.raft.join(":")}` : "before the first event"),
        count === list.length ? " (now)" : ` (${list.length - count} events ago)`),
      h("input", { type: "range", id: "moment", min: 0, max: list.length, step: 1, "data-input": "moment", "data-keep": true }),
      picture(state.events.at(count), names),
      h("h2", {}, "Events"),
      h("p", { class: "mute" }, "The newest first; new ones come by themselves."),
      h("ul", { class: "events" }, list.slice(-200).reverse().map((each) => h("li", { "data-key": `${each.raft}:${each.n}`, class: each === now ? "now" : "" },
        h("span", { class: "mono mute" }, each.raft.join(":")), h("span", { class: "mute" }, moment(each.at)),
        h("span", {}, sentence(each.body, names))))),
    ],
  ];
}

function picture({ instances, replicasets, buckets }, names) {
  const sets = [...replicasets.values()], colours = colouring(sets.map((set) => ({ name: set.replicaset_uuid })));
  if (!sets.length) return h("p", { class: "mute" }, "No replicaset yet.");
  const most = Math.max(1, ...buckets.map((range) => range.end)), at = (bucket) => ((bucket - 1) / most) * 1000;
  return [
    h("div", { class: "grid" }, sets.map((set) => h("article", { class: `card replicaset k${colours[set.replicaset_uuid]}`, "data-key": set.replicaset_uuid },
      h("h3", {}, set.name ?? set.replicaset_uuid),
      [...instances.values()].filter((each) => each.replicaset_uuid === set.replicaset_uuid).map((each) => h("div", { class: "instance row" },
        h("strong", {}, names.get(each.instance_uuid) ?? each.instance_uuid),
        h("span", { class: each.current_state === "Online" ? "ok" : each.current_state === "Offline" || each.current_state === "Expelled" ? "no" : "wait" }, each.current_state ?? ""),
        set.current_master_uuid === each.instance_uuid && h("span", { class: "tag strong" }, "master")))))),
    buckets.length > 0 && h("svg", { class: "map", viewBox: "0 0 1000 30", role: "img", "aria-label": "owners of buckets at that time" },
      buckets.map((range) => h("rect", { class: `f${colours[range.owner] ?? 7}`, x: at(range.start), y: 4, width: Math.max(at(range.end + 1) - at(range.start), 0.6), height: 20 }))),
  ];
}
