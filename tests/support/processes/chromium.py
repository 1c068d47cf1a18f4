"""A headless Chromium for the tests, in a private folder, and a page in it to be driven.

    python -m tests.support.processes.chromium     fetches it unless there is one, and prints its path

It is Debian's package, unpacked with the libraries it needs; nothing is
installed. Exits with 3 and the reason where it cannot be had.
"""

import base64
import json
import os
import shutil
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from subprocess import DEVNULL, PIPE
from typing import Any

import trio
from trio_websocket import WebSocketConnection, open_websocket_url

from tests.support.processes.debian_packages import PackageUnavailableError, find_or_fetch

PACKAGE = "chromium-headless-shell"
DATA = "chromium-common"
"""Data of all Chromium packages, such as the Unicode tables."""
SYSTEM_NAMES = (PACKAGE, "chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
START_LIMIT = 30.0
SIZE = {"width": 900, "height": 700, "deviceScaleFactor": 1, "mobile": False}
"""Of a page, until a test changes it."""
SHOWN_LIMIT = 20.0
UNAVAILABLE = 3
KEYS = {
    "Tab": (9, ""),
    "Enter": (13, "\r"),
    "End": (35, ""),
    "ArrowLeft": (37, ""),
    "ArrowRight": (39, ""),
    "ArrowDown": (40, ""),
}
"""Keys by their name in the DOM: code and text of the event."""


def find_chromium() -> Path | None:
    """Return a Chromium of PATH, or the one that was fetched before; None without either."""
    for name in SYSTEM_NAMES:
        if found := shutil.which(name):
            return Path(found)
    fetched = _cache() / "usr/lib/chromium" / PACKAGE
    return fetched if fetched.exists() else None


def fetch_chromium() -> Path:
    """Return a Chromium, fetched if there is none; raises PackageUnavailableError."""
    return find_or_fetch(find_chromium, [PACKAGE, DATA], _cache())


def _cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "haptic-trio" / "chromium"


class Page:
    """A page in a browser, driven by the DevTools protocol."""

    def __init__(self, socket: WebSocketConnection, session: str) -> None:
        self.errors: list[str] = []
        """Exceptions of the page, and violations of its content security policy."""
        self._socket = socket
        self._session = session
        self._number = 10

    async def call(self, method: str, **parameters: Any) -> Any:
        """Call *method* and return its result."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters, "sessionId": self._session}
        await self._socket.send_message(json.dumps(message))
        while True:
            answer = json.loads(await self._socket.get_message())
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return answer["result"]
            if answer.get("method") in {"Runtime.exceptionThrown", "Log.entryAdded"}:
                self.errors.append(json.dumps(answer["params"])[:500])

    async def open(self, url: str) -> None:
        """Go to *url*."""
        for domain in ("Runtime", "Log", "Page"):
            await self.call(f"{domain}.enable")
        await self.call("Page.navigate", url=url)

    async def evaluate(self, script: str) -> Any:
        """Return the value of *script*, a JavaScript expression."""
        answer = await self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    async def text(self, element: str) -> str:
        """Return the text of the element with that id, empty while there is none."""
        return str(await self.evaluate(f"document.getElementById('{element}')?.textContent ?? ''"))

    async def shows(self, element: str, expected: str | Callable[[str], bool]) -> str:
        """Return the text of the element with that id once it holds what is *expected*."""
        text = ""
        with trio.move_on_after(SHOWN_LIMIT):
            while True:
                text = await self.text(element)
                if expected(text) if callable(expected) else expected in text:
                    return text
                await trio.sleep(0.05)
        raise AssertionError(f"{expected!r} is not in {text!r}; the page complains of {self.errors}")

    async def until(self, script: str) -> None:
        """Return once *script*, a JavaScript expression, is true."""
        with trio.fail_after(SHOWN_LIMIT):
            while True:
                if await self.evaluate(script) is True:
                    return
                await trio.sleep(0.05)

    async def screenshot(self, path: Path) -> None:
        """Write a picture of the page, as PNG."""
        answer = await self.call("Page.captureScreenshot", format="png")
        await trio.Path(path).write_bytes(base64.b64decode(answer["data"]))

    async def click(self, element: str) -> None:
        """Click the element with that id."""
        await self.evaluate(f"document.getElementById('{element}').click()")

    async def press(self, key: str) -> None:
        """Press and release *key*, by its name in the DOM, such as `Tab` or `ArrowRight`."""
        code, text = KEYS[key]
        event = {"key": key, "code": key, "windowsVirtualKeyCode": code, **({"text": text} if text else {})}
        await self.call("Input.dispatchKeyEvent", type="keyDown", **event)
        await self.call("Input.dispatchKeyEvent", type="keyUp", key=key, code=key, windowsVirtualKeyCode=code)

    async def type(self, text: str) -> None:
        """Write *text* where the cursor is."""
        await self.call("Input.insertText", text=text)

    async def focused(self) -> str:
        """Return the text of the element that has the focus."""
        return str(await self.evaluate("document.activeElement.textContent"))

    async def prefer(self, scheme: str) -> None:
        """Show the page as to a user who prefers the colour *scheme*, `light` or `dark`."""
        await self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])


@asynccontextmanager
async def open_page(binary: Path, profile: Path) -> AsyncIterator[Page]:
    """Run a browser with an empty page for the duration of the block."""
    folders = library_folders(binary)
    process = await trio.lowlevel.open_process(
        [
            str(binary),
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
            "--disable-dev-shm-usage",
            "--remote-debugging-port=0",
            f"--user-data-dir={profile}",
            "about:blank",
        ],
        stdin=DEVNULL,
        stdout=DEVNULL,
        stderr=PIPE,
        env={**os.environ, "LD_LIBRARY_PATH": ":".join(map(str, folders))} if folders else None,
    )
    assert process.stderr is not None
    try:
        async with trio.open_nursery() as nursery:
            with trio.fail_after(START_LIMIT):
                address = await _address(process.stderr)
            nursery.start_soon(_drain, process.stderr)
            async with open_websocket_url(address, max_message_size=64 << 20) as socket:
                yield await _new_page(socket)
            nursery.cancel_scope.cancel()
    finally:
        process.kill()
        with trio.CancelScope(shield=True):
            await process.wait()
            await process.stderr.aclose()


def library_folders(binary: Path) -> list[Path]:
    """Return the folders of the libraries that were fetched together with *binary*; none for a system Chromium."""
    root = _cache()
    if not binary.is_relative_to(root):
        return []
    return list(dict.fromkeys(path.parent for path in sorted(root.rglob("*.so*"))))


async def _address(stderr: trio.abc.ReceiveStream) -> str:
    said = b""
    while b"DevTools listening on " not in said or not said.endswith(b"\n"):
        chunk = await stderr.receive_some()
        assert chunk, said.decode(errors="replace")
        said += chunk
    return said.split(b"DevTools listening on ")[1].split()[0].decode()


async def _drain(stderr: trio.abc.ReceiveStream) -> None:
    async for _chunk in stderr:
        pass


async def _new_page(socket: WebSocketConnection) -> Page:
    async def call(number: int, method: str, **parameters: Any) -> Any:
        await socket.send_message(json.dumps({"id": number, "method": method, "params": parameters}))
        while True:
            answer = json.loads(await socket.get_message())
            if answer.get("id") == number:
                return answer["result"]

    target = await call(1, "Target.createTarget", url="about:blank")
    attached = await call(2, "Target.attachToTarget", targetId=target["targetId"], flatten=True)
    page = Page(socket, attached["sessionId"])
    # The size of the window differs between versions.
    await page.call("Emulation.setDeviceMetricsOverride", **SIZE)
    return page


def main() -> int:
    """Fetch it and print its path."""
    try:
        sys.stdout.write(f"{fetch_chromium()}\n")
    except PackageUnavailableError as exc:
        sys.stderr.write(f"{exc}\n")
        return UNAVAILABLE
    return 0


if __name__ == "__main__":
    sys.exit(main())
