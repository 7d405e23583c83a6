import { html, useMemo } from "/static/vendor/htm-preact-3.1.1.js";
import { Bar, Empty, Link, Name, Page, State, TableState, Told, to, useNow, useParameter, useTables } from "/static/parts.js";
import { age, clock, important, local, plural, resource, seconds, written } from "/static/format.js";
import { useList } from "/static/list.js";
import { store } from "/static/store.js";
import { BulkOrders } from "/static/views/orders.js";

// Phases of a dispatched gang in their order, with the colours of similar gang states.
const PHASES = [["Copying", "Starting"], ["Granted", "Running"], ["Recalling", "Partial"], ["Withdrawing", "Terminating"]];
const HINTS = {
  Pending: "At the hub: no cluster is selected yet", Copying: "The hub creates its copies; they do not start yet",
  Granted: "Its cluster has started it or is free to start it", Recalling: "Another cluster starts it sooner: the hub recalls it, unless it has started",
  Withdrawing: "The hub deletes its copies", Ended: "All its pods are finished",
};

const GROUPS = [["cluster", "Cluster", (row) => row.dispatch.cluster], ["phase", "Phase", (row) => row.dispatch.phase], ["namespace", "Namespace", (row) => row.namespace], ["kind", "Kind", (row) => row.dispatch.kind]];

function columnsAt(now, open, setOpen) {
  return [
    { key: "state", title: "Phase", width: 120, fixed: true, sort: (row) => row.dispatch.phase, cell: (row) => html`<span title=${HINTS[row.dispatch.phase]}><${State} word=${row.dispatch.phase} /></span>` },
    { key: "gang", title: "Gang", width: 210, fixed: true, sort: (row) => row.id, cell: (row) => html`<span class="muted small space">${row.namespace}</span><button class="name" aria-label=${row.name} aria-expanded=${open === row.id} onClick=${() => setOpen(open === row.id ? "" : row.id)}><${Name} text=${row.name} /></button>` },
    { key: "kind", title: "Kind", width: 100, optional: true, sort: (row) => row.dispatch.kind, cell: (row) => row.dispatch.kind },
    { key: "queue", title: "Cluster", width: 120, sort: (row) => row.dispatch.cluster || "", cell: (row) => (row.dispatch.cluster ? html`<${Name} text=${row.dispatch.cluster} />` : "–") },
    { key: "age", title: "Age", width: 80, sort: (row) => -(seconds(row.created) || 0), cell: (row) => html`<span title=${clock(row.created)}>${age(row.created, now)}</span>` },
    { key: "why", title: "Why", cell: (row) => html`<span title=${reason(row.dispatch)}>${local(reason(row.dispatch))}</span>` },
  ];
}

