import { html, useMemo } from "/static/vendor/htm-preact-3.1.1.js";
import { Page, State, TableState, Empty, Name, gangPath, useNow, useParameter, useTables } from "/static/parts.js";
import { age, asks, clock, local, minute, passed, plural, seconds } from "/static/format.js";
import { useList } from "/static/list.js";
import { store } from "/static/store.js";
import { BulkOrders } from "/static/views/orders.js";

const STATES = ["Pending", "Partial", "Gated", "Evicting", "Starting", "Running", "Completing", "Suspended", "Failed", "Cancelled", "Completed"];
const ORDER = Object.fromEntries(STATES.map((state, index) => [state, index]));
const GROUPS = [
  ["state", "State", (row) => row.state], ["queue", "Queue", (row) => row.queue], ["namespace", "Namespace", (row) => row.namespace],
  ["user", "User", (row) => row.user], ["reason", "Reason", (row) => row.reason],
];

function start(row) {
  if (row.forecast === "StartsNow") return html`<span title="the last rehearsal placed it">now</span>`;
  return row.start && html`<span title=${`${row.start_kind} ${clock(row.start)}`}>${row.start_kind === "planned" ? "~ " : passed(row.start) ? "overdue " : "≤ "}${minute(row.start)}</span>`;
}

function columnsAt(now, timed) {
  return [
    { key: "state", title: "State", width: 120, fixed: true, sort: (row) => (ORDER[row.state] ?? 99) * 1e12 + (seconds(row.created) || 0), cell: (row) => html`<${State} word=${row.state} />` },
    { key: "gang", title: "Gang", width: 190, fixed: true, sort: (row) => row.id, cell: (row) => html`<span class="muted small space">${store.namespace ? "" : row.namespace}${row.kind === "pod" && html` <span class="tag">pod</span>`}</span><a href=${`#${gangPath(row)}`} aria-label=${row.title || row.name}><${Name} text=${row.title || row.name} /></a>` },
    { key: "queue", title: "Queue", width: 96, sort: (row) => row.queue || "", cell: (row) => row.queue && html`<${Name} text=${row.queue} />` },
    { key: "user", title: "User", width: 100, optional: true, sort: (row) => row.user || "", cell: (row) => row.user && html`<${Name} text=${row.user} />` },
    { key: "members", title: "Members", width: 86, hint: "Bound members / required members", sort: (row) => row.minimum || 0, cell: (row) => html`<span title=${`${row.running || 0} running, ${row.placed || 0} bound, ${row.minimum || 0} required`}>${row.placed || 0}/${row.minimum || 0}</span>` },
    { key: "asks", title: "Requests", width: 100, cell: (row) => asks(row) && html`<span title=${asks(row)}>${asks(row, 2)}</span>` },
    { key: "priority", title: "Priority", width: 84, optional: true, sort: (row) => row.priority || 0, cell: (row) => row.priority || 0 },
    { key: "nodes", title: "Nodes", width: 130, optional: true, sort: (row) => row.node_count || 0, cell: (row) => row.node_count && html`<span title=${(row.nodes || []).join(", ")}>${row.node_count > 1 ? plural(row.node_count, "node") : row.nodes[0]}</span>` },
    { key: "age", title: "Age", width: 68, sort: (row) => -(seconds(row.created) || 0), cell: (row) => html`<span title=${clock(row.created)}>${age(row.created, now)}</span>` },
    { key: "started", title: "Started", width: 120, optional: true, sort: (row) => row.started || "~", cell: (row) => row.started && minute(row.started) },
    { key: "start", title: "Starts", width: 96, optional: !timed, hint: "\u2264 promised: starts no later; ~ planned, if all running pods end at their limits", sort: (row) => row.start || "~", cell: start },
    { key: "why", title: "Reason and fix", cell: (row) => row.message && html`<span title=${`${row.reason}: ${row.message}`}>${local(row.brief || row.message)}</span>${row.change && html`<span class="change" title=${row.change}>→ ${row.change}</span>`}` },
  ];
}

export function Gangs() {
  const [table] = useTables("gangs", "summary");
  const [filter, setFilter] = useParameter("q");
  const [state, setState] = useParameter("state");
  const [reason, setReason] = useParameter("reason");
  const [queue, setQueue] = useParameter("queue");
  const now = useNow();
  const choice = [filter, state, reason, queue, store.namespace].join("\n");
  const rows = useMemo(() => {
    const words = filter.toLowerCase().split(/\s+/).filter(Boolean);
    return [...table.rows.values()].filter((row) => {
      if ((state && row.state !== state) || (reason && row.reason !== reason) || (queue && row.queue !== queue)) return false;
      const text = words.length ? `${row.id} ${row.title || ""} ${row.queue || ""} ${row.user || ""} ${row.state} ${row.reason || ""} ${row.message || ""}`.toLowerCase() : "";
      return words.every((word) => text.includes(word));
    });
  }, [table.changes, table.rows, choice]);
  const timed = rows.some((row) => row.start || row.forecast);
  const columns = useMemo(() => columnsAt(now, timed), [now, timed, store.namespace]);
  const list = useList({
    id: "gangs", rows, columns, groups: GROUPS, sort: "state", label: "Gangs", noun: "gang", key: choice,
    open: (row) => { location.hash = gangPath(row); }, pick: store.session.writes ? () => true : null,
  });
  return html`<${Page} title="Gangs" cli=${`phalanx jobs${store.namespace ? ` -n ${store.namespace}` : " -A"}`}
    note=${table.state === "there" ? `${plural(rows.length, "gang")}${rows.length !== table.rows.size ? ` of ${table.rows.size}` : ""}` : ""}>
    <div class="filters">
      <input id="filter" type="search" placeholder="Filter: name, queue, reason …  ( / )" aria-label="Filter" value=${filter} onInput=${(event) => setFilter(event.target.value)} />
      <select aria-label="State" value=${state} onChange=${(event) => setState(event.target.value)}>
        <option value="">any state</option>${STATES.map((each) => html`<option key=${each}>${each}</option>`)}</select>
      ${reason && html`<button class="chip" onClick=${() => setReason("")} aria-label=${`Any reason instead of ${reason}`}>${reason} ✕</button>`}
      ${queue && html`<button class="chip" onClick=${() => setQueue("")} aria-label=${`Any queue instead of ${queue}`}>queue ${queue} ✕</button>`}
      ${list.controls}
    </div>
    ${list.chosen.length > 0 && html`<${BulkOrders} rows=${list.chosen} clear=${list.clear} />`}
    <${TableState} table=${table} what="gangs" />
    ${table.state === "there" && !rows.length && html`<${Empty}>${table.rows.size ? "No gang matches the filter." : "No gangs. Submit one: phalanx submit --help"}</${Empty}>`}
    ${list.table}
  </${Page}>`;
}
