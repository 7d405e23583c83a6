// Frame of the page: login, navigation, keyboard and routing.

import { html, render, useEffect, useRef, useState } from "/static/vendor/htm-preact-3.1.1.js";
import { store } from "/static/store.js";
import { Link, go, place, to, useKeys, useStore } from "/static/parts.js";
import { Overview } from "/static/views/overview.js";
import { Queues } from "/static/views/queues.js";
import { Gangs } from "/static/views/gangs.js";
import { Gang } from "/static/views/gang.js";
import { Nodes } from "/static/views/nodes.js";
import { Reservations } from "/static/views/reservations.js";
import { Evictions } from "/static/views/evictions.js";
import { Clusters } from "/static/views/clusters.js";
import { WhatIf } from "/static/views/whatif.js";
import { Login } from "/static/views/login.js";

const VIEWS = [
  { path: "/", key: "o", name: "Overview", view: Overview, icon: "M4 4h7v7H4zM13 4h7v7h-7zM4 13h7v7H4zM13 13h7v7h-7z" },
  { path: "/gangs", key: "w", name: "Gangs", view: Gangs, icon: "M4 6h16M4 12h16M4 18h10" },
  { path: "/queues", key: "q", name: "Queues", view: Queues, icon: "M6 4v16M6 8h6v0M6 16h6M15 5h5v6h-5zM15 13h5v6h-5z" },
  { path: "/nodes", key: "n", name: "Nodes", view: Nodes, icon: "M4 5h16v6H4zM4 13h16v6H4zM8 8h.01M8 16h.01" },
  { path: "/reservations", key: "r", name: "Reservations", view: Reservations, icon: "M12 4a8 8 0 1 0 .01 0M12 8v4l3 2" },
  { path: "/evictions", key: "e", name: "Evictions", view: Evictions, icon: "M4 8h14l-4-4M20 16H6l4 4" },
  { path: "/clusters", key: "c", name: "Clusters", view: Clusters, shown: (session) => session.hub, icon: "M9 3h6v5H9zM3 16h6v5H3zM15 16h6v5h-6zM12 8v4M6 16v-4h12v4" },
  { path: "/what-if", key: "i", name: "What if", view: WhatIf, shown: (session) => session.what_if, icon: "M9 9a3 3 0 1 1 4 2.8c-.7.3-1 .8-1 1.7M12 17h.01" },
];

function App() {
  const known = useStore();
  const [where, setWhere] = useState(place());
  const [help, setHelp] = useState(false);
  const [going, showGoing] = useState(false);
  // A ref changes at once, so that a fast second key is recognized.
  const gone = useRef(false);
  const setGoing = (now) => { gone.current = now; showGoing(now); };
  const [error, setError] = useState("");
  useEffect(() => {
    const moved = () => {
      const next = place();
      if (next.path.startsWith("login=")) {
        enter().then(() => setWhere(place()));
        return;
      }
      setWhere(next);
      window.scrollTo(0, 0);
    };
    window.addEventListener("hashchange", moved);
    enter().then(() => setWhere(place()));
    return () => window.removeEventListener("hashchange", moved);
  }, []);
  const namespace = where.query.get("ns") || "";
  useEffect(() => {
    if (known.session && (known.session.everything || namespace)) {
      known.choose(namespace).then(() => setError(""), (problem) => setError(problem.message));
    }
  }, [namespace, known.session && known.session.user]);
  // On small screens the navigation scrolls sideways: show the open view.
  useEffect(() => document.querySelector("nav a[aria-current]")?.scrollIntoView({ inline: "center", block: "nearest" }), [where.path, Boolean(known.session)]);
  useKeys({
    "?": () => setHelp((shown) => !shown),
    Escape: () => { setHelp(false); setGoing(false); },
    "/": () => document.querySelector("#filter")?.focus(),
    g: () => { setGoing(true); setTimeout(() => setGoing(false), 1500); },
    t: toggleTheme,
    ...Object.fromEntries(VIEWS.map((view) => [view.key, () => { if (gone.current) { setGoing(false); go(view.path, { ns: namespace }); } }])),
  });
  if (!known.session) return html`<${Login} />`;
  const { view: View, args } = route(where.path);
  const views = shownViews(known.session);
  return html`
    <a class="skip" href="#title" onClick=${(event) => { event.preventDefault(); document.querySelector("#title")?.focus(); }}>Skip to the content</a>
    <div class="shell">
      <nav class="side" aria-label="Views">
        <div class="brand"><img src="/static/icon.svg" alt="" width="26" height="26" /><strong>Phalanx</strong></div>
        <ul>${views.map((view) => html`
          <li key=${view.path}><${Link} to=${to(view.path)} aria-current=${active(where.path, view.path) ? "page" : null} title=${`g ${view.key}`}>
            <svg class="icon" viewBox="0 0 24 24" aria-hidden="true"><path d=${view.icon} /></svg><span>${view.name}</span></${Link}></li>`)}</ul>
        <div class="foot">
          <${Health} />
          <p class="who" title="Logged-in user">${known.session.user}</p>
          <div class="row"><button class="quiet" onClick=${toggleTheme} title="t">theme</button>
          <button class="quiet" onClick=${() => setHelp(true)} title="?">keys</button>
          ${known.session.login === "token" && html`<button class="quiet" onClick=${() => known.logOut()}>log out</button>`}</div>
        </div>
      </nav>
      <main>
        <${Namespace} chosen=${namespace} path=${where.path} />
        ${error && html`<div class="alert" role="alert">${error}</div>`}
        <${View} key=${where.path} ...${args} />
      </main>
    </div>
    ${going && html`<div class="toast" role="status">g … ${views.map((view) => `${view.key} ${view.name}`).join(" · ")}</div>`}
    ${help && html`<${Help} close=${() => setHelp(false)} />`}
  `;
}