export function Clusters() {
  const [table, gangs] = useTables("clusters", "dispatches", "summary");
  const [cluster, setCluster] = useParameter("cluster");
  const [phase, setPhase] = useParameter("phase");
  const [filter, setFilter] = useParameter("q");
  const [open, setOpen] = useParameter("open");
  const now = useNow();
  const rows = useMemo(() => [...table.rows.values()].sort((a, b) => (a.id < b.id ? -1 : 1)), [table.changes]);
  const all = useMemo(() => [...gangs.rows.values()], [gangs.changes]);
  const shown = useMemo(() => all.filter((row) => (!cluster || row.dispatch.cluster === cluster) && (!phase || row.dispatch.phase === phase)
    && (!filter || `${row.dispatch.gang} ${row.dispatch.message}`.toLowerCase().includes(filter.toLowerCase()))), [all, cluster, phase, filter]);
  const list = useList({
    id: "dispatches", rows: shown, columns: columnsAt(now, open, setOpen), groups: GROUPS, sort: "age", label: "Gangs at the hub", noun: "gang", key: [cluster, phase, filter].join("\n"),
    open: (row) => setOpen(open === row.id ? "" : row.id), pick: store.session.writes ? (row) => row.dispatch.kind === "PodGroup" : null,
  });
  const chosen = all.find((row) => row.id === open);
  const most = Math.max(1, ...rows.map((row) => sum(row.gangs)));
  return html`<${Page} title="Clusters" cli=${chosen ? `phalanx why ${chosen.dispatch.kind.toLowerCase()}/${chosen.name} -n ${chosen.namespace}` : "phalanx clusters"} note="The hub dispatches each whole gang to the cluster where it starts first.">
    <${TableState} table=${table} what="clusters" />
    ${table.state === "there" && !rows.length && !table.omitted.length && html`<${Empty}>No cluster has joined this hub yet.</${Empty}>`}
    ${rows.length > 0 && html`<div class="card flush scrollx"><table class="tree stack"><thead><tr><th scope="col">Cluster</th><th scope="col">Status</th><th scope="col" class="shares">Gangs by phase</th><th scope="col" class="num">Gangs</th><th scope="col" >Used</th><th scope="col" class="num">Nodes</th><th scope="col" class="num">Cost</th><th scope="col" >Last seen</th></tr></thead>
      <tbody>${rows.map((row) => html`<${Cluster} key=${row.id} row=${row} most=${most} now=${now} chosen=${cluster === row.id} choose=${() => setCluster(cluster === row.id ? "" : row.id)} />`)}</tbody></table></div>
      <ul class="legend">${PHASES.map(([name, color]) => html`<li key=${name} title=${HINTS[name]}><span class=${`swatch p-${color}`}></span>${name} <strong>${rows.reduce((total, row) => total + ((row.gangs || {})[name] || 0), 0)}</strong></li>`)}</ul>`}
    <h2>Gangs${cluster ? ` in ${cluster}` : ""}</h2>
    <div class="filters"><input id="filter" type="search" placeholder="Filter: gang, cause  ( / )" aria-label="Filter" value=${filter} onInput=${(event) => setFilter(event.target.value)} />
      <select aria-label="Phase" value=${phase} onChange=${(event) => setPhase(event.target.value)}><option value="">any phase</option>${Object.keys(HINTS).map((each) => html`<option key=${each}>${each}</option>`)}</select>
      ${cluster && html`<button class="chip" aria-pressed="true" onClick=${() => setCluster("")}>in ${cluster} ✕</button>`}
      ${list.controls}</div>
    ${list.chosen.length > 0 && html`<${BulkOrders} rows=${list.chosen} clear=${list.clear} />`}
    <${TableState} table=${gangs} what="gangs" />
    ${chosen && html`<${Details} row=${chosen} now=${now} close=${() => setOpen("")} />`}
    ${gangs.state === "there" && !shown.length && html`<${Empty}>${all.length ? "No gang matches the filter." : gangs.omitted.length ? "" : "No gangs are dispatched by the hub."}</${Empty}>`}
    ${list.table}
  </${Page}>`;
}

function sum(counts) {
  return Object.values(counts || {}).reduce((total, each) => total + each, 0);
}

// Devices first, then CPU: the resources that gangs wait for most often.
function main(row) {
  return important(Object.keys(row.offered || {})).filter((name) => name.includes("/") || name === "cpu").slice(0, 2);
}

function reason(dispatch) {
  if (dispatch.unknownSince) return `state unknown: its cluster has not answered since ${dispatch.unknownSince}`;
  if (dispatch.message) return dispatch.message;
  return dispatch.promised && dispatch.phase !== "Ended" ? `${dispatch.cluster} promised a start by ${dispatch.promised}` : "";
}

