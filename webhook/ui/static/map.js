// The network tree: a card a block, a row a subblock, a tile a node. Small clusters show all nodes, large ones
// those of the blocks that were opened.
import { byId, choices, el, redraw, svg } from "./dom.js";

export const SMALL = 2000; // nodes that are shown without being asked for
const LARGE = 5000; // nodes that one answer holds: what has more is opened by its parts
const TILE = 20;
const GAP = 4;

/** Draw the map. state: what main.js holds; open: called with a block's id; show: with a domain's id. */
export function drawMap(state, { open, show }) {
  const { picture } = state;
  choices(byId("family"), [["", "all"], ...picture.families.map((name, number) => [String(number), name]).filter(([, name]) => name)]);
  choices(byId("model"), [["", "all"], ...picture.models.map((name) => [name, name])]);
  const family = byId("family").value;
  const tops = picture.domains.filter((each) => each.level === 0 && (!family || each.id.startsWith(`${family}/`)));
  const children = Map.groupBy(picture.domains, (each) => each.parent);
  const nodes = Map.groupBy(state.nodes.values(), (each) => each.domain);
  redraw(byId("domains"), tops.map((top) => block(top, { state, children, nodes, open, show })));
  drawFound(state);
}

function block(domain, context) {
  const { state, children, open } = context;
  const head = domain.level === 0 ? el("h3", {}, title(domain, context)) : el("div", {}, title(domain, context));
  const below = children.get(domain.id) ?? [];
  let parts;
  if (state.open.has(domain.id) || state.picture.nodes <= SMALL) {
    const left = state.left.get(domain.id) ?? 0;
    parts = rowsOf(domain, children).map((row) => subblock(row, context, row !== domain));
    if (left) parts.push(el("p", {}, `${left} more nodes are not drawn.`));
  } else if (sum(domain.nodes) > LARGE && below.length) parts = [bar(domain), ...below.map((each) => block(each, context))];
  else parts = [bar(domain), el("button", { type: "button", "data-focus": `open ${domain.id}`, onclick: () => open(domain.id) }, `Show ${sum(domain.nodes)} nodes`)];
  return el("div", { class: near(state, domain), "data-domain": domain.id }, head, ...parts);
}

/** The domains whose nodes make one row: those above the lowest, or the domain itself. */
function rowsOf(top, children) {
  const below = children.get(top.id) ?? [];
  const hasGrandchildren = below.some((each) => children.has(each.id));
  return hasGrandchildren ? below.flatMap((each) => rowsOf(each, children)) : below.length > 1 && below.some((each) => sum(each.nodes) > 1) ? below : [top];
}

function subblock(row, context, isNamed) {
  const { state } = context;
  const tiles = [...state.nodes.values()].filter((each) => each.domain === row.id || each.domain.startsWith(`${row.id}/`));
  const columns = Math.min(16, Math.max(1, tiles.length));
  const rows = Math.ceil(tiles.length / columns);
  const drawing = svg(
    "svg",
    {
      class: "nodes", role: "img", width: columns * (TILE + GAP) + GAP, height: rows * (TILE + GAP) + GAP,
      "aria-label": `${row.name}: ${row.used} of ${row.gpus} GPUs used, ${row.waiting} waited for`,
    },
    ...tiles.map((tile, number) => node(tile, (number % columns) * (TILE + GAP) + GAP, Math.floor(number / columns) * (TILE + GAP) + GAP, state)),
  );
  const head = isNamed ? el("div", {}, title(row, context)) : null;
  return el("div", { class: near(state, row), "data-domain": row.id }, head, drawing);
}

function title(domain, { show }) {
  const free = domain.gpus - domain.used - domain.waiting;
  return el(
    "span", {},
    el("button", { type: "button", class: "link", "data-focus": domain.id, onclick: () => show(domain.id) }, domain.name), " ",
    el("small", {}, `${free} of ${domain.gpus} GPUs free`),
  );
}

function near(state, domain) {
  return state.near === domain.id ? "domain near" : "domain";
}

function bar(domain) {
  const width = 160;
  const part = (count) => (domain.gpus ? (width * count) / domain.gpus : 0);
  return svg(
    "svg", { class: "nodes", role: "img", width, height: 14, "aria-label": `${domain.used} of ${domain.gpus} GPUs used` },
    svg("rect", { class: "frame", width, height: 14 }),
    svg("rect", { class: "used", width: part(domain.used), height: 14 }),
    svg("rect", { class: "waiting-for", x: part(domain.used), width: part(domain.waiting), height: 14 }),
  );
}

