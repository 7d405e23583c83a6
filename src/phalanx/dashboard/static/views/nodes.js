import { html, useEffect, useMemo, useRef, useState } from "/static/vendor/htm-preact-3.1.1.js";
import { Bar, Empty, Page, TableState, colors, useParameter, useTables } from "/static/parts.js";
import { amount, important, percent, plural, resource, short } from "/static/format.js";

const GAP = 3, HEAD = 22, NUMBERED = 28;

// Side of a cell in pixels; large cells contain a number.
function cellOf(count) {
  return count > 4000 ? 8 : count > 1200 ? 12 : count > 400 ? 18 : count > 120 ? NUMBERED : 40;
}

export function Nodes() {
  const [table] = useTables("nodes", "summary");
  const [name, setName] = useParameter("resource");
  const [group, setGroup] = useParameter("by", "rack");
  const [mode, setMode] = useParameter("mode", "used");
  const [size, setSize] = useParameter("size");
  const [filter, setFilter] = useParameter("q");
  const [chosen, setChosen] = useParameter("node");
  const all = useMemo(() => [...table.rows.values()].sort((a, b) => compare(a.id, b.id)), [table.changes]);
  const rows = useMemo(() => (filter ? all.filter((row) => `${row.id} ${row.rack || ""} ${row.zone || ""}`.includes(filter)) : all), [all, filter]);
  const names = useMemo(() => important(new Set(all.slice(0, 500).flatMap((row) => Object.keys(row.offered || {})))), [all]);
  const shown = names.includes(name) ? name : names[0] || "cpu";
  const unit = shown === "cpu" ? 1000 : shown === "memory" ? 1024 ** 3 : 1;
  const each = Math.max(1, Number(size) || (shown.includes("/") ? 1 : shown === "cpu" ? 4 : shown === "memory" ? 16 : 1));
  const value = useMemo(() => (mode === "used"
    ? (row) => (row.offered?.[shown] ? 1 - (row.free?.[shown] || 0) / row.offered[shown] : -1)
    : (row) => (row.offered?.[shown] ? (row.closed ? 0 : Math.floor((row.free?.[shown] || 0) / (each * unit)) / Math.max(1, Math.floor(row.offered[shown] / (each * unit)))) : -1)), [mode, shown, each]);
  const groups = useMemo(() => {
    const found = new Map();
    for (const row of rows) {
      const key = group === "none" ? "" : row[group] || `no ${group}`;
      if (!found.has(key)) found.set(key, []);
      found.get(key).push(row);
    }
    return [...found].sort((a, b) => compare(a[0], b[0]));
  }, [rows, group]);
  const node = chosen && table.rows.get(chosen);
  return html`<${Page} title="Nodes" cli=${mode === "used" ? "phalanx nodes -N" : `phalanx what-if --free --pod ${shown}=${shown === "memory" ? `${each}Gi` : each}`} note=${table.state === "there" ? plural(rows.length, "node") : ""}>
    <div class="filters">
      <div role="group" aria-label="Mode"><button class="chip" aria-pressed=${mode === "used"} onClick=${() => setMode("used")}>use</button><button class="chip" aria-pressed=${mode !== "used"} onClick=${() => setMode("fragments")}>fragmentation</button></div>
      <label>Resource <select value=${shown} onChange=${(event) => setName(event.target.value)}>${names.map((one) => html`<option key=${one} value=${one}>${one}</option>`)}</select></label>
      <label>By <select value=${group} onChange=${(event) => setGroup(event.target.value)}><option value="rack">rack</option><option value="zone">zone</option><option value="none">nothing</option></select></label>
      ${mode !== "used" && html`<label>Pods of <input class="number" type="number" min="1" value=${each} onChange=${(event) => setSize(event.target.value)} /> ${shown === "memory" ? "Gi" : shown === "cpu" ? "cores" : ""}</label>`}
      <input id="filter" type="search" placeholder="Filter: node, rack, zone  ( / )" aria-label="Filter" value=${filter} onInput=${(event) => setFilter(event.target.value)} />
    </div>
    <${TableState} table=${table} what="nodes" />
    ${table.state === "there" && !rows.length && html`<${Empty}>${all.length ? "No node matches the filter." : "No visible nodes."}</${Empty}>`}
    ${rows.length > 0 && html`
      ${mode !== "used" && html`<${Fragments} rows=${rows} groups=${groups} group=${group} name=${shown} each=${each} unit=${unit} />`}
      <div class="card heat"><${Heat} groups=${groups} value=${value} name=${shown} mode=${mode} each=${each * unit} choose=${setChosen} chosen=${chosen} /><${Scale} mode=${mode} name=${shown} each=${each} rows=${rows} value=${value} numbers=${cellOf(rows.length) >= NUMBERED} /></div>`}
    ${node && html`<${Details} node=${node} close=${() => setChosen("")} />`}
  </${Page}>`;
}

