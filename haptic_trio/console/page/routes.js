// The routes tab: a table with search and state filter, and what a request matches.
import { showCard } from "./card.js";
import { addressOf, byId, choices, fill, link, make } from "./dom.js";

const PAGE_SIZE = 100;
const STATES = ["serving", "degraded", "down", "quarantined", "conflict"];
const PAUSE = 150;
const MOST_BACKENDS = 100;

export const classOf = (state) => ({ serving: "good", degraded: "warn" })[state] ?? "bad";

export class Routes {
  // *follow* subscribes again, because the page that is wanted is another one.
  constructor(ask, follow) {
    this.ask = ask;
    this.follow = follow;
    this.offset = 0;
    this.shown = "";
    this.page = null;
    this.match = null;
    this.figures = new Map();
    this.encoded = "";
    this.timer = 0;
    const changed = () => {
      clearTimeout(this.timer);
      this.timer = setTimeout(() => this.from(0), PAUSE);
    };
    byId("route-search").addEventListener("input", changed);
    byId("route-state").addEventListener("change", () => this.from(0));
    byId("list").addEventListener("submit", (event) => { event.preventDefault(); this.from(0); });
    byId("route-previous").addEventListener("click", () => this.from(this.offset - PAGE_SIZE));
    byId("route-next").addEventListener("click", () => this.from(this.offset + PAGE_SIZE));
    byId("try").addEventListener("submit", (event) => { event.preventDefault(); this.try(); });
    byId("close").addEventListener("click", () => { location.hash = "#routes"; });
    // The graph has the width of the window.
    addEventListener("resize", () => this.showMatch());
    choices("route-state", [["", "all states"], ...STATES.map((name) => [name, name])], "");
  }

  // The part of the subscription that says which page is wanted.
  get wanted() {
    // The figures of the card's backends come first: those of the first ones have servers.
    const backends = [...(this.match?.match.backends ?? []).map((one) => one.name),
      ...(this.page?.routes ?? []).flatMap((one) => one.backend.split(", "))];
    return { search: byId("route-search").value, state: byId("route-state").value, offset: this.offset, limit: PAGE_SIZE,
      backends: [...new Set(backends)].slice(0, MOST_BACKENDS) };
  }

  from(offset) {
    this.offset = Math.max(0, offset);
    this.follow();
  }

  take(page) {
    const known = JSON.stringify(this.wanted.backends);
    this.page = page;
    this.showPage();
    if (JSON.stringify(this.wanted.backends) !== known) this.follow();
  }

  takeFigures(backends) {
    const encoded = JSON.stringify(backends);
    if (encoded === this.encoded) return;
    this.encoded = encoded;
    this.figures = new Map(backends.map((one) => [one.name, one]));
    // Screen readers announce another answer, not each change of its figures.
    byId("card").setAttribute("aria-live", "off");
    if (this.page) this.showPage();
    this.showMatch();
  }

  showMatch() {
    if (this.match) showCard(byId("card"), this.match.match, this.match.request, this.figures);
  }

  // The state of a route, with what HAProxy knows of its servers.
  stateOf(route) {
    const up = route.backend.split(", ").map((name) => this.figures.get(name)?.up);
    if (route.match === "none" || !route.servers || up.includes(undefined)) return [route.state, route.reason];
    const sum = up.reduce((all, one) => all + one, 0);
    if (!sum) return ["down", "no server is up"];
    if (sum < route.servers) return ["degraded", [`${sum} of ${route.servers} servers are up`, route.reason].filter(Boolean).join("; ")];
    return [route.state, route.reason];
  }

  showPage() {
    const page = this.page;
    const all = Object.values(page.counts).reduce((sum, one) => sum + one, 0);
    for (const option of byId("route-state").options) {
      option.textContent = `${option.value || "all states"} (${option.value ? page.counts[option.value] ?? 0 : all})`;
    }
    const focused = byId("routes").contains(document.activeElement) ? document.activeElement.textContent : null;
    fill("routes", page.routes.map((one) => [one, ...this.stateOf(one)]).map(([one, state, reason]) => [
      one.host ? link("routes", `${one.host}${one.path}`) : make("span", "derives from a Secret", "faint"),
      one.match === "none" ? "no entry" : one.match,
      one.name ? `${one.kind} ${one.namespace ? `${one.namespace}/` : ""}${one.name}` : "",
      one.backend, one.match === "none" ? "" : one.servers,
      [make("span", state, classOf(state)), ...(reason ? [make("div", reason, "reason faint")] : []), this.trafficOf(one)],
    ]), "No route matches.");
    // Rendering keeps the focus.
    if (focused !== null) [...byId("routes").querySelectorAll("a")].find((one) => one.textContent === focused)?.focus();
    const last = page.offset + page.routes.length;
    byId("route-range").textContent = page.total ? `${page.offset + 1} to ${last} of ${page.total}` : "";
    byId("route-previous").disabled = page.offset === 0;
    byId("route-next").disabled = last >= page.total;
  }

  trafficOf(route) {
    const found = route.backend.split(", ").map((name) => this.figures.get(name)).filter(Boolean);
    const rate = found.reduce((sum, one) => sum + one.rate, 0);
    return rate ? make("div", `${rate} requests/s`, "reason faint") : "";
  }

  // Shows what the address of the tab has: nothing, or a request.
  show(request) {
    byId("card").hidden = !request;
    byId("close").hidden = !request;
    if (!request) {
      this.shown = "";
      this.match = null;
      return;
    }
    const [host] = request.split("/", 1);
    byId("try-host").value = host;
    byId("try-path").value = request.slice(host.length) || "/";
    this.answer(host, byId("try-path").value);
  }

  try() {
    const url = /^[a-z]+:\/\/([^/?]*)(.*)$/i.exec(byId("try-host").value.trim());
    if (url) {
      byId("try-host").value = url[1];
      byId("try-path").value = url[2] || "/";
    }
    const path = byId("try-path").value.trim();
    const request = `${byId("try-host").value.trim()}${path.startsWith("/") || path.startsWith("?") ? "" : "/"}${path}`;
    history.pushState(null, "", addressOf("routes", request));
    this.show(request);
  }

  async answer(host, path) {
    // For a wildcard, any host that it matches is taken.
    const asked = host === "*" ? "any.host" : host.replace(/^\*/, "any");
    const headers = byId("try-headers").value.split("\n").filter((line) => line.includes(":"))
      .map((line) => [line.slice(0, line.indexOf(":")), line.slice(line.indexOf(":") + 1)]);
    const request = { target: asked + path, method: byId("try-method").value, headers };
    const key = this.shown = JSON.stringify(request);
    try {
      const match = await this.ask("match", request);
      // A later request may have been answered meanwhile.
      if (this.shown !== key) return;
      this.match = { match, request };
      byId("card").setAttribute("aria-live", "polite");
      this.showMatch();
      this.follow();
    } catch (error) {
      if (this.shown === key) byId("card").replaceChildren(make("p", error.message, "bad"));
    }
    byId("card").scrollIntoView({ block: "nearest" });
  }
}
