// What a request matches, from the request to the servers: each step with a link to the lines of the configuration.
import { copyButton, link, make } from "./dom.js";
import { drawGraph, stepsOf } from "./graph.js";

const named = (one) => (one ? `${one.kind ? `${one.kind} ` : ""}${one.namespace ? `${one.namespace}/` : ""}${one.name}` : "");
const lineLink = (path, line, text = `${path}:${line}`) => link("configuration", `${path}:${line}`, text);
const objectLink = (one) => link("configuration", named(one));

const STATUS = {
  400: "400: HAProxy rejects the request", 404: "404: no route matches", 503: "503: the backend does not exist",
};

export function showCard(card, match, request, figures) {
  const focused = card.contains(document.activeElement) ? document.activeElement.textContent : null;
  const { route, visits, backends } = match;
  const steps = [["Request", [`${request.method} ${route.host}${route.path} `, copyButton("host", route.host), " ", copyButton("link", location.href)]], ["Answer", verdictOf(match)]];
  const warnings = [...route.problems.map((one) => [objectLink(one.object), `: ${one.message}${one.has_fallback ? " (its last good version is served)" : ""}`]),
    ...route.warnings.map((text) => [text]), ...route.reasons.map((text) => [text])];
  if (warnings.length) steps.push(["Warnings", listOf(warnings, "warn")]);
  if (route.winner) steps.push(["Map line", entryOf(route.winner)], ["Object", makerOf(route.winner.made_by)]);
  for (const visit of visits) steps.push([`Gateway listener ${visit.listener}`, routesOf(visit)]);
  for (const backend of backends) steps.push(["Backend", backendOf(backend)],
    ["Traffic", trafficOf(figures.get(backend.name))], ["Servers", serversOf(backend, figures.get(backend.name))]);
  if (route.certificates.length) steps.push(["Certificate", listOf(route.certificates.map(certificateOf))]);
  if (route.others.length) steps.push([`Other matches (${route.others_count})`, listOf(route.others.map(entryOf))]);
  if (route.steps.length) steps.push(["Lookups", listOf(route.steps.map((one) => [`${one.path} ${one.match} ${one.key}: ${one.found ? "found" : "not found"}`]))]);
  if (route.depends_on.length) steps.push(["Depends on", listOf(route.depends_on.map((one) => [one.question, ...one.found.flatMap((found) => [" ", objectLink(found)])]))]);
  if (route.notes.length) steps.push(["Notes", listOf(route.notes.map((text) => [text]))]);
  const list = make("dl");
  for (const [name, content] of steps) {
    if (!content.length && !(content instanceof Node)) continue;
    const description = make("dd");
    description.append(...[content].flat());
    list.append(make("dt", name), description);
  }
  const place = make("div", "", "graph-place");
  card.replaceChildren(make("h3", "From request to server"), place, list);
  // While another tab is shown the card has no width; it is made again when it is shown.
  if (place.clientWidth) place.append(drawGraph(stepsOf(match, figures), place.clientWidth));
  // Rendering keeps the focus.
  if (focused !== null) [...card.querySelectorAll("a")].find((one) => one.textContent === focused)?.focus();
}

function trafficOf(figures) {
  if (!figures) return [];
  const { up, sessions, queued, rate, errors, answers, answers_5xx: failed, response_ms: response, total_ms: total } = figures;
  return [`${up} server${up === 1 ? "" : "s"} up, ${rate} requests/s, ${sessions} present, ${queued} queued, ${errors} errors; since the last reload ${answers} answers, `,
    make("span", `${failed} with 5xx`, failed ? "warn" : ""),
    ...(total ? [`; on average ${response} ms until a server answers, ${total} ms for a whole request (the last 1,024 requests, slowest instance; HAProxy has no percentiles)`] : [])];
}

function verdictOf({ route, visits, backends }) {
  const effective = visits.map((visit) => visit.routes.find((one) => one.verdict === "yes")).filter(Boolean);
  const servers = backends.some((one) => one.servers.some((server) => server.is_enabled));
  if (route.status === 0 || (effective.length && route.status === 404)) {
    const outcomes = effective.length && route.status ? effective.flatMap((one) => one.outcomes).join(", ") : `backend ${route.backend}`;
    return [servers || !backends.length ? make("span", outcomes, "good")
      : make("span", `503: ${outcomes} has no enabled server`, "bad")];
  }
  return [make("span", STATUS[route.status] ?? String(route.status), "bad")];
}

const entryOf = (entry) => [lineLink(entry.line.path, entry.line.line), ` ${entry.match} ${entry.line.text} `, copyButton("place", `${entry.line.path}:${entry.line.line}`)];

function makerOf(maker) {
  const found = maker.object ? [objectLink(maker.object), " "] : ["outside of objects, "];
  found.push(make("span", maker.template ? `by template ${maker.template}:${maker.line}, fragment ${maker.fragment}` : `by template ${maker.output}`, "faint"));
  return found;
}

function routesOf(visit) {
  if (!visit.routes.length) return ["no route"];
  return listOf(visit.routes.map((one) => [
    make("span", { yes: "matches", no: "does not match", unknown: "depends on a regular expression" }[one.verdict], one.verdict === "yes" ? "good" : "faint"),
    ": ", lineLink(one.path, one.line), " ", ...(one.object ? [objectLink(one.object), " "] : []),
    one.conditions.length ? `if ${one.conditions.join(" and ")} ` : "", one.outcomes.join(", "),
  ]));
}

function backendOf(backend) {
  if (!backend.line) return [make("span", `${backend.name} does not exist`, "bad")];
  return [lineLink("haproxy.cfg", backend.line, backend.name), ...(backend.object ? [" of ", objectLink(backend.object)] : [])];
}

function serversOf(backend, figures) {
  if (!backend.servers.length) return [make("span", "none", "bad")];
  const found = backend.servers.map((one) => [
    lineLink("haproxy.cfg", one.line, one.name || "derives from a Secret"), ` ${one.address}${one.is_enabled ? "" : " (disabled)"}`,
    ...(figures?.servers ?? []).filter((known) => known.name === one.name).map((known) =>
      make("span", ` ${known.instance}: ${known.status}, ${known.sessions} present, ${known.rate}/s`, known.is_up ? "good" : "bad")),
  ]);
  if (backend.servers_count > found.length) found.push([`and ${backend.servers_count - found.length} more`]);
  return listOf(found);
}

const certificateOf = (one) => [
  lineLink(one.line.path, one.line.line, one.path), ` for ${one.names.join(", ")}`,
  ...(one.expires ? [`, expires ${new Date(one.expires * 1000).toISOString().slice(0, 10)}`] : []), ...(one.made_by.object ? [" of ", objectLink(one.made_by.object)] : []),
];

function listOf(items, classes = "") {
  const list = make("ul", "", classes);
  for (const parts of items) {
    const item = make("li");
    item.append(...parts);
    list.append(item);
  }
  return list;
}
