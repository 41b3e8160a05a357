// The first screen's answers: what waits and why, where there is capacity, which nodes are out of use.
import { age, byId, count, domainName, el, gangAddress, gangName, modelName, redraw, sum } from "./dom.js";

const MOST_WAITING = 3;
const MOST_MODELS = 4;
const MOST_NODES = 3;

/** show: called with a domain's id; showNode: with a node's name and its domain's id. */
export function drawOverview({ picture }, { show, showNode }) {
  byId("cluster").textContent = picture.cluster || location.hostname;
  byId("viewer").textContent = picture.viewer;
  const tops = picture.domains.filter((each) => each.level === 0);
  const total = (key) => sum(tops.map((each) => each[key]));
  const waiting = picture.gangs.filter((row) => row.waiting);
  const waits = waiting.length === 1 ? "1 gang waits" : `${waiting.length} gangs wait`;
  byId("summary").textContent = `${count(picture.nodes, "node")}, ${total("used")} of ${total("gpus")} GPUs used, ${waits}`;
  drawWaiting(waiting, picture);
  drawRoom(picture, show);
  drawTroubles(picture, showNode);
}

function drawWaiting(waiting, picture) {
  const longest = [...waiting].sort((one, other) => one.created.localeCompare(other.created));
  byId("waiting-sum").textContent = waiting.length ? `${count(waiting.length, "gang")}, ${sum(waiting.map((row) => row.gpus))} GPUs; longest first` : "";
  redraw(byId("waiting-list"), longest.length ? longest.slice(0, MOST_WAITING).map((row) =>
    el("li", {},
      el("a", { href: gangAddress(row.id), "data-focus": `waits ${row.id}` }, gangName(row)),
      el("span", { class: "facts" }, `${age(row.created, picture.at)}, ${count(row.gpus, "GPU")}`),
      el("p", { class: "why", title: row.reason }, row.reason || "The sweeper has not planned it yet."))) :
    [el("li", { class: "none" }, "No gang waits.")]);
}

function drawRoom({ room, levels }, show) {
  const upper = levels.slice(0, 2);
  redraw(byId("room-head"), [el("tr", {},
    ...["Model", "Free", "On free nodes"].map((title) => el("th", { scope: "col" }, title)),
    ...upper.map((level) => el("th", { scope: "col", title: `GPUs on wholly free nodes of the ${level} that has most of them` }, `Most in a ${level}`)))]);
  const rows = room.slice(0, MOST_MODELS).map((each) => el("tr", {},
    el("th", { scope: "row" }, modelName(each.model)),
    el("td", {}, el("b", {}, String(each.free)), ` of ${each.gpus}`,
      each.stranded ? el("div", { class: "facts" }, each.stranded) : ""),
    el("td", {}, String(each.whole)),
    ...upper.map((_, level) => freest(each, level, show))));
  if (room.length > MOST_MODELS) {
    const rest = room.slice(MOST_MODELS);
    rows.push(el("tr", {}, el("th", { scope: "row" }, `${rest.length} more models`),
      el("td", {}, el("b", {}, String(sum(rest.map((each) => each.free)))), ` of ${sum(rest.map((each) => each.gpus))}`),
      el("td", { colspan: 1 + upper.length }, String(sum(rest.map((each) => each.whole))))));
  }
  redraw(byId("room-rows"), rows.length ? rows : [el("tr", {}, el("td", { colspan: 5 }, "No node has GPUs."))]);
}

function freest(row, level, show) {
  const best = row.freest[level];
  return el("td", {}, best ? el("button", { type: "button", class: "link", "data-focus": `freest ${row.model} ${level}`, onclick: () => show(best.id) }, `${best.gpus} in ${domainName(best.id)}`) : "-");
}

function drawTroubles({ troubles, nodes, unreadable }, showNode) {
  const excluded = Object.entries(troubles.excluded);
  const parts = [count(nodes, "node")];
  if (troubles.avoided) parts.push(`${troubles.avoided} avoided`);
  if (excluded.length) parts.push(`${sum(excluded.map(([, many]) => many))} excluded`);
  if (unreadable) parts.push(`${unreadable} cannot be read`);
  byId("troubles-sum").textContent = parts.join(", ");
  const items = troubles.nodes.slice(0, MOST_NODES).map((node) => el("li", {},
    el("button", { type: "button", class: "link", "data-focus": `trouble ${node.name}`, onclick: () => showNode(node.name, node.domain) }, node.name),
    el("span", { class: "facts" }, node.isExcluded ? "excluded" : "avoided"),
    el("p", { class: "why", title: node.why }, node.why)));
  const named = Math.min(troubles.nodes.length, MOST_NODES);
  const others = troubles.avoided + sum(excluded.map(([, many]) => many)) - named;
  if (others > 0) items.push(el("li", { class: "none" }, `${others} more: ${causes(excluded, troubles.avoided)}`));
  redraw(byId("troubles-list"), items.length ? items : [el("li", { class: "none" }, "No node is failing or out of use.")]);
}

const causes = (excluded, avoided) =>
  [avoided ? `${avoided} avoided` : "", ...excluded.map(([cause, many]) => `${many} ${cause}`)].filter(Boolean).join(", ");
