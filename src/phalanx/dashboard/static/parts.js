// Components that all views share.

import { html, useEffect, useLayoutEffect, useMemo, useReducer, useRef, useState } from "/static/vendor/htm-preact-3.1.1.js";
import { MOMENT, clock } from "/static/format.js";
import { store } from "/static/store.js";

export function useStore() {
  const [, draw] = useReducer((count) => count + 1, 0);
  useEffect(() => store.subscribe(draw), []);
  return store;
}

// Subscribe to tables while the view is open.
export function useTables(...names) {
  const known = useStore();
  useEffect(() => known.follow(names), [names.join()]);
  return names.map((name) => known.tables[name]);
}

// Current time, updated every few seconds, for ages.
export function useNow(period = 10) {
  const [now, set] = useState(Date.now() / 1000);
  useEffect(() => {
    const timer = setInterval(() => set(Date.now() / 1000), period * 1000);
    return () => clearInterval(timer);
  }, [period]);
  return now;
}

// Request a path whenever its key changes; returns {value, error, loading}.
export function useAnswer(path, key) {
  const [answer, set] = useState({ value: null, error: "", loading: true });
  useEffect(() => {
    const control = new AbortController();
    set((last) => ({ ...last, loading: true }));
    store.json(path, { signal: control.signal }).then(
      (value) => set({ value, error: "", loading: false }),
      (error) => {
        if (error.name !== "AbortError") set((last) => ({ value: last.path === path ? last.value : null, error: error.message, loading: false }));
      },
    );
    return () => control.abort();
  }, [path, key]);
  return answer;
}

export function Page({ title, note, children, cli, tools }) {
  useEffect(() => {
    document.title = `${title} · Phalanx`;
  }, [title]);
  return html`
    <header class="page-head">
      <div><h1 tabindex="-1" id="title">${title}</h1>${note && html`<p class="note">${note}</p>`}</div>
      ${tools && html`<div class="tools">${tools}</div>`}
    </header>
    ${children}
    ${cli && html`<${Cli} line=${cli} />`}
  `;
}

// Command that prints the same in a terminal.
export function Cli({ line }) {
  const [copied, set] = useState(false);
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(line);
      set(true);
      setTimeout(() => set(false), 1500);
    } catch { /* without a clipboard the line can still be selected */ }
  };
  return html`<p class="cli"><span class="prompt" aria-hidden="true">$</span><code>${line}</code>
    <button class="quiet" onClick=${copy} aria-label="Copy the command">${copied ? "copied" : "copy"}</button></p>`;
}

export const GLYPHS = {
  Running: "●", Bound: "◐", Partial: "◔", Starting: "◐", Gated: "⊘", Terminating: "✕", Completing: "✕", Completed: "✓",
  Active: "●", Inactive: "✕", Silent: "✕", Copying: "▷", Granted: "●", Recalling: "⇄", Withdrawing: "⇄", Ended: "✓",
  Evicting: "⇄", Deleted: "✕", OtherScheduler: "◇", Pending: "○", Succeeded: "✓", Failed: "✗", Cancelled: "✗", Suspended: "⊘", Gone: "·",
};

export function State({ word }) {
  return html`<span class=${`word s-${word}`}><span class="glyph" aria-hidden="true">${GLYPHS[word] || "·"}</span>${word}</span>`;
}

// Name that is cut in its middle where it has no room. Its end stays visible, because it distinguishes runs of a job.
export function Name({ text }) {
  if (text.length <= 18) return html`<span class="name-cut" title=${text}><span class="head">${text}</span></span>`;
  const tail = 12;
  return html`<span class="name-cut" title=${text}><span class="head">${text.slice(0, text.length - tail)}</span><span class="tail">${text.slice(text.length - tail)}</span></span>`;
}

export function Link({ to, children, ...rest }) {
  return html`<a href=${`#${to}`} ...${rest}>${children}</a>`;
}

// Bar of parts [{value, kind, label}] of a whole.
export function Bar({ parts, whole, marks = [], label }) {
  const of = Math.max(whole, 1e-9);
  const wide = (value) => `${Math.max(0, Math.min(100, (100 * value) / of))}%`;
  return html`<div class="bar" role="img" aria-label=${label} title=${label}>
    ${parts.filter((part) => part.value > 0).map((part) => html`<span key=${part.kind} class=${`part p-${part.kind}`} style=${{ width: wide(part.value) }}></span>`)}
    ${marks.map((mark) => html`<span key=${mark.kind} class=${`tick t-${mark.kind}`} style=${{ left: wide(mark.value), marginLeft: `${-3 * Math.max(0, Math.min(1, mark.value / of))}px` }}></span>`)}
  </div>`;
}

// Text of the scheduler with its times in the viewer's time zone, each on one line.
export function Told({ text }) {
  const parts = (text || "").split(new RegExp(`(${MOMENT.source})`));
  return parts.map((part, index) => (index % 2 ? html`<time key=${index} class="moment" datetime=${part} title=${part}>${clock(part)}</time>` : part));
}

export function Empty({ children }) {
  return html`<div class="empty" role="status">${children}</div>`;
}

// State of a table: loading, error and omitted parts; nothing for a complete table.
export function TableState({ table, what }) {
  if (table.state === "error") return html`<div class="alert" role="alert">No ${what}: ${table.error}</div>`;
  if (table.state !== "there") return html`<div class="empty" role="status" aria-busy="true">Loading ${what} …</div>`;
  if (table.omitted.length) return html`<p class="omitted">Not shown: ${table.omitted.join("; ")}.</p>`;
  return null;
}

const HEADING = 40;

