import { html, useMemo } from "/static/vendor/htm-preact-3.1.1.js";
import { Bar, Empty, Link, Page, State, TableState, Told, to, useAnswer, useNow, useTables } from "/static/parts.js";
import { age, amount, clock, important, percent, plural, resource, seconds, short, span } from "/static/format.js";
import { Chart } from "/static/chart.js";

const STATES = ["Running", "Starting", "Partial", "Pending", "Gated", "Evicting", "Completing", "Suspended", "Failed", "Cancelled", "Completed"];

export function Overview() {
  const [summary, queues, evictions] = useTables("summary", "queues", "evictions");
  const now = useNow(10);
  const row = summary.rows.get("cluster");
  if (!row) return html`<${Page} title="Overview"><${TableState} table=${summary} what="the cluster" /></${Page}>`;
  const cluster = row.summary;
  const names = important(Object.keys(cluster.offered)).filter((name) => name !== "pods" && name !== "ephemeral-storage" && !name.startsWith("hugepages")).slice(0, 4);
  return html`<${Page} title="Overview" cli="phalanx queue list"
    note=${`${plural(cluster.nodes, "node")}${cluster.closed_nodes ? `, ${cluster.closed_nodes} closed` : ""}${cluster.rehearsed ? ` · rehearsed ${span(now - seconds(cluster.rehearsed))} ago in ${cluster.rehearsal_seconds} s` : " · first rehearsal in progress"}`}>
    ${cluster.warnings.length > 0 && html`<details class="alert soft"><summary>${plural(cluster.warnings.length, "warning")}</summary><ul>${cluster.warnings.map((text) => html`<li key=${text}>${text}</li>`)}</ul></details>`}
    <div class="grid stats">
      ${names.map((name) => html`<${Used} key=${name} name=${name} used=${cluster.used[name] || 0} offered=${cluster.offered[name]} />`)}
    </div>
    <div class="grid two">
      <section class="card"><h2>Gangs</h2><${States} states=${cluster.states} /></section>
      <section class="card"><h2>Reasons of waiting</h2><${Reasons} reasons=${cluster.reasons} /></section>
    </div>
    <div class="grid wide">
      <section class="card"><h2>Shares of the cluster</h2><${Shares} queues=${queues} /></section>
      <section class="card"><h2>Evictions</h2><${Latest} table=${evictions} now=${now} /></section>
    </div>
  </${Page}>`;
}

function Used({ name, used, offered }) {
  const share = offered ? (100 * used) / offered : 0;
  return html`<section class="card stat"><h2>${resource(name)}</h2>
    <p class="big">${percent(share)}</p>
    <${Bar} parts=${[{ kind: "used", value: used }]} whole=${offered} label=${`${percent(share)} of ${resource(name)} used`} />
    <p class="note">${amount(name, used)} of ${amount(name, offered)} used, ${amount(name, Math.max(0, offered - used))} free</p></section>`;
}

function States({ states }) {
  const there = STATES.filter((state) => states[state]);
  const total = there.reduce((sum, state) => sum + states[state], 0);
  if (!total) return html`<${Empty}>No gangs.</${Empty}>`;
  return html`<${Bar} parts=${there.map((state) => ({ kind: state, value: states[state] }))} whole=${total} label=${there.map((state) => `${states[state]} ${state}`).join(", ")} />
    <ul class="tiles">${there.map((state) => html`<li key=${state}><${Link} to=${to("/gangs", { state })}><span class="count">${short(states[state])}</span><${State} word=${state} /></${Link}></li>`)}</ul>`;
}

function Reasons({ reasons }) {
  const found = Object.entries(reasons).sort((a, b) => b[1] - a[1]);
  if (!found.length) return html`<${Empty}>No gang is blocked.</${Empty}>`;
  const most = found[0][1];
  return html`<ul class="bars">${found.map(([reason, count]) => html`<li key=${reason}><${Link} to=${to("/gangs", { reason })}>
    <span class="name">${words(reason)}</span><${Bar} parts=${[{ kind: "Pending", value: count }]} whole=${most} label=${`${count} wait: ${reason}`} /><span class="count">${short(count)}</span></${Link}></li>`)}</ul>`;
}

function words(reason) {
  return reason.replace(/([a-z])([A-Z])/g, (found, a, b) => `${a} ${b.toLowerCase()}`);
}

function Shares({ queues }) {
  const history = useAnswer("history", Math.floor(Date.now() / 10000));
  const drawn = useMemo(() => {
    const series = history.value && history.value.series.find((each) => each.resolution === 10);
    if (!series || series.times.length < 2) return null;
    const top = [...queues.rows.values()].filter((row) => row.queue && (row.queue.depth || 0) === 1).sort((a, b) => a.place - b.place).map((row) => row.queue.name);
    const named = (top.length ? top : Object.keys(series.used)).filter((name) => series.used[name]).slice(0, 8);
    return { times: series.times, lines: named.map((name) => ({ name, values: series.used[name] })) };
  }, [history.value]);
  if (history.error && !history.value) return html`<div class="alert" role="alert">${history.error}</div>`;
  if (!drawn) return html`<${Empty}>Collecting the first minute …</${Empty}>`;
  if (!drawn.lines.length) return html`<${Empty}>No visible queues: you lack the right to get them.</${Empty}>`;
  return html`<${Chart} times=${drawn.times} lines=${drawn.lines} label="Used shares of the cluster by queue, last hour" />`;
}

function Latest({ table, now }) {
  const rows = useMemo(() => [...table.rows.values()].sort((a, b) => (a.when < b.when ? 1 : -1)).slice(0, 5), [table.changes]);
  if (table.state !== "there" || table.omitted.length) return html`<${TableState} table=${table} what="evictions" />${table.state === "there" && rows.length === 0 && html`<${Empty}>No visible evictions.</${Empty}>`}`;
  if (!rows.length) return html`<${Empty}>No recent evictions.</${Empty}>`;
  // Pods with one cause are one entry.
  const causes = new Map();
  for (const row of rows) causes.set(row.message, [...(causes.get(row.message) || []), row]);
  return html`<ul class="feed">${[...causes.values()].map(([row, ...others]) => html`<li key=${row.id}><span class="when" title=${clock(row.when)}>${age(row.when, now)}</span><div><strong>${[row, ...others].map((each) => `${each.namespace}/${each.pod}`).join(", ")}</strong><p><${Told} text=${row.message} /></p></div></li>`)}</ul>
    <p><${Link} to=${to("/evictions")}>All evictions</${Link}></p>`;
}

