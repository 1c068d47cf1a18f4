// The outline of haproxy.cfg: its sections, by kind, with a filter.
import { addressOf, byId, counted, make, moveBetween, stopAt } from "./dom.js";

const MOST_SHOWN = 500;
const WIDE = 896;

export class Outline {
  constructor() {
    this.sections = [];
    byId("outline-filter").addEventListener("input", () => this.render());
    // Beside the lines there is room for it.
    byId("outline-panel").open = innerWidth >= WIDE;
    moveBetween("outline", "button");
  }

  take(sections) {
    if (JSON.stringify(sections) === JSON.stringify(this.sections)) return;
    this.sections = sections;
    this.render();
  }

  render() {
    const words = byId("outline-filter").value.toLowerCase().split(/\s+/).filter(Boolean);
    const found = this.sections.filter((one) => words.every((word) => one.text.toLowerCase().includes(word)));
    const focused = byId("outline").contains(document.activeElement) ? document.activeElement.textContent : null;
    const items = [];
    let kind = "";
    for (const one of found.slice(0, MOST_SHOWN)) {
      const [name, called = name] = one.text.split(/\s+/, 2);
      if (name !== kind) items.push(make("li", name, "place"));
      kind = name;
      const item = make("li");
      const button = make("button", called);
      button.title = `line ${one.line}`;
      button.addEventListener("click", () => { location.hash = addressOf("configuration", `haproxy.cfg:${one.line}`); });
      item.append(button);
      items.push(item);
    }
    byId("outline").replaceChildren(...items);
    const buttons = [...byId("outline").querySelectorAll("button")];
    const at = Math.max(0, buttons.findIndex((one) => one.textContent === focused));
    const stop = stopAt(buttons, at);
    // Rendering keeps the focus.
    if (focused !== null) stop?.focus();
    byId("outline-count").textContent = found.length > MOST_SHOWN
      ? `the first ${MOST_SHOWN} of ${counted(found.length, "section")}` : counted(found.length, "section");
  }
}