// Table with rows of one height, and headings; only visible rows are rendered. Keys: j/k move, Enter opens.
export function VirtualTable({ rows, height, columns, row, open, selected, select, label, keys = {}, wide = 0 }) {
  const box = useRef(null);
  const [view, setView] = useState({ top: 0, tall: 600 });
  // Distance of each row from the top, and the height of all rows.
  const tops = useMemo(() => {
    const found = new Float64Array(rows.length + 1);
    rows.forEach((each, index) => { found[index + 1] = found[index] + (each.heading ? HEADING : height); });
    return found;
  }, [rows, height]);
  useLayoutEffect(() => {
    const element = box.current;
    const measure = () => setView({ top: element.scrollTop, tall: element.clientHeight });
    measure();
    element.addEventListener("scroll", measure, { passive: true });
    const watcher = new ResizeObserver(measure);
    watcher.observe(element);
    return () => {
      element.removeEventListener("scroll", measure);
      watcher.disconnect();
    };
  }, []);
  useEffect(() => {
    if (selected < 0) return;
    const element = box.current, top = tops[selected], tall = 2 * (tops[selected + 1] - top);
    if (top < element.scrollTop) element.scrollTop = top;
    else if (top + tall > element.scrollTop + element.clientHeight) element.scrollTop = top + tall - element.clientHeight;
  }, [selected]);
  useKeys({
    j: () => select(Math.min(rows.length - 1, selected + 1)),
    k: () => select(Math.max(0, selected - 1)),
    ...keys,
    Enter: () => selected >= 0 && rows[selected] && open(rows[selected]),
  });
  const first = Math.max(0, rowAt(tops, view.top) - 6);
  const last = Math.min(rows.length, rowAt(tops, view.top + view.tall) + 7);
  return html`<div class="scroll" ref=${box} tabindex="0" role="region" aria-label=${label}>
    <table aria-rowcount=${rows.length + 1} style=${{ minWidth: wide ? `${wide}px` : null }}>
      <thead><tr>${columns.map((column) => html`<th key=${column.key} scope="col" class=${column.key} title=${column.hint} aria-sort=${column.sort} style=${{ width: column.width ? `${column.width}px` : null }}>
        ${column.onSort ? html`<button class="sort" onClick=${column.onSort}>${column.title}<span aria-hidden="true">${column.sort === "ascending" ? " ▲" : column.sort === "descending" ? " ▼" : ""}</span></button>` : column.head || column.title}
      </th>`)}</tr></thead>
      <tbody>
        ${first > 0 && html`<tr key="above" aria-hidden="true" class="gap" style=${{ height: `${tops[first]}px` }}></tr>`}
        ${rows.slice(first, last).map((each, index) => html`<tr key=${each.id} style=${{ height: `${tops[first + index + 1] - tops[first + index]}px` }}
          aria-rowindex=${first + index + 2} class=${first + index === selected ? "selected" : ""} onClick=${(event) => { if (!event.target.closest("a, button, input, label")) open(each); }}>${row(each)}</tr>`)}
        ${last < rows.length && html`<tr key="below" aria-hidden="true" class="gap" style=${{ height: `${tops[rows.length] - tops[last]}px` }}></tr>`}
      </tbody>
    </table>
  </div>`;
}

// Index of the row at a distance from the top.
function rowAt(tops, distance) {
  let low = 0, high = tops.length - 1;
  while (low < high) {
    const half = (low + high + 1) >> 1;
    if (tops[half] <= distance) low = half;
    else high = half - 1;
  }
  return low;
}

// Keyboard shortcuts, ignored while a field has the focus.
export function useKeys(keys) {
  const latest = useRef(keys);
  latest.current = keys;
  useEffect(() => {
    const pressed = (event) => {
      if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName)) return;
      if (event.key === "Enter" && /^(A|BUTTON)$/.test(event.target.tagName)) return;
      const action = latest.current[event.key];
      if (action) {
        event.preventDefault();
        action(event);
      }
    };
    window.addEventListener("keydown", pressed);
    return () => window.removeEventListener("keydown", pressed);
  }, []);
}

// Address of the view: path and query after the #.
export function place() {
  const [path, query = ""] = location.hash.replace(/^#/, "").split("?");
  return { path: path || "/", query: new URLSearchParams(query) };
}

export function go(path, query = {}) {
  const kept = new URLSearchParams();
  for (const [key, value] of Object.entries(query)) if (value) kept.set(key, value);
  const text = kept.toString();
  const next = `#${path}${text ? `?${text}` : ""}`;
  if (next !== location.hash) location.hash = next;
}

// Parameter of the address and its setter, which adds no entry to the history.
export function useParameter(name, first = "") {
  const [value, set] = useState(place().query.get(name) ?? first);
  useEffect(() => {
    const read = () => set(place().query.get(name) ?? first);
    window.addEventListener("hashchange", read);
    return () => window.removeEventListener("hashchange", read);
  }, [name]);
  const change = (next) => {
    set(next);
    const { path, query } = place();
    if (next && next !== first) query.set(name, next);
    else query.delete(name);
    history.replaceState(null, "", `#${path}${query.toString() ? `?${query}` : ""}`);
  };
  return [value, change];
}

// Link to a view in the selected namespace.
export function to(path, query = {}) {
  const all = { ...query, ns: store.namespace && !query.ns ? store.namespace : query.ns };
  const text = new URLSearchParams(Object.entries(all).filter(([, value]) => value)).toString();
  return `${path}${text ? `?${text}` : ""}`;
}

export function gangPath(row) {
  return to(`/${row.kind === "pod" ? "pods" : "gangs"}/${encodeURIComponent(row.namespace)}/${encodeURIComponent(row.name)}`);
}

export function colors() {
  const style = getComputedStyle(document.documentElement);
  return (name) => style.getPropertyValue(`--${name}`).trim();
}
