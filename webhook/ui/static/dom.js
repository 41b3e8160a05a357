// Elements are made here, and text only ever becomes text: nothing that the cluster says is parsed as HTML.

const SVG = "http://www.w3.org/2000/svg";

/** An HTML element. attributes: strings, true for a bare one, functions for events ("onclick"). */
export function el(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** The same in SVG. */
export function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") node.addEventListener(name.slice(2), value);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) node.setAttribute(name, String(value));
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

/** Replace what is in a place. Who was on a button there by keyboard stays on it: buttons are known by data-focus. */
export function redraw(place, children) {
  const was = place.contains(document.activeElement) ? document.activeElement.dataset.focus : undefined;
  place.replaceChildren(...children);
  if (was !== undefined) place.querySelector(`[data-focus="${CSS.escape(was)}"]`)?.focus({ preventScroll: true });
}

export const byId = (id) => document.getElementById(id);

/** Fill a <select>, keeping its choice where that is still there. options: [value, text]. */
export function choices(select, options) {
  const wanted = JSON.stringify(options);
  if (select.dataset.options === wanted) return;
  const before = select.value;
  select.dataset.options = wanted;
  select.replaceChildren(...options.map(([value, text]) => el("option", { value }, text)));
  if (options.some(([value]) => value === before)) select.value = before;
}

/** An age in words of one unit: 42 s, 7 min, 3 h, 2 d. */
export function age(created, now) {
  const seconds = Math.max(0, now - Date.parse(created) / 1000);
  if (Number.isNaN(seconds)) return "";
  if (seconds < 120) return `${Math.round(seconds)} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  if (seconds < 172800) return `${Math.round(seconds / 3600)} h`;
  return `${Math.round(seconds / 86400)} d`;
}

export const count = (number, noun) => `${number} ${noun}${number === 1 ? "" : "s"}`;

export const sum = (numbers) => numbers.reduce((total, each) => total + each, 0);

/** What a GPU model is called that no label names. */
export const modelName = (model) => model || "(unknown)";

/** A domain's id without the number of its family: b1/s0. */
export const domainName = (id) => id.split("/").slice(1).join("/") || id;

export const gangName = (row) => `${row.namespace}/${row.kind}/${row.name}`;

/** The address of a gang on this page: gang ids are the namespace and name of the gang's Placement. */
export const gangAddress = (id) => `#/gang/${id.split("/").map(encodeURIComponent).join("/")}`;
