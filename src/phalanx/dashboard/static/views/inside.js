// Logs and objects of a gang, read with the viewer's own rights when they are opened.

import { html, useState } from "/static/vendor/htm-preact-3.1.1.js";
import { Empty, useAnswer } from "/static/parts.js";
import { plural } from "/static/format.js";

function path(...parts) {
  return parts.map(encodeURIComponent).join("/");
}

// A card whose content is read when it is opened first.
export function Opened({ title, children }) {
  const [open, setOpen] = useState(false);
  return html`<details class="card opened" onToggle=${(event) => setOpen(event.currentTarget.open)}><summary><h2>${title}</h2></summary>${open && children()}</details>`;
}

export function Logs({ namespace, members }) {
  const pods = members.filter((each) => !each.gone).map((each) => each.name);
  const [pod, setPod] = useState(pods[0] || "");
  const [container, setContainer] = useState("");
  const [previous, setPrevious] = useState(false);
  const [turn, setTurn] = useState(0);
  if (!pods.length) return html`<${Empty}>The gang has no pods now.</${Empty}>`;
  const chosen = pods.includes(pod) ? pod : pods[0];
  return html`<div class="filters">
      <label>Pod <select value=${chosen} onChange=${(event) => { setPod(event.target.value); setContainer(""); }}>${pods.map((each) => html`<option key=${each} value=${each} selected=${each === chosen}>${each}</option>`)}</select></label>
      <label><input type="checkbox" checked=${previous} onChange=${(event) => setPrevious(event.target.checked)} /> before the last restart</label>
      <button onClick=${() => setTurn(turn + 1)}>Read again</button></div>
    <${Log} key=${`${chosen} ${container} ${previous}`} at=${`logs/${path(namespace, chosen)}?container=${encodeURIComponent(container)}&previous=${previous}`} turn=${turn} container=${container} choose=${setContainer} />`;
}

function Log({ at, turn, container, choose }) {
  const answer = useAnswer(at, turn);
  if (answer.error) return html`<div class="alert" role="alert">${answer.error}</div>`;
  if (!answer.value) return html`<${Empty}>Reading the log …</${Empty}>`;
  const { text, containers, problem } = answer.value;
  return html`${containers.length > 1 && html`<div class="filters" role="group" aria-label="Container">${containers.map((each) => html`<button key=${each} class="chip" aria-pressed=${(container || containers[0]) === each} onClick=${() => choose(each)}>${each}</button>`)}</div>`}
    ${problem ? html`<${Empty}>${problem}</${Empty}>` : text ? html`<pre class="text" tabindex="0" role="region" aria-label="Log">${text}</pre>` : html`<${Empty}>The log is empty.</${Empty}>`}`;
}

export function Objects({ namespace, name, pod }) {
  const answer = useAnswer(`objects/${path(namespace, name)}?pod=${Boolean(pod)}`, "");
  const [at, setAt] = useState(0);
  if (answer.error) return html`<div class="alert" role="alert">${answer.error}</div>`;
  if (!answer.value) return html`<${Empty}>Reading the objects …</${Empty}>`;
  const { objects, omitted } = answer.value;
  const shown = objects[Math.min(at, objects.length - 1)];
  if (!shown) return html`<${Empty}>The gang has no objects now.</${Empty}>`;
  return html`<div class="filters"><label>Object <select value=${at} onChange=${(event) => setAt(Number(event.target.value))}>${objects.map((each, index) => html`<option key=${index} value=${index}>${each.kind} ${each.name}</option>`)}</select></label>
      ${omitted > 0 && html`<span class="note">and ${plural(omitted, "pod")} more</span>`}</div>
    <pre class="text" tabindex="0" role="region" aria-label=${`YAML of ${shown.kind} ${shown.name}`}>${shown.yaml}</pre>`;
}
