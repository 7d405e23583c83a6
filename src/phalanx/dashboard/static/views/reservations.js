import { html, useMemo } from "/static/vendor/htm-preact-3.1.1.js";
import { Empty, Page, TableState, useNow, useParameter, useTables } from "/static/parts.js";
import { clock, middle, seconds, span } from "/static/format.js";

const LANE = 30, LEFT = 210, WIDE = 1040, TOP = 30;
const HORIZONS = { "6h": 6 * 3600, "1d": 86400, "7d": 7 * 86400 };

export function Reservations() {
  const [table] = useTables("reservations", "summary");
  const [horizon, setHorizon] = useParameter("for", "1d");
  const now = useNow(10);
  const until = now + (HORIZONS[horizon] || 86400);
  const rows = useMemo(() => [...table.rows.values()].filter((row) => seconds(row.start) < until).sort((a, b) => (a.kind === b.kind ? (a.start < b.start ? -1 : 1) : a.kind < b.kind ? -1 : 1)), [table.changes, horizon, Math.floor(now / 10)]);
  const lanes = useMemo(() => {
    const found = new Map();
    for (const row of rows) {
      const key = `${row.kind} ${row.title}`;
      if (!found.has(key)) found.set(key, []);
      found.get(key).push(row);
    }
    return [...found.values()].slice(0, 200);
  }, [rows]);
  const x = (moment) => LEFT + ((WIDE - LEFT - 12) * (Math.max(now, Math.min(until, moment)) - now)) / (until - now);
  const tall = TOP + lanes.length * LANE + 8;
  const ticks = [0, 1, 2, 3, 4, 5, 6].map((part) => now + (part / 6) * (until - now));
  return html`<${Page} title="Reservations" cli="kubectl get reservations,maintenancewindows" note="Advance reservations, maintenance windows, and starts of waiting gangs.">
    <div class="filters" role="group" aria-label="Period">${Object.keys(HORIZONS).map((each) => html`<button key=${each} class="chip" aria-pressed=${horizon === each} onClick=${() => setHorizon(each)}>${each}</button>`)}
      <ul class="legend inline">${[["reservation", "reservation"], ["maintenance", "maintenance"], ["start", "start of a gang"]].map(([kind, title]) => html`<li key=${kind}><span class=${`swatch w-${kind}`}></span>${title} <strong>${rows.filter((row) => row.kind === kind).length}</strong></li>`)}</ul></div>
    <${TableState} table=${table} what="reservations" />
    ${table.state === "there" && !lanes.length && html`<${Empty}>No reservations, no maintenance and no starts within ${horizon}.</${Empty}>`}
    ${lanes.length > 0 && html`<div class="card scrollx" tabindex="0" role="region" aria-label="Time axis"><svg class="timeline" width=${WIDE} height=${tall} viewBox=${`0 0 ${WIDE} ${tall}`} role="img" aria-label=${rows.map((row) => `${row.title} from ${clock(row.start)}`).join("; ")}>
      ${ticks.map((tick, index) => html`<g key=${index}><line x1=${x(tick)} x2=${x(tick)} y1=${TOP - 6} y2=${tall} class=${index ? "gridline" : "now"} /><text x=${x(tick)} y="16" text-anchor=${index === 6 ? "end" : index ? "middle" : "start"}>${index ? `in ${span(tick - now)}` : "now"}</text></g>`)}
      ${lanes.map((lane, index) => html`<g key=${lane[0].id}>
        <text x=${LEFT - 10} y=${TOP + index * LANE + 19} text-anchor="end" class="lane">${middle(lane[0].title, 28)}</text>
        ${lane.map((row) => {
          const from = x(seconds(row.start)), to = row.kind === "start" ? from + 8 : x(seconds(row.end) || until);
          return html`<g key=${row.id}><title>${`${row.title}: ${clock(row.start)} to ${row.end ? clock(row.end) : "unknown end"}. ${row.note || ""}`}</title>
            ${row.kind === "start" ? html`<path d=${`M${from} ${TOP + index * LANE + 6} l9 9 l-9 9 l-9 -9 z`} class="w-start" />` : html`<rect x=${from} y=${TOP + index * LANE + 5} width=${Math.max(3, to - from)} height=${LANE - 10} rx="4" class=${`w-${row.kind}`} />`}</g>`;
        })}</g>`)}
    </svg></div>
    <div class="card flush scrollx"><table class="plain"><thead><tr><th scope="col">Entry</th><th scope="col">From</th><th scope="col">To</th><th scope="col">Queue</th><th scope="col">Note</th></tr></thead>
      <tbody>${rows.slice(0, 200).map((row) => html`<tr key=${row.id}><td>${row.title}</td><td>${clock(row.start)}</td><td>${row.end ? clock(row.end) : ""}</td><td>${row.queue || ""}</td><td>${row.note || ""}${(row.nodes || []).length ? ` on ${row.nodes.join(", ")}` : ""}</td></tr>`)}</tbody></table></div>`}
  </${Page}>`;
}
