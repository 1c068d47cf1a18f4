// The headline, instances, problems and the configuration.
import { byId, choices, counted, fill, lasting, link, make, ms, stopAt, timeOf } from "./dom.js";
import { highlighted } from "./highlight.js";

// Seconds before its expiry from which a certificate is marked.
const SOON = 30 * 86400;

// The name of the last completed startup stage.
export const stageOf = (state) => state.stages.at(-1)?.name ?? "none";

export function showHeadline(state) {
  const now = state.iteration;
  const status = now === null ? "Starting" : now.is_ready ? "Ready" : `Starting, stage ${stageOf(state)}`;
  const text = `${status}, ${state.is_leader ? "leader" : "follower"}, ${counted(state.instances.length, "instance")}`;
  // Screen readers announce the headline only if it changed.
  if (byId("headline").textContent !== text) byId("headline").textContent = text;
  byId("headline").className = now?.is_ready ? "good" : "warn";
  const { quarantined, warnings } = state.objects;
  const inputs = Object.values(state.problems).flat().length;
  byId("counters").textContent = `${quarantined} quarantined, ${counted(warnings, "warning")}`;
  const all = quarantined + warnings + inputs + state.instances.filter((one) => one.error).length;
  byId("problem-count").textContent = all ? ` (${all})` : "";
}

export function showInstances(state, processes, moment, clock) {
  const running = new Map(processes.map((one) => [one.instance, one]));
  const known = new Map((state.fleet?.groups ?? []).flatMap((group) => group.instances).map((one) => [one.id, one]));
  fill("instances", state.instances.map((one) => [
    one.name, known.get(one.name)?.state ?? (one.error ? "failed" : one.at ? "deployed" : "waiting"), haproxyOf(running.get(one.name)), one.generation ?? "",
    one.at === undefined ? "" : [`${lasting(clock - one.at)} ago, cycle `, link("activity", one.correlation), ` (${ms(one.seconds)} ms)`],
    resultOf(one), one.reloads ?? 0, reloadOf(one.last_reload, moment),
  ]), "No instance is known yet.");
}

function haproxyOf(process) {
  if (!process) return "";
  return [process.version, make("div", `up ${lasting(process.uptime)}, ${counted(process.connections, "connection")}, ${process.rate}/s`, "faint")];
}

function resultOf(one) {
  if (one.error) return make("span", one.error, "bad");
  if (one.held) return make("span", `waiting for a reload: ${one.held.join(", ")}`, "warn");
  if (one.reloaded) return "reloaded";
  return one.at === undefined ? "" : counted(one.operations ?? 0, "operation");
}

function reloadOf(reload, moment) {
  if (!reload) return "none";
  const found = [`${timeOf(reload.at, moment)}, cycle `, link("activity", reload.correlation)];
  if (reload.reasons.length) found.push(`: ${reload.reasons.join(", ")}`);
  if (reload.objects.length) {
    found.push(make("br"), "caused by ");
    for (const [at, object] of reload.objects.entries()) found.push(at ? ", " : "", link("configuration", object));
  }
  return found;
}

// *unix* is the present time, in seconds since 1970.
export function showCertificates(page, unix) {
  fill("certificates", page.certificates.map((one) => [
    make("span", expiryOf(one.expires, unix), one.expires <= unix ? "bad" : one.expires - unix < SOON ? "warn" : ""),
    (one.names ?? []).join(", "),
    (one.objects ?? []).flatMap((object, at) => [at ? ", " : "", link("configuration", object)]),
    link("configuration", one.path),
  ]), "No certificates.");
  const more = page.total - page.certificates.length;
  byId("certificate-count").textContent = more > 0 ? `the first ${page.certificates.length} of ${page.total}` : page.total || "";
}

function expiryOf(expires, unix) {
  const day = new Date(expires * 1000).toISOString().slice(0, 16).replace("T", " ");
  return `${day} UTC, ${expires <= unix ? "expired" : `in ${lasting(expires - unix)}`}`;
}

