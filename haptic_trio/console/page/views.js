// Renders messages of the console as elements. Text is inserted as text only, never as markup.

export function make(tag, text = "", classes = "") {
  const element = document.createElement(tag);
  if (text !== "") element.textContent = text;
  if (classes) element.className = classes;
  return element;
}

const byId = (id) => document.getElementById(id);
const ms = (seconds) => (seconds ? (seconds * 1000).toFixed(seconds < 0.01 ? 1 : 0) : "");

function fill(id, rows) {
  const body = byId(id).tBodies[0];
  body.replaceChildren(...rows.map((cells) => {
    const row = document.createElement("tr");
    row.append(...cells.map((cell) => {
      if (cell instanceof Node) { const td = make("td"); td.append(cell); return td; }
      return make("td", String(cell ?? ""));
    }));
    return row;
  }));
}

export function showHeadline(state) {
  const now = state.iteration;
  const text = now === null ? "Between two iterations"
    : `Iteration ${now.number}, stage ${now.stage} of 5, ${now.is_ready ? "ready" : "not ready"}, ` +
      `${state.is_leader ? "leader" : "follower"}, ${state.quarantined} quarantined, ` +
      `${state.objects.warnings} warning${state.objects.warnings === 1 ? "" : "s"}`;
  // Screen readers announce the headline only if it changed; the counters change all the time.
  if (byId("headline").textContent !== text) byId("headline").textContent = text;
  byId("counters").textContent = now === null ? ""
    : `${state.fragments_rendered} fragments rendered, ${state.fragments_reused} reused`;
}

export function showOverview(state) {
  byId("stages").replaceChildren(...state.stages.map((one) =>
    make("li", `${one.stage} ${one.name} ${ms(one.seconds)} ms`)));
  const cycles = [...state.cycles].reverse();
  const longest = Math.max(0.001, ...cycles.map((one) => sum(parts(one))));
  fill("cycles", cycles.map((one) => [
    one.correlation, one.reason ?? "", one.changes ?? 0, bar(one, longest), ms(sum(parts(one))),
    `${one.rendered ?? 0} + ${one.reused ?? 0}`,
    make("span", one.outcome ?? "running", /^failed/.test(one.outcome) || one.outcome === "incomplete" ? "bad" : ""),
  ]));
  const known = new Map((state.fleet?.groups ?? []).flatMap((group) => group.instances).map((one) => [one.id, one]));
  fill("instances", state.instances.map((one) => [
    one.name, known.get(one.name)?.state ?? "", one.generation ?? "", one.correlation ?? "", ms(one.seconds), resultOf(one),
  ]));
  byId("components").replaceChildren(...state.components.map((one) =>
    make("li", `${one.name}: ${one.stalled ? one.detail : one.busy ? "busy" : "idle"}`, one.stalled ? "bad" : "")));
  const problems = Object.entries(state.problems).flatMap(([source, found]) =>
    found.map((text) => make("li", `${source}: ${text}`, "bad")));
  problems.push(...state.objects.listed.map((one) => make("li",
    `${one.object}: ${one.reason}: ${one.problem}${one.serving ? ` (serving: ${one.serving})` : ""}`, one.serving ? "bad" : "")));
  if (state.objects.more) problems.push(make("li", `… and ${state.objects.more} more`, "faint"));
  byId("problems").replaceChildren(...(problems.length ? problems : [make("li", "none", "faint")]));
}

