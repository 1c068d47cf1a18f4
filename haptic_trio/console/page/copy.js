// Buttons that copy: `data-copy` has the text, `data-from` the id of an element with it, and `data-api` the name of a
// resource of the API, whose address is copied.
import { byId } from "./dom.js";

const SHOWN = 2500;
// Parameters of a resource, by the ids of the fields that have them.
const PARAMETERS = { routes: { search: "route-search", state: "route-state" }, search: { search: "search" } };

let timer = 0;

export function apiAddress(resource) {
  const given = new URLSearchParams();
  for (const [name, field] of Object.entries(PARAMETERS[resource] ?? {})) {
    if (byId(field).value) given.set(name, byId(field).value);
  }
  return `${location.origin}/api/v1/${resource}${given.size ? `?${given}` : ""}`;
}

function textOf({ copy, from, api }) {
  if (copy !== undefined) return copy;
  return from ? byId(from).textContent : apiAddress(api);
}

export function followCopies() {
  document.addEventListener("click", async (event) => {
    const button = event.target.closest("button.copy");
    if (!button) return;
    const text = textOf(button.dataset);
    const isCopied = await write(text);
    const short = text.length > 60 || text.includes("\n") ? "" : `: ${text}`;
    byId("copied").textContent = isCopied ? `Copied${short}` : "The browser does not allow copying.";
    byId("copied").hidden = false;
    clearTimeout(timer);
    timer = setTimeout(() => { byId("copied").hidden = true; }, SHOWN);
  });
}

async function write(text) {
  // Only pages of HTTPS or of this machine have the clipboard.
  if (navigator.clipboard) {
    try {
      await navigator.clipboard.writeText(text);
      return true;
    } catch {
      // Without a permission, the older way may work.
    }
  }
  const focused = document.activeElement;
  const field = document.createElement("textarea");
  field.value = text;
  field.setAttribute("aria-label", "Text to copy");
  field.className = "offscreen";
  document.body.append(field);
  field.select();
  const isCopied = document.execCommand("copy");
  field.remove();
  focused?.focus();
  return isCopied;
}
