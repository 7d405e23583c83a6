import { html, useState } from "/static/vendor/htm-preact-3.1.1.js";
import { store } from "/static/store.js";
import { place, useStore } from "/static/parts.js";

export function Login() {
  const known = useStore();
  const [token, setToken] = useState("");
  const [namespace, setNamespace] = useState(place().query.get("ns") || "");
  const [error, setError] = useState("");
  const [busy, setBusy] = useState(false);
  const submit = async (event) => {
    event.preventDefault();
    setBusy(true);
    setError("");
    try {
      await store.logIn(token.trim(), namespace.trim());
    } catch (problem) {
      store.logOut("");
      setError(problem.message);
    }
    setBusy(false);
  };
  const message = error || known.loginError;
  return html`<main class="login"><form class="card" onSubmit=${submit}>
    <div class="brand"><img src="/static/icon.svg" alt="" width="34" height="34" /><h1>Phalanx</h1></div>
    <p>Log in with a bearer token of the cluster: <code>kubectl create token NAME -n NAMESPACE</code>. The token is stored in the memory of this tab only. If the dashboard runs on your machine, open the address that it printed.</p>
    <label for="token">Token</label>
    <input id="token" type="password" autocomplete="off" value=${token} onInput=${(event) => setToken(event.target.value)} required />
    <label for="login-namespace">Namespace <span class="muted">(needed without the right to list pods in all namespaces)</span></label>
    <input id="login-namespace" value=${namespace} onInput=${(event) => setNamespace(event.target.value)} spellcheck="false" autocomplete="off" />
    ${message && html`<div class="alert" role="alert">${message}</div>`}
    <button class="primary" disabled=${busy || !token}>${busy ? "Logging in …" : "Log in"}</button>
  </form></main>`;
}