function Health() {
  const known = useStore();
  const row = known.tables.summary.rows.get("cluster");
  const stale = row && !row.summary.current;
  const word = known.connection === "live" ? (stale ? "cluster unreachable" : "live") : known.connection === "lost" ? "reconnecting …" : "connecting …";
  return html`<p class=${`health h-${known.connection === "live" && !stale ? "good" : "bad"}`} role="status"><span class="dot" aria-hidden="true"></span>${word}</p>`;
}

// A list for viewers of all namespaces. Other viewers enter the name of a namespace.
function Namespace({ chosen, path }) {
  const current = chosen || store.namespace;
  const [text, setText] = useState(current);
  useEffect(() => setText(current), [current]);
  const choose = (name) => {
    const { query } = place();
    query.delete("ns");
    go(path.startsWith("/gangs/") || path.startsWith("/pods/") ? "/gangs" : path, { ...Object.fromEntries(query), ns: name });
  };
  const seen = [...store.tables.gangs.rows.values()].map((row) => row.namespace);
  const names = [...new Set([...(store.session.namespaces || []), ...seen, current])].filter(Boolean).sort();
  if (store.session.namespaces) {
    return html`<div class="namespace"><label for="namespace">Namespace</label>
      <select id="namespace" value=${current} onChange=${(event) => choose(event.target.value)}><option value="">all</option>${names.map((name) => html`<option key=${name} value=${name}>${name}</option>`)}</select></div>`;
  }
  return html`<form class="namespace" onSubmit=${(event) => { event.preventDefault(); choose(text.trim()); }} role="search">
    <label for="namespace">Show namespace</label>
    <input id="namespace" value=${text} placeholder="your namespace" onInput=${(event) => setText(event.target.value)} spellcheck="false" autocomplete="off" />
    <button disabled=${!text.trim() || text.trim() === current}>Show</button>
  </form>`;
}

function Help({ close }) {
  const box = useRef(null);
  useEffect(() => box.current?.focus(), []);
  const keys = [["/", "filter"], ["j k", "next and previous row"], ["Enter", "open the row"], ["x", "select the row"], ["t", "dark or light theme"], ["?", "this help"], ["Esc", "close"],
    ...shownViews(store.session).map((view) => [`g ${view.key}`, view.name])];
  return html`<div class="veil" onClick=${close}><div class="dialog" role="dialog" aria-modal="true" aria-label="Keys" tabindex="-1" ref=${box} onClick=${(event) => event.stopPropagation()}>
    <h2>Keys</h2><dl class="keys">${keys.map(([key, what]) => html`<div key=${key}><dt>${key.split(" ").map((one) => html`<kbd key=${one}>${one}</kbd>`)}</dt><dd>${what}</dd></div>`)}</dl>
    <button onClick=${close}>Close</button></div></div>`;
}

// Views for hubs and for what-if questions depend on the cluster and on the viewer's rights.
function shownViews(session) {
  return VIEWS.filter((view) => !view.shown || view.shown(session));
}

function active(path, view) {
  return view === "/" ? path === "/" : path.startsWith(view) || (view === "/gangs" && path.startsWith("/pods/"));
}

function route(path) {
  const [, first, namespace, name] = path.split("/").map(decodeURIComponent);
  if ((first === "gangs" || first === "pods") && namespace && name) return { view: Gang, args: { pod: first === "pods", namespace, name } };
  const found = VIEWS.find((view) => view.path === `/${first || ""}`);
  return { view: found ? found.view : Unknown, args: {} };
}

function Unknown() {
  return html`<h1 id="title">Unknown page</h1><p><${Link} to=${to("/")}>Overview</${Link}></p>`;
}

function toggleTheme() {
  const dark = document.documentElement.dataset.theme
    ? document.documentElement.dataset.theme === "dark"
    : matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.dataset.theme = dark ? "light" : "dark";
  localStorage.setItem("phalanx-theme", document.documentElement.dataset.theme);
  store.tell();
}

// The address can carry a ticket for one login. Remove it from the address first.
async function enter() {
  const { path, query } = place();
  const namespace = query.get("ns") || "";
  try {
    if (path.startsWith("login=")) {
      history.replaceState(null, "", "#/");
      await store.logInByTicket(path.slice(6), "");
    } else if (sessionStorage.getItem("phalanx-session")) {
      await store.logIn(sessionStorage.getItem("phalanx-session"), namespace);
    } else {
      store.tell();
    }
  } catch (error) {
    store.logOut(error.message);
  }
}

const root = document.querySelector("#app");
root.replaceChildren();
render(html`<${App} />`, root);
