// A search in all files: pages of the lines found, each with the lines around it.
import { addressOf, byId, counted, make, moveBetween, stopAt } from "./dom.js";

const CONTEXT = 2;
const PAGE_SIZE = 50;
const ADDRESS = "search:";

export class Search {
  constructor(ask) {
    this.ask = ask;
    this.text = "";
    this.offset = 0;
    byId("search-all").addEventListener("click", () => this.begin());
    byId("hits-previous").addEventListener("click", () => this.from(this.offset - PAGE_SIZE));
    byId("hits-next").addEventListener("click", () => this.from(this.offset + PAGE_SIZE));
    byId("hits-close").addEventListener("click", () => {
      byId("found").hidden = true;
      byId("search").focus();
    });
    moveBetween("hits", "button");
  }

  // Whether the detail of an address is a search, which is shown then.
  show(detail) {
    if (!detail.startsWith(ADDRESS)) return false;
    byId("search").value = detail.slice(ADDRESS.length);
    this.text = byId("search").value;
    this.from(0);
    return true;
  }

  begin() {
    const text = byId("search").value.trim();
    if (text) history.pushState(null, "", addressOf("configuration", ADDRESS + text));
    this.text = text;
    this.from(0);
  }

  async from(offset) {
    this.offset = Math.max(0, offset);
    byId("found").hidden = false;
    const { text } = this;
    if (!text) {
      this.showError("Enter a text in Search.");
      return;
    }
    try {
      const answer = await this.ask("search", { search: text, context: CONTEXT, offset: this.offset, limit: PAGE_SIZE });
      // A later search may have been answered meanwhile.
      if (this.text === text && answer.offset === this.offset) showHits(answer);
    } catch (error) {
      this.showError(error.message);
    }
  }

  showError(message) {
    byId("hits-range").textContent = message;
    byId("hits").replaceChildren();
    byId("hits-previous").disabled = byId("hits-next").disabled = true;
  }
}

function showHits(answer) {
  const items = [];
  let path = "";
  let last = 0;
  for (const [at, hit] of answer.hits.entries()) {
    const { line } = hit;
    if (line.path !== path) {
      items.push(make("li", line.path, "place"));
      [path, last] = [line.path, 0];
    }
    const next = answer.hits[at + 1]?.line;
    // A line between two hits is shown once, and a hit is not shown as a neighbour of another one.
    const before = hit.before.filter((one) => one.line > last);
    const after = hit.after.filter((one) => next?.path !== path || one.line < next.line);
    if (last && (before[0] ?? line).line > last + 1) items.push(make("li", "…", "gap"));
    items.push(...before.map(around), found(hit, answer.text), ...after.map(around));
    last = (after.at(-1) ?? line).line;
  }
  byId("hits").replaceChildren(...items);
  stopAt([...byId("hits").querySelectorAll("button")], 0);
  byId("hits").scrollTop = 0;
  const end = answer.offset + answer.hits.length;
  byId("hits-range").textContent = answer.hits.length
    ? `${answer.offset + 1} to ${end} of ${counted(answer.count, "line")} in all files` : "No file has this text.";
  byId("hits-previous").disabled = answer.offset === 0;
  byId("hits-next").disabled = end >= answer.count;
}

function around(line) {
  const item = make("li", "", "around");
  item.append(make("span", String(line.line), "number"), line.text);
  return item;
}

function found({ line, made_by: maker }, text) {
  const item = make("li");
  const button = make("button");
  button.append(make("span", String(line.line), "number"), ...marked(line.text, text));
  const { object } = maker;
  if (object) button.append(make("span", `  # ${object.kind} ${object.namespace ? `${object.namespace}/` : ""}${object.name}`, "maker"));
  // The address shows the line in its file, and explains it.
  button.addEventListener("click", () => { location.hash = addressOf("configuration", `${line.path}:${line.line}`); });
  item.append(button);
  return item;
}

// The text of a line, with the first place of the searched text marked.
function marked(line, text) {
  const at = line.toLowerCase().indexOf(text.toLowerCase());
  return at < 0 ? [line] : [line.slice(0, at), make("mark", line.slice(at, at + text.length)), line.slice(at + text.length)];
}
