import { html, useMemo, useRef, useState } from "/static/vendor/htm-preact-3.1.1.js";
import { Page, State, TableState, Empty, VirtualTable, gangPath, go, place, useNow, useParameter, useTables } from "/static/parts.js";
import { age, asks, clock, local, minute, passed, plural, seconds } from "/static/format.js";
import { store } from "/static/store.js";

const STATES = ["Pending", "Partial", "Gated", "Evicting", "Starting", "Running", "Completing", "Failed", "Completed"];
const ORDER = Object.fromEntries(STATES.map((state, index) => [state, index]));
const KEYS = {
  state: (row) => (ORDER[row.state] ?? 9) * 1e12 + (seconds(row.created) || 0),
  gang: (row) => row.id,
  queue: (row) => row.queue || "",
  members: (row) => row.minimum,
  age: (row) => -(seconds(row.created) || 0),
  start: (row) => row.start || "~",
};
const TITLES = { state: "State", gang: "Gang", queue: "Queue", members: "Members", asks: "Requests", age: "Age", start: "Starts", why: "Reason and fix" };

const HINTS = { members: "Bound members / required members", start: "\u2264 promised: starts no later; ~ planned, if all running pods end at their limits" };

export function Gangs() {
  const [table] = useTables("gangs", "summary");
  const [filter, setFilter] = useParameter("q");
  const [state, setState] = useParameter("state");
  const [reason, setReason] = useParameter("reason");
  const [queue, setQueue] = useParameter("queue");
  const [sort, setSort] = useParameter("sort", "state");
  const [selected, select] = useState(-1);
  const over = useRef(false);
  const kept = useRef({ ids: [], key: "" });
  const now = useNow();
  const choice = [filter, state, reason, queue, sort, store.namespace].join("\n");
  const rows = useMemo(() => {
    const words = filter.toLowerCase().split(/\s+/).filter(Boolean);
    const found = [];
    for (const row of table.rows.values()) {
      if (state && row.state !== state) continue;
      if (reason && row.reason !== reason) continue;
      if (queue && row.queue !== queue) continue;
      if (words.length) {
        const text = `${row.id} ${row.queue || ""} ${row.state} ${row.reason || ""} ${row.message || ""}`.toLowerCase();
        if (!words.every((word) => text.includes(word))) continue;
      }
      found.push(row);
    }
    const down = sort.startsWith("-"), key = KEYS[sort.replace("-", "")] || KEYS.state;
    const keyed = found.map((row) => [key(row), row]);
    keyed.sort(([a, one], [b, other]) => (a < b ? -1 : a > b ? 1 : one.id < other.id ? -1 : 1) * (down ? -1 : 1));
    return keyed.map(([, row]) => row);
  }, [table.changes, table.rows, choice]);
  // Rows do not move under the pointer: the order changes when the pointer leaves.
  let shown = rows, waiting = 0;
  if (over.current && kept.current.key === choice) {
    const there = new Map(rows.map((row) => [row.id, row]));
    shown = kept.current.ids.map((id) => there.get(id)).filter(Boolean);
    waiting = rows.length - shown.length;
    if (rows.some((row, index) => row !== shown[index] && row.id !== shown[index]?.id)) waiting = Math.max(1, waiting);
  } else kept.current = { ids: rows.map((row) => row.id), key: choice };
  const column = (key) => ({
    key, title: TITLES[key], hint: HINTS[key],
    sort: sort === key ? "ascending" : sort === `-${key}` ? "descending" : "none",
    onSort: KEYS[key] && (() => setSort(sort === key ? `-${key}` : key)),
  });
  const timed = rows.some((row) => row.start || row.forecast);
  const open = (row) => { location.hash = gangPath(row); };
  const line = `phalanx jobs${store.namespace ? ` -n ${store.namespace}` : " -A"}`;
  return html`<${Page} title="Gangs" cli=${line}
    note=${table.state === "there" ? `${plural(rows.length, "gang")}${rows.length !== table.rows.size ? ` of ${table.rows.size}` : ""}` : ""}>
    <div class="filters">
      <input id="filter" type="search" placeholder="Filter: name, queue, reason …  ( / )" aria-label="Filter" value=${filter} onInput=${(event) => setFilter(event.target.value)} />
      <select aria-label="State" value=${state} onChange=${(event) => setState(event.target.value)}>
        <option value="">any state</option>${STATES.map((each) => html`<option key=${each}>${each}</option>`)}</select>
      ${reason && html`<button class="chip" onClick=${() => setReason("")} aria-label=${`Any reason instead of ${reason}`}>${reason} ✕</button>`}
      ${queue && html`<button class="chip" onClick=${() => setQueue("")} aria-label=${`Any queue instead of ${queue}`}>queue ${queue} ✕</button>`}
      ${waiting > 0 && html`<span class="badge" role="status">${plural(waiting, "change")} when the pointer leaves</span>`}
    </div>
    <${TableState} table=${table} what="gangs" />
    ${table.state === "there" && !rows.length && html`<${Empty}>${table.rows.size ? "No gang matches the filter." : "No gangs. Submit one: phalanx submit --help"}</${Empty}>`}
    ${rows.length > 0 && html`<div class="card flush gangs" onMouseEnter=${() => { over.current = true; }} onMouseLeave=${() => { over.current = false; store.tell(); }}>
      <${VirtualTable} rows=${shown} height=${() => (innerWidth <= 720 ? 98 : 62)} selected=${selected} select=${select} open=${open} label="Gangs"
        columns=${["state", "gang", "queue", "members", "asks", "age", ...(timed ? ["start"] : []), "why"].map(column)}
        row=${(row) => html`
          <td class="state"><${State} word=${row.state} /></td>
          <td class="gang"><a href=${`#${gangPath(row)}`}>${store.namespace ? row.title || row.name : html`<span class="muted">${row.namespace}/</span>${row.title || row.name}`}</a>${row.kind === "pod" && html` <span class="tag">pod</span>`}</td>
          <td class="queue">${row.queue || ""}</td>
          <td class="members" title=${`${row.running || 0} running, ${row.placed || 0} bound, ${row.minimum || 0} required`}>${row.placed || 0}/${row.minimum || 0}</td>
          <td class="asks" title=${asks(row)}>${asks(row, 1)}<span class="more">${asks(row, 2).slice(asks(row, 1).length)}</span></td>
          <td class="age">${age(row.created, now)}</td>
          ${timed && html`<td class="start">${row.forecast === "StartsNow" ? html`<span title="the last rehearsal placed it">now</span>` : row.start && html`<span title=${`${row.start_kind} ${clock(row.start)}`}>${row.start_kind === "planned" ? "~ " : passed(row.start) ? "overdue " : "≤ "}${minute(row.start)}</span>`}</td>`}
          <td class="why">${row.message && html`<span title=${`${row.reason}: ${row.message}`}>${local(row.brief || row.message)}</span>${row.change && html`<span class="change" title=${row.change}>→ ${row.change}</span>`}`}</td>`} />
    </div>`}
  </${Page}>`;
}