function compare(a, b) {
  return a.localeCompare(b, undefined, { numeric: true });
}

// The position of a cell follows from its index: ten thousand nodes are drawn in milliseconds.
function Heat({ groups, value, name, mode, each, choose, chosen }) {
  const canvas = useRef(null), tip = useRef(null);
  const [wide, setWide] = useState(800);
  useEffect(() => {
    const watcher = new ResizeObserver(([entry]) => setWide(Math.floor(entry.contentRect.width)));
    watcher.observe(canvas.current.parentElement);
    return () => watcher.disconnect();
  }, []);
  const count = groups.reduce((sum, [, rows]) => sum + rows.length, 0);
  const cell = cellOf(count);
  const layout = useMemo(() => {
    const most = Math.max(1, Math.floor((wide - 4) / (cell + GAP)));
    // Few groups are drawn as rows, many groups as blocks side by side.
    let x = 0, y = 0, tall = 0;
    const placed = groups.map(([title, rows]) => {
      const columns = groups.length < 5 ? most : Math.min(most, Math.max(Math.ceil(70 / (cell + GAP)), Math.ceil(Math.sqrt(rows.length * 2))));
      const width = columns * (cell + GAP) + 14, height = (title ? HEAD : 0) + Math.ceil(rows.length / columns) * (cell + GAP) + 10;
      if (x && x + width - 14 > wide) {
        x = 0;
        y += tall;
        tall = 0;
      }
      const at = { title, rows, x, y, columns };
      x += width;
      tall = Math.max(tall, height);
      return at;
    });
    return { placed, tall: y + tall, columns: placed[0]?.columns || 1 };
  }, [groups, wide, cell]);
  useEffect(() => {
    const context = canvas.current.getContext("2d"), ratio = window.devicePixelRatio || 1, color = colors();
    canvas.current.width = wide * ratio;
    canvas.current.height = layout.tall * ratio;
    context.scale(ratio, ratio);
    const scale = [0, 1, 2, 3, 4, 5].map((step) => color(mode === "used" ? `heat${step}` : `room${step}`)), none = color("cell"), line0 = color("line"), text = color("muted"), mark = color("accent"), bad = color("bad");
    context.font = "600 12px system-ui, sans-serif";
    const inks = scale.map((shade) => (bright(shade) > 140 ? "#10131a" : "#ffffff"));
    const label = (row) => (mode === "used" ? amount(name, row.free?.[name] || 0) : String(Math.floor((row.free?.[name] || 0) / each)));
    for (const { title, rows, x: left, y, columns } of layout.placed) {
      const top = y + (title ? HEAD : 0);
      if (title) {
        context.fillStyle = text;
        context.fillText(`${title}  ·  ${plural(rows.length, "node")}`, left + 2, y + 14);
      }
      rows.forEach((row, index) => {
        const x = left + (index % columns) * (cell + GAP) + 2, line = top + Math.floor(index / columns) * (cell + GAP), share = value(row);
        context.fillStyle = share < 0 ? none : scale[Math.min(5, Math.round(share * 5))];
        context.beginPath();
        context.roundRect(x, line, cell, cell, Math.min(4, cell / 5));
        context.fill();
        if (share < 0) {
          context.strokeStyle = line0;
          context.lineWidth = 1;
          context.stroke();
        } else if (cell >= NUMBERED) {
          const step = Math.min(5, Math.round(share * 5));
          context.fillStyle = inks[step];
          context.textAlign = "center";
          context.fillText(label(row), x + cell / 2, line + cell / 2 + 4);
          context.textAlign = "start";
        }
        if (row.closed) {
          context.strokeStyle = bad;
          context.lineWidth = 2;
          context.beginPath();
          context.moveTo(x + 3, line + cell - 3);
          context.lineTo(x + cell - 3, line + 3);
          context.stroke();
        }
        if (row.id === chosen) {
          context.strokeStyle = mark;
          context.lineWidth = 3;
          context.strokeRect(x - 1, line - 1, cell + 2, cell + 2);
        }
      });
    }
  });
  const at = (event) => {
    const box = canvas.current.getBoundingClientRect(), x = event.clientX - box.left - 2, y = event.clientY - box.top;
    for (const { title, rows, x: left, y: top, columns } of layout.placed) {
      const line = Math.floor((y - top - (title ? HEAD : 0)) / (cell + GAP)), column = Math.floor((x - left) / (cell + GAP));
      if (line < 0 || column < 0 || column >= columns) continue;
      if (line * columns + column < rows.length && y < top + (title ? HEAD : 0) + Math.ceil(rows.length / columns) * (cell + GAP)) return rows[line * columns + column];
    }
    return null;
  };
  const move = (event) => {
    const row = at(event), element = tip.current;
    element.hidden = !row;
    if (!row) return;
    const has = row.offered?.[name];
    element.textContent = `${row.id}${row.closed ? ` (${row.closed})` : ""}: ${has ? `${amount(name, row.free?.[name] || 0)} of ${amount(name, has)} ${resource(name)} free${mode === "used" ? "" : `, ${Math.floor((row.free?.[name] || 0) / each)} fit`}` : `no ${resource(name)}`}`;
    const box = canvas.current.parentElement.getBoundingClientRect();
    element.style.left = `${Math.min(event.clientX - box.left + 12, box.width - element.offsetWidth - 4)}px`;
    element.style.top = `${event.clientY - box.top + 16}px`;
  };
  const flat = useMemo(() => groups.flatMap(([, rows]) => rows), [groups]);
  const keyed = (event) => {
    const steps = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: layout.columns, ArrowUp: -layout.columns };
    if (!(event.key in steps)) return;
    event.preventDefault();
    const index = Math.max(0, flat.findIndex((row) => row.id === chosen));
    choose(flat[Math.max(0, Math.min(flat.length - 1, chosen ? index + steps[event.key] : 0))].id);
  };
  return html`<div class="canvas"><canvas ref=${canvas} style=${{ width: `${wide}px`, height: `${layout.tall}px` }} tabindex="0" role="img"
    aria-label=${`${count} nodes, coloured by ${mode === "used" ? `the share of ${resource(name)} that is used` : `how many pods fit`}. Arrow keys choose a node.`}
    onMouseMove=${move} onMouseLeave=${() => { tip.current.hidden = true; }} onClick=${(event) => choose(at(event)?.id || "")} onKeyDown=${keyed}></canvas><div class="tip" ref=${tip} hidden></div></div>`;
}