function node(tile, x, y, state) {
  const height = (count) => (tile.gpus ? (TILE * Math.min(count, tile.gpus)) / tile.gpus : 0);
  const used = height(tile.used);
  const waiting = height(tile.waiting);
  const chosen = state.chosen.get(tile.name);
  const whatIf = state.whatIf.get(tile.name);
  const shapes = [svg("rect", { class: "frame", width: TILE, height: TILE })];
  if (tile.state === "excluded") shapes.push(svg("rect", { class: "excluded", width: TILE, height: TILE }), svg("path", { class: "cross", d: `M0 0L${TILE} ${TILE}M0 ${TILE}L${TILE} 0` }));
  if (tile.state === "reserved") shapes.push(svg("rect", { class: "reserved", width: TILE, height: TILE }), svg("path", { class: "stripes", d: `M0 ${TILE / 2}L${TILE / 2} 0M0 ${TILE}L${TILE} 0M${TILE / 2} ${TILE}L${TILE} ${TILE / 2}` }));
  shapes.push(
    svg("rect", { class: "used", y: TILE - used, width: TILE, height: used }),
    svg("rect", { class: "waiting-for", y: TILE - used - waiting, width: TILE, height: waiting }),
    ...tile.cards.map((card, number) =>
      svg("rect", { class: "card", x: (TILE / tile.cards.length) * number, width: TILE / tile.cards.length, height: TILE })),
  );
  if (tile.avoided) shapes.push(svg("path", { class: "avoided", d: `M0 0H${TILE / 2}L0 ${TILE / 2}Z` }));
  if (chosen !== undefined) shapes.push(svg("rect", { class: "chosen", width: TILE, height: TILE }));
  if (whatIf !== undefined) shapes.push(svg("rect", { class: "what-if", width: TILE, height: TILE }));
  const number = chosen ?? whatIf;
  if (number !== undefined && number !== "") shapes.push(svg("text", { x: TILE / 2, y: TILE / 2 + 3 }, String(number)));
  const isFaint = (state.model && tile.model !== state.model) || (state.find && !matches(tile, state.find));
  return svg(
    "g", { transform: `translate(${x} ${y})`, "data-node": tile.name, "data-state": tile.state, class: isFaint ? "faint" : "" },
    svg("title", {}, told(tile)), ...shapes,
  );
}

function matches(tile, text) {
  return tile.name.includes(text) || tile.domain.includes(text);
}

/** A node in a sentence. */
export function told(tile) {
  const cause = tile.cause ? `; excluded: ${tile.cause}` : "";
  const avoided = tile.avoided ? `; avoided: ${tile.avoided}` : "";
  const waiting = tile.waiting ? `, ${tile.waiting} waited for` : "";
  const until = tile.heldUntil ? ` until ${tile.heldUntil}` : "";
  const held = tile.heldFor ? `; held for ${tile.heldFor}${until}` : "";
  const cards = tile.cards.map((card) => `${card.name} ${card.pods} pods${card.tilesUsed.length ? ` tiles ${card.tilesUsed.join(",")}` : ""}`);
  return `${tile.name}: ${tile.used} of ${tile.gpus} GPUs used${waiting}${held}${cause}${avoided}${cards.length ? `; ${cards.join("; ")}` : ""}`;
}

function drawFound(state) {
  const count = state.find ? [...state.nodes.values()].filter((tile) => matches(tile, state.find)).length : 0;
  byId("found").textContent = state.find ? `${count} nodes match.` : "";
}

/** The nodes of a domain as a table: what the picture shows, for keyboard and screen reader. */
export function drawNodes(domain, tiles) {
  const place = byId("domain-nodes");
  place.hidden = false;
  place.replaceChildren(
    el("h3", {}, `Nodes of ${domain.split("/").slice(1).join("/") || domain}`),
    el("ul", {}, ...tiles.map((tile) => el("li", {}, told(tile),
      tile.pods.length ? el("ul", {}, ...tile.pods.map((pod) => el("li", {}, `${pod.namespace}/${pod.name}: ${pod.gpus} GPUs, ${pod.state}`))) : null))),
    el("button", { type: "button", onclick: () => { place.hidden = true; } }, "Close"),
  );
}

const sum = (numbers) => numbers.reduce((total, each) => total + each, 0);
