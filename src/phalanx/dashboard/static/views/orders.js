// Orders to a gang: hold, release, cancel. The page shows the predicted effect, and executes the order when confirmed.

import { html, useEffect, useRef, useState } from "/static/vendor/htm-preact-3.1.1.js";
import { store } from "/static/store.js";

const ORDERS = { hold: "Hold", release: "Release", cancel: "Cancel" };
const TITLES = { hold: "Hold this gang?", release: "Release this gang?", cancel: "Cancel this gang?" };

function post(verb, order) {
  return store.json(`orders/${verb}`, { method: "POST", body: JSON.stringify(order), headers: { "Content-Type": "application/json" } });
}

export function Orders({ pod, namespace, name }) {
  const [asked, setAsked] = useState(null);
  const [busy, setBusy] = useState("");
  const [result, setResult] = useState(null);
  const order = { namespace, name, pod };
  const attempt = async (verb, work) => {
    setBusy(verb);
    setResult(null);
    try {
      await work();
    } catch (error) {
      setResult({ wrong: true, text: error.message });
    }
    setBusy("");
  };
  const ask = (verb) => attempt(verb, async () => {
    const answer = await post(verb, order);
    setAsked({ verb, message: answer.message, uid: answer.uid });
  });
  const confirm = () => {
    const { verb, uid } = asked;
    setAsked(null);
    attempt(verb, async () => setResult({ text: (await post(verb, { ...order, confirmed: true, uid })).message }));
  };
  return html`<div class="orders row" role="group" aria-label="Orders">${Object.entries(ORDERS).map(([verb, title]) => html`<button key=${verb} class=${verb === "cancel" ? "danger" : ""} disabled=${Boolean(busy)} onClick=${() => ask(verb)}>${busy === verb ? `${title} …` : title}</button>`)}</div>
    ${result && html`<p class=${`told ${result.wrong ? "alert" : "help"}`} role=${result.wrong ? "alert" : "status"}>${result.text}</p>`}
    ${asked && html`<${Confirm} asked=${asked} confirm=${confirm} close=${() => setAsked(null)} />`}`;
}

function Confirm({ asked, confirm, close }) {
  const box = useRef(null);
  useEffect(() => box.current?.querySelector("button.quiet")?.focus(), []);
  const keyed = (event) => { if (event.key === "Escape") close(); };
  return html`<div class="veil" onClick=${close} onKeyDown=${keyed}><div class="dialog" role="alertdialog" aria-modal="true" aria-labelledby="order-title" aria-describedby="order-text" ref=${box} onClick=${(event) => event.stopPropagation()}>
    <h2 id="order-title">${TITLES[asked.verb]}</h2><p id="order-text">${asked.message}</p>
    <p class="note">The order is executed as ${store.session.user}, with your rights.</p>
    <div class="row"><button class=${asked.verb === "cancel" ? "danger" : "primary"} onClick=${confirm}>${asked.verb === "cancel" ? "Delete" : ORDERS[asked.verb]}</button><button class="quiet" onClick=${close}>No change</button></div>
  </div></div>`;
}
