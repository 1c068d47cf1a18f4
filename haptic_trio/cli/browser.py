"""The console's page in the browser of the system, with the token."""

import html
import os
import sys
import tempfile
import webbrowser
from pathlib import Path
from urllib.parse import quote

from haptic_trio.cli.inputs.files import PRIVATE, replace_file
from haptic_trio.console.site import PAGE

NAME = "console-open.html"
_DISPLAYS = ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY")


def page_url(address: str, token: str) -> str:
    """Return the URL of the page of the console at *address*; browsers do not send the token in it."""
    return f"{address.rstrip('/')}{PAGE}#token={quote(token, safe='')}"


def open_page(url: str, folder: Path) -> bool:
    """Open *url* in the browser of the system; return False if there is none.

    The browser gets the name of a file that leads to *url*: others on the
    machine can read its arguments, and *url* has the token. The file is
    readable by its owner only, in *folder* or, if that is not writable, in a
    new temporary directory. It stays, because the browser reads it later.
    """
    if not _has_display():
        return False
    try:
        browser = webbrowser.get()
    except webbrowser.Error:
        return False
    return browser.open(_write(url, folder).absolute().as_uri())


def _has_display() -> bool:
    # Without one, `webbrowser` starts a text browser, which cannot show the page.
    return not sys.platform.startswith("linux") or any(os.environ.get(name) for name in _DISPLAYS)


def _write(url: str, folder: Path) -> Path:
    content = (
        '<!doctype html><meta charset="utf-8"><title>haptic-trio console</title>'
        f'<meta http-equiv="refresh" content="0; url={html.escape(url)}">'
        f'<a href="{html.escape(url)}">The console of haptic-trio</a>\n'
    )
    path = folder / NAME
    try:
        replace_file(path, content, mode=PRIVATE)
    except OSError:
        path = Path(tempfile.mkdtemp(prefix="haptic-trio-")) / NAME
        replace_file(path, content, mode=PRIVATE)
    return path
