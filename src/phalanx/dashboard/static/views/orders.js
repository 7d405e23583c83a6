// Orders to a gang: hold, release, cancel. The page shows the predicted effect, and executes the order when confirmed.

import { html, useEffect, useRef, useState } from "/static/vendor/htm-preact-3.1.1.js";
import { plural } from "/static/format.js";
import { store } from "/static/store.js";

const ORDERS = { hold: "Hold", release: "Release", cancel: "Cancel" };
const DONE = { hold: "Held", release: "Released", cancel: "Cancelled" };
const TITLES = { hold: "Hold this gang?", release: "Release this gang?", cancel: "Cancel this gang?" };

function post(verb, order, path = "orders") {
  return store.json(`${path}/${verb}`, { method: "POST", body: JSON.stringify(order), headers: { "Content-Type": "application/json" } });
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

const MOST = 50;

// The same order to several gangs, at most MOST at a time. The page shows each predicted effect first.
export function BulkOrders({ rows, clear }) {
  const [asked, setAsked] = useState(null);
  const [busy, setBusy] = useState("");
  const [result, setResult] = useState(null);
  const sent = async (verb, orders) => {
    const answers = [];
    for (let first = 0; first < orders.length; first += MOST) answers.push(...(await post(verb, { orders: orders.slice(first, first + MOST) }, "bulk-orders")).answers);
    return answers;
  };
  const attempt = async (verb, work) => {
    setBusy(verb);
    setResult(null);
    try {
      await work();
    } catch (error) {
      setResult({ wrong: true, texts: [error.message] });
    }
    setBusy("");
  };
  const ask = (verb) => attempt(verb, async () => {
    const orders = rows.map((row) => ({ namespace: row.namespace, name: row.name, pod: row.kind === "pod" }));
    const answers = await sent(verb, orders);
    const possible = answers.map((answer, index) => ({ ...orders[index], uid: answer.uid, message: answer.message, error: answer.error }));
    setAsked({ verb, orders: possible.filter((each) => !each.error), refused: possible.filter((each) => each.error) });
  });
  const confirm = () => {
    const { verb, orders } = asked;
    setAsked(null);
    attempt(verb, async () => {
      const answers = await sent(verb, orders.map(({ namespace, name, pod, uid }) => ({ namespace, name, pod, uid, confirmed: true })));
      const wrong = answers.filter((answer) => answer.error);
      const count = answers.length - wrong.length;
      setResult({ wrong: wrong.length > 0, texts: [`${DONE[verb]}: ${count} of ${answers.length}`, ...wrong.map((answer) => `${answer.namespace}/${answer.name}: ${answer.error}`)] });
    });
  };
  return html`<div class="bulk row" role="group" aria-label="Orders to the selected gangs"><strong>${rows.length} selected</strong>
      ${Object.entries(ORDERS).map(([verb, title]) => html`<button key=${verb} class=${verb === "cancel" ? "danger" : ""} disabled=${Boolean(busy)} onClick=${() => ask(verb)}>${busy === verb ? `${title} …` : title}</button>`)}
      <button class="quiet" onClick=${clear}>Clear selection</button></div>
    ${result && html`<div class=${`told ${result.wrong ? "alert" : "help"}`} role=${result.wrong ? "alert" : "status"}>${result.texts.map((text) => html`<p key=${text}>${text}</p>`)}</div>`}
    ${asked && html`<${Confirm} asked=${asked} confirm=${confirm} close=${() => setAsked(null)} />`}`;
}

function Confirm({ asked, confirm, close }) {
  const box = useRef(null);
  useEffect(() => box.current?.querySelector("button.quiet")?.focus(), []);
  const keyed = (event) => { if (event.key === "Escape") close(); };
  return html`<div class="veil" onClick=${close} onKeyDown=${keyed}><div class="dialog" role="alertdialog" aria-modal="true" aria-labelledby="order-title" aria-describedby="order-text" ref=${box} onClick=${(event) => event.stopPropagation()}>
    <h2 id="order-title">${asked.orders ? `${ORDERS[asked.verb]} ${plural(asked.orders.length, "gang")}?` : TITLES[asked.verb]}</h2>
    ${asked.orders ? html`<div id="order-text" class="effects"><ul>${asked.orders.map((each) => html`<li key=${`${each.namespace}/${each.pod}/${each.name}`}>${each.message}</li>`)}</ul>
      ${asked.refused.length > 0 && html`<p>Not possible:</p><ul>${asked.refused.map((each) => html`<li key=${`${each.namespace}/${each.pod}/${each.name}`}>${each.namespace}/${each.name}: ${each.error}</li>`)}</ul>`}</div>` : html`<p id="order-text">${asked.message}</p>`}
    <p class="note">The order is executed as ${store.session.user}, with your rights.</p>
    <div class="row"><button class=${asked.verb === "cancel" ? "danger" : "primary"} disabled=${asked.orders && !asked.orders.length} onClick=${confirm}>${asked.verb === "cancel" ? "Delete" : ORDERS[asked.verb]}</button><button class="quiet" onClick=${close}>No change</button></div>
  </div></div>`;
}
