import { html, useMemo, useState } from "/static/vendor/htm-preact-3.1.1.js";
import { Bar, Empty, Link, Page, TableState, Told, to, useAnswer, useNow, useParameter, useTables } from "/static/parts.js";
import { important, percent, plural, resource, written } from "/static/format.js";
import { Chart, Strip } from "/static/chart.js";
import { Shares } from "/static/views/shares.js";

export function Queues() {
  const [table] = useTables("queues", "summary");
  const [closed, setClosed] = useState({});
  const [open, setOpen] = useParameter("open");
  const [filter, setFilter] = useParameter("q");
  const beat = useNow(10);
  const history = useAnswer("history", Math.floor(beat / 10));
  const series = history.value?.series.find((each) => each.resolution === 10);
  const rows = useMemo(() => [...table.rows.values()].sort((a, b) => a.place - b.place), [table.changes]);
  // A child is hidden while a queue above it is collapsed. Rows are in tree order.
  const shown = useMemo(() => {
    const found = [];
    let hidden = Infinity;
    for (const row of rows) {
      const each = row.queue || row.quota, depth = each.depth || 0;
      if (depth > hidden) continue;
      hidden = closed[row.id] ? depth : Infinity;
      if (!filter || each.name.toLowerCase().includes(filter.toLowerCase())) found.push(row);
    }
    return found;
  }, [rows, closed, filter]);
  const parents = useMemo(() => new Set(rows.map((row) => (row.queue || row.quota).parent).filter(Boolean)), [rows]);
  const chosen = rows.find((row) => (row.queue || row.quota).name === open);
  // Shares of the top of the tree; the shares of several trees overlap.
  const sum = (key) => Math.min(100, rows.map((row) => row.queue || row.quota).filter((each) => !each.depth).reduce((total, each) => total + (each[key] || 0), 0));
  return html`<${Page} title="Queues" cli=${open ? `phalanx queue describe ${open}` : "phalanx queue tree"} note="Each bar shows shares of the cluster: used, borrowed and deserved.">
    <div class="filters"><input id="filter" type="search" placeholder="Filter by name  ( / )" aria-label="Filter" value=${filter} onInput=${(event) => setFilter(event.target.value)} />
      <ul class="legend inline"><li><span class="swatch p-used"></span>used <strong>${percent(sum("share"))}</strong></li><li><span class="swatch p-borrowed"></span>borrowed <strong>${plural(rows.filter((row) => Object.keys((row.queue || row.quota).borrowed || {}).length).length, "queue")}</strong></li><li><span class="swatch t-right"></span>deserved <strong>${percent(sum("own_share"))}</strong></li></ul></div>
    <${TableState} table=${table} what="queues" />
    ${table.state === "there" && !rows.length && html`<${Empty}>No visible queues.</${Empty}>`}
    ${shown.length > 0 && html`<div class="card flush scrollx"><table class="tree stack"><thead><tr><th scope="col">Queue</th><th scope="col" class="shares">Share of the cluster</th><th scope="col" class="num">Used</th><th scope="col" class="num">Deserved</th><th scope="col" >Gangs</th><th scope="col" >Last hour</th></tr></thead>
      <tbody>${shown.map((row) => html`<${Row} key=${row.id} row=${row} parent=${parents.has((row.queue || row.quota).name)} closed=${closed[row.id]} toggle=${() => setClosed({ ...closed, [row.id]: !closed[row.id] })} open=${open} choose=${setOpen} series=${series} />`)}</tbody></table></div>`}
    ${chosen && html`<${Details} row=${chosen} history=${history.value} close=${() => setOpen("")} />`}
    <${Shares} />
  </${Page}>`;
}

function Row({ row, parent, closed, toggle, open, choose, series }) {
  const each = row.queue || row.quota;
  const share = each.share || 0, right = each.own_share || 0;
  const borrowed = Object.keys(each.borrowed || {}).length ? Math.max(0, share - right) : 0;
  const values = series && row.queue && series.used[each.name];
  return html`<tr class=${open === each.name ? "selected" : ""} onClick=${(event) => { if (!/^(A|BUTTON)$/.test(event.target.tagName)) choose(open === each.name ? "" : each.name); }}>
    <th scope="row" style=${{ paddingLeft: `${12 + 20 * (each.depth || 0)}px` }}>
      ${parent ? html`<button class="twist" onClick=${toggle} aria-expanded=${!closed} aria-label=${`${closed ? "Expand" : "Collapse"} ${each.name}`}>${closed ? "▸" : "▾"}</button>` : html`<span class="twist"></span>`}
      <button class="name" onClick=${() => choose(open === each.name ? "" : each.name)} aria-expanded=${open === each.name}>${each.name}</button>
      ${row.quota && html` <span class="tag">${each.family}</span>`}${each.state && each.state !== "Open" && html` <span class="tag bad">${each.state}</span>`}${each.fault && html` <span class="tag bad" title=${each.fault}>fault</span>`}
    </th>
    <td class="shares" data-label="Share of the cluster"><${Bar} whole=${100} parts=${[{ kind: "used", value: share - borrowed }, { kind: "borrowed", value: borrowed }]} marks=${right ? [{ kind: "right", value: right }] : []} label=${`${each.name} uses ${percent(share)} of ${resource(each.dominant || "cpu")}, deserved ${percent(right)}, borrowed ${percent(borrowed)}`} /></td>
    <td class="num" data-label="Used">${percent(share)}<span class="muted small"> ${resource(each.dominant || "")}</span></td>
    <td class="num" data-label="Deserved">${right ? percent(right) : "–"}</td>
    <td data-label="Gangs"><${Link} to=${to("/gangs", { queue: each.name })}>${each.gangs?.running || 0} running, ${each.gangs?.pending || 0} pending</${Link}></td>
    <td data-label="Last hour">${values && html`<${Strip} values=${values} top=${Math.max(10, right)} label=${`Share of ${each.name} over the last hour`} />`}</td></tr>`;
}

