// The last hours as curves: GPUs in use by model, what waits and how long, fragmentation.
import { byId, el } from "./dom.js";
import uPlot from "./vendor/uplot/uPlot.esm.js";

const COLOURS = ["--used", "--waiting", "--chosen", "--what-if", "--link", "--soft"];
const HEIGHT = 180;
const charts = new Map();
const width = () => Math.max(240, Math.min(640, byId("charts").clientWidth));

new ResizeObserver(() => {
  for (const { chart } of charts.values()) chart.setSize({ width: width(), height: HEIGHT });
}).observe(byId("charts"));

/** Draw all curves from the samples. */
export function drawHistory(samples) {
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