export function showProblems(state) {
  const { listed, more, quarantined, warnings } = state.objects;
  const row = (one) => [link("configuration", one.object), one.reason, one.problem, one.serving ?? ""];
  const isQuarantined = (one) => Boolean(one.serving);
  fill("quarantined", listed.filter(isQuarantined).map(row), "No object is quarantined.");
  fill("warnings", listed.filter((one) => !isQuarantined(one)).map((one) => row(one).slice(0, 3)), "No warnings.");
  byId("quarantined-count").textContent = quarantined || "";
  byId("warning-count").textContent = warnings || "";
  byId("more-problems").textContent = more ? `${more} more are not listed.` : "";
  const inputs = Object.entries(state.problems).flatMap(([source, found]) => found.map((text) => [source, text]));
  inputs.push(...state.instances.filter((one) => one.error).map((one) => [`instance ${one.name}`, one.error]));
  inputs.push(...state.components.filter((one) => one.stalled).map((one) => [`component ${one.name}`, one.detail]));
  fill("inputs", inputs, "None.");
}

export function showLines(page, choose, chosen = 0) {
  const focused = [...byId("lines").querySelectorAll("button")].indexOf(document.activeElement);
  byId("lines").replaceChildren(...page.lines.map((one) => {
    const item = make("li");
    const button = make("button");
    button.append(make("span", String(one.line), "number"), ...highlighted(one, page.path));
    if (one.made_by) button.append(make("span", `  # ${one.made_by}`, "maker"));
    if (one.line === chosen) button.setAttribute("aria-current", "true");
    button.addEventListener("click", () => choose(`${page.path}:${one.line}`));
    item.append(button);
    return item;
  }));
  const buttons = [...byId("lines").querySelectorAll("button")];
  const wanted = page.lines.findIndex((one) => one.line === chosen);
  const stop = stopAt(buttons, Math.min(Math.max(focused, wanted, 0), buttons.length - 1));
  // Rendering keeps the focus.
  if (focused >= 0) stop?.focus();
  else if (wanted >= 0) stop?.scrollIntoView({ block: "nearest" });
  const last = page.offset + page.lines.length;
  byId("range").textContent = page.total ? `${page.offset + 1} to ${last} of ${page.total}` : "nothing found";
  byId("previous").disabled = page.offset === 0;
  byId("next").disabled = last >= page.total;
  byId("copy-lines").dataset.copy = page.lines.map((one) => one.text).join("\n");
  if (page.files.length) choices("path", page.files.map((name) => [name, name]), page.path);
  if (page.sections.length) {
    choices("section", [["", "Beginning"], ...page.sections.map((one) => [String(one.line - 1), one.text])], "");
  }
}

const changed = (one) => `${one.added} ${one.added === 1 ? "line" : "lines"} added, ${one.removed} removed`;

// The kept generations, the newest first; *chosen* is the number of the one that is shown, or 0 for the newest.
export function showGenerations(generations, chosen, moment) {
  choices("generation", [["0", "newest"], ...[...generations].reverse().map((one) =>
    [String(one.number), `${one.number}, ${timeOf(one.at, moment)}: ${changed(one)}`])], String(chosen));
}

export function showDiff(page) {
  const left = page.added + page.removed - page.lines.length;
  byId("diff-summary").textContent = page.before
    ? `${changed(page)}${left ? `; ${left} are not listed` : ""}` : "haproxy.cfg has not changed since the start of the controller.";
  byId("diff").replaceChildren(...page.lines.map((one) => {
    const item = make("li", "", one.sign === "+" ? "came" : "went");
    item.append(make("span", `${one.sign} ${one.line}`, "number"), one.text);
    if (one.made_by) item.append(make("span", `  # ${one.made_by}`, "maker"));
    return item;
  }));
}
