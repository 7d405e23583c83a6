import { html, useMemo, useState } from "/static/vendor/htm-preact-3.1.1.js";
import { Empty, Page, TableState, VirtualTable, to, useNow, useParameter, useTables } from "/static/parts.js";
import { age, clock, local, plural } from "/static/format.js";
import { store } from "/static/store.js";

export function Evictions() {
  const [table] = useTables("evictions", "summary");
  const [filter, setFilter] = useParameter("q");
  const [reason, setReason] = useParameter("reason");
  const [selected, select] = useState(-1);
  const now = useNow();
  const all = useMemo(() => [...table.rows.values()].sort((a, b) => (a.when < b.when ? 1 : a.when > b.when ? -1 : a.id < b.id ? -1 : 1)), [table.changes]);
  const reasons = useMemo(() => [...new Set(all.map((row) => row.reason))].sort(), [all]);
  const rows = all.filter((row) => (!reason || row.reason === reason) && (!filter || `${row.namespace}/${row.pod} ${row.gang || ""} ${row.message}`.toLowerCase().includes(filter.toLowerCase())));
  const open = (row) => {
    // A gang's name can contain slashes.
    const [namespace, ...rest] = (row.gang || `${row.namespace}/${row.pod}`).split("/");
    const name = rest.join("/");
    location.hash = to(`/${row.gang ? "gangs" : "pods"}/${encodeURIComponent(namespace)}/${encodeURIComponent(name)}`);
  };
  const where = store.namespace ? `-n ${store.namespace}` : "-A";
  return html`<${Page} title="Evictions" note=${table.state === "there" ? `${plural(rows.length, "evicted pod")}, as far back as events are stored` : ""} cli=${`kubectl get events ${where} --field-selector reason=${reason || "Preempted"}`}>
    <div class="filters"><input id="filter" type="search" placeholder="Filter: pod, gang, cause  ( / )" aria-label="Filter" value=${filter} onInput=${(event) => setFilter(event.target.value)} />
      <select aria-label="Reason" value=${reason} onChange=${(event) => setReason(event.target.value)}><option value="">any reason</option>${reasons.map((each) => html`<option key=${each}>${each}</option>`)}</select></div>
    <${TableState} table=${table} what="evictions" />
    ${table.state === "there" && !rows.length && html`<${Empty}>${all.length ? "No eviction matches the filter." : "No evictions, as far back as events are stored."}</${Empty}>`}
    ${rows.length > 0 && html`<div class="card flush"><${VirtualTable} rows=${rows} height=${() => (innerWidth <= 720 ? 98 : 62)} selected=${selected} select=${select} open=${open} label="Evictions"
      columns=${[{ key: "age", title: "When" }, { key: "state", title: "Reason" }, { key: "gang", title: "Pod" }, { key: "why", title: "Preemptor and cause" }]}
      row=${(row) => html`<td class="age" title=${clock(row.when)}>${age(row.when, now)}</td><td class="state"><span class="tag">${row.reason}</span></td><td class="gang"><span class="muted">${row.namespace}/</span>${row.pod}</td><td class="why"><span title=${row.message}>${local(row.message)}</span></td>`} /></div>`}
  </${Page}>`;
}