function Cluster({ row, most, now, chosen, choose }) {
  const word = row.active === "True" ? "Active" : row.active === "False" ? "Inactive" : "Unknown";
  const gangs = row.gangs || {};
  const summary = PHASES.filter(([name]) => gangs[name]).map(([name]) => `${gangs[name]} ${name}`).join(", ");
  return html`<tr class=${chosen ? "selected" : ""} onClick=${(event) => { if (event.target.tagName !== "BUTTON") choose(); }}>
    <th scope="row"><button class="name" aria-pressed=${chosen} onClick=${choose}>${row.id}</button>${row.state && row.state !== "Active" && html` <span class="tag bad" title=${row.state === "Drain" ? "No new gangs; waiting gangs are dispatched to other clusters" : "No new gangs"}>${row.state}</span>`}</th>
    <td data-label="Status"><${State} word=${word} />${row.active !== "True" && html` <span class="muted small" title=${row.message}>${row.reason}</span>`}${row.unknown ? html` <span class="tag bad">${plural(row.unknown, "gang")} unknown</span>` : ""}</td>
    <td class="shares" data-label="Gangs by phase"><${Bar} whole=${most} parts=${PHASES.map(([name, color]) => ({ kind: color, value: gangs[name] || 0 }))} label=${summary || "no gangs"} /></td>
    <td class="num" data-label="Gangs">${sum(gangs)}</td>
    <td data-label="Used">${main(row).map((name) => html`<div key=${name} class="small" title=${`${(row.used || {})[name] ? `${row.used[name]} of ` : ""}${row.offered[name]} ${name}, at the last query about a gang`}>${(row.used || {})[name] ? `${written(name, row.used[name])}/` : ""}${written(name, row.offered[name])} <span class="muted">${resource(name)}</span></div>`)}</td>
    <td class="num" data-label="Nodes" title=${row.version ? `Kubernetes ${row.version}` : null}>${row.nodes ? `${row.ready || 0}/${row.nodes}` : "–"}</td><td class="num" data-label="Cost">${row.cost || 0}</td>
    <td data-label="Last seen" title=${clock(row.last_seen)}>${row.last_seen ? `${age(row.last_seen, now)} ago` : "never"}${row.credential_ends && html` <span class="tag bad" title=${`The hub's credential for this cluster expires ${clock(row.credential_expires)}`}>credential expires</span>`}</td></tr>`;
}

function Details({ row, close }) {
  const each = row.dispatch;
  return html`<section class="card" aria-label=${`Dispatch of ${each.gang}`}>
    <div class="page-head"><h2>${each.kind === "PodGroup" ? "" : `${each.kind} `}${each.gang}</h2><button class="quiet" onClick=${close}>Close</button></div>
    <p class="sentence"><${State} word=${each.phase} /> ${each.cluster ? `in ${each.cluster}, epoch ${each.epoch}` : "at the hub"}${each.since ? html`, since <${Told} text=${each.since} />` : ""}</p>
    ${reason(each) && html`<p><${Told} text=${reason(each)} /></p>`}
    ${each.change && html`<div class="help"><strong>Fix</strong><p>${each.change}</p></div>`}
    ${each.kind === "PodGroup" && html`<p><${Link} to=${to(`/gangs/${encodeURIComponent(row.namespace)}/${encodeURIComponent(row.name)}`)}>The gang at the hub</${Link}></p>`}
    ${each.answers.length > 0 && html`<h3>Answers of the clusters at dispatch</h3><div class="scrollx"><table class="plain"><thead><tr><th scope="col">Cluster</th><th scope="col">Would start</th><th scope="col">Because</th></tr></thead>
      <tbody>${each.answers.map((answer) => html`<tr key=${answer.cluster} class=${answer.cluster === each.cluster ? "selected" : ""}><th scope="row">${answer.cluster}${answer.cluster === each.cluster ? html` <span class="tag">chosen</span>` : ""}</th><td>${answer.start ? html`<${Told} text=${answer.start} />` : "never"}</td><td><${Told} text=${answer.message} /></td></tr>`)}</tbody></table></div>`}
    ${each.attempts.length > 0 && html`<h3>Earlier dispatches</h3><ul class="feed">${[...each.attempts].reverse().map((attempt) => html`<li key=${attempt.epoch}><span class="when" title=${attempt.time}>${clock(attempt.time)}</span><span><strong>${attempt.outcome}</strong> in ${attempt.cluster} (epoch ${attempt.epoch}): <${Told} text=${attempt.message} /></span></li>`)}</ul>`}
  </section>`;
}
