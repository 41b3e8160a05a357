// The last hours in four small charts: GPUs in use by model, what waits and how long, fragmentation.
import * as api from "./api.js";
import { byId, el, modelName, sum } from "./dom.js";
import uPlot from "./vendor/uplot/uPlot.esm.js";

const COLOURS = ["--used", "--waiting", "--chosen", "--what-if", "--reserved", "--soft"];
const HEIGHT = 130;
const EVERY_SECONDS = 10; // how often there is a new sample
const MOST = 6 * 360; // samples of six hours
const SHORTEST_SECONDS = 600; // that the axis of time shows
const FEW = 30; // samples that are drawn as points, as a line of them would be hard to see
export const charts = new Map(); // by name
document.head.append(el("link", { rel: "stylesheet", href: "/static/vendor/uplot/uPlot.min.css" }));
let samples = [];
let isNew = false;

new ResizeObserver(() => {
  for (const { chart, plot } of charts.values()) chart.setSize({ width: Math.max(120, plot.clientWidth), height: HEIGHT });
}).observe(byId("charts"));

/** Read the samples that are newer than those that are here, once there can be any. at: of the picture. */
export async function readHistory(at) {
  const last = samples.at(-1)?.at ?? 0;
  if (at - last < EVERY_SECONDS) return;
  const more = (await api.history(last)).samples.filter((each) => each.at > (samples.at(-1)?.at ?? 0));
  samples = [...samples, ...more].slice(-MOST);
  isNew = more.length > 0;
}

const whole = (value) => String(Math.round(value));
const percent = (value) => `${Math.round(value)} %`;

/** Seconds in the largest unit that leaves a short number: 45 s, 12 min, 3.5 h, 4 d. */
function duration(value) {
  const short = (number) => String(Math.round(number * 10) / 10);
  if (value < 120) return `${Math.round(value)} s`;
  if (value < 7200) return `${short(value / 60)} min`;
  return value < 172800 ? `${short(value / 3600)} h` : `${short(value / 86400)} d`;
}

/** Draw all charts, if there is anything new. */
export function drawHistory() {
  if (!isNew) return;
  isNew = false;
  const models = [...new Set(samples.flatMap((each) => Object.keys(each.gpus)))].sort();
  const total = Math.max(...samples.map((each) => sum(Object.values(each.gpus))));
  chart("GPUs in use", `of ${total}`, whole, models.map((name) => [modelName(name), samples.map((each) => each.used[name] ?? 0)]));
  chart("Pods that wait", "pods", whole, [["pods", samples.map((each) => each.waiting)]]);
  chart("Waited so far", "by pods that wait", duration, [["p95", samples.map((each) => each.p95)], ["p50", samples.map((each) => each.p50)]]);
  chart("Fragmentation", "% of free GPUs outside the freest block", percent, [["fragmentation", samples.map((each) => 100 * each.fragmentation)]], 100);
}

const DURATIONS = [60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 21600, 43200, 86400, 172800]; // of round axes

/** A round duration of at least `least` seconds; beyond two days, of whole days. */
export const roundDuration = (least) => DURATIONS.find((each) => each >= least) ?? 86400 * roundUp(least / 86400);

/** A number of at least `least` that is a multiple of 1, 2 or 5 times a power of ten: the top of an axis. */
export function roundUp(least) {
  const power = 10 ** Math.floor(Math.log10(least));
  return [1, 2, 5, 10].map((each) => each * power).find((each) => each >= least);
}

/** Draw one. unit: what its values are; written: a value in words; top: of the axis, if it is fixed. */
function chart(name, unit, written, series, top) {
  const key = `${name}:${series.map(([label]) => label).join()}`;
  const known = charts.get(name);
  const data = [samples.map((each) => each.at), ...series.map(([, values]) => values)];
  const place = known?.place ?? byId("charts").appendChild(el("figure", { class: "chart" }, el("figcaption", {}), el("div", { class: "plot", role: "img" })));
  const plot = place.querySelector(".plot");
  caption(place, name, unit, written, series);
  plot.setAttribute("aria-label", `${name}: ${series.map(([label, values]) => `${label} ${written(values.at(-1))}`).join(", ")} now`);
  if (known?.key === key) {
    known.chart.setData(data);
    return;
  }
  known?.chart.destroy();
  charts.set(name, { key, place, plot, chart: new uPlot(options(plot, written, series, top), data, plot) });
}

/** What it shows, in which unit, and the colour and last value of each line. */
function caption(place, name, unit, written, series) {
  const swatch = (number) => el("span", { class: `swatch line-${number % COLOURS.length}` });
  place.querySelector("figcaption").replaceChildren(
    el("b", {}, name), " ", el("small", {}, unit),
    el("span", { class: "lines" }, ...series.map(([label, values], number) => el("span", {}, swatch(number), series.length > 1 ? `${label} ` : "now ", written(values.at(-1))))));
}

function options(plot, written, series, top) {
  const style = getComputedStyle(document.documentElement);
  const colour = (name) => style.getPropertyValue(name).trim();
  // The first line is wide and the others are thin, so that of two that are equal both are seen.
  const lines = series.map(([label], number) => ({
    label, stroke: colour(COLOURS[number % COLOURS.length]), width: number === 0 && series.length > 1 ? 5 : 1.75,
    points: { show: samples.length < FEW, size: 5 },
  }));
  const axis = { stroke: colour("--soft"), grid: { stroke: colour("--faint-line"), width: 1 }, ticks: { show: false }, font: "11px system-ui, sans-serif" };
  const rounded = written === duration ? roundDuration : roundUp;
  const range = (_, __, most) => [0, top ?? rounded(Math.max(most ?? 0, 1))];
  // Of a single sample uPlot would show the day that begins with it.
  const times = (_, first) => [Math.min(first, samples.at(-1).at - SHORTEST_SECONDS), samples.at(-1).at];
  const clock = (at) => new Date(at * 1000).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", hour12: false });
  return {
    width: Math.max(120, plot.clientWidth), height: HEIGHT, legend: { show: false }, cursor: { y: false }, padding: [8, 8, 0, 0],
    scales: { x: { range: times }, y: { range } },
    series: [{}, ...lines],
    axes: [
      { ...axis, size: 22, space: 60, values: (_, marks) => marks.map(clock) },
      { ...axis, size: 48, splits: (_, __, least, most) => [least, (least + most) / 2, most], values: (_, marks) => marks.map((mark) => (Number.isInteger(mark) || written === duration ? written(mark) : "")) },
    ],
  };
}
