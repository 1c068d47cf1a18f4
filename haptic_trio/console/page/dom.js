// Elements of the page. Text is inserted as text only, never as markup.

export const byId = (id) => document.getElementById(id);

export function make(tag, text = "", classes = "") {
  const element = document.createElement(tag);
  if (text !== "") element.textContent = text;
  if (classes) element.className = classes;
  return element;
}

// A link to a view, such as `#configuration/haproxy.cfg:12`.
export function link(view, detail, text = detail) {
  const element = make("a", text);
  element.href = addressOf(view, detail);
  return element;
}

export const addressOf = (view, detail = "") =>
  detail ? `#${view}/${encodeURI(detail).replaceAll("#", "%23").replaceAll("?", "%3F")}` : `#${view}`;

// Returns the view and the detail of an address.
export function readAddress(hash) {
  const [, view = "", detail = ""] = /^#([a-z]*)\/?(.*)$/s.exec(hash) ?? [];
  try {
    return [view, decodeURIComponent(detail)];
  } catch {
    return [view, ""];
  }
}

// Replaces the rows of a table. In a narrow window each row becomes a block whose cells have the name of their column.
export function fill(id, rows, nothing = "") {
  const table = byId(id);
  const names = [...table.tHead.rows[0].cells].map((cell) => cell.textContent);
  if (!rows.length && nothing) {
    const row = make("tr");
    const cell = make("td", nothing, "faint");
    cell.colSpan = names.length;
    row.append(cell);
    table.tBodies[0].replaceChildren(withRoles(row));
    return;
  }
  table.tBodies[0].replaceChildren(...rows.map((cells) => {
    const row = make("tr");
    row.append(...cells.map((content, at) => {
      const cell = make("td");
      cell.dataset.label = names[at];
      const inner = make("div");
      for (const part of Array.isArray(content) ? content : [content]) inner.append(part instanceof Node ? part : String(part ?? ""));
      if (inner.childNodes.length && (inner.textContent !== "" || inner.firstElementChild)) cell.append(inner);
      return cell;
    }));
    return withRoles(row);
  }));
}

// Roles that the layout of narrow windows would take from the elements of a table.
function withRoles(row) {
  row.setAttribute("role", "row");
  for (const cell of row.cells) cell.setAttribute("role", "cell");
  return row;
}

export function nameRoles() {
  for (const table of document.querySelectorAll("table")) {
    table.setAttribute("role", "table");
    table.tBodies[0].setAttribute("role", "rowgroup");
    table.tHead.setAttribute("role", "rowgroup");
    table.tHead.rows[0].setAttribute("role", "row");
    for (const cell of table.tHead.rows[0].cells) {
      cell.setAttribute("role", "columnheader");
      cell.scope = "col";
    }
  }
}

export const counted = (count, name) => `${count} ${name}${count === 1 ? "" : "s"}`;

// A button that copies *text*; *name* says what it is.
export function copyButton(name, text) {
  const button = make("button", `Copy ${name}`, "copy");
  button.type = "button";
  button.dataset.copy = text;
  return button;
}

export const ms = (seconds) => (seconds ? (seconds * 1000).toFixed(seconds < 0.01 ? 1 : 0) : "");

// The time of day of a clock time.
export const timeOf = (at, moment) =>
  at === undefined || at === null ? "" : new Date((moment.unix + at - moment.clock) * 1000).toLocaleTimeString("en-GB");

// A length of time as people write it, such as `3 h 12 min`.
export function lasting(seconds) {
  const units = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
  const at = units.findIndex(([size]) => seconds >= size);
  if (at < 0) return "0 s";
  const [[size, name], [lesser, other] = []] = units.slice(at);
  const rest = lesser ? Math.floor((seconds % size) / lesser) : 0;
  return `${Math.floor(seconds / size)} ${name}${rest ? ` ${rest} ${other}` : ""}`;
}

// The Tab key stops at one of many buttons; arrow keys move between them.
export function stopAt(buttons, at) {
  for (const [number, button] of buttons.entries()) button.tabIndex = number === at ? 0 : -1;
  return buttons[at];
}

export function moveBetween(id, selector) {
  byId(id).addEventListener("keydown", (event) => {
    const buttons = [...byId(id).querySelectorAll(selector)];
    const at = buttons.indexOf(document.activeElement);
    const next = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: buttons.length - 1 }[event.key];
    if (at < 0 || next === undefined) return;
    event.preventDefault();
    stopAt(buttons, Math.min(Math.max(next, 0), buttons.length - 1)).focus();
  });
}

export function choices(id, options, chosen) {
  byId(id).replaceChildren(...options.map(([value, text]) => {
    const option = make("option", text);
    option.value = value;
    option.selected = value === chosen;
    return option;
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