// Brightness of a CSS colour (0 to 255): decides between black and white text.
function bright(shade) {
  const value = parseInt(shade.slice(1), 16);
  return 0.299 * (value >> 16) + 0.587 * ((value >> 8) & 255) + 0.114 * (value & 255);
}

// Percentages of the six colours, which are rounded to the nearest fifth.
const STEPS = ["under 10 %", "10–30 %", "30–50 %", "50–70 %", "70–90 %", "over 90 %"];

function Scale({ mode, name, each, numbers, rows, value }) {
  const counts = { none: 0, closed: rows.filter((row) => row.closed).length, ...STEPS.map(() => 0) };
  for (const row of rows) {
    const share = value(row);
    counts[share < 0 ? "none" : Math.min(5, Math.round(share * 5))] += 1;
  }
  const kind = name === "cpu" ? "cores" : resource(name);
  const number = mode === "used" ? `${kind} that are free` : `pods of ${each} ${name === "memory" ? "Gi" : kind} that fit`;
  return html`<ul class="legend"><li>${mode === "used" ? `${kind} in use` : `room for pods of ${each}`}:</li>${STEPS.map((range, step) => html`<li key=${step}><span class=${`swatch ${mode === "used" ? "heat" : "room"}${step}`}></span>${range} <strong>${counts[step]}</strong></li>`)}<li><span class="swatch cell"></span>has none <strong>${counts.none}</strong></li><li><span class="swatch closed"></span>closed <strong>${counts.closed}</strong></li>${numbers && html`<li><span class="swatch cell number" aria-hidden="true">n</span>the number in a block: ${number}</li>`}</ul>`;
}

