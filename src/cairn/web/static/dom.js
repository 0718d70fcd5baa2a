// Elements are made from values, never from text with markup in it: nothing that comes from the
// cluster can become HTML. What is drawn again is compared with what is there, so that focus,
// selection and scroll stay.

const SVG = new Set(["svg", "g", "rect", "path", "line", "circle", "text", "defs", "pattern", "marker", "title"]);

export function h(tag, attributes = {}, ...children) {
  const made = SVG.has(tag)
    ? document.createElementNS("http://www.w3.org/2000/svg", tag)
    : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === false || value === null || value === undefined) continue;
    made.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    made.append(child instanceof Node ? child : String(child));
  }
  return made;
}

/** Make the children of `place` like `fresh`, touching only what differs. */
export function draw(place, ...fresh) {
  morphChildren(place, fresh.flat(Infinity).filter(Boolean).map((each) =>
    each instanceof Node ? each : document.createTextNode(String(each))));
}

function morphChildren(place, fresh) {
  const old = [...place.childNodes];
  fresh.forEach((node, at) => {
    if (at < old.length) morph(old[at], node);
    else place.append(node);
  });
  old.slice(fresh.length).forEach((node) => node.remove());
}

function morph(old, fresh) {
  const isSame = old.nodeType === fresh.nodeType && old.nodeName === fresh.nodeName
    && old.dataset?.key === fresh.dataset?.key;
  if (!isSame) { old.replaceWith(fresh); return; }
  if (old.nodeType !== Node.ELEMENT_NODE) {
    if (old.data !== fresh.data) old.data = fresh.data;
    return;
  }
  if (old.dataset.keep !== undefined) return; // what a person has typed
  for (const { name } of [...old.attributes]) {
    if (!fresh.hasAttribute(name) && !(name === "open" && old.nodeName === "DETAILS")) old.removeAttribute(name);
  }
  for (const { name, value } of [...fresh.attributes]) {
    if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  morphChildren(old, [...fresh.childNodes]);
}

export const by = (id) => document.getElementById(id);

const UNITS = ["", "k", "M", "G", "T"];
export function short(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  let at = 0, size = Math.abs(value);
  while (size >= 1000 && at < UNITS.length - 1) { size /= 1000; at++; }
  const digits = size >= 100 || (at === 0 && Number.isInteger(value)) ? 0 : size >= 10 ? 1 : size >= 1 || size === 0 ? 2 : 3;
  return (value < 0 ? "-" : "") + Number(size.toFixed(digits)) + UNITS[at];
}
export const bytes = (value) => (value === null || value === undefined ? "–" : `${short(value).replace(/([kMGT]?)$/, " $1B")}`);
export const ms = (value) => (value === null || value === undefined ? "–" : value >= 1000 ? `${short(value / 1000)} s` : `${short(value)} ms`);
export const count = (number, word) => `${short(number)} ${word}${number === 1 ? "" : "s"}`;
export const percent = (value) => `${short(value)} %`;
/** A time as PostgreSQL writes it: how long ago it was. */
export function ago(text) {
  const seconds = (Date.now() - Date.parse(String(text).replace(" ", "T").replace(/([+-]\d\d)$/, "$1:00"))) / 1000;
  if (!(seconds >= -60)) return String(text);
  const [size, unit] = seconds < 100 ? [1, "s"] : seconds < 6000 ? [60, "min"] : seconds < 172800 ? [3600, "h"] : [86400, "days"];
  return `${Math.max(Math.round(seconds / size), 0)} ${unit} ago`;
}
export const clock = (seconds) => new Date(seconds * 1000).toLocaleTimeString([], { hour12: false });
