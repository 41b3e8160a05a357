// The network tree: a rack a block, a shelf a subblock, a tile a node. Up to LARGE nodes all tiles are drawn;
// of larger clusters a summary of each block, and the tiles of those that were opened.
import { byId, choices, count, domainName, el, redraw, sum, svg } from "./dom.js";
import { describe, drawShelf, layoutFor, linesOf, matches } from "./tiles.js";

export const LARGE = 5000; // nodes that one answer holds: what has more is opened by its parts
const HEIGHT = 340; // that the map has at most, if it can be
const BRIEF = 800; // nodes from which on pods and cards are not asked for

/** Which nodes to ask for: [domain, isBrief]; all of a cluster that is not large. */
export function wantedNodes({ picture, open }) {
  return picture.nodes <= LARGE ? [["", picture.nodes > BRIEF]] : [...open].map((domain) => [domain, false]);
}

/** Draw the map. state: what main.js holds; actions.open, show: called with a domain's id; showNode: with a node. */
export function drawMap(state, actions) {
  const { picture } = state;
  choices(byId("family"), [["", "all"], ...picture.families.map((name, number) => [String(number), name]).filter(([, name]) => name)]);
  choices(byId("model"), [["", "all"], ...picture.models.map((name) => [name, name])]);
  byId("family").closest("label").hidden = byId("family").options.length < 3;
  const family = byId("family").value;
  const tops = picture.domains.filter((each) => each.level === 0 && (!family || each.id.startsWith(`${family}/`)));
  const drawnNodes = picture.nodes <= LARGE ? picture.nodes : sum(picture.domains.filter((each) => state.open.has(each.id)).map((each) => sum(each.nodes)));
  const context = {
    state, actions: { ...actions, hover },
    children: Map.groupBy(picture.domains, (each) => each.parent),
    layout: layoutFor(drawnNodes, HEIGHT * byId("domains").clientWidth),
  };
  context.tiles = byShelf(tops, context);
  byId("domains").classList.toggle("dense", context.layout.isDense || picture.nodes > LARGE);
  byId("domains").style.setProperty("--rack", `${rackWidth(tops, context)}px`);
  redraw(byId("domains"), tops.map((top) => rack(top, context)));
  drawFound(state);
}

/** The width of the widest rack, so that all stand in columns. */
function rackWidth(tops, { state, children, layout }) {
  const open = tops.filter((top) => state.picture.nodes <= LARGE || state.open.has(top.id));
  const widest = Math.max(0, ...open.flatMap((top) => shelvesOf(top, children)).map((each) => linesOf(sum(each.nodes)).columns));
  return Math.max(165, widest * (layout.size + layout.gap) + (layout.isDense ? 16 : 56));
}

function rack(domain, context) {
  const { state, children, actions } = context;
  const nodes = sum(domain.nodes);
  const isOpen = state.open.has(domain.id) || state.picture.nodes <= LARGE;
  const below = children.get(domain.id) ?? [];
  const isSplit = !isOpen && nodes > LARGE && below.length;
  let parts;
  if (isOpen) {
    const left = state.left.get(domain.id) ?? 0;
    parts = shelvesOf(domain, children).map((each) => shelf(each, context, each !== domain));
    if (left) parts.push(el("p", {}, `${left} more nodes are not drawn.`));
  } else if (isSplit) parts = [el("div", { class: "racks" }, ...below.map((each) => rack(each, context)))];
  else parts = [];
  const here = state.domains.get(domain.id);
  const kind = `domain rack${isOpen || isSplit ? " is-open" : ""}${state.near === domain.id ? " near" : ""}${here ? " has-chosen" : ""}`;
  return el("div", { class: kind, "data-domain": domain.id },
    el(domain.level === 0 ? "h3" : "div", { class: "title" }, ...title(domain, context, isOpen || isSplit), isOpen || isSplit ? null : opener(domain, nodes, actions)), bar(domain),
    here && !isOpen ? el("p", { class: "here" }, `${count(here, "pod")} here`) : null, ...parts);
}

