// The debugger of the controller: iteration, stages, components, tasks, channels and stores.
import { byId, fill, make, ms } from "./dom.js";
import { stageOf } from "./views.js";

export function showIteration(state) {
  const now = state.iteration;
  byId("iteration").textContent = now === null ? "Between two iterations"
    : `Iteration ${now.number}, stage ${stageOf(state)}, ${now.is_ready ? "ready" : "not ready"}; ` +
      `${state.fragments_rendered} fragments rendered, ${state.fragments_reused} reused`;
  byId("stages").replaceChildren(...state.stages.map((one) => make("li", `${one.name} ${ms(one.seconds)} ms`)));
  byId("components").replaceChildren(...state.components.map((one) =>
    make("li", `${one.name}: ${one.stalled ? one.detail : one.busy ? "busy" : "idle"}`, one.stalled ? "bad" : "")));
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
