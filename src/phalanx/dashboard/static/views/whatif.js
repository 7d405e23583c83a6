import { html, useState } from "/static/vendor/htm-preact-3.1.1.js";
import { Cli, Empty, Page, place, useTables } from "/static/parts.js";
import { clock, plural, span } from "/static/format.js";
import { store } from "/static/store.js";

const FIELDS = [
  ["gang", "Waiting gang", "ml/train", "text"], ["priority", "with priority", "", "number"],
  ["queue", "Queue", "research", "text"], ["weight", "with weight", "", "number"], ["deserved", "with deserved", "nvidia.com/gpu=32", "text"], ["capability", "with capability", "nvidia.com/gpu=64", "text"],
  ["add_nodes", "Additional nodes", "", "number"], ["like", "copied from node", "gpu-0", "text"], ["without_nodes", "Without nodes", "n1,n2 or topology.kubernetes.io/rack=r1", "text"],
];
const WORDS = { Now: "would start now", AfterEvictions: "would start after evictions", Later: "would start later", NotWithinHorizon: "would not start", Unknown: "start unknown" };

export function WhatIf() {
  useTables("summary");
  const [asked, setAsked] = useState(Object.fromEntries([...place().query].filter(([key]) => FIELDS.some(([field]) => field === key))));
  const [manifest, setManifest] = useState("");
  const [reply, setReply] = useState(null);
  const [error, setError] = useState("");
  const [busy, setBusy] = useState(false);
  const ask = async (event) => {
    event.preventDefault();
    setBusy(true);
    setError("");
    const question = { manifest };
    for (const [key, , , type] of FIELDS) {
      const value = (asked[key] || "").trim();
      if (value) question[key] = type === "number" ? Number(value) : value;
    }
    if (store.namespace) question.namespace = store.namespace;
    try {
      setReply(await store.json("what-if", { method: "POST", body: JSON.stringify(question), headers: { "Content-Type": "application/json" } }));
    } catch (problem) {
      setError(problem.message);
      setReply(null);
    }
    setBusy(false);
  };
  return html`<${Page} title="What if" note="The scheduler plans over a copy of the cluster, in virtual time. The cluster is not changed.">
    <div class="grid gangpage">
      <form class="card form" onSubmit=${ask}><h2>Question</h2>
        <div class="fields">${FIELDS.map(([key, title, hint, type]) => html`<div key=${key}><label for=${`f-${key}`}>${title}</label><input id=${`f-${key}`} type=${type} placeholder=${hint} value=${asked[key] || ""} spellcheck="false" onInput=${(event) => setAsked({ ...asked, [key]: event.target.value })} /></div>`)}</div>
        <label for="f-manifest">Objects to create (YAML)</label>
        <textarea id="f-manifest" rows="6" spellcheck="false" value=${manifest} onInput=${(event) => setManifest(event.target.value)} placeholder="A Job, PodGroup, Pod …"></textarea>
        <button class="primary" disabled=${busy}>${busy ? "The scheduler plans …" : "Ask"}</button>
      </form>
      <section class="card" aria-live="polite"><h2>Answer</h2>
        ${error && html`<div class="alert" role="alert">${error}</div>`}
        ${busy && html`<${Empty}>Planning over a copy of the cluster …</${Empty}>`}
        ${!busy && !reply && !error && html`<${Empty}>Enter a change: a new weight, additional nodes, or a new job.</${Empty}>`}
        ${!busy && reply && html`<${Answer} answer=${reply.answer} />`}
      </section></div>
    ${reply && html`<${Cli} line=${reply.command} />`}
  </${Page}>`;
}

function Answer({ answer }) {
  return html`
    ${answer.asked.map((each) => html`<div key=${each.name} class="help"><strong>${each.name} ${WORDS[each.state] || each.state}</strong>
      <p>${[each.start && `${clock(each.start)}${each.wait_seconds ? `, in ${span(each.wait_seconds)}` : ""}`, each.expected && `expected ${clock(each.expected)}`, plural(each.pods, "pod")].filter(Boolean).join(" · ")}</p>
      ${(each.nodes || []).length > 0 && html`<p>on ${each.nodes.slice(0, 12).map((node) => `${node.node}${node.pods > 1 ? ` (${node.pods})` : ""}`).join(", ")}${each.nodes.length > 12 ? ` and ${each.nodes.length - 12} more` : ""}</p>`}
      ${each.verdict && html`<p>${each.verdict.message}</p>${each.verdict.change && html`<p>Fix: ${each.verdict.change}</p>`}`}
      ${(each.blockers || []).slice(0, 5).map((one) => html`<p key=${one.name} class="note">after the end of ${one.name} (${plural(one.pods, "pod")}), ${clock(one.end)}</p>`)}</div>`)}
    <table class="plain"><thead><tr><th></th><th scope="col" class="num">start now</th><th scope="col" class="num">later</th><th scope="col" class="num">not within ${span(answer.horizon_seconds)}</th></tr></thead>
      <tbody><tr><th scope="row">without the change</th><td class="num">${answer.without.now}</td><td class="num">${answer.without.later}</td><td class="num">${answer.without.never}</td></tr>
      <tr><th scope="row">${(answer.changes || []).join(", ") || "with the change"}</th><td class="num">${answer.changed.now}</td><td class="num">${answer.changed.later}</td><td class="num">${answer.changed.never}</td></tr></tbody></table>
    ${(answer.evicted || []).length > 0 && html`<h3>Would evict</h3><ul>${answer.evicted.slice(0, 20).map((each) => html`<li key=${each.name}>${each.name}: ${plural(each.pods, "pod")}, ${each.pod_hours || 0} pod-hours lost${each.again ? `, runs again ${clock(each.again)}` : ""}</li>`)}</ul>`}
    ${(answer.interrupted || []).length > 0 && html`<h3>Interrupted by the loss of nodes</h3><ul>${answer.interrupted.slice(0, 20).map((each) => html`<li key=${each.name}>${each.name}: ${plural(each.pods, "pod")}</li>`)}</ul>`}
    ${(answer.moved || []).length > 0 && html`<h3>Effect on other starts</h3><ul>${answer.moved.slice(0, 20).map((each) => html`<li key=${each.name}>${each.name}: ${each.without ? clock(each.without) : "no start"} → ${each.changed ? clock(each.changed) : "no start"}</li>`)}</ul>`}
    ${(answer.moved_promises || []).length > 0 && html`<h3>Promised starts that would move</h3><ul>${answer.moved_promises.slice(0, 20).map((each) => html`<li key=${each.name}>${each.name}: from ${clock(each.promised)} ${each.moves_to ? `to ${clock(each.moves_to)}` : "to no known start"}${each.cause ? ` (${each.cause})` : ""}</li>`)}</ul>`}
    ${[...(answer.notes || []), ...(answer.missing || []).map((each) => `unknown: ${each}`)].map((text) => html`<p key=${text} class="note">${text}</p>`)}`;
}
