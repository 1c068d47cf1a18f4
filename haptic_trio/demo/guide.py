"""Printed guide of the demo."""

from pathlib import Path
from shlex import quote

from haptic_trio.demo.ports import LOOPBACK
from haptic_trio.demo.site import HOST, DemoSite


def guide_to(site: DemoSite, health: str, shown: Path, program: str = "haptic-trio") -> str:
    """Return the text that explains what to request and what to edit.

    *shown* is the directory as the user gave it, *program* the command for
    another terminal.
    """
    ports = site.ports
    edits = (
        ("web.yaml", f"port: {ports.web_one} -> {ports.web_two}", "the other server answers; HAProxy is not reloaded"),
        ("ingress.yaml", "path: /api -> path: /v2", "the route moves, also without a reload"),
        ("config.yaml", "greeting: hello -> howdy", "a new iteration starts; `curl -i` shows the new header"),
        ("config.yaml", "a misspelt field", "nothing changes; the log names the line"),
        ("any file", "a syntax error", "everything else is served; the log reports the problem"),
    )
    width = max(len(change) for _file, change, _effect in edits)
    listed = "\n".join(f"  {file:<13} {change:<{width}}  {effect}" for file, change, effect in edits)
    return f"""
HAProxy serves the manifests in {shown}/manifests. Send requests:

  curl -H 'Host: {HOST}' http://{LOOPBACK}:{ports.http}/
  curl -H 'Host: {HOST}' http://{LOOPBACK}:{ports.http}/api
  curl --cacert {quote(str(shown / "ca.crt"))} --resolve {HOST}:{ports.https}:{LOOPBACK} https://{HOST}:{ports.https}/

Edit a file, save it, and send a request again:

{listed}

Inspect the controller, and explain a route:

  {program} debug --state-dir {quote(str(shown / "state"))}
  {program} explain --manifests {quote(str(shown / "manifests"))} {HOST}/api

Console in a browser: {health}/console, with the token in {shown}/state/console.token
State of the controller: {health}/readyz and {health}/metrics
Ctrl-C stops everything.
"""