// Largest gang that fits now, per pod size: fragments of free capacity cannot serve large pods.
function Fragments({ rows, groups, group, name, each, unit }) {
  const fits = (size) => (row) => (row.closed ? 0 : Math.min(Math.floor((row.free?.[name] || 0) / (size * unit)), row.free?.pods ?? Infinity));
  const sum = (list, size) => list.reduce((total, row) => total + fits(size)(row), 0);
  const free = rows.reduce((total, row) => total + (row.closed ? 0 : row.free?.[name] || 0), 0) / unit;
  const largest = Math.max(1, ...rows.map((row) => (row.offered?.[name] || 0) / unit));
  const sizes = [1, 2, 4, 8, 16, 32, 64, 128].filter((size) => size <= largest);
  if (!sizes.includes(each)) sizes.push(each);
  sizes.sort((a, b) => a - b);
  const best = group === "none" ? null : groups.map(([title, list]) => [title, sum(list, each)]).sort((a, b) => b[1] - a[1])[0];
  const kind = name === "memory" ? "Gi" : resource(name);
  return html`<div class="grid two"><section class="card stat"><h2>Largest gang that fits now</h2><p class="big">${short(sum(rows, each))} <span class="muted">pods of ${each} ${kind}</span></p>
      ${best && html`<p>Within one ${group}: <strong>${short(best[1])}</strong> (${best[0]}).</p>`}
      <p class="note">Counts free ${kind} and pod slots of open nodes. For taints, affinity and other resources use <code>phalanx what-if --free</code>.</p></section>
    <section class="card"><h2>By pod size</h2><ul class="bars">${sizes.map((size) => {
      const used = sum(rows, size) * size;
      return html`<li key=${size}><span class="name">pods of ${size}</span><${Bar} parts=${[{ kind: "used", value: used }]} whole=${free} label=${`${sum(rows, size)} pods of ${size}`} /><span class="count">${short(sum(rows, size))} <span class="muted small">${free ? percent((100 * used) / free) : "–"}</span></span></li>`;
    })}</ul><p class="note">The bar is the share of the free capacity that pods of this size can use.</p></section></div>`;
}

function Details({ node, close }) {
  return html`<section class="card"><div class="page-head"><h2>${node.id}</h2><button class="quiet" onClick=${close}>close</button></div>
    <p class="note">${[node.zone && `zone ${node.zone}`, node.rack && `rack ${node.rack}`, plural(node.pods || 0, "pod"), node.closed, node.taint && `taint ${node.taint}`].filter(Boolean).join(" · ")}</p>
    <ul class="bars">${important(Object.keys(node.offered || {})).map((name) => {
      const has = node.offered[name], used = has - (node.free?.[name] || 0);
      return html`<li key=${name}><span class="name">${resource(name)}</span><${Bar} parts=${[{ kind: "used", value: used }]} whole=${has} label=${`${amount(name, used)} of ${amount(name, has)} used`} /><span class="count">${amount(name, used)} / ${amount(name, has)}</span></li>`;
    })}</ul></section>`;
}
