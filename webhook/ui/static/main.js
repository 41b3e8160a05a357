// What the page holds, and when it is drawn anew: at each version that the server tells of, once a second at most.
import * as api from "./api.js";
import { byId } from "./dom.js";
import { drawGang, drawGangs } from "./gangs.js";
import { drawHistory, readHistory } from "./history.js";
import { SMALL, drawMap, drawNodes } from "./map.js";
import { drawWhatIf, wireWhatIf } from "./what_if.js";

const state = {
  picture: null, nodes: new Map(), left: new Map(), open: new Set(), gang: "", near: "", find: "", model: "",
  chosen: new Map(), whatIf: new Map(),
};

async function refresh() {
  state.picture = await api.picture();
  // What could be read is drawn, though a part of it was refused.
  const parts = [readNodes(), state.gang ? readGang() : null, readHistory(state.picture.at)];
  const failed = (await Promise.allSettled(parts)).filter((each) => each.status === "rejected");
  draw();
  drawHistory();
  if (failed.length) throw failed[0].reason;
}

async function readNodes() {
  const wanted = state.picture.nodes <= SMALL ? [""] : [...state.open];
  const answers = await Promise.all(wanted.map((domain) => api.nodes(domain).catch(quiet)));
  state.nodes = new Map(answers.flatMap((answer) => answer?.nodes ?? []).map((tile) => [tile.name, tile]));
  state.left = new Map(wanted.map((domain, number) => [domain, answers[number]?.left ?? 0]));
}

/** A viewer who may not list nodes still sees domains; any other refusal is told. */
function quiet(error) {
  if (error.status !== 403) throw error;
  return null;
}

async function readGang() {
  const detail = await api.gang(state.gang).catch((error) => {
    if (error.status !== 404) throw error;
    return null;
  });
  if (detail === null) state.gang = "";
  state.near = detail?.nearest ?? "";
  const members = detail?.gang.members ?? [];
  state.chosen = new Map(members.filter((each) => each.node).map((each) => [each.node, each.rank ?? ""]));
  drawGang(detail);
}

function draw() {
  if (state.picture === null) return;
  const { picture } = state;
  const tops = picture.domains.filter((each) => each.level === 0);
  const total = (key) => tops.reduce((sum, each) => sum + each[key], 0);
  const waiting = picture.gangs.filter((row) => row.waiting).length;
  byId("summary").textContent =
    `${picture.nodes} nodes, ${total("used")} of ${total("gpus")} GPUs used, ${waiting === 1 ? "1 gang waits" : `${waiting} gangs wait`}`;
  byId("viewer").textContent = picture.viewer;
  drawMap(state, { open, show });
  drawGangs(state, choose);
  drawWhatIf(state);
}

async function choose(id) {
  state.gang = id;
  if (id) await told(readGang);
  else {
    state.chosen = new Map();
    state.near = "";
    drawGang(null);
  }
  draw();
}

async function open(domain) {
  state.open.add(domain);
  await told(readNodes);
  draw();
}

async function show(domain) {
  await told(async () => drawNodes(domain, (await api.nodes(domain)).nodes));
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

for (const [id, key] of [["find", "find"], ["model", "model"], ["family", "family"]]) {
  byId(id).addEventListener("input", (event) => {
    state[key] = event.target.value;
    draw();
  });
}
wireWhatIf((answer) => {
  state.whatIf = new Map(Object.entries(answer?.places ?? {}).map(([pod, node]) => [node, pod.match(/\d+$/)?.[0] ?? ""]));
  draw();
});
changed();
api.follow(changed);
