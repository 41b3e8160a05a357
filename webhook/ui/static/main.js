// What the page holds, and when it is drawn anew: at each version that the server tells of, once a second at most.
import * as api from "./api.js";
import { byId, domainName, gangAddress } from "./dom.js";
import { drawGangs, wireGangs } from "./gangs.js";
import { drawMap, wantedNodes } from "./map.js";
import { drawOverview } from "./overview.js";
import { domainTitle, drawDomain, drawGang } from "./panes.js";
import { drawWhatIf, tryChange, wireWhatIf } from "./what_if.js";

const MOST_OPENED = 4; // blocks that a chosen gang opens on the map of a large cluster

const state = {
  picture: null, nodes: new Map(), left: new Map(), open: new Set(), gang: "", near: "", find: "", model: "",
  chosen: new Map(), chosenDomains: {}, whatIf: new Map(), whatIfDomains: {}, domains: new Map(),
};

let history = null; // loaded with the library of the charts, which the first picture does not wait for

async function refresh() {
  state.picture = await api.picture();
  // The first picture does not wait for nodes, and what could be read is drawn, though a part of it was refused.
  if (!state.nodes.size) {
    draw();
    await new Promise((done) => setTimeout(done));
  }
  history ??= await import("./history.js");
  const parts = [readNodes(), state.gang ? readGang() : null, history.readHistory(state.picture.at)];
  const failed = (await Promise.allSettled(parts)).filter((each) => each.status === "rejected");
  draw();
  history.drawHistory();
  if (failed.length) throw failed[0].reason;
}

async function readNodes() {
  const wanted = wantedNodes(state);
  const answers = await Promise.all(wanted.map(([domain, isBrief]) => api.nodes(domain, isBrief).catch(quiet)));
  state.nodes = new Map(answers.flatMap((answer) => answer?.nodes ?? []).map((tile) => [tile.name, tile]));
  state.left = new Map(wanted.map(([domain], number) => [domain, answers[number]?.left ?? 0]));
}

/** A viewer who may not list nodes still sees domains; any other refusal is told. */
function quiet(error) {
  if (error.status !== 403) throw error;
  return null;
}

async function readGang() {
  const id = known(state.gang);
  const detail = await api.gang(id).catch((error) => {
    if (error.status !== 404) throw error;
    return null;
  });
  if (known(state.gang) !== id) return; // another was chosen meanwhile
  state.near = detail?.nearest ?? "";
  const members = detail?.gang.members ?? [];
  state.chosen = new Map(members.filter((each) => each.node).map((each) => [each.node, each.rank ?? ""]));
  state.chosenDomains = detail?.domains ?? {};
  drawGang(detail, state.picture.at, { close: () => choose(""), tryChange });
  if (detail === null) throw new api.Refused(404, `There is no gang ${state.gang}, or you may not list the pods of its namespace.`);
}

/** The id of the gang that an address names: by its Placement, or for short by its own name. */
function known(address) {
  const gangs = state.picture?.gangs ?? [];
  if (gangs.some((row) => row.id === address)) return address;
  return gangs.find((row) => `${row.namespace}/${row.name}` === address)?.id ?? address;
}

function draw() {
  if (state.picture === null) return;
  state.domains = new Map(Object.entries({ ...state.chosenDomains, ...state.whatIfDomains }));
  drawOverview(state, { show, showNode });
  drawMap(state, { open, show, showNode });
  drawGangs({ ...state, gang: known(state.gang) }, choose);
  drawWhatIf(state);
}

/** Go to a gang's address, or to that of none. */
function choose(id) {
  location.hash = id ? gangAddress(id) : "#/";
}

/** Show what the address names. Other fragments are places on the page. */
async function follow() {
  if (location.hash && !location.hash.startsWith("#/")) return;
  const [, gang] = location.hash.match(/^#\/gang\/(.+)$/) ?? [];
  const id = gang ? gang.split("/").map(decodeURIComponent).join("/") : "";
  if (id === state.gang) return;
  state.gang = id;
  if (!id) {
    Object.assign(state, { chosen: new Map(), chosenDomains: {}, near: "" });
    drawGang(null, 0, {});
    byId("problem").hidden = true;
  } else if (state.picture !== null) {
    byId("domain-nodes").hidden = true;
    await told(readGang);
    await openBlocks(state.chosenDomains);
    byId("side").scrollTop = 0;
  }
  draw();
}

/** Open the blocks in which something was chosen, if they are few. */
async function openBlocks(domains) {
  const ids = Object.keys(domains);
  if (!ids.length || ids.length > MOST_OPENED || ids.every((id) => state.open.has(id))) return;
  ids.forEach((id) => state.open.add(id));
  await told(readNodes);
}

async function open(domain) {
  state.open.add(domain);
  await told(readNodes);
  draw();
}

const closeDomain = () => { byId("domain-nodes").hidden = true; };

async function show(domain) {
  await told(async () => drawDomain(domainTitle(domain), (await api.nodes(domain)).nodes, state.picture, closeDomain));
  byId("side").scrollTop = byId("domain-nodes").offsetTop;
}

async function showNode(name, domain) {
  await told(async () => {
    const { nodes } = await api.nodes(domain);
    drawDomain(`Node ${name} in ${domainName(domain)}`, nodes.filter((tile) => tile.name === name), state.picture, closeDomain);
  });
}

/** Do something that may be refused, and say so where everybody looks. */
async function told(action) {
  try {
    await action();
    byId("problem").hidden = true;
    byId("login").hidden = true;
  } catch (error) {
    byId("problem").textContent = error.message;
    byId("problem").hidden = false;
    byId("login").hidden = error.status !== 401 || location.hostname === "localhost" || location.hostname === "127.0.0.1";
  }
}

let isBusy = false;
let isStale = false;

async function changed() {
  if (isBusy) {
    isStale = true;
    return;
  }
  isBusy = true;
  await told(refresh);
  await new Promise((done) => setTimeout(done, 1000));
  isBusy = false;
  if (isStale) {
    isStale = false;
    changed();
  }
}

for (const id of ["find", "model", "family"]) {
  byId(id).addEventListener("input", (event) => {
    state[id] = event.target.value;
    draw();
  });
}
wireGangs(draw);
wireWhatIf(async (answer) => {
  state.whatIf = new Map(Object.entries(answer?.places ?? {}).map(([pod, node]) => [node, pod.match(/\d+$/)?.[0] ?? ""]));
  state.whatIfDomains = answer?.domains ?? {};
  await openBlocks(state.whatIfDomains);
  draw();
});
for (const button of byId("jump").children) {
  button.addEventListener("click", () => byId(button.dataset.to).scrollIntoView({ block: "start" }));
}
addEventListener("hashchange", follow);
addEventListener("resize", draw);
addEventListener("keydown", (event) => {
  if (event.key !== "Escape") return;
  if (!byId("domain-nodes").hidden) closeDomain();
  else if (state.gang) choose("");
});
follow();
changed();
api.follow(changed);
