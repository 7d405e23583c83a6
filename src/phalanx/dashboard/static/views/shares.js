// Shares of queues over weeks, from the accounting database.

import { html, useMemo } from "/static/vendor/htm-preact-3.1.1.js";
import { Empty, useAnswer, useNow, useParameter } from "/static/parts.js";
import { amount, important, resource } from "/static/format.js";
import { Chart } from "/static/chart.js";
import { store } from "/static/store.js";

const WINDOWS = { "14d": 14, "30d": 30, "90d": 90 };
const MOST = 8;

export function Shares() {
  const [span, setSpan] = useParameter("over", "30d");
  const [kind, setKind] = useParameter("of");
  const beat = useNow(60);
  const answer = useAnswer(`accounts?days=${WINDOWS[span] || 30}&${store.query()}`, Math.floor(beat / 60));
  const usage = answer.value;
  const kinds = useMemo(() => (usage ? important(new Set(Object.keys(usage.total))) : []), [usage]);
  const chosen = kinds.includes(kind) ? kind : kinds[0];
  const drawn = useMemo(() => {
    if (!usage || !chosen) return null;
    const total = usage.total[chosen], held = usage.held[chosen] || {};
    const sum = (values) => values.reduce((all, value) => all + value, 0);
    const names = Object.keys(held).sort((one, other) => sum(held[other]) - sum(held[one]) || (one < other ? -1 : 1));
    const share = (values) => values.map((value, day) => (total[day] ? (100 * value) / total[day] : null));
    const lines = names.slice(0, MOST).map((name) => ({ name, values: share(held[name]) }));
    const rows = names.map((name) => ({ name, mean: sum(held[name]) / usage.times.length, share: sum(total) ? (100 * sum(held[name])) / sum(total) : 0 }));
    return { times: usage.times, lines, rows };
  }, [usage, chosen]);
  return html`<section class="card" aria-label="Shares over time"><h2>Shares over time</h2>
    ${answer.error && html`<div class="alert" role="alert">${answer.error}</div>`}
    ${!usage && !answer.error && html`<${Empty}>Reading the accounts …</${Empty}>`}
    ${usage && usage.state !== "there" && html`<${Empty}>${usage.message}</${Empty}>`}
    ${usage && usage.state === "there" && html`
      <div class="filters"><div role="group" aria-label="Period">${Object.keys(WINDOWS).map((each) => html`<button key=${each} class="chip" aria-pressed=${span === each} onClick=${() => setSpan(each)}>${each}</button>`)}</div>
        <div role="group" aria-label="Resource">${kinds.slice(0, 6).map((each) => html`<button key=${each} class="chip" aria-pressed=${chosen === each} onClick=${() => setKind(each)}>${resource(each)}</button>`)}</div></div>
      ${!drawn || !drawn.lines.length ? html`<${Empty}>No visible usage in this period.</${Empty}>` : html`
        <p class="note">Share of each queue in all used ${resource(chosen)} per day${drawn.rows.length > MOST ? `; the ${MOST} queues with the most usage` : ""}. Days are in UTC; today is incomplete.</p>
        <${Chart} times=${drawn.times} lines=${drawn.lines} height=${220} days=${true} label=${`Share of ${resource(chosen)} by queue and day: ${drawn.rows.slice(0, MOST).map((row) => `${row.name} ${row.share.toFixed(0)} %`).join(", ")}`} />
        <div class="scrollx"><table class="plain"><thead><tr><th scope="col">Queue</th><th scope="col" class="num">Share</th><th scope="col" class="num">On average</th></tr></thead>
          <tbody>${drawn.rows.slice(0, 50).map((row) => html`<tr key=${row.name}><td>${row.name}</td><td class="num">${row.share.toFixed(1)} %</td><td class="num">${amount(chosen, row.mean)}</td></tr>`)}</tbody></table></div>`}`}
  </section>`;
}
