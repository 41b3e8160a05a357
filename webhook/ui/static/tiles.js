// Nodes as tiles: each an element of its own while there are few, one path for each state where there are many.
import { count, svg } from "./dom.js";

const SIZES = [18, 14, 11, 9, 7, 5];
const NUMBERED = 14; // from this size on a tile has room for a rank
const LARGEST_DENSE = 9; // up to this size all tiles of a state are one path
const OVERHEAD = 1.5; // of the map's area over that of its tiles

/** The largest size of `nodes` tiles that fill an area at most. */
export function layoutFor(nodes, area) {
  const sizes = SIZES.map((size) => ({ size, gap: size >= NUMBERED ? 3 : size > LARGEST_DENSE ? 2 : 1, isDense: size <= LARGEST_DENSE }));
  return sizes.find(({ size, gap }) => nodes * (size + gap) ** 2 * OVERHEAD <= area) ?? sizes.at(-1);
}

/** How many tiles make a line of a shelf, and how many lines: up to 16 in one, more in lines of about 25. */
export function linesOf(nodes) {
  const lines = nodes <= 16 ? 1 : Math.ceil(nodes / 25);
  return { lines, columns: Math.max(1, Math.ceil(nodes / lines)) };
}

/** The drawing of a shelf's tiles. nodes: how many there will be; hover: called with a tile or null, and the event. */
export function drawShelf(tiles, nodes, label, layout, state, { hover, showNode }) {
  const { size, gap, isDense } = layout;
  const { lines, columns } = linesOf(Math.max(nodes, tiles.length));
  const step = size + gap;
  const at = (number) => [(number % columns) * step, Math.floor(number / columns) * step];
  const number = (event) => {
    const box = event.currentTarget.getBoundingClientRect();
    return Math.floor((event.clientX - box.left) / step) + columns * Math.floor((event.clientY - box.top) / step);
  };
  const shapes = isDense ? densePaths(tiles, at, size, state) : tiles.map((tile, index) => drawTile(tile, at(index), size, state));
  return svg("svg", {
    class: isDense ? "nodes dense" : "nodes", role: "img", "aria-label": label, width: columns * step - gap, height: lines * step - gap,
    onclick: (event) => { const tile = tiles[number(event)]; if (tile) showNode(tile.name, tile.domain); },
    onmousemove: (event) => hover(isDense ? tiles[number(event)] ?? null : null, event), onmouseleave: (event) => hover(null, event),
  }, ...shapes);
}

/** One path for each thing that tiles show, in the order in which they cover each other. */
function densePaths(tiles, at, size, state) {
  const paths = new Map(["frame", "used", "waiting-for", "excluded", "reserved", "avoided", "faint-cover", "chosen", "what-if"].map((name) => [name, []]));
  const box = (name, x, y, width, height) => paths.get(name).push(`M${x} ${y}h${width}v${height}h${-width}z`);
  tiles.forEach((tile, number) => {
    const [x, y] = at(number);
    if (tile.state === "excluded") box("excluded", x, y, size, size);
    else {
      box("frame", x, y, size, size);
      const part = (many) => (tile.gpus ? (size * Math.min(many, tile.gpus)) / tile.gpus : 0);
      const [used, waiting] = [part(tile.used), part(tile.waiting)];
      if (used) box("used", x, y + size - used, size, used);
      if (waiting) box("waiting-for", x, y + size - used - waiting, size, waiting);
      if (tile.state === "reserved") box("reserved", x + 0.75, y + 0.75, size - 1.5, size - 1.5);
    }
    if (tile.avoided) paths.get("avoided").push(`M${x} ${y}h${size}l${-size} ${size}z`);
    if (isFaint(tile, state)) box("faint-cover", x, y, size, size);
    if (state.chosen.has(tile.name)) box("chosen", x, y, size, size);
    if (state.whatIf.has(tile.name)) box("what-if", x, y, size, size);
  });
  return [...paths].filter(([, parts]) => parts.length).map(([name, parts]) => svg("path", { class: name, d: parts.join("") }));
}

function drawTile(tile, [x, y], size, state) {
  const height = (many) => (tile.gpus ? (size * Math.min(many, tile.gpus)) / tile.gpus : 0);
  const used = height(tile.used);
  const waiting = height(tile.waiting);
  const shapes = [svg("rect", { class: "frame", width: size, height: size })];
  if (tile.state === "excluded") shapes.push(svg("rect", { class: "excluded", width: size, height: size }));
  if (tile.state === "reserved") shapes.push(svg("rect", { class: "reserved", width: size, height: size }), svg("path", { class: "stripes", d: `M0 ${size / 2}L${size / 2} 0M0 ${size}L${size} 0M${size / 2} ${size}L${size} ${size / 2}` }));
  shapes.push(
    svg("rect", { class: "used", y: size - used, width: size, height: used }),
    svg("rect", { class: "waiting-for", y: size - used - waiting, width: size, height: waiting }),
    ...tile.cards.map((card, number) =>
      svg("rect", { class: "card", x: (size / tile.cards.length) * number, width: size / tile.cards.length, height: size })),
  );
  if (tile.state === "excluded") shapes.push(svg("path", { class: "cross", d: `M0 0L${size} ${size}M0 ${size}L${size} 0` }));
  if (tile.avoided) shapes.push(svg("path", { class: "avoided", d: `M0 0H${size / 2}L0 ${size / 2}Z` }));
  shapes.push(...marks(tile, size, state));
  return svg(
    "g", { transform: `translate(${x} ${y})`, "data-node": tile.name, "data-state": tile.state, class: isFaint(tile, state) ? "faint" : "" },
    svg("title", {}, describe(tile)), ...shapes,
  );
}

/** Outline and rank of the chosen gang's pods, and of what-if's. */
function marks(tile, size, state) {
  const chosen = state.chosen.get(tile.name);
  const whatIf = state.whatIf.get(tile.name);
  const shapes = [];
  if (chosen !== undefined) shapes.push(svg("rect", { class: "chosen", width: size, height: size }));
  if (whatIf !== undefined) shapes.push(svg("rect", { class: "what-if", width: size, height: size }));
  const number = chosen ?? whatIf;
  if (size >= NUMBERED && number !== undefined && number !== "") shapes.push(svg("text", { x: size / 2, y: size / 2 + 3.5, class: String(number).length > 2 ? "long" : "" }, String(number)));
  return shapes;
}

function isFaint(tile, state) {
  return (state.model && tile.model !== state.model) || (state.find && !matches(tile, state.find));
}

export function matches(tile, text) {
  return tile.name.includes(text) || tile.domain.includes(text);
}

/** A node in a sentence. */
export function describe(tile) {
  const cause = tile.cause ? `; excluded: ${tile.cause}` : "";
  const avoided = tile.avoided ? `; avoided: ${tile.avoided}` : "";
  const waiting = tile.waiting ? `, ${tile.waiting} planned` : "";
  const until = tile.reservedUntil ? ` until ${tile.reservedUntil}` : "";
  const held = tile.heldFor ? `; reserved for ${tile.heldFor}${until}` : "";
  const model = tile.model ? ` (${tile.model})` : "";
  const cards = tile.cards.map((card) => `${card.name} ${count(card.pods, "pod")}${card.tilesUsed.length ? ` tiles ${card.tilesUsed.join(",")}` : ""}`);
  return `${tile.name}: ${tile.used} of ${tile.gpus} GPUs used${waiting}${model}${held}${cause}${avoided}${cards.length ? `; ${cards.join("; ")}` : ""}`;
}
