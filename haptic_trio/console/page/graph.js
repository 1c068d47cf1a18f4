// The graph of a route, from the request to the servers, as SVG. Each node is a link to its object or line.
import { addressOf } from "./dom.js";

const NAMESPACE = "http://www.w3.org/2000/svg";
const HEIGHT = 46;
const SPACE = 12;
const GAP = 40;
const INDENT = 18;
const WIDEST = 300;
// Pixels of a window from which the steps are beside each other; in narrower ones they are below each other.
const WIDE = 640;
const LETTER = 7.4;
const MOST_SERVERS = 12;

const named = (one) => `${one.namespace ? `${one.namespace}/` : ""}${one.name}`;
const objectNode = (one) => ({ kind: one.kind, text: named(one), href: addressOf("configuration", `${one.kind} ${named(one)}`) });
const lineAddress = (path, line) => (line ? addressOf("configuration", `${path}:${line}`) : "");

// Returns the steps of the answer *match*, each with its nodes; every node of a step leads to those of the next one that
// its `to` names, or to all.
export function stepsOf(match, figures) {
  const { route, visits, backends } = match;
  const steps = [[{ kind: "Request", text: `${route.host}${route.path}`, href: "" }]];
  const listeners = visits.filter((one) => one.routes.some((found) => found.verdict === "yes"));
  const winners = listeners.map((one) => one.routes.find((found) => found.verdict === "yes"));
  if (winners.length) {
    steps.push(listeners.map((one, at) => ({ kind: "Gateway listener", text: one.listener, href: "", to: [at] })));
    steps.push(winners.map((one) => (one.object ? objectNode(one.object)
      : { kind: "Route", text: `${one.path}:${one.line}`, href: lineAddress(one.path, one.line) })));
  } else if (route.winner) {
    const { line, made_by: maker } = route.winner;
    steps.push([maker.object ? objectNode(maker.object)
      : { kind: "Map line", text: `${line.path}:${line.line}`, href: lineAddress(line.path, line.line) }]);
  }
  if (!backends.length) {
    if (route.status) steps.push([{ kind: "Answer", text: String(route.status), href: "", state: "bad" }]);
    return steps;
  }
  const servers = [];
  steps.push(backends.map((one) => {
    const found = serversOf(one, figures.get(one.name));
    const to = found.map((_, at) => servers.length + at);
    servers.push(...found);
    if (!one.line) return { kind: "Backend, does not exist", text: one.name, href: "", state: "bad", to };
    const node = one.object ? objectNode(one.object) : { kind: "Backend", text: one.name, href: lineAddress("haproxy.cfg", one.line) };
    return { ...node, to };
  }));
  steps.push(servers);
  return steps;
}

function serversOf(backend, figures) {
  if (!backend.servers.length) return [{ kind: "Servers", text: "none", href: "", state: "bad" }];
  const live = new Map((figures?.servers ?? []).map((one) => [one.name, one]));
  const found = backend.servers.slice(0, MOST_SERVERS).map((one) => {
    const now = live.get(one.name);
    const status = now ? now.status : one.is_enabled ? "" : "disabled";
    const label = `${one.name}${status ? `, ${status}` : ""}`;
    return { kind: `Server ${label}`, label, text: one.address, href: lineAddress("haproxy.cfg", one.line),
      state: (now ? now.is_up : one.is_enabled) ? "good" : "bad" };
  });
  const more = backend.servers_count - found.length;
  if (more > 0) found.push({ kind: "Servers", text: `${more} more`, href: lineAddress("haproxy.cfg", backend.line) });
  return found;
}

// Returns the graph of *steps* for a place that is *width* pixels wide.
export function drawGraph(steps, width) {
  const isWide = width >= WIDE;
  const size = isWide ? Math.min(WIDEST, (width - GAP * (steps.length - 1)) / steps.length) : width - INDENT * (steps.length - 1);
  const tallest = Math.max(...steps.map((nodes) => nodes.length));
  let rows = 0;
  const placed = steps.map((nodes, step) => nodes.map((node, at) => {
    const x = step * (isWide ? size + GAP : INDENT);
    const y = isWide ? (at + (tallest - nodes.length) / 2) * (HEIGHT + SPACE) : rows * (HEIGHT + SPACE);
    rows += 1;
    return { ...node, x, y };
  }));
  const height = (isWide ? tallest : rows) * (HEIGHT + SPACE) - SPACE;
  // The frames of nodes are as wide as their lines.
  const whole = element("svg", { class: "graph", width, height: height + 2, viewBox: `-1 -1 ${width + 2} ${height + 2}`,
    role: "group", "aria-label": "Graph from the request to the servers" });
  for (const [step, nodes] of placed.entries()) {
    for (const node of nodes) {
      for (const next of (node.to ?? placed[step + 1]?.map((_, at) => at) ?? [])) {
        whole.append(edge(node, placed[step + 1][next], size, isWide));
      }
    }
  }
  for (const node of placed.flat()) whole.append(box(node, size));
  return whole;
}

function edge(from, to, size, isWide) {
  const middle = to.y + HEIGHT / 2;
  const [x, y] = [from.x + size, from.y + HEIGHT / 2];
  const path = isWide ? `M${x} ${y} C${x + GAP / 2} ${y} ${x + GAP / 2} ${middle} ${to.x} ${middle}`
    : `M${from.x + INDENT / 2} ${from.y + HEIGHT} V${middle} H${to.x}`;
  return element("path", { d: path, "aria-hidden": "true" });
}

function box({ kind, label = kind, text, href, state = "", x, y }, size) {
  // SVG has no link without an address.
  const node = element(href ? "a" : "g", href ? { href } : {});
  const fits = Math.max(4, Math.floor((size - 16) / LETTER));
  node.append(element("title", {}, `${kind}: ${text}`),
    element("rect", { x, y, width: size, height: HEIGHT, rx: 4, class: state }),
    element("text", { x: x + 8, y: y + 18, class: state ? `kind ${state}` : "kind" }, shortened(label, fits)),
    element("text", { x: x + 8, y: y + 36 }, shortened(text, fits)));
  return node;
}

// The middle is left out: names often differ at their ends.
function shortened(text, most) {
  if (text.length <= most) return text;
  const half = Math.floor((most - 1) / 2);
  return `${text.slice(0, most - 1 - half)}…${text.slice(text.length - half)}`;
}

function element(name, attributes, text = "") {
  const found = document.createElementNS(NAMESPACE, name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value !== "") found.setAttribute(key, String(value));
  }
  if (text) found.textContent = text;
  return found;
}
