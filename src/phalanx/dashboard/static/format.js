// Display forms of numbers and times.

const BYTES = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

export function amount(name, value) {
  if (value === undefined || value === null) return "–";
  if (name === "cpu") return short(value / 1000);
  if (name === "memory" || name === "ephemeral-storage" || name.startsWith("hugepages-")) return bytes(value);
  return short(value);
}

export function short(value) {
  if (value >= 1e6) return `${trim(value / 1e6)}M`;
  if (value >= 1e4) return `${trim(value / 1e3)}k`;
  return trim(value);
}

function trim(value) {
  return String(Math.round(value * 10) / 10);
}

function bytes(value) {
  let unit = 0;
  while (value >= 1024 && unit < BYTES.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${trim(value)}${BYTES[unit]}`;
}

// Approximate value of a Kubernetes quantity, for bars only: texts show the original quantity.
const SUFFIX = { m: 1e-3, k: 1e3, M: 1e6, G: 1e9, T: 1e12, P: 1e15, Ki: 1024, Mi: 1024 ** 2, Gi: 1024 ** 3, Ti: 1024 ** 4, Pi: 1024 ** 5 };
export function quantity(text) {
  const found = /^([0-9.eE+-]+?)(m|k|M|G|T|P|Ki|Mi|Gi|Ti|Pi)?$/.exec(text || "");
  return found ? Number(found[1]) * (SUFFIX[found[2]] || 1) : 0;
}

// Short form of a quantity.
export function written(name, text) {
  if (text === undefined || text === null) return "";
  const value = quantity(text);
  return amount(name, name === "cpu" ? value * 1000 : value);
}

export function percent(value) {
  return `${Math.round(value * 10) / 10} %`;
}

// Short name of a resource: nvidia.com/gpu is gpu.
export function resource(name) {
  return name.includes("/") ? name.slice(name.indexOf("/") + 1) : name;
}

export function span(seconds) {
  seconds = Math.max(0, Math.round(seconds));
  const days = Math.floor(seconds / 86400), hours = Math.floor(seconds / 3600) % 24;
  const minutes = Math.floor(seconds / 60) % 60;
  if (days) return hours && days < 10 ? `${days}d${hours}h` : `${days}d`;
  if (hours) return minutes ? `${hours}h${minutes}m` : `${hours}h`;
  if (minutes) return seconds % 60 && minutes < 10 ? `${minutes}m${seconds % 60}s` : `${minutes}m`;
  return `${seconds}s`;
}

export function seconds(moment) {
  return moment ? Date.parse(moment) / 1000 : NaN;
}

// Returns whether a second that begins with a moment of the API has passed.
export function passed(moment, now = Date.now() / 1000) {
  return seconds(moment) < Math.floor(now);
}

export function age(moment, now = Date.now() / 1000) {
  return moment ? span(now - seconds(moment)) : "";
}

// Time in the viewer's time zone with its zone, and with its date if that is not today.
export function clock(moment, { second = true, zone = true } = {}) {
  const when = new Date(typeof moment === "number" ? moment * 1000 : moment);
  if (Number.isNaN(when.getTime())) return "";
  const now = new Date();
  const parts = { hour: "2-digit", minute: "2-digit", hourCycle: "h23", ...(second && { second: "2-digit" }), ...(zone && { timeZoneName: "short" }) };
  const time = when.toLocaleTimeString([], parts);
  if (now.toDateString() === when.toDateString()) return time;
  const year = now.getFullYear() === when.getFullYear() ? {} : { year: "numeric" };
  return `${when.toLocaleDateString([], { month: "short", day: "numeric", ...year })} ${time}`;
}

// Time without seconds, for columns.
export function minute(moment) {
  return clock(moment, { second: false });
}

// Short name of the viewer's time zone at a time.
export function zoneOf(moment) {
  const when = typeof moment === "number" ? new Date(moment * 1000) : new Date(moment);
  const part = new Intl.DateTimeFormat([], { timeZoneName: "short" }).formatToParts(when).find((each) => each.type === "timeZoneName");
  return part ? part.value : "";
}

// Text that is cut in the middle: its begin and its end distinguish names.
export function middle(text, most) {
  if (text.length <= most) return text;
  const tail = Math.floor((most - 1) / 2);
  return `${text.slice(0, most - 1 - tail)}…${text.slice(-tail)}`;
}

// Texts of the scheduler with times in the viewer's time zone.
export const MOMENT = /\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z/;
export function local(text) {
  return (text || "").replace(new RegExp(MOMENT, "g"), (moment) => clock(moment));
}

export function plural(count, word) {
  return `${short(count)} ${word}${count === 1 ? "" : "s"}`;
}

// Devices first: gangs wait for devices most often.
export function important(names) {
  const order = (name) => (name.includes("/") ? 0 : name === "cpu" ? 1 : name === "memory" ? 2 : name === "pods" ? 9 : 5);
  return [...names].sort((a, b) => order(a) - order(b) || (a < b ? -1 : 1));
}

export function asks(row, most = 3) {
  const names = important(Object.keys(row.asks || {}));
  return names.slice(0, most).map((name) => `${amount(name, row.asks[name])} ${resource(name)}`).join(", ");
}
