// Charts of shares over time (uPlot).

import { html, useEffect, useRef, useState } from "/static/vendor/htm-preact-3.1.1.js";
import { clock } from "/static/format.js";
import { colors } from "/static/parts.js";

const LINES = ["c1", "c2", "c3", "c4", "c5", "c6", "c7", "c8"];
const DASHES = [[], [6, 3], [2, 2], [8, 3, 2, 3]];
const DARK = window.matchMedia("(prefers-color-scheme: dark)");

// Ticks of the time axis in the viewer's time zone, 24-hour form; `step` in seconds.
function moments(self, ticks, axis, space, step) {
  const form = window.uPlot.fmtDate(step < 60 ? "{HH}:{mm}:{ss}" : step < 86400 ? "{HH}:{mm}" : "{YYYY}-{MM}-{DD}");
  return ticks.map((tick) => form(new Date(tick * 1000)));
}

// Line chart; `lines` is [{name, values}], in percent.
export function Chart({ times, lines, height = 190, label, days = false }) {
  const box = useRef(null);
  const [dark, setDark] = useState(DARK.matches);
  const [at, setAt] = useState(null);
  useEffect(() => {
    const listener = () => setDark(DARK.matches);
    DARK.addEventListener("change", listener);
    return () => DARK.removeEventListener("change", listener);
  }, []);
  useEffect(() => {
    const element = box.current;
    const color = colors();
    const axis = { stroke: color("muted"), grid: { stroke: color("line"), width: 1 }, ticks: { stroke: color("line"), width: 1 }, font: "12px system-ui, sans-serif" };
    const drawn = new window.uPlot({
      width: Math.max(200, element.clientWidth),
      height,
      padding: [8, 30, 0, 0],
      cursor: { y: false },
      legend: { show: false },
      scales: { y: { range: (self, low, high) => [0, Math.max(10, Math.min(100, (high || 0) * 1.15))] } },
      axes: [{ ...axis, space: 80, values: moments }, { ...axis, size: 52, values: (self, ticks) => ticks.map((tick) => `${tick} %`) }],
      series: [{}, ...lines.map((line, number) => ({
        label: line.name,
        stroke: color(LINES[number % LINES.length]),
        width: 2,
        dash: DASHES[Math.floor(number / LINES.length) % DASHES.length],
        points: { show: times.length < 3 },
      }))],
    }, [times, ...lines.map((line) => line.values)], element);
    drawn.over.addEventListener("mousemove", () => setAt(drawn.cursor.idx));
    drawn.over.addEventListener("mouseleave", () => setAt(null));
    const watcher = new ResizeObserver(() => drawn.setSize({ width: Math.max(200, element.clientWidth), height }));
    watcher.observe(element);
    return () => {
      watcher.disconnect();
      drawn.destroy();
    };
  }, [times, lines, height, dark, document.documentElement.dataset.theme]);
  // Without a pointer on the chart, the legend shows the last value of each line.
  const last = (values) => values.reduce((found, value, index) => (value === null || value === undefined ? found : index), -1);
  const index = (values) => (at === null || at === undefined || at >= times.length ? last(values) : at);
  const shown = lines.length ? times[Math.max(0, ...lines.map((line) => index(line.values)))] : 0;
  return html`<div class="chart" ref=${box} role="img" aria-label=${label}></div>
    <ul class="legend chart-legend"><li class="muted">${days ? new Date(shown * 1000).toISOString().slice(0, 10) : clock(shown)}</li>${lines.map((line, number) => {
      const value = line.values[index(line.values)];
      return html`<li key=${line.name}><span class="swatch" style=${{ background: `var(--${LINES[number % LINES.length]})` }}></span>${line.name} <strong>${value === null || value === undefined ? "–" : `${value.toFixed(1)} %`}</strong></li>`;
    })}</ul>`;
}

// Small chart without axes, for a table row.
export function Strip({ values, top = 100, label }) {
  const known = values.filter((value) => value !== null);
  if (known.length < 2) return html`<span class="muted small">gathering …</span>`;
  const wide = 120, tall = 26, step = wide / (values.length - 1), highest = Math.max(top, ...known);
  const point = (value, index) => `${(index * step).toFixed(1)},${(tall - 1 - ((tall - 2) * value) / highest).toFixed(1)}`;
  const points = values.map((value, index) => (value === null ? null : point(value, index))).filter(Boolean);
  return html`<svg class="strip" viewBox=${`0 0 ${wide} ${tall}`} width=${wide} height=${tall} role="img" aria-label=${label} preserveAspectRatio="none">
    <polygon points=${`${points[0].split(",")[0]},${tall} ${points.join(" ")} ${points[points.length - 1].split(",")[0]},${tall}`} class="area" />
    <polyline points=${points.join(" ")} class="line" />
  </svg>`;
}
