// Beside the map: one gang in full, or a domain with who holds it.
import { age, byId, count, domainName, el, gangAddress, gangName, modelName, redraw, sum } from "./dom.js";
import { describe } from "./tiles.js";

const MOST_LINES = 200; // of pods or nodes; more are counted

let drawn = "";

/** Draw one gang in full; what has not changed is left alone, so that nothing is read out twice. */
export function drawGang(detail, at, { close, tryChange }) {
  const place = byId("gang");
  place.hidden = detail === null;
  const now = JSON.stringify(detail);
  if (detail === null || now === drawn) return;
  drawn = now;
  const open = [...place.querySelectorAll("details")].map((each) => each.open);
  const { gang } = detail;
  const facts = [
    [gang.waiting ? "Waits for" : "Age", age(gang.created, at)],
    ["Pods", gang.waiting ? `${gang.pods - gang.waiting} of ${gang.size} placed` : `${gang.pods}`],
    ["GPUs", `${gang.gpus}${gang.models.length ? ` ${gang.models.join(", ")}` : ""}`],
    ["Priority", String(gang.priority)],
    ["Spread", gang.spread], ["Best possible", detail.best, "If no other pod were in the cluster"],
    ["Proven", gang.spread ? (gang.proven ? "yes: nothing better existed" : "no") : ""],
  ].filter(([, value]) => value);
  redraw(place, [
    head(gangName(gang), el("span", { class: `state ${gang.state}` }, gang.state), close),
    el("div", { class: "sentences" }, ...sentences(detail.sentences)),
    gang.waiting ? el("p", { class: "buttons" }, el("button", { type: "button", "data-focus": "try", onclick: () => tryChange(gang.id) }, "Try another size, level or model")) : "",
    el("dl", {}, ...facts.flatMap(([name, value, hint]) => [el("dt", { title: hint }, name), el("dd", {}, value)])),
    el("details", { open: open[0] ?? false }, el("summary", { "data-focus": "plan" }, planTitle(gang.members)),
      lines("plan", [...gang.members].sort(byRank), planLine, "pods")),
    el("details", { open: open[1] ?? false }, el("summary", { "data-focus": "events" }, `Events: ${detail.events.length}${detail.eventsMissing ? ` (${detail.eventsMissing})` : ""}`),
      lines("events", detail.events, (each) => eventLine(each, at), "Events")),
  ]);
}

function planTitle(members) {
  const planned = members.filter((each) => each.node).length;
  const all = count(members.length, "pod");
  if (!planned) return `Plan: none yet for ${all}`;
  return `Plan: ${planned === members.length ? all : `${planned} of ${all}`}`;
}

const byRank = (one, other) =>
  (one.rank ?? Infinity) === (other.rank ?? Infinity) ? one.name.localeCompare(other.name, "en", { numeric: true }) : (one.rank ?? Infinity) - (other.rank ?? Infinity);

const planLine = ({ rank, name, node }) => el("li", {}, el("span", { class: "rank", title: "rank" }, String(rank ?? "")), ` ${name}: ${node || "waits"}`);

function eventLine({ at, type, reason, note, count: times }, now) {
  const when = age(at, now);
  return el("li", { class: type === "Warning" ? "warning" : false },
    el("b", {}, reason), " ", el("time", { datetime: at, title: at }, when ? `${when} ago` : at), times > 1 ? `, ${times} times` : "", `: ${note}`);
}

const UNCHANGED = "Now: the same."; // as the last attempt, whose reason then counts

/** The lines of `topogate explain`; the reason and what would help stand out. */
function sentences(lines) {
  const reason = lines.includes(UNCHANGED) ? "Last attempt: " : "Now: ";
  const role = (line) => (line.startsWith("What would help") ? "help" : line.startsWith(reason) ? "now" : "");
  return lines.map((line) => el("p", { class: `sentence ${role(line)}` }, line));
}

function head(title, beside, close) {
  return el("div", { class: "head" }, el("h2", {}, title), beside, el("button", { type: "button", class: "close", "data-focus": "close", "aria-label": "Close", onclick: close }, "×"));
}

function lines(kind, items, line, noun) {
  const more = items.length - MOST_LINES;
  return el("ul", { class: kind }, ...items.slice(0, MOST_LINES).map(line), more > 0 ? el("li", {}, `and ${more} more ${noun}`) : null);
}

/** Draw a domain, or one node of it: who holds how many GPUs there, and each node in words. */
export function drawDomain(title, tiles, picture, close) {
  const place = byId("domain-nodes");
  place.hidden = false;
  const free = tiles.filter((tile) => tile.state === "free");
  const total = (key) => sum(tiles.map((tile) => tile[key]));
  const models = [...new Set(tiles.map((tile) => tile.model))].map(modelName).join(", ");
  redraw(place, [
    head(title, "", close),
    el("p", {}, `${count(tiles.length, "node")} with ${total("gpus")} GPUs (${models}): ${total("used")} used, ${total("waiting")} planned; ${sum(free.map((tile) => tile.gpus))} on ${count(free.length, "wholly free node")}.`),
    el("h3", {}, "Held by"),
    holders(tiles, picture),
    el("details", { open: tiles.length === 1 }, el("summary", { "data-focus": "nodes" }, `Nodes: ${tiles.length}`),
      el("ul", {}, ...tiles.slice(0, MOST_LINES).map((tile) => el("li", {}, describe(tile),
        tile.pods.length ? el("ul", {}, ...tile.pods.map((pod) => el("li", {}, `${pod.namespace}/${pod.name}: ${count(pod.gpus, "GPU")}, ${pod.state}`))) : null)),
      tiles.length > MOST_LINES ? el("li", {}, `and ${tiles.length - MOST_LINES} more`) : null)),
  ]);
}

/** Gangs, and pods of none, by the GPUs that they hold; reservations of gangs that wait. */
function holders(tiles, picture) {
  const byHolder = new Map();
  for (const tile of tiles) {
    for (const pod of tile.pods) {
      const name = `${pod.namespace}/${pod.gang || pod.name}`;
      const held = byHolder.get(name) ?? { gpus: 0, pods: 0 };
      byHolder.set(name, { gpus: held.gpus + pod.gpus, pods: held.pods + 1 });
    }
  }
  const ids = new Map(picture.gangs.map((row) => [gangName(row), row.id]));
  const named = (name) => (ids.has(name) ? el("a", { href: gangAddress(ids.get(name)) }, name) : name);
  const rows = [...byHolder].sort(([, one], [, other]) => other.gpus - one.gpus).map(([name, held]) =>
    el("li", {}, named(name), `: ${count(held.gpus, "GPU")}, ${count(held.pods, "pod")}`));
  for (const [name, many] of Map.groupBy(tiles.filter((tile) => tile.heldFor), (tile) => tile.heldFor))
    rows.push(el("li", {}, `${count(many.length, "node")} reserved for `, named(name)));
  return rows.length ? el("ul", { class: "holders" }, ...rows.slice(0, MOST_LINES)) : el("p", {}, "Nobody.");
}

export const domainTitle = (id) => `Domain ${domainName(id)}`;
