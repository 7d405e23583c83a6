// Shares of queues over weeks, from the accounts.

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
  const told = answer.value;
  const kinds = useMemo(() => (told ? important(new Set(Object.keys(told.total))) : []), [told]);
  const chosen = kinds.includes(kind) ? kind : kinds[0];
  const drawn = useMemo(() => {
    if (!told || !chosen) return null;
    const total = told.total[chosen], held = told.held[chosen] || {};
    const sum = (values) => values.reduce((all, value) => all + value, 0);
    const names = Object.keys(held).sort((one, other) => sum(held[other]) - sum(held[one]) || (one < other ? -1 : 1));
    const share = (values) => values.map((value, day) => (total[day] ? (100 * value) / total[day] : null));
    const lines = names.slice(0, MOST).map((name) => ({ name, values: share(held[name]) }));
    const rows = names.map((name) => ({ name, mean: sum(held[name]) / told.times.length, share: sum(total) ? (100 * sum(held[name])) / sum(total) : 0 }));
    return { times: told.times, lines, rows };
  }, [told, chosen]);
  return html`<section class="card" aria-label="Shares over time"><h2>Shares over time</h2>
    ${answer.error && html`<div class="alert" role="alert">${answer.error}</div>`}
    ${!told && !answer.error && html`<${Empty}>Reading the accounts …</${Empty}>`}
    ${told && told.state !== "there" && html`<${Empty}>${told.message}</${Empty}>`}
    ${told && told.state === "there" && html`
      <div class="filters"><div role="group" aria-label="How far back">${Object.keys(WINDOWS).map((each) => html`<button key=${each} class="chip" aria-pressed=${span === each} onClick=${() => setSpan(each)}>${each}</button>`)}</div>
        <div role="group" aria-label="Of what">${kinds.slice(0, 6).map((each) => html`<button key=${each} class="chip" aria-pressed=${chosen === each} onClick=${() => setKind(each)}>${resource(each)}</button>`)}</div></div>
      ${!drawn || !drawn.lines.length ? html`<${Empty}>Nothing that you may see was used in this time.</${Empty}>` : html`
        <p class="note">Of all ${resource(chosen)} that was held on a day, how much each queue held${drawn.rows.length > MOST ? `; the ${MOST} queues that held most` : ""}. Days are in UTC, and today is not over.</p>
        <${Chart} times=${drawn.times} lines=${drawn.lines} height=${220} stamp="{YYYY}-{MM}-{DD}" label=${`Share of ${resource(chosen)} by queue and day: ${drawn.rows.slice(0, MOST).map((row) => `${row.name} ${row.share.toFixed(0)} %`).join(", ")}`} />
        <div class="scrollx"><table class="plain"><thead><tr><th scope="col">Queue</th><th scope="col" class="num">Share</th><th scope="col" class="num">On average</th></tr></thead>
          <tbody>${drawn.rows.slice(0, 50).map((row) => html`<tr key=${row.name}><td>${row.name}</td><td class="num">${row.share.toFixed(1)} %</td><td class="num">${amount(chosen, row.mean)}</td></tr>`)}</tbody></table></div>`}`}
  </section>`;
}
