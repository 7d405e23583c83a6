import { html, useMemo } from "/static/vendor/htm-preact-3.1.1.js";
import { Bar, Empty, GLYPHS, Link, Page, State, Told, to, useAnswer, useNow, useTables } from "/static/parts.js";
import { age, asks, clock, middle, passed, plural, seconds, span, zoneOf } from "/static/format.js";
import { store } from "/static/store.js";
import { Logs, Objects, Opened } from "/static/views/inside.js";
import { Orders } from "/static/views/orders.js";

const FORECASTS = { StartsNow: "starts now", StartsAfterEvictions: "starts after evictions" };

export function Gang({ pod, namespace, name }) {
  const [table] = useTables("gangs", "summary");
  const id = pod ? `${namespace}/pod/${name}` : `${namespace}/${name}`;
  const live = table.rows.get(id);
  const rehearsed = store.tables.summary.rows.get("cluster")?.summary.rehearsed;
  // The answer is requested again after a change of the row, and after each rehearsal while the gang is not running.
  const answer = useAnswer(`${pod ? "pods" : "gangs"}/${encodeURIComponent(namespace)}/${encodeURIComponent(name)}`, `${JSON.stringify(live)} ${live && live.state !== "Running" ? rehearsed : ""}`);
  const title = (live || (answer.value && answer.value.row) || {}).title || name;
  const job = (live || (answer.value && answer.value.row) || {}).job || `${pod ? "pod" : "podgroup"}/${title}`;
  const line = `phalanx why ${job} -n ${namespace}`;
  if (!answer.value) {
    return html`<${Page} title=${title} cli=${line}>${answer.loading ? html`<${Empty}>Rehearsing …</${Empty}>` : html`<div class="alert" role="alert">${answer.error}</div>`}</${Page}>`;
  }
  const { why, members, marks, problem, omitted } = answer.value;
  const row = live || answer.value.row;
  const over = row ? ["Completed", "Failed", "Cancelled"].includes(row.state) : true;
  const ended = over ? members.map((each) => each.ended || each.gone || "").sort().pop() : "";
  const facts = row ? [
    ["Job", row.job],
    ["User", row.user],
    ["Namespace", namespace],
    ["Queue", row.queue && html`<${Link} to=${to("/queues", { open: row.queue })}>${row.queue}</${Link}>`],
    ["Priority", String(row.priority || 0)],
    ["Members", `${row.placed || 0} bound, ${row.pending || 0} pending${row.gated ? `, ${row.gated} gated` : ""}${row.finished ? `, ${row.finished} finished` : ""}; minimum ${row.minimum || 0}`],
    ["Requests", asks(row)],
    ["Nodes", (row.nodes || []).length > 0 && html`${row.nodes.map((node, index) => html`${index > 0 && ", "}<${Link} key=${node} to=${to("/nodes", { node })}>${node}</${Link}>`)}${row.node_count > row.nodes.length ? ` and ${row.node_count - row.nodes.length} more` : ""}`],
    ["Created", row.created && `${clock(row.created)}, ${age(row.created)} ago`],
    ["Started", row.started && `${clock(row.started)}${row.created ? `, after ${span(seconds(row.started) - seconds(row.created))}` : ""}`],
    ["Ended", ended && `${clock(ended)}${row.started ? `, after ${span(seconds(ended) - seconds(row.started))}` : ""}`],
    ["Domain", why && why.domain],
    ["Part of", why && why.composite],
  ].filter(([, value]) => value) : [];
  return html`<${Page} title=${title} cli=${line} tools=${store.session.writes && html`<${Orders} pod=${pod} namespace=${namespace} name=${name} />`} note=${html`<${State} word=${(why && why.state) || (row && row.state) || "Gone"} />${((why && why.forecast) || (row && row.forecast)) && html` <span class="tag">${FORECASTS[(why && why.forecast) || row.forecast]}</span>`} ${pod ? "pod on its own" : "gang"}`}>
    <div class="grid gangpage">
      <${Why} why=${why} row=${row} problem=${problem} />
      <section class="card"><h2>Facts</h2><dl class="facts">${facts.map(([title, value]) => html`<div key=${title}><dt>${title}</dt><dd>${value}</dd></div>`)}</dl>
        ${why && why.warnings && why.warnings.length > 0 && html`<h3>Warnings</h3><ul>${why.warnings.map((text) => html`<li key=${text}>${text}</li>`)}</ul>`}</section>
    </div>
    <section class="card"><h2>Timeline</h2><${Timeline} members=${members} marks=${marks} omitted=${omitted} /></section>
    <section class="card"><h2>Events</h2><${Marks} marks=${marks} said=${why} /></section>
    <${Opened} title="Logs">${() => html`<${Logs} namespace=${namespace} members=${members} />`}</${Opened}>
    <${Opened} title="YAML">${() => html`<${Objects} namespace=${namespace} name=${name} pod=${pod} />`}</${Opened}>
  </${Page}>`;
}

