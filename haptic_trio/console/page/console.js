// Connects to the controller, follows the topics of the visible tab, and keeps the tab in the address.
import { showCycles, showEvents } from "./activity.js";
import { Configuration } from "./configuration.js";
import { followCopies } from "./copy.js";
import { addressOf, byId, nameRoles, readAddress } from "./dom.js";
import { showChannels, showIteration, showStores, showTasks } from "./internals.js";
import { Routes } from "./routes.js";
import { Stream } from "./stream.js";
import * as views from "./views.js";

const KEPT_EVENTS = 1000;
const ALWAYS = ["state", "events", "diff", "generations"];
const FOLLOWED = { routes: ["routes", "live"], instances: ["live", "certificates"], internals: ["tasks", "channels", "stores"] };

let view = "routes";
let detail = "";
let state = null;
let events = [];
let seen = 0;
let generations = [];
let live = { processes: [], backends: [] };

const stream = new Stream({
  welcomed(token) {
    keepToken(token);
    showLogin(false);
    show();
  },
  rejected() {
    showStatus("Not connected");
    keepToken(null);
    byId("token-error").textContent = "The token is invalid.";
    showLogin(true);
    byId("token").focus();
  },
  lost(reason) {
    showStatus(`Not connected${reason ? `: ${reason}` : ""}; reconnecting`);
    // A restarted controller numbers its events from 1.
    events = [];
    seen = 0;
  },
  message: take,
});
const ask = (topic, more) => stream.ask(topic, more);
const configuration = new Configuration(ask);
const routes = new Routes(ask, follow);

function showLogin(isWanted) {
  byId("login").hidden = !isWanted;
  byId("views").hidden = isWanted;
  byId("main").hidden = isWanted;
}

function showStatus(text) {
  // Screen readers announce changed text only.
  if (byId("headline").textContent !== text) byId("headline").textContent = text;
  byId("headline").className = "warn";
  byId("counters").textContent = "";
}

function take(message) {
  switch (message.kind) {
    case "state":
      state = message.value;
      views.showHeadline(state);
      showState();
      break;
    case "routes": routes.take(message.value); break;
    case "certificates": views.showCertificates(message.value, Date.now() / 1000); break;
    case "live":
      live = message.value;
      routes.takeFigures(live.backends);
      if (view === "instances") showState();
      break;
    case "tasks": showTasks(message.value, stream.clock); break;
    case "channels": showChannels(message.value); break;
    case "stores": showStores(message.value); break;
    case "diff":
      configuration.takeDiff(message.value);
      if (view === "configuration") {
        configuration.refresh();
        configuration.readSections();
      }
      break;
    case "generations":
      generations = message.value;
      configuration.takeGenerations(generations, stream.moment);
      if (view === "activity") showState();
      break;
    case "events":
      events = [...events, ...message.value].slice(-KEPT_EVENTS);
      seen = events.at(-1)?.number ?? seen;
      showActivity();
      break;
  }
}

// The tables of the visible tab alone are made.
function showState() {
  if (state === null) return;
  switch (view) {
    case "instances": views.showInstances(state, live.processes, stream.moment, stream.clock); break;
    case "problems": views.showProblems(state); break;
    case "activity": showCycles(state, generations, stream.moment); break;
    case "internals": showIteration(state); break;
  }
}

function showActivity() {
  if (view === "activity" && !byId("hold").checked) showEvents(events, stream.moment);
}

// Shows the tab and its detail, as the address has them.
function show(focus = false) {
  const [name, wanted] = readAddress(location.hash);
  const isTab = tabs.some((tab) => tab.id === `tab-${name}`);
  if (isTab && name !== view) scrollTo(0, 0);
  [view, detail] = isTab ? [name, wanted] : ["routes", ""];
  for (const tab of tabs) {
    const chosen = tab.id === `tab-${view}`;
    tab.setAttribute("aria-selected", String(chosen));
    tab.tabIndex = chosen ? 0 : -1;
    byId(tab.getAttribute("aria-controls")).hidden = !chosen;
    if (chosen && focus) tab.focus();
  }
  if (!stream.isOpen) return;
  follow();
  showState();
  if (view === "routes") routes.show(detail);
  if (view === "configuration") configuration.show(detail);
  if (view === "activity") {
    if (detail) byId("filter").value = detail;
    showActivity();
    if (detail) byId("filter").scrollIntoView({ block: "start" });
  }
}

function follow() {
  const more = view === "routes" ? routes.wanted : {};
  stream.send({ follow: [...ALWAYS, ...(FOLLOWED[view] ?? [])], interval: 1, since: seen, ...more });
}

function select(name, focus = false) {
  history.pushState(null, "", addressOf(name));
  show(focus);
}

function keepToken(token) {
  if (token === null) sessionStorage.removeItem("token");
  else sessionStorage.setItem("token", token);
}

const tabs = [...document.querySelectorAll("[role=tab]")];
for (const tab of tabs) tab.addEventListener("click", () => select(tab.id.slice(4)));
byId("tabs").addEventListener("keydown", (event) => {
  const at = tabs.findIndex((tab) => tab.getAttribute("aria-selected") === "true");
  const next = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: tabs.length - 1 }[event.key];
  if (next === undefined) return;
  event.preventDefault();
  select(tabs[(next + tabs.length) % tabs.length].id.slice(4), true);
});
addEventListener("popstate", () => show());
byId("level").addEventListener("change", showActivity);
byId("filter").addEventListener("input", showActivity);
byId("hold").addEventListener("change", showActivity);
byId("idle").addEventListener("change", showState);
byId("login").addEventListener("submit", (event) => {
  event.preventDefault();
  byId("token-error").textContent = "";
  stream.connect(byId("token").value.trim());
});

nameRoles();
followCopies();
const given = new URLSearchParams(location.hash.slice(1)).get("token");
// The token must not stay in the history.
if (given) history.replaceState(null, "", location.pathname);
show();
const token = given ?? sessionStorage.getItem("token");
if (token) stream.connect(token);
else showLogin(true);