function opener(domain, nodes, { open }) {
  const text = `Show ${nodes} nodes of ${domainName(domain.id)}`;
  return el("button", { type: "button", class: "open", "data-focus": `open ${domain.id}`, "aria-label": text, title: text, onclick: () => open(domain.id) }, "+");
}

/** The domains whose nodes make one shelf: those above the lowest, or the domain itself. */
function shelvesOf(top, children) {
  const below = children.get(top.id) ?? [];
  const hasGrandchildren = below.some((each) => children.has(each.id));
  return hasGrandchildren ? below.flatMap((each) => shelvesOf(each, children)) : below.length > 1 && below.some((each) => sum(each.nodes) > 1) ? below : [top];
}

/** The id of a shelf -> its nodes, by going up from each node's domain. */
function byShelf(tops, { state, children }) {
  const shelves = new Map(tops.flatMap((top) => shelvesOf(top, children)).map((each) => [each.id, []]));
  const known = new Map();
  for (const tile of state.nodes.values()) {
    let shelf = known.get(tile.domain);
    if (shelf === undefined) {
      let id = tile.domain;
      while (id && !shelves.has(id)) id = id.slice(0, Math.max(0, id.lastIndexOf("/")));
      shelf = shelves.get(id) ?? null;
      known.set(tile.domain, shelf);
    }
    shelf?.push(tile);
  }
  return shelves;
}

function shelf(domain, context, isNamed) {
  const { state, layout, actions } = context;
  const label = `${domain.name}: ${domain.used} of ${domain.gpus} GPUs used, ${domain.waiting} planned`;
  const drawing = drawShelf(context.tiles.get(domain.id) ?? [], sum(domain.nodes), label, layout, state, actions);
  const name = isNamed && !layout.isDense
    ? el("button", { type: "button", class: "link shelf-name", "data-focus": domain.id, title: `${free(domain)} of ${domain.gpus} GPUs free`, onclick: () => actions.show(domain.id) }, domain.name) : null;
  return el("div", { class: state.near === domain.id ? "domain shelf near" : "domain shelf", "data-domain": domain.id }, name, drawing);
}

const free = (domain) => domain.gpus - domain.used - domain.waiting - domain.reserved;

/** A closed rack is narrow: how many GPUs it has stands in its hint alone. */
function title(domain, { actions }, isWide) {
  return [
    el("button", { type: "button", class: "link", "data-focus": domain.id, onclick: () => actions.show(domain.id) }, domain.name),
    el("small", { title: `${free(domain)} of ${domain.gpus} GPUs are free and reserved for nobody` }, el("b", {}, String(free(domain))), isWide ? ` of ${domain.gpus} free` : " free"),
  ];
}

function bar(domain) {
  const part = (many) => (domain.gpus ? (100 * many) / domain.gpus : 0);
  const shares = [["used", domain.used], ["waiting-for", domain.waiting], ["reserved", domain.reserved]];
  let x = 0;
  const shapes = shares.map(([name, many]) => {
    const shape = svg("rect", { class: name, x, width: part(many), height: 6 });
    x += part(many);
    return shape;
  });
  return svg("svg", { class: "share", viewBox: "0 0 100 6", preserveAspectRatio: "none", role: "img", "aria-label": `${domain.used} of ${domain.gpus} GPUs used` },
    svg("rect", { class: "frame", width: 100, height: 6 }), ...shapes);
}

function hover(tile, event) {
  const tip = byId("tip");
  tip.hidden = tile === null;
  if (tile === null) return;
  tip.textContent = describe(tile);
  tip.style.left = `${Math.min(event.clientX + 12, innerWidth - 330)}px`;
  tip.style.top = `${event.clientY + 16}px`;
}

function drawFound(state) {
  const many = state.find ? [...state.nodes.values()].filter((tile) => matches(tile, state.find)).length : 0;
  byId("found").textContent = state.find ? (many === 1 ? "1 node matches." : `${many} nodes match.`) : "";
}
