// The configuration tab: pages of a file, and the explanation of a line, a section, a host or an object.
import { addressOf, byId, copyButton, link, make, moveBetween, readable } from "./dom.js";
import { Outline } from "./outline.js";
import { Search } from "./search.js";
import { showDiff, showGenerations, showLines } from "./views.js";

const PAGE_SIZE = 200;
const MOST_ROUTES = 20;
const ENTRY = /^(?<host>[^|\s]+)\|(?<path>\S*)/;
const GENERATION = /^generation:(?<number>\d+)$/;
const LINE = /^(?<path>[^\s:]+\.[a-z]+):(?<line>\d+)$/;

export class Configuration {
  constructor(ask) {
    this.ask = ask;
    this.path = "haproxy.cfg";
    this.offset = 0;
    this.chosen = 0;
    // Number of the generation whose changes are shown; 0: the newest.
    this.generation = 0;
    byId("find").addEventListener("submit", (event) => { event.preventDefault(); this.from(0); });
    byId("path").addEventListener("change", () => { this.path = byId("path").value; this.from(0); });
    byId("section").addEventListener("change", () => {
      this.open("haproxy.cfg");
      this.from(Number(byId("section").value));
    });
    byId("ask").addEventListener("submit", (event) => { event.preventDefault(); this.choose(byId("target").value); });
    byId("previous").addEventListener("click", () => this.from(this.offset - PAGE_SIZE));
    byId("next").addEventListener("click", () => this.from(this.offset + PAGE_SIZE));
    byId("generation").addEventListener("change", () => this.compare(Number(byId("generation").value)));
    moveBetween("lines", "button");
    this.all = new Search(ask);
    this.outline = new Outline();
  }

  // Shows what the address of the tab has: nothing, a line, a search in all files, a generation, or another target.
  show(detail) {
    const line = LINE.exec(detail)?.groups;
    if (line) {
      this.open(line.path);
      this.chosen = Number(line.line);
      this.offset = Math.floor((this.chosen - 1) / PAGE_SIZE) * PAGE_SIZE;
    }
    this.refresh();
    this.readSections();
    const generation = GENERATION.exec(detail)?.groups;
    if (generation) this.compare(Number(generation.number), true);
    else if (detail && !this.all.show(detail)) this.explain(detail);
  }

  open(path) {
    this.path = path;
    byId("search").value = "";
    const options = [...byId("path").options];
    if (!options.some((one) => one.value === path)) byId("path").append(make("option", path));
    byId("path").value = path;
  }

  from(offset) {
    this.offset = Math.max(0, offset);
    this.chosen = 0;
    this.refresh();
  }

  async refresh() {
    const request = { path: this.path, search: byId("search").value, offset: this.offset, limit: PAGE_SIZE };
    try {
      const page = await this.ask("config", request);
      if (page.path === this.path) showLines(page, (target) => this.choose(target), this.chosen);
    } catch (error) {
      byId("range").textContent = error.message;
    }
  }

  // The sections of haproxy.cfg, whatever part of which file is shown.
  async readSections() {
    try {
      const page = await this.ask("config", { path: "haproxy.cfg", offset: 0, limit: 1 });
      this.outline.take(page.sections);
    } catch {
      // Nothing is rendered yet, or the connection is lost: the next change reads them.
    }
  }

  takeDiff(page) {
    if (!this.generation) showDiff(page);
  }

  takeGenerations(generations, moment) {
    // The oldest one may not be kept any more.
    if (!generations.some((one) => one.number === this.generation)) this.generation = 0;
    showGenerations(generations, this.generation, moment);
  }

  // With *shown*, the changes are scrolled to.
  async compare(number, shown = false) {
    this.generation = number;
    byId("generation").value = String(number);
    try {
      const page = await this.ask("diff", { number });
      if (this.generation === number) showDiff(page);
    } catch (error) {
      byId("diff-summary").textContent = error.message;
    }
    if (shown) byId("generation").scrollIntoView({ block: "start" });
  }

  choose(target) {
    history.pushState(null, "", addressOf("configuration", target));
    this.explain(target);
  }

  async explain(target) {
    byId("target").value = target;
    try {
      const answer = await this.ask("explain", { target });
      byId("explanation").textContent = readable(answer);
      showLinks(answer);
      showCopies(target, answer);
    } catch (error) {
      byId("explanation").textContent = error.message;
      byId("related").replaceChildren();
      byId("copies").replaceChildren();
    }
    byId("explanation").scrollIntoView({ block: "nearest" });
  }
}

// Links from an explanation to its objects, its section, and the routes that lead to it.
function showLinks(answer) {
  const objects = [answer.made_by, ...(answer.parts ?? []).map((one) => one.made_by)].map((one) => one?.object).filter(Boolean)
    .map((one) => `${one.kind} ${one.namespace ? `${one.namespace}/` : ""}${one.name}`);
  const links = [...new Set(objects)].map((name) => link("configuration", name));
  if (answer.answer === "line" && answer.section) links.push(link("configuration", answer.section));
  const routes = (answer.routes ?? []).filter((one) => one.scope).map((one) => routeOf(one.scope, one.path));
  const entry = /path-(exact|prefix)\.map$/.test(answer.line?.path) ? ENTRY.exec(answer.line.text)?.groups : null;
  if (entry) routes.push(routeOf(entry.host, entry.path));
  links.push(...[...new Set(routes)].slice(0, MOST_ROUTES).map((route) => link("routes", route, `Route ${route}`)));
  byId("related").replaceChildren(...links.map((one) => {
    const item = make("li");
    item.append(one);
    return item;
  }));
}

// Buttons that copy what is explained, with its place in a file if it has one.
function showCopies(target, answer) {
  const buttons = [copyButton("link", location.href)];
  if (answer.line) buttons.push(copyButton("place", `${answer.line.path}:${answer.line.line}`), copyButton("line", answer.line.text));
  else buttons.push(copyButton("name", target));
  byId("copies").replaceChildren(...buttons);
}

const routeOf = (host, path) => `${host}${path.length > 1 ? path.replace(/\/$/, "") : "/"}`;
