// List of rows with columns to choose, sorting, grouping and selection. The choice is in the address and is remembered.

import { html, useEffect, useMemo, useRef, useState } from "/static/vendor/htm-preact-3.1.1.js";
import { VirtualTable, useParameter } from "/static/parts.js";
import { plural } from "/static/format.js";
import { store } from "/static/store.js";

const CARDS = 1180, NARROW = 720;

// Returns {controls, table, changes, chosen, clear} of a list.
// `columns`: {key, title, hint, width, cell(row), sort(row), optional}. `groups`: [key, title, value(row)]. `key` identifies the filters.
export function useList({ id, rows, columns, groups, sort: first, open, label, pick, key, noun }) {
  const [sort, setSort] = useParameter("sort", first);
  const [by, setBy] = useParameter("by");
  const [named, setNamed] = useParameter("columns", localStorage.getItem(`phalanx-columns-${id}`) || "");
  const [folded, setFolded] = useState({});
  const [selected, select] = useState(-1);
  const [picked, setPicked] = useState(new Set());
  const over = useRef(false);
  const kept = useRef({ ids: [], key: "" });
  const [size, setSize] = useState(innerWidth);
  useEffect(() => {
    const measured = () => setSize(innerWidth);
    window.addEventListener("resize", measured);
    return () => window.removeEventListener("resize", measured);
  }, []);
  const names = named ? named.split(",") : columns.filter((column) => !column.optional).map((column) => column.key);
  const shown = columns.filter((column) => names.includes(column.key));
  const group = groups.find(([name]) => name === by);
  const choice = [key, sort, by, named, JSON.stringify(folded)].join("\n");
  const listed = useMemo(() => {
    const down = sort.startsWith("-"), sorter = (columns.find((column) => column.key === sort.replace("-", "") && column.sort) || columns.find((column) => column.sort)).sort;
    const keyed = rows.map((row) => [sorter(row), row]);
    keyed.sort(([a, one], [b, other]) => (a < b ? -1 : a > b ? 1 : one.id < other.id ? -1 : 1) * (down ? -1 : 1));
    const sorted = keyed.map(([, row]) => row);
    if (!group) return sorted;
    const found = new Map();
    for (const row of sorted) {
      const title = group[2](row) || `no ${group[1].toLowerCase()}`;
      if (!found.has(title)) found.set(title, []);
      found.get(title).push(row);
    }
    return [...found].sort(([a], [b]) => a.localeCompare(b, undefined, { numeric: true })).flatMap(([title, members]) => [{ id: `group ${title}`, heading: title, members }, ...(folded[title] ? [] : members)]);
  }, [rows, choice]);
  // Rows do not move under the pointer: the order changes when the pointer leaves.
  let visible = listed, changes = 0;
  if (over.current && kept.current.key === choice) {
    const there = new Map(listed.map((row) => [row.id, row]));
    visible = kept.current.ids.map((row) => there.get(row)).filter(Boolean);
    changes = listed.length - visible.length;
    if (listed.some((row, index) => row.id !== visible[index]?.id)) changes = Math.max(1, changes);
  } else kept.current = { ids: listed.map((row) => row.id), key: choice };
  const chosen = useMemo(() => (pick ? rows.filter((row) => picked.has(row.id) && pick(row)) : []), [rows, picked]);
  const mark = (some, on) => {
    const next = new Set(picked);
    for (const row of some) if (!pick || pick(row)) on ? next.add(row.id) : next.delete(row.id);
    setPicked(next);
  };
  const toggle = (name) => {
    const next = columns.map((column) => column.key).filter((each) => (each === name ? !names.includes(each) : names.includes(each)));
    localStorage.setItem(`phalanx-columns-${id}`, next.join(","));
    setNamed(next.join(","));
  };
  const all = pick ? rows.filter(pick) : [];
  const heads = shown.map((column) => ({
    key: column.key, title: column.title, hint: column.hint, width: column.width,
    sort: !column.sort ? undefined : sort === column.key ? "ascending" : sort === `-${column.key}` ? "descending" : "none",
    onSort: column.sort && (() => setSort(sort === column.key ? `-${column.key}` : column.key)),
  }));
  const box = (label, on, some) => html`<input type="checkbox" aria-label=${label} checked=${on} onChange=${(event) => mark(some, event.target.checked)} />`;
  if (pick) heads.unshift({ key: "pick", title: "", width: 38, head: box(`Select all ${noun}s`, all.length > 0 && chosen.length === all.length, all) });
  const cards = size <= CARDS;
  // Of a card: state and name, the other values, and two lines of text.
  const height = 94 + 24 * Math.max(1, Math.ceil((shown.length - 3) / (size <= NARROW ? 3 : 6)));
  const controls = html`
    <label>Group by <select value=${by} onChange=${(event) => setBy(event.target.value)}><option value="">nothing</option>${groups.map(([name, title]) => html`<option key=${name} value=${name}>${title}</option>`)}</select></label>
    ${cards && html`<label>Sort by <select value=${sort.replace("-", "")} onChange=${(event) => setSort(event.target.value)}>${columns.filter((column) => column.sort).map((column) => html`<option key=${column.key} value=${column.key}>${column.title}</option>`)}</select></label>`}
    <details class="menu"><summary>Columns</summary><div class="choices">${columns.map((column) => html`<label key=${column.key}><input type="checkbox" checked=${names.includes(column.key)} disabled=${column.fixed} onChange=${() => toggle(column.key)} /> ${column.title}</label>`)}</div></details>
    ${changes > 0 && html`<span class="badge" role="status">${plural(changes, "change")} when the pointer leaves</span>`}`;
  const table = visible.length > 0 && html`<div class=${`card flush list ${cards ? "cards" : ""}`} onMouseEnter=${() => { over.current = true; }} onMouseLeave=${() => { over.current = false; store.tell(); }}>
    <${VirtualTable} rows=${visible} height=${cards ? height : 62} wide=${cards ? 0 : heads.reduce((sum, column) => sum + (column.width || 220), 0)}
      selected=${selected} select=${select} label=${label} columns=${heads} keys=${pick ? { x: () => visible[selected] && !visible[selected].heading && mark([visible[selected]], !picked.has(visible[selected].id)) } : {}}
      open=${(row) => (row.heading ? setFolded({ ...folded, [row.heading]: !folded[row.heading] }) : open(row))}
      row=${(row) => (row.heading
        ? html`<td class="group" colspan=${heads.length}><div class="group-line">${pick && box(`Select the group ${row.heading}`, row.members.filter(pick).length > 0 && row.members.filter(pick).every((each) => picked.has(each.id)), row.members)}
            <button class="name" aria-expanded=${!folded[row.heading]} onClick=${() => setFolded({ ...folded, [row.heading]: !folded[row.heading] })}>${folded[row.heading] ? "▸" : "▾"} ${row.heading}</button> <span class="muted">${plural(row.members.length, noun)}</span></div></td>`
        : html`${pick && html`<td class="pick">${pick(row) && box(`Select ${row.id}`, picked.has(row.id), [row])}</td>`}
          ${shown.map((column) => html`<td key=${column.key} class=${column.key} data-label=${column.title}>${column.cell(row)}</td>`)}`)} /></div>`;
  return { controls, table, chosen, clear: () => setPicked(new Set()) };
}
