// State of the page: the session, and tables that are listed once and then updated by one stream.

const TABLES = ["summary", "gangs", "queues", "nodes", "evictions", "reservations", "clusters", "dispatches"];

export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

class Store {
  constructor() {
    this.token = "";
    this.session = null;
    this.namespace = "";
    this.tables = {};
    this.connection = "idle";
    this.listeners = new Set();
    this.wanted = [];
    this.stopStream = null;
    this.scheduled = false;
    this.forget();
  }

  forget() {
    for (const name of TABLES) {
      this.tables[name] = { rows: new Map(), version: -1, epoch: "", omitted: [], state: "unknown", error: "", changes: 0 };
    }
  }

  subscribe(listener) {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  // Changes in one frame are rendered once.
  tell() {
    if (this.scheduled) return;
    this.scheduled = true;
    setTimeout(() => {
      this.scheduled = false;
      for (const listener of this.listeners) listener();
    }, 60);
  }

  async ask(path, options = {}) {
    const headers = { ...(options.headers || {}) };
    if (this.token) headers.Authorization = `Bearer ${this.token}`;
    let answer;
    try {
      answer = await fetch(`/api/v1/${path}`, { ...options, headers, cache: "no-store", credentials: "omit" });
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new Refused(0, "The dashboard does not answer: check whether it is running.");
    }
    if (answer.ok) return answer;
    let why = `The dashboard answered ${answer.status}.`;
    try {
      why = (await answer.json()).error || why;
    } catch { /* it was no JSON: the status has to do */ }
    if (answer.status === 401) this.logOut(why);
    throw new Refused(answer.status, why);
  }

  async json(path, options) {
    return (await this.ask(path, options)).json();
  }

  query() {
    return this.namespace ? `namespace=${encodeURIComponent(this.namespace)}` : "";
  }

  // -- session

  async logIn(token, namespace) {
    this.token = token;
    this.namespace = namespace;
    this.session = await this.json(`session?${this.query()}`);
    this.namespace = this.session.namespace;
    this.loginError = "";
    this.tell();
  }

  async logInByTicket(ticket, namespace) {
    const answer = await this.json("login", { method: "POST", body: ticket });
    // Only the session of an address login is stored: it is useless outside this machine and process.
    sessionStorage.setItem("phalanx-session", answer.token);
    await this.logIn(answer.token, namespace);
  }

  logOut(why = "") {
    this.stop();
    sessionStorage.removeItem("phalanx-session");
    this.token = "";
    this.session = null;
    this.loginError = why;
    this.forget();
    this.tell();
  }

  async choose(namespace) {
    if (namespace === this.namespace && this.session) return;
    const former = this.namespace;
    this.namespace = namespace;
    try {
      this.session = await this.json(`session?${this.query()}`);
    } catch (error) {
      this.namespace = former;
      throw error;
    }
    this.stop();
    this.forget();
    this.follow(this.wanted, true);
    this.tell();
  }

  // -- tables

  // Tables of the open view. Other tables are not updated.
  follow(names, anew = false) {
    const same = names.join() === this.wanted.join();
    this.wanted = names;
    if (!this.session || (same && this.stopStream && !anew)) return;
    this.stop();
    const control = new AbortController();
    this.stopStream = () => control.abort();
    this.run(names, control.signal);
  }

  stop() {
    if (this.stopStream) this.stopStream();
    this.stopStream = null;
  }

  async run(names, signal) {
    let pause = 500;
    while (!signal.aborted) {
      try {
        await Promise.all(names.filter((name) => this.tables[name].version < 0).map((name) => this.list(name, signal)));
        await this.stream(names, signal);
        pause = 500;
      } catch (error) {
        if (signal.aborted || error.name === "AbortError") return;
        for (const name of names) {
          if (this.tables[name].state !== "there") {
            Object.assign(this.tables[name], { state: "error", error: error.message || String(error) });
          }
        }
        if (error.status === 401) return;
      }
      if (signal.aborted) return;
      this.connection = "lost";
      this.tell();
      await new Promise((done) => setTimeout(done, pause + Math.random() * 300));
      pause = Math.min(pause * 2, 15000);
    }
  }

  async list(name, signal) {
    const table = this.tables[name];
    if (table.state !== "there") table.state = "loading";
    this.tell();
    const answer = await this.json(`tables/${name}?${this.query()}`, { signal });
    Object.assign(table, {
      rows: new Map(answer.rows.map((row) => [row.id, row])),
      version: answer.version,
      epoch: answer.epoch,
      omitted: answer.omitted,
      state: "there",
      error: "",
    });
    table.changes += 1;
    this.tell();
  }

  async stream(names, signal) {
    const epochs = new Set(names.map((name) => this.tables[name].epoch));
    if (epochs.size > 1) {
      for (const name of names) this.tables[name].version = -1;
      return;
    }
    const asked = names.map((name) => `${name}:${this.tables[name].version}`).join(",");
    const answer = await this.ask(`stream?tables=${asked}&epoch=${[...epochs][0]}&${this.query()}`, { signal });
    this.connection = "live";
    this.tell();
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      const parts = (rest + value).split("\n\n");
      rest = parts.pop();
      for (const part of parts) if (!this.take(part)) return;
    }
  }

  // Process one event of the stream. Returns false to close the stream.
  take(text) {
    let kind = "", data = "";
    for (const line of text.split("\n")) {
      if (line.startsWith("event: ")) kind = line.slice(7);
      else if (line.startsWith("data: ")) data = line.slice(6);
    }
    if (kind === "denied") {
      this.logOut("You no longer have the right to see this page.");
      return false;
    }
    if (kind === "reset") {
      this.forget();
      return false;
    }
    if (kind === "stale") {
      this.tables[JSON.parse(data).table].version = -1;
      return false;
    }
    if (kind === "delta") {
      const delta = JSON.parse(data);
      const table = this.tables[delta.table];
      for (const id of delta.gone) table.rows.delete(id);
      for (const row of delta.put) table.rows.set(row.id, row);
      table.version = delta.version;
      table.changes += 1;
      this.tell();
    }
    return true;
  }
}

export const store = new Store();
