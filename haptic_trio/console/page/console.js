// Client side of the stream: connects, subscribes to the topics of the visible view, and sends requests.
import * as views from "./views.js";

const PAGE_SIZE = 200;
const KEPT_EVENTS = 1000;
const byId = (id) => document.getElementById(id);
const ALWAYS = ["state", "events", "diff"];
const FOLLOWED = { overview: [], tasks: ["tasks"], channels: ["channels", "stores"], config: [], events: [] };

let socket = null;
let moment = { clock: 0, unix: 0 };
let received = 0;
let view = "overview";
let events = [];
let seen = 0;
let offset = 0;
let asked = 0;
const waiting = new Map();

function connect(token) {
  const scheme = location.protocol === "https:" ? "wss" : "ws";
  let welcomed = false;
  socket = new WebSocket(`${scheme}://${location.host}/console/stream`);
  socket.addEventListener("open", () => socket.send(JSON.stringify({ hello: 1, token })));
  socket.addEventListener("message", (message) => {
    const content = JSON.parse(message.data);
    if (content.kind === "welcome") {
      welcomed = true;
      keepToken(token);
      byId("login").hidden = true;
      setMoment(content.now);
      follow();
      if (view === "config") showPage();
    } else take(content);
  });
  socket.addEventListener("close", (end) => {
    waiting.clear();
    if (!welcomed && end.code === 1008) {
      showStatus("Not connected");
      keepToken(null);
      byId("refusal").textContent = "The token is invalid.";
      byId("login").hidden = false;
      byId("token").focus();
    } else {
      showStatus(`Not connected${end.reason ? `: ${end.reason}` : ""}; reconnecting`);
      // A restarted controller numbers its events from 1.
      events = [];
      seen = 0;
      setTimeout(() => connect(token), 1000);
    }
  });
}

function showStatus(text) {
  // Screen readers announce changed text only.
  if (byId("headline").textContent !== text) byId("headline").textContent = text;
  byId("counters").textContent = "";
}

function setMoment(now) {
  moment = now;
  received = performance.now();
}

const clock = () => moment.clock + (performance.now() - received) / 1000;

function send(message) {
  if (socket?.readyState === WebSocket.OPEN) socket.send(JSON.stringify(message));
}

function follow() {
  send({ follow: [...ALWAYS, ...FOLLOWED[view]], interval: 1, since: seen });
}

function ask(topic, more) {
  asked += 1;
  const id = asked;
  return new Promise((resolve, reject) => {
    waiting.set(id, { resolve, reject });
    send({ ask: topic, id, ...more });
  });
}

function take(message) {
  switch (message.kind) {
    case "answer": waiting.get(message.id)?.resolve(message.value); waiting.delete(message.id); break;
    case "refused": waiting.get(message.id)?.reject(new Error(message.message)); waiting.delete(message.id); break;
    case "now": setMoment(message.value); break;
    case "state": views.showHeadline(message.value); views.showOverview(message.value); break;
    case "tasks": views.showTasks(message.value, clock()); break;
    case "channels": views.showChannels(message.value); break;
    case "stores": views.showStores(message.value); break;
    case "diff":
      views.showDiff(message.value);
      if (view === "config") showPage();
      break;
    case "events":
      events = [...events, ...message.value].slice(-KEPT_EVENTS);
      seen = events.at(-1)?.number ?? seen;
      showEvents();
      break;
  }
}

function showEvents() {
  if (view === "events" && !byId("hold").checked) {
    views.showEvents(events, moment, byId("filter").value.trim().toLowerCase());
  }
}

async function showPage() {
  const request = { path: byId("path").value, search: byId("search").value, offset, limit: PAGE_SIZE };
  try {
    views.showLines(await ask("config", request), explain);
  } catch (error) {
    byId("range").textContent = error.message;
  }
}

async function explain(target) {
  byId("target").value = target;
  try {
    byId("explanation").textContent = views.readable(await ask("explain", { target }));
  } catch (error) {
    byId("explanation").textContent = error.message;
  }
  byId("explanation").scrollIntoView({ block: "nearest" });
}

function select(name, focus = false) {
  if (view !== name) scrollTo(0, 0);
  view = name;
  for (const tab of document.querySelectorAll("[role=tab]")) {
    const chosen = tab.id === `tab-${name}`;
    tab.setAttribute("aria-selected", String(chosen));
    tab.tabIndex = chosen ? 0 : -1;
    byId(tab.getAttribute("aria-controls")).hidden = !chosen;
    if (chosen && focus) tab.focus();
  }
  follow();
  showEvents();
  if (name === "config") showPage();
}

function keepToken(token) {
  if (token === null) sessionStorage.removeItem("token");
  else sessionStorage.setItem("token", token);
}

function turn(pages) {
  offset = Math.max(0, offset + pages * PAGE_SIZE);
  showPage();
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
byId("find").addEventListener("submit", (event) => { event.preventDefault(); offset = 0; showPage(); });
byId("path").addEventListener("change", () => { offset = 0; showPage(); });
byId("section").addEventListener("change", () => {
  byId("path").value = "haproxy.cfg";
  byId("search").value = "";
  offset = Number(byId("section").value);
  showPage();
});
byId("ask").addEventListener("submit", (event) => { event.preventDefault(); explain(byId("target").value); });
byId("lines").addEventListener("keydown", (event) => {
  const lines = [...byId("lines").querySelectorAll("button")];
  const at = lines.indexOf(document.activeElement);
  const next = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: lines.length - 1 }[event.key];
  if (at < 0 || next === undefined) return;
  event.preventDefault();
  views.stopAt(lines, Math.min(Math.max(next, 0), lines.length - 1)).focus();
});
byId("previous").addEventListener("click", () => turn(-1));
byId("next").addEventListener("click", () => turn(1));
byId("filter").addEventListener("input", showEvents);
byId("hold").addEventListener("change", showEvents);
byId("login").addEventListener("submit", (event) => {
  event.preventDefault();
  byId("refusal").textContent = "";
  connect(byId("token").value.trim());
});

select("overview");
const given = new URLSearchParams(location.hash.slice(1)).get("token");
// The token must not stay in the history.
if (given) history.replaceState(null, "", location.pathname);
const token = given ?? sessionStorage.getItem("token");
if (token) connect(token);
else byId("login").hidden = false;