const ROWS = [["used", "used"], ["deserved", "deserved"], ["entitled", "entitled"], ["guarantee", "guarantee"], ["min", "min"], ["max", "max"], ["runtime", "runtime quota"], ["capability", "capability"], ["borrowed", "borrowed"], ["lent", "lent"], ["pending", "pending"]];

function Details({ row, history, close }) {
  const each = row.queue || row.quota;
  const kinds = ROWS.filter(([key]) => Object.keys(each[key] || {}).length);
  const names = important(new Set(kinds.flatMap(([key]) => Object.keys(each[key])))).slice(0, 6);
  const [resolution, setResolution] = useState(10);
  const drawn = useMemo(() => {
    const series = history?.series.find((one) => one.resolution === resolution);
    if (!series || !series.used[each.name] || series.times.length < 2) return null;
    return { times: series.times, lines: [{ name: "used", values: series.used[each.name] }, { name: "deserved", values: series.right[each.name] }] };
  }, [history, resolution, each.name]);
  return html`<section class="card"><div class="page-head"><h2>${each.name}</h2><button class="quiet" onClick=${close}>close</button></div>
    <p class="note">${[each.parent && `below ${each.parent}`, each.weight && `weight ${each.weight}`, each.min_run_time && `no eviction in the first ${each.min_run_time}`, each.eviction_rate && `at most ${each.eviction_rate} evicted`].filter(Boolean).join(" · ")}</p>
    ${each.fault && html`<div class="alert" role="alert">${each.fault}</div>`}
    ${(each.partners || []).length > 0 && html`<p>${Object.keys(each.borrowed || {}).length ? "Borrows from" : "Lends to"} <strong>${each.partners.join(", ")}</strong>${each.further_partners ? ` and ${each.further_partners} more` : ""}.</p>`}
    ${each.first && html`<div class="help"><strong>First waiting: ${each.first.name}</strong><p><${Told} text=${each.first.message} /></p>${each.first.change && html`<p>Fix: ${each.first.change}</p>`}</div>`}
    <div class="grid two"><div class="scrollx"><table class="plain"><thead><tr><th></th>${names.map((name) => html`<th key=${name} scope="col" class="num">${resource(name)}</th>`)}</tr></thead>
      <tbody>${kinds.map(([key, title]) => html`<tr key=${key}><th scope="row">${title}</th>${names.map((name) => html`<td key=${name} class="num" title=${each[key][name]}>${written(name, each[key][name])}</td>`)}</tr>`)}</tbody></table></div>
    <div><div class="filters" role="group" aria-label="Period">${[[10, "hour"], [60, "day"], [600, "two weeks"]].map(([value, title]) => html`<button key=${value} class="chip" aria-pressed=${resolution === value} onClick=${() => setResolution(value)}>${title}</button>`)}</div>
      ${drawn ? html`<${Chart} times=${drawn.times} lines=${drawn.lines} height=${170} label=${`Share of ${each.name} over time`} />` : html`<${Empty}>Not enough data since the dashboard started.</${Empty}>`}</div></div>
    ${(each.tenants || []).length > 0 && html`<h3>Tenants</h3><ul class="bars">${each.tenants.map((one) => html`<li key=${one.kind + one.name}><span class="name">${one.kind} ${one.name}</span><${Bar} parts=${[{ kind: "used", value: one.share || 0 }]} whole=${Math.max(1, each.share || 0)} label=${`${one.name} uses ${percent(one.share || 0)}`} /><span class="count">${percent(one.share || 0)}</span></li>`)}</ul>`}
    ${(each.warnings || []).map((text) => html`<p key=${text} class="note">${text}</p>`)}
    <p><${Link} to=${to("/gangs", { queue: each.name })}>${plural((each.gangs?.running || 0) + (each.gangs?.pending || 0), "gang")} of this queue</${Link}></p></section>`;
}
