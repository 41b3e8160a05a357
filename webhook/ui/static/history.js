// The last hours as curves: GPUs in use by model, what waits and how long, fragmentation.
import * as api from "./api.js";
import { byId, el } from "./dom.js";
import uPlot from "./vendor/uplot/uPlot.esm.js";

const COLOURS = ["--used", "--waiting", "--chosen", "--what-if", "--link", "--soft"];
const HEIGHT = 180;
const EVERY_SECONDS = 10; // how often there is a new sample
const MOST = 6 * 360; // samples of six hours
const charts = new Map();
let samples = [];
let isNew = false;
const width = () => Math.max(240, Math.min(640, byId("charts").clientWidth));

new ResizeObserver(() => {
  for (const { chart } of charts.values()) chart.setSize({ width: width(), height: HEIGHT });
}).observe(byId("charts"));

/** Read the samples that are newer than those that are here, once there can be any. at: of the picture. */
export async function readHistory(at) {
  const last = samples.at(-1)?.at ?? 0;
  if (at - last < EVERY_SECONDS) return;
  const more = (await api.history(last)).samples.filter((each) => each.at > (samples.at(-1)?.at ?? 0));
  samples = [...samples, ...more].slice(-MOST);
  isNew = more.length > 0;
}

/** Draw all curves, if there is anything new. */
export function drawHistory() {
  if (!isNew) return;
  isNew = false;
  const at = samples.map((each) => each.at);
  const models = [...new Set(samples.flatMap((each) => Object.keys(each.gpus)))].sort();
  curve("GPUs in use", at, models.map((name) => [name || "GPU", samples.map((each) => each.used[name] ?? 0)]));
  curve("Pods that wait", at, [["pods", samples.map((each) => each.waiting)]]);
  curve("Seconds waited", at, [["p50", samples.map((each) => each.p50)], ["p95", samples.map((each) => each.p95)]]);
  curve("Fragmentation", at, [["share of free GPUs outside the freest block", samples.map((each) => each.fragmentation)]]);
}

function curve(name, at, series) {
  const key = `${name}:${series.map(([label]) => label).join()}`;
  const known = charts.get(name);
  const data = [at, ...series.map(([, values]) => values)];
  if (known?.key === key) {
    known.chart.setData(data);
    return;
  }
  known?.chart.destroy();
  const place = known?.place ?? byId("charts").appendChild(el("div", { role: "img", "aria-label": name }));
  const style = getComputedStyle(document.documentElement);
  const ink = style.getPropertyValue("--soft");
  const lines = series.map(([label], number) => ({ label, stroke: style.getPropertyValue(COLOURS[number % COLOURS.length]), width: 2 }));
  const axis = { stroke: ink, grid: { stroke: style.getPropertyValue("--panel") } };
  const chart = new uPlot({ title: name, width: width(), height: HEIGHT, series: [{}, ...lines], axes: [axis, axis] }, data, place);
  charts.set(name, { key, chart, place });
}
