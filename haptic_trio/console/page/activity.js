// Reconciliations and events.
import { byId, fill, link, make, ms, timeOf } from "./dom.js";

const LEVELS = ["debug", "info", "warning", "error"];
const MOST_ROWS = 300;

export function showCycles(state, moment) {
  const newest = state.cycles.at(-1);
  const cycles = [...state.cycles].reverse().filter((one) =>
    one === newest || byId("idle").checked || one.outcome !== "unchanged");
  const longest = Math.max(0.001, ...cycles.map((one) => sum(parts(one))));
  fill("cycles", cycles.map((one) => [
    timeOf(one.seen ?? one.triggered ?? one.started, moment), link("activity", one.correlation),
    [one.reason ?? "", ...changesOf(one)], bar(one, longest), ms(sum(parts(one))),
    make("span", one.outcome ?? "running", /^failed/.test(one.outcome) || one.outcome === "incomplete" ? "bad" : ""),
  ]), "No reconciliation yet.");
}

function changesOf(cycle) {
  const objects = cycle.objects ?? [];
  const more = (cycle.changes ?? 0) > objects.length && objects.length ? ", …" : "";
  return objects.length ? [make("div", objects.join(", ") + more, "faint")] : [];
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