function parts(cycle) {
  const between = (from, to) => (from && to ? Math.max(0, to - from) : 0);
  return { debounce: between(cycle.seen, cycle.triggered), wait: between(cycle.triggered, cycle.started), render: cycle.render ?? 0, parse: cycle.parse ?? 0, check: cycle.check ?? 0,
    deploy: cycle.deploy_seconds ?? 0 };
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

function resultOf(one) {
  if (one.error) return make("span", one.error, "bad");
  if (one.held) return make("span", `waiting for a reload: ${one.held.join(", ")}`, "warn");
  if (one.reloaded) return `reloaded: ${(one.reasons ?? []).join(", ")}`;
  const count = one.operations ?? 0;
  return one.at ? `${count} operation${count === 1 ? "" : "s"}` : "";
}

export function showTasks(tree, clock) {
  byId("task-count").textContent = `${tree.shown} of ${tree.total}`;
  const list = make("ul");
  list.append(taskItem(tree.root, clock));
  byId("tasks").replaceChildren(list);
}

function taskItem(task, clock) {
  const item = make("li", task.name.replaceAll(".<locals>", ""));
  if (task.place) item.append(make("span", `  ${task.place}`, "maker"));
  if (task.waits_for) item.append(make("span", `  ${task.waits_for}`, "faint"));
  for (const nursery of task.nurseries ?? []) {
    const list = make("ul");
    const note = scopeNote(nursery.scope, clock);
    if (note) list.append(make("li", note, "scope"));
    list.append(...nursery.tasks.map((child) => taskItem(child, clock)));
    item.append(list);
  }
  if (task.left_out) item.append(make("div", `and ${task.left_out} more`, "faint"));
  return item;
}

function scopeNote(scope, clock) {
  const notes = [];
  if (scope.deadline !== undefined) notes.push(`deadline in ${(scope.deadline - clock).toFixed(1)} s`);
  if (scope.shield) notes.push("shielded");
  if (scope.cancelled) notes.push("cancelled");
  return notes.join(", ");
}

export function showChannels(channels) {
  fill("channels", channels.map((one) => {
    if (one.kind === "latest") return [one.name, `newest of ${one.puts}`, "", "latest", "", "", ""];
    const gauge = make("meter");
    gauge.max = one.size || 1;
    gauge.high = gauge.max * 0.8;
    gauge.value = one.used;
    gauge.setAttribute("aria-label", `${one.name}: ${one.used} of ${one.size}`);
    return [one.name, gauge, one.high, one.size, `${one.senders} > ${one.receivers}`, one.waiting_senders,
      one.waiting_receivers];
  }));
}

export const showStores = (stores) => fill("stores", stores.map((one) => [one.name, one.objects, one.version]));

// The Tab key stops at one of many buttons; arrow keys move between them.
export function stopAt(buttons, at) {
  for (const [number, button] of buttons.entries()) button.tabIndex = number === at ? 0 : -1;
  return buttons[at];
}

export function showLines(page, choose) {
  const focused = [...byId("lines").querySelectorAll("button")].indexOf(document.activeElement);
  byId("lines").replaceChildren(...page.lines.map((one) => {
    const item = make("li");
    const button = make("button");
    button.append(make("span", String(one.line), "number"), one.text);
    if (one.made_by) button.append(make("span", `  # ${one.made_by}`, "maker"));
    button.addEventListener("click", () => choose(`${page.path}:${one.line}`));
    item.append(button);
    return item;
  }));
  const buttons = [...byId("lines").querySelectorAll("button")];
  const stop = stopAt(buttons, Math.min(Math.max(focused, 0), buttons.length - 1));
  // Rendering keeps the focus.
  if (focused >= 0) stop?.focus();
  const last = page.offset + page.lines.length;
  byId("range").textContent = page.total ? `${page.offset + 1} to ${last} of ${page.total}` : "nothing found";
  byId("previous").disabled = page.offset === 0;
  byId("next").disabled = last >= page.total;
  if (page.files.length) choices("path", page.files.map((name) => [name, name]), page.path);
  if (page.sections.length) {
    choices("section", [["", "Beginning"], ...page.sections.map((one) => [String(one.line - 1), one.text])], "");
  }
}

function choices(id, options, chosen) {
  byId(id).replaceChildren(...options.map(([value, text]) => {
    const option = make("option", text);
    option.value = value;
    option.selected = value === chosen;
    return option;
  }));
}

export function showDiff(page) {
  byId("diff-summary").textContent = page.before
    ? `${page.added} lines added, ${page.removed} removed` : "The configuration has not changed since a client first requested it.";
  byId("diff").replaceChildren(...page.lines.map((one) => {
    const item = make("li", "", one.sign === "+" ? "came" : "went");
    item.append(make("span", `${one.sign} ${one.line}`, "number"), one.text);
    return item;
  }));
}

export function readable(value, depth = 0) {
  const blanks = "  ".repeat(depth);
  if (value === null || typeof value !== "object") return `${blanks}${value}\n`;
  return Object.entries(value).filter(([, inner]) => inner !== "" && inner !== null).map(([key, inner]) => {
    const name = Array.isArray(value) ? "-" : `${key.replaceAll("_", " ")}:`;
    return typeof inner === "object" ? `${blanks}${name}\n${readable(inner, depth + 1)}` : `${blanks}${name} ${inner}\n`;
  }).join("");
}

export function showEvents(events, moment, words) {
  const wanted = events.filter((one) => !words || JSON.stringify(one).toLowerCase().includes(words));
  fill("events", wanted.slice(-300).reverse().map((one) => {
    const at = new Date((moment.unix + one.at - moment.clock) * 1000);
    const details = Object.entries(one.fields).filter(([key]) => key !== "correlation")
      .map(([key, value]) => `${key}=${typeof value === "object" ? JSON.stringify(value) : value}`).join(" ");
    const level = { error: "bad", warning: "warn", debug: "faint" }[one.level] ?? "";
    return [at.toLocaleTimeString("en-GB") + "." + String(at.getMilliseconds()).padStart(3, "0"), one.correlation,
      make("span", one.text, level), details];
  }));
}
