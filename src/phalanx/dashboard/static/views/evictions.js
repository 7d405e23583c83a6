import { html, useMemo } from "/static/vendor/htm-preact-3.1.1.js";
import { Empty, Name, Page, TableState, to, useNow, useParameter, useTables } from "/static/parts.js";
import { age, clock, local, minute, plural } from "/static/format.js";
import { useList } from "/static/list.js";
import { store } from "/static/store.js";

const GROUPS = [["reason", "Reason", (row) => row.reason], ["gang", "Gang", (row) => row.gang], ["namespace", "Namespace", (row) => row.namespace]];

function columnsAt(now) {
  return [
    { key: "state", title: "Reason", width: 120, fixed: true, sort: (row) => row.reason, cell: (row) => html`<span class="tag">${row.reason}</span>` },
    { key: "gang", title: "Pod", width: 210, fixed: true, sort: (row) => `${row.namespace}/${row.pod}`, cell: (row) => html`<span class="muted small space">${store.namespace ? "" : row.namespace}</span><${Name} text=${row.pod} />` },
    { key: "of", title: "Gang", width: 180, optional: true, sort: (row) => row.gang || "", cell: (row) => row.gang && html`<${Name} text=${row.gang} />` },
    { key: "when", title: "When", width: 150, sort: (row) => row.when, cell: (row) => html`<span title=${`${age(row.when, now)} ago`}>${minute(row.when)}</span>` },
    { key: "age", title: "Ago", width: 80, cell: (row) => html`<span title=${clock(row.when)}>${age(row.when, now)}</span>` },
    { key: "why", title: "Preemptor and cause", cell: (row) => html`<span title=${row.message}>${local(row.message)}</span>` },
  ];
}

export function Evictions() {
  const [table] = useTables("evictions", "summary");
  const [filter, setFilter] = useParameter("q");
  const [reason, setReason] = useParameter("reason");
  const now = useNow();
  const all = useMemo(() => [...table.rows.values()], [table.changes]);
  const reasons = useMemo(() => [...new Set(all.map((row) => row.reason))].sort(), [all]);
  const rows = useMemo(() => all.filter((row) => (!reason || row.reason === reason) && (!filter || `${row.namespace}/${row.pod} ${row.gang || ""} ${row.message}`.toLowerCase().includes(filter.toLowerCase()))), [all, filter, reason]);
  const open = (row) => {
    // A gang's name can contain slashes.
    const [namespace, ...rest] = (row.gang || `${row.namespace}/${row.pod}`).split("/");
    const name = rest.join("/");
    location.hash = to(`/${row.gang ? "gangs" : "pods"}/${encodeURIComponent(namespace)}/${encodeURIComponent(name)}`);
  };
  const list = useList({ id: "evictions", rows, columns: columnsAt(now), groups: GROUPS, sort: "-when", label: "Evictions", noun: "evicted pod", key: `${filter}\n${reason}`, open });
  const where = store.namespace ? `-n ${store.namespace}` : "-A";
  return html`<${Page} title="Evictions" note=${table.state === "there" ? `${plural(rows.length, "evicted pod")}, as far back as events are stored` : ""} cli=${`kubectl get events ${where} --field-selector reason=${reason || "Preempted"}`}>
    <div class="filters"><input id="filter" type="search" placeholder="Filter: pod, gang, cause  ( / )" aria-label="Filter" value=${filter} onInput=${(event) => setFilter(event.target.value)} />
      <select aria-label="Reason" value=${reason} onChange=${(event) => setReason(event.target.value)}><option value="">any reason</option>${reasons.map((each) => html`<option key=${each}>${each}</option>`)}</select>${list.controls}</div>
    <${TableState} table=${table} what="evictions" />
    ${table.state === "there" && !rows.length && html`<${Empty}>${all.length ? "No eviction matches the filter." : "No evictions, as far back as events are stored."}</${Empty}>`}
    ${list.table}
  </${Page}>`;
}
