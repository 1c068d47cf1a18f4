// Changes and events.
import { byId, counted, fill, link, make, ms, timeOf } from "./dom.js";

const LEVELS = ["debug", "info", "warning", "error"];
const MOST_ROWS = 300;

// One row for each reconciliation: what changed, what that changed in HAProxy, whether it reloaded and why, and how long
// it took until traffic. *generations* are those that changed haproxy.cfg.
export function showCycles(state, generations, moment) {
  const newest = state.cycles.at(-1);
  const cycles = [...state.cycles].reverse().filter((one) =>
    // The first render of an iteration was made beside the former one, and is not triggered.
    (one.triggered ?? one.started) !== undefined && (one === newest || byId("idle").checked || one.outcome !== "unchanged"));
  const longest = Math.max(0.001, ...cycles.map((one) => sum(parts(one))));
  const lines = new Map(generations.map((one) => [one.correlation, one]));
  const focused = byId("cycles").contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
  fill("cycles", cycles.map((one) => [
    [timeOf(one.seen ?? one.triggered ?? one.started, moment), make("div"), link("activity", one.correlation)],
    [...objectsOf(one), make("div", one.reason ?? "", "faint")], inHAProxy(one, lines.get(one.correlation)), reloadOf(one),
    [untilTraffic(one), bar(one, longest)],
    make("span", one.outcome ?? "running", /^failed/.test(one.outcome) || one.outcome === "incomplete" ? "bad" : ""),
  ]), "No reconciliation yet.");
  // Rendering keeps the focus.
  if (focused !== null) [...byId("cycles").querySelectorAll("a")].find((one) => one.getAttribute("href") === focused)?.focus();
}

function objectsOf(cycle) {
  const objects = cycle.objects ?? [];
  const more = (cycle.changes ?? 0) - objects.length;
  const found = objects.flatMap((name, at) => [at ? ", " : "", link("configuration", name)]);
  if (objects.length && more > 0) found.push(`, and ${counted(more, "more change")}`);
  return found;
}

// For example `2 map entries added`.
function counts(kind, count) {
  const [, noun, verb] = /^(.*) (\w+)$/.exec(kind);
  return `${counted(count, noun).replace(/entrys$/, "entries")} ${verb}`;
}

function inHAProxy(cycle, generation) {
  const found = Object.entries(cycle.operations ?? {}).map(([kind, count]) => make("div", counts(kind, count)));
  if (generation) {
    const lines = `haproxy.cfg: ${generation.added} lines added, ${generation.removed} removed`;
    found.push(make("div"));
    found.at(-1).append(link("configuration", `generation:${generation.number}`, lines));
  }
  if (found.length) return found;
  if (cycle.served_by) return ["with ", link("activity", cycle.served_by)];
  return cycle.outcome === "unchanged" ? make("span", "nothing", "faint") : "";
}

function reloadOf(cycle) {
  const held = cycle.held ?? [];
  if (held.length) return make("span", `waits for a reload: ${held.join(", ")}`, "warn");
  if (cycle.reloaded) {
    return [make("span", `${cycle.reloaded > 1 ? `${cycle.reloaded} instances reloaded` : "reloaded"}: `, "warn"),
      (cycle.reasons ?? []).join(", ")];
  }
  if (cycle.served_by) return ["as in ", link("activity", cycle.served_by)];
  return cycle.outcome === "deployed" ? make("span", "no reload", "good") : "";
}

function untilTraffic(cycle) {
  if (cycle.traffic === undefined || cycle.outcome === "unchanged") return "";
  return cycle.traffic < 1 ? `${ms(cycle.traffic)} ms` : `${cycle.traffic.toFixed(1)} s`;
}

function parts(cycle) {
  const between = (from, to) => (from && to ? Math.max(0, to - from) : 0);
  return { debounce: between(cycle.seen, cycle.triggered), wait: between(cycle.triggered, cycle.started),
    render: cycle.render ?? 0, parse: cycle.parse ?? 0, check: cycle.check ?? 0, deploy: cycle.deploy_seconds ?? 0 };
}

const sum = (values) => Object.values(values).reduce((all, one) => all + one, 0);

function bar(cycle, longest) {
  const found = make("div", "", "bar");
  const words = [];
  for (const [name, seconds] of Object.entries(parts(cycle))) {
    if (!seconds) continue;
    const piece = make("span", "", name);
    piece.style.width = `${(seconds / longest) * 100}%`;
    found.append(piece);
    words.push(`${name} ${ms(seconds)} ms`);
  }
  found.setAttribute("role", "img");
  found.setAttribute("aria-label", words.join(", ") || "nothing yet");
  found.title = words.join(", ");
  return found;
}

export function showEvents(events, moment) {
  const words = byId("filter").value.trim().toLowerCase();
  const least = LEVELS.indexOf(byId("level").value);
  const wanted = events.filter((one) => LEVELS.indexOf(one.level) >= least &&
    (!words || JSON.stringify(one).toLowerCase().includes(words)));
  fill("events", wanted.slice(-MOST_ROWS).reverse().map((one) => {
    const details = Object.entries(one.fields).filter(([key]) => key !== "correlation")
      .map(([key, value]) => `${key}=${typeof value === "object" ? JSON.stringify(value) : value}`).join(" ");
    const level = { error: "bad", warning: "warn", debug: "faint" }[one.level] ?? "";
    return [timeOf(one.at, moment), one.level, one.correlation ? link("activity", one.correlation) : "",
      make("span", one.text, level), details];
  }), "No event matches.");
}