function Why({ why, row, problem }) {
  // A job without gang has no verdict.
  if (!why && row && row.message) return html`<section class="card why"><h2>Why</h2><p class="sentence">${row.reason && html`<span class="reason">${row.reason}</span> `}<${Told} text=${row.message} /></p>${row.change && html`<div class="help"><strong>Fix</strong><p>${row.change}</p></div>`}</section>`;
  if (!why) return html`<section class="card why"><h2>Why</h2>${problem ? html`<div class="alert" role="alert">${problem}</div>` : html`<${Empty}>The gang was deleted. Its events are listed below.</${Empty}>`}</section>`;
  const most = Math.max(1, ...(why.nodes || []).map((part) => part.count));
  return html`<section class="card why"><h2>Why${["Pending", "Gated", "Partial"].includes(why.state) ? " it waits" : ""}</h2>
    <p class="sentence">${why.reason && html`<span class="reason">${why.reason}</span> `}<${Told} text=${why.message} /></p>
    ${why.change && html`<div class="help"><strong>Fix</strong><p><${Told} text=${why.change} /></p></div>`}
    <${Start} start=${why.start} row=${row} said=${why.message} />
    ${row && row.pending > 0 && row.kind !== "pod" && store.session.what_if && html`<p><${Link} to=${to("/what-if", { gang: row.id })}>What if: predict the effect of a change</${Link}></p>`}
    ${(why.nodes || []).length > 0 && html`<h3>Nodes</h3><ul class="bars">${why.nodes.map((part) => html`<li key=${part.reason}><span class="name">${part.reason}</span><${Bar} parts=${[{ kind: "Pending", value: part.count }]} whole=${most} label=${`${part.count} nodes: ${part.reason}`} /><span class="count">${part.count}</span></li>`)}</ul>`}
    ${why.evictions && html`<${Evictions} preview=${why.evictions} message=${why.message} />`}
    ${why.loss && html`<h3>Lost members</h3><p><${Told} text=${why.loss.message} /></p>`}
    ${(why.groups || []).length > 0 && html`<h3>Groups</h3><ul>${why.groups.map((group) => html`<li key=${group.name}><${State} word=${group.state} /> ${group.name}: <${Told} text=${group.message} /></li>`)}</ul>`}
  </section>`;
}

function promise(moment) {
  return `${passed(moment) ? "Start overdue: it was promised for" : "Starts no later than"} ${clock(moment)}`;
}

// `said` is the sentence above: a promise that it contains is not repeated, its distance is new.
function Start({ start, row, said }) {
  if (start && start.no_later_than) {
    const left = seconds(start.no_later_than) - Date.now() / 1000;
    const known = (said || "").includes(start.no_later_than) && left > 0;
    return html`<div class="start"><strong>${known ? `Starts within ${span(left)}` : promise(start.no_later_than)}</strong>${start.promised !== start.no_later_than && html`<p class="note">first promise: ${clock(start.promised)}</p>`}${(start.postponements || []).map((move) => html`<p key=${move} class="note"><${Told} text=${move} /></p>`)}${(start.moves_to || start.moves_because) && html`<p class="note">the last rehearsal ${start.moves_to ? `moves it to ${clock(start.moves_to)}` : "cancels it"}${start.moves_because ? `: ${start.moves_because}` : ""}</p>`}${start.origin && start.origin.source && html`<p class="note">${start.origin.source === "live" ? "plan" : "record"} of the scheduler, version ${start.origin.version || "-"}, written ${start.origin.time ? clock(start.origin.time) : "-"}</p>`}</div>`;
  }
  if (start && start.message && !(row && row.start)) return html`<div class="start"><strong>Start unknown</strong><p class="note"><${Told} text=${start.message} /></p></div>`;
  if (row && row.start) return html`<div class="start"><strong>${row.start_kind === "promised" ? promise(row.start) : `Planned for ${clock(row.start)}`}</strong><p class="note">${passed(row.start) ? `${age(row.start)} ago` : `in ${span(seconds(row.start) - Date.now() / 1000)}`}${row.start_kind === "planned" ? ", if all running pods end at their limits and no other pods arrive" : ""}</p></div>`;
  return null;
}

