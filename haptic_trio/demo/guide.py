"""Printed guide of the demo."""

from pathlib import Path
from shlex import quote

from haptic_trio.demo.ports import LOOPBACK
from haptic_trio.demo.site import HOST, DemoSite


def guide_to(site: DemoSite, health: str, shown: Path, program: str = "haptic-trio") -> str:
    """Return what to request and what to edit.

    *shown* is the directory as the person knows it, *program* what to call
    the program by in another terminal.
    """
    ports = site.ports
    edits = (
        ("web.yaml", f"port: {ports.web_one} -> {ports.web_two}", "the other server answers; HAProxy is not reloaded"),
        ("ingress.yaml", "path: /api -> path: /v2", "the route moves, also without a reload"),
        ("config.yaml", "greeting: hello -> howdy", "the iteration closes and opens again; `curl -i` shows the header"),
        ("config.yaml", "a misspelt field", "nothing changes, and the log names the line"),
        ("any file", "break it", "everything else is served, and the log says what is wrong"),
    )
    width = max(len(change) for _file, change, _effect in edits)
    listed = "\n".join(f"  {file:<13} {change:<{width}}  {effect}" for file, change, effect in edits)
    return f"""
HAProxy serves what is in {shown}/manifests. Ask it:

  curl -H 'Host: {HOST}' http://{LOOPBACK}:{ports.http}/
  curl -H 'Host: {HOST}' http://{LOOPBACK}:{ports.http}/api
  curl --cacert {quote(str(shown / "ca.crt"))} --resolve {HOST}:{ports.https}:{LOOPBACK} https://{HOST}:{ports.https}/

Now edit a file, save it, and ask again:

{listed}

See what the controller does, and what made a route:

  {program} debug --state-dir {quote(str(shown / "state"))}
  {program} explain --manifests {quote(str(shown / "manifests"))} {HOST}/api

The same as a page: {health}/console, with the token in {shown}/state/console.token
State of the controller: {health}/readyz and {health}/metrics
Ctrl-C ends everything.
"""
