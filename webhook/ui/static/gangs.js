// The list of gangs, and one of them in full.
import { age, byId, el, redraw } from "./dom.js";

/** Draw the list. choose: called with a gang's id. */
export function drawGangs(state, choose) {
  const { picture } = state;
  redraw(byId("gang-rows"), picture.gangs.flatMap((row) => [gangRow(row, state, choose), ...reasonRow(row)]));
  byId("gangs-hidden").textContent = picture.hiddenGangs
    ? `${picture.hiddenGangs} more are in namespaces whose pods you may not list.`
    : picture.gangs.length ? "" : "No gang waits or runs.";
}

function gangRow(row, state, choose) {
  const isChosen = state.gang === row.id;
  return el(
    "tr", { "aria-selected": isChosen ? "true" : "false", "data-gang": row.id },
    el("td", {}, el("button", { type: "button", class: "link", "data-focus": row.id, onclick: () => choose(isChosen ? "" : row.id) }, `${row.namespace}/${row.kind}/${row.name}`)),
    el("td", { class: `state ${row.state}` }, row.state),
    el("td", {}, row.waiting ? `${row.pods - row.waiting} of ${row.size}` : `${row.pods}`),
    el("td", {}, String(row.gpus)),
    el("td", { class: "spread" }, row.compared),
    el("td", {}, age(row.created, picture(state).at)),
    el("td", {}, String(row.priority)),
  );
}

/** Why a gang waits and where it came closest, below its row. */
function reasonRow(row) {
  return row.waiting && row.reason ? [el("tr", { class: "reason" }, el("td", { colspan: 7 }, row.reason))] : [];
}

const picture = (state) => state.picture;

let drawn = "";

/** Draw one gang in full; what has not changed is left alone, so that nothing is read out twice. */
export function drawGang(detail) {
  const place = byId("gang");
  place.hidden = detail === null;
  const now = JSON.stringify(detail);
  if (detail === null || now === drawn) return;
  drawn = now;
  const open = [...place.querySelectorAll("details")].map((each) => each.open);
  const { gang } = detail;
  const facts = [
    ["Spread", gang.spread], ["Best in an empty cluster", detail.best],
    ["Proven", gang.spread ? (gang.proven ? "yes: nothing better existed" : "no") : ""],
  ].filter(([, value]) => value);
  redraw(place, [
    el("h3", {}, `${gang.namespace}/${gang.kind}/${gang.name}`),
    ...detail.sentences.map((line) => el("p", { class: "sentence" }, line)),
    el("dl", {}, ...facts.flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, value)])),
    el("details", { open: open[0] ?? false }, el("summary", { "data-focus": "plan" }, `Plan: ${gang.members.length} pods`),
      el("ul", {}, ...gang.members.map((each) => el("li", {}, `${each.rank ?? "-"}  ${each.name}: ${each.node || "waits"}`)))),
    el("details", { open: open[1] ?? false }, el("summary", { "data-focus": "events" }, `Events: ${detail.events.length}${detail.eventsMissing ? ` (${detail.eventsMissing})` : ""}`),
      el("ul", {}, ...detail.events.map((each) => el("li", {}, `${each.at} ${each.type} ${each.reason} (${each.count}): ${each.note}`)))),
  ]);
}