// Pods that would be evicted, that are terminating, or that no policy allows to evict.
// `message` is the sentence above: the missing amount is not repeated.
function Evictions({ preview, message }) {
  const titles = { Leaving: "Evicted, terminating", Due: "Would evict", Vain: "Evictions: none" };
  return html`<h3>${titles[preview.state] || preview.state}</h3><p><${Told} text=${preview.message} /></p>
    ${preview.missing && !preview.missing.startsWith(message.replace(/\.$/, "")) && html`<p>${preview.missing}</p>`}
    ${(preview.reasons || []).map((group) => html`<p key=${group.why} class="note">${group.why}: ${plural(group.pods.length, "pod")}${group.until ? ` until ${clock(group.until)}` : ""}</p>`)}
    ${(preview.pods || []).length > 0 && html`<div class="scrollx"><table class="plain"><thead><tr><th scope="col">Pod</th><th scope="col">Gang</th><th scope="col">Node</th><th scope="col">Priority</th></tr></thead>
      <tbody>${preview.pods.slice(0, 30).map((pod, index) => html`<tr key=${index}><td>${pod.pod}</td><td>${pod.gang || ""}</td><td>${pod.node || ""}</td><td>${pod.priority || 0}</td></tr>`)}</tbody></table>
      ${preview.pods.length > 30 && html`<p class="note">and ${preview.pods.length - 30} more</p>`}</div>`}
    ${preview.cost && html`<p class="note">Cost: ${plural(preview.cost.pods, "pod")}, ${plural(preview.cost.gangs, "gang")} below the minimum, ${preview.cost.pod_hours} pod-hours of work.</p>`}`;
}

// Parts of a lane, with the states of members that are in this part now.
const LEGEND = [["waiting", "pending", ["Pending"]], ["gated", "gated", ["Gated"]], ["bound", "bound", ["Bound"]], ["running", "running", ["Running"]], ["leaving", "terminating", ["Terminating"]]];
const LANE = 22, LEFT = 150, WIDE = 960, TOP = 26;

// One lane per member: created, planned, bound, running, evicted, deleted. Marks of the gang are on top.
function Timeline({ members, marks, omitted }) {
  const now = useNow(5);
  const view = useMemo(() => {
    const moments = members.flatMap((each) => [each.created, each.bound, each.started, each.told, each.ended, each.gone]).concat(marks.map((mark) => mark.when)).map(seconds).filter((each) => each > 0);
    const first = Math.min(...moments, now - 30);
    const last = members.some((each) => !each.gone && !each.ended) ? now : Math.max(...moments, first + 30);
    return { first, last: Math.max(last, first + 10) };
  }, [members, marks, now]);
  if (!members.length) return html`<${Empty}>No members were seen${omitted.length ? ` (${omitted.join("; ")})` : ""}.</${Empty}>`;
  const shown = members.slice(-60);
  const x = (moment) => LEFT + ((WIDE - LEFT - 12) * (moment - view.first)) / (view.last - view.first);
  const tall = TOP + shown.length * LANE + 30;
  const ticks = [0, 0.25, 0.5, 0.75, 1].map((part) => view.first + part * (view.last - view.first));
  return html`<div class="scrollx" tabindex="0" role="region" aria-label="Timeline, one lane per member">
    <svg class="timeline" viewBox=${`0 0 ${WIDE} ${tall}`} width=${WIDE} height=${tall} role="img" aria-label=${shown.map((each) => `${each.name}: ${each.state}${each.cause ? `, ${each.cause}` : ""}`).join("; ")}>
      ${ticks.map((tick) => html`<g key=${tick}><line x1=${x(tick)} x2=${x(tick)} y1=${TOP - 6} y2=${tall - 24} class="gridline" /><text x=${x(tick)} y=${tall - 8} text-anchor=${tick === view.first ? "start" : tick === view.last ? "end" : "middle"}>${clock(tick, { zone: false })}</text></g>`)}
      <text x=${LEFT - 10} y=${tall - 8} text-anchor="end">${zoneOf(view.last)}</text>
      ${marks.filter((mark) => seconds(mark.when) >= view.first).slice(-40).map((mark, index) => html`<g key=${index}><title>${`${clock(mark.when)} ${mark.what} ${mark.message || ""}`}</title><line x1=${x(seconds(mark.when))} x2=${x(seconds(mark.when))} y1="4" y2=${tall - 24} class="mark" /><circle cx=${x(seconds(mark.when))} cy="8" r="4" class="mark" /></g>`)}
      ${shown.map((each, index) => html`<${Lane} key=${each.name + each.created} member=${each} y=${TOP + index * LANE} x=${x} last=${view.last} />`)}
    </svg></div>
    <ul class="legend">${LEGEND.map(([kind, title, states]) => html`<li key=${kind}><span class=${`swatch w-${kind}`}></span>${title} <strong>${members.filter((each) => states.includes(each.state)).length}</strong></li>`)}<li><span class="swatch w-mark"></span>event of the gang <strong>${marks.length}</strong></li></ul>
    <details><summary>${plural(members.length, "member")}${members.length > shown.length ? `, the last ${shown.length} are drawn` : ""}</summary><div class="scrollx"><table class="plain"><thead><tr><th scope="col">Member</th><th scope="col">State</th><th scope="col">Node</th><th scope="col">Created</th><th scope="col">Bound</th><th scope="col">Eviction cause</th></tr></thead>
      <tbody>${[...members].reverse().slice(0, 200).map((each) => html`<tr key=${each.name + each.created}><td>${each.name}</td><td><${State} word=${each.state} /></td><td>${each.node || ""}</td><td>${clock(each.created)}</td><td>${clock(each.bound || "")}</td><td>${each.cause || ""}</td></tr>`)}</tbody></table></div></details>`;
}

