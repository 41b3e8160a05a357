// The table of gangs: sorted, filtered, each that waits with its reason.
import { age, byId, choices, count, el, gangAddress, gangName, redraw } from "./dom.js";

const MOST_ROWS = 100; // that are drawn without being asked for

const COLUMNS = [
  { key: "name", title: "Gang", of: gangName },
  { key: "state", title: "State", of: (row) => row.state },
  { key: "pods", title: "Pods", of: (row) => row.size, isNumber: true },
  { key: "gpus", title: "GPUs", of: (row) => row.gpus, isNumber: true },
  { key: "model", title: "Model", of: (row) => row.models.join(", ") },
  { key: "spread", title: "Spread", of: (row) => row.domains[0] ?? Infinity, hint: "In how many domains it is" },
  { key: "age", title: "Age", of: (row) => -Date.parse(row.created), isNumber: true },
  { key: "priority", title: "Priority", of: (row) => row.priority, isNumber: true },
];
const ORDER = ""; // the server's: those that wait first, then by priority and age

const shown = { by: ORDER, isDown: false, isAll: false };

/** Wire sorting and filters; drawn: called when the table is to be drawn again. */
export function wireGangs(drawn) {
  redraw(byId("gang-head"), COLUMNS.map(({ key, title, hint, isNumber }) =>
    el("th", { scope: "col", "data-key": key, class: isNumber ? "number" : false, title: hint ?? false },
      el("button", { type: "button", class: "sort", onclick: () => sortBy(key, drawn) }, title))));
  choices(byId("sort"), [[ORDER, "as served"], ...COLUMNS.flatMap(({ key, title }) => [[`${key} up`, `${title} ↑`], [`${key} down`, `${title} ↓`]])]);
  byId("sort").addEventListener("input", ({ target }) => {
    const [by, direction] = target.value.split(" ");
    Object.assign(shown, { by, isDown: direction === "down" });
    drawn();
  });
  for (const id of ["of-namespace", "of-state", "of-model"]) byId(id).addEventListener("input", drawn);
}

function sortBy(key, drawn) {
  shown.isDown = shown.by === key && !shown.isDown;
  shown.by = key;
  byId("sort").value = `${key} ${shown.isDown ? "down" : "up"}`;
  drawn();
}

/** Draw the table. choose: called with a gang's id, "" for none. */
export function drawGangs(state, choose) {
  const { picture } = state;
  const every = (of) => [["", "all"], ...[...new Set(picture.gangs.flatMap(of))].sort().map((each) => [each, each])];
  choices(byId("of-namespace"), every((row) => row.namespace));
  choices(byId("of-state"), every((row) => row.state));
  choices(byId("of-model"), every((row) => row.models));
  const rows = sorted(picture.gangs.filter(isWanted));
  const drawn = shown.isAll ? rows : rows.slice(0, MOST_ROWS);
  for (const head of byId("gang-head").children) {
    const isBy = head.dataset.key === shown.by;
    head.toggleAttribute("aria-sort", isBy);
    if (isBy) head.setAttribute("aria-sort", shown.isDown ? "descending" : "ascending");
  }
  redraw(byId("gang-rows"), drawn.flatMap((row) => [gangRow(row, state, choose), ...reasonRow(row, state)]));
  const all = count(picture.gangs.length, "gang");
  byId("gangs-count").textContent = rows.length === picture.gangs.length ? all : `${rows.length} of ${all}`;
  byId("gang-table").hidden = !rows.length;
  redraw(byId("gangs-more"), drawn.length < rows.length
    ? [el("button", { type: "button", "data-focus": "all gangs", onclick: () => { shown.isAll = true; drawGangs(state, choose); } }, `Show all ${rows.length} gangs`)] : []);
  const hidden = picture.hiddenGangs ? `${picture.hiddenGangs} more are in namespaces whose pods you may not list.` : "";
  byId("gangs-hidden").textContent = hidden || (picture.gangs.length ? (rows.length ? "" : "No gang matches.") : "No gang waits or runs.");
}

function isWanted(row) {
  const [namespace, state, model] = ["of-namespace", "of-state", "of-model"].map((id) => byId(id).value);
  return (!namespace || row.namespace === namespace) && (!state || row.state === state) && (!model || row.models.includes(model));
}

function sorted(rows) {
  const column = COLUMNS.find(({ key }) => key === shown.by);
  if (!column) return rows;
  const sign = shown.isDown ? -1 : 1;
  return rows.map((row) => [column.of(row), row]).sort(([one], [other]) =>
    sign * (typeof one === "string" ? one.localeCompare(other) : one === other ? 0 : one - other)).map(([, row]) => row);
}

function gangRow(row, state, choose) {
  const isChosen = state.gang === row.id;
  const cell = (title, value, kind) => el("td", { "data-title": title, class: kind ?? false }, value);
  return el(
    "tr", { class: isChosen ? "gang is-chosen" : "gang", "data-gang": row.id, onclick: (event) => { if (!event.target.closest("a")) choose(isChosen ? "" : row.id); } },
    el("td", { class: "name" }, el("a", { href: gangAddress(row.id), "data-focus": row.id, "aria-current": isChosen ? "true" : false },
      el("span", { class: "namespace" }, `${row.namespace}/`), `${row.kind}/${row.name}`)),
    el("td", { "data-title": "State" }, el("span", { class: `state ${row.state}` }, row.state)),
    cell("Pods", row.waiting ? `${row.pods - row.waiting} of ${row.size}` : `${row.pods}`, "number"),
    cell("GPUs", String(row.gpus), "number"),
    cell("Model", row.models.join(", ") || "any"),
    cell("Spread", row.compared, "spread"),
    cell("Age", age(row.created, state.picture.at), "number"),
    cell("Priority", String(row.priority), "number"),
  );
}

/** Why a gang waits and where it came closest, below its row. */
function reasonRow(row, state) {
  return row.waiting && row.reason
    ? [el("tr", { class: state.gang === row.id ? "reason is-chosen" : "reason" }, el("td", { colspan: COLUMNS.length }, row.reason))] : [];
}