function Lane({ member, y, x, last }) {
  const end = seconds(member.gone) || last;
  const steps = [[seconds(member.created), member.gated ? "gated" : "waiting"], [seconds(member.bound), "bound"], [seconds(member.started), "running"], [seconds(member.told), "leaving"], [seconds(member.ended), "over"]].filter(([when]) => when > 0);
  steps.sort((a, b) => a[0] - b[0]);
  const title = [`${member.name}: ${member.state}`, member.node && `on ${member.node}`, member.cause].filter(Boolean).join(", ");
  return html`<g><title>${title}</title>
    <text x=${LEFT - 10} y=${y + 14} text-anchor="end" class="lane">${middle(member.name, 21)}</text>
    ${steps.map(([when, kind], index) => {
      const until = Math.min(end, index + 1 < steps.length ? steps[index + 1][0] : end);
      return kind === "over" ? null : html`<rect key=${kind} x=${x(when)} y=${y + 3} width=${Math.max(2, x(until) - x(when))} height=${LANE - 8} rx="3" class=${`w-${kind}`} />`;
    })}
    ${member.planned && html`<path d=${`M${x(seconds(member.planned))} ${y + 1} l4 4 l-4 4 l-4 -4 z`} class="plan"><title>planned ${clock(member.planned)}</title></path>`}
    ${member.gone && html`<text x=${x(end) + 3} y=${y + 14} class="lane">${GLYPHS.Evicted}</text>`}
  </g>`;
}

// Text without the sentences that the page shows above.
function fresh(text, said) {
  for (const part of said.filter(Boolean)) text = text.replace(part, "");
  return text.replace(/\bTo fix: /, "").replace(/^[.;\s]+/, "").replace(/[.;\s]+$/, ".").replace(/^\.$/, "");
}

// Events from the oldest to the newest. A sentence that the page has shown already is not repeated.
function Marks({ marks, said }) {
  if (!marks.length) return html`<${Empty}>No events since the dashboard started.</${Empty}>`;
  const above = said ? [said.message, said.change] : [], known = new Set();
  const shown = marks.slice(-60).map((mark) => {
    const message = above.some((part) => part && (mark.message || "").includes(part)) ? fresh(mark.message, above) : mark.message;
    const again = known.has(message);
    known.add(message);
    return { ...mark, what: mark.what === "created" ? "Created" : mark.what, message: again ? "" : message };
  });
  return html`${marks.length > shown.length && html`<p class="note">The last ${shown.length} of ${marks.length} events.</p>`}
    <ol class="feed">${shown.map((mark, index) => html`<li key=${index}><span class="when">${clock(mark.when)}</span><div><strong>${mark.what}</strong>${mark.message && html`<p><${Told} text=${mark.message} /></p>`}</div></li>`)}</ol>`;
}
