"""The browser gets a private file that leads to the page, and never the token among its arguments."""

import webbrowser
from pathlib import Path

import pytest

from haptic_trio.cli.browser import NAME, open_page, page_url

URL = page_url("http://127.0.0.1:9090/", "a+b/c=&\"'")


class Browser:
    """Stands for the browser of the system."""

    def __init__(self) -> None:
        self.opened: list[str] = []

    def open(self, url: str) -> bool:
        """Note *url*."""
        self.opened.append(url)
        return True


@pytest.fixture
def browser(monkeypatch: pytest.MonkeyPatch) -> Browser:
    """Return the browser of the system."""
    found = Browser()
    monkeypatch.setattr(webbrowser, "get", lambda: found)
    monkeypatch.setenv("BROWSER", "browser")
    return found


def test_token_is_escaped_in_the_address() -> None:
    assert URL == "http://127.0.0.1:9090/console#token=a%2Bb%2Fc%3D%26%22%27"


def test_browser_gets_a_private_file_that_leads_to_the_page(browser: Browser, tmp_path: Path) -> None:
    for _ in range(2):
        assert open_page(URL, tmp_path)

    file = tmp_path / NAME
    assert browser.opened == [file.as_uri()] * 2
    assert file.stat().st_mode & 0o777 == 0o600
    assert f"url={URL}" in file.read_text()


def test_file_that_someone_else_put_there_is_not_written_through(browser: Browser, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text("kept")
    (tmp_path / NAME).symlink_to(other)

    assert open_page(URL, tmp_path)

    assert other.read_text() == "kept"
    assert not (tmp_path / NAME).is_symlink()


def test_folder_that_is_not_writable_is_replaced_by_a_private_one(browser: Browser, tmp_path: Path) -> None:
    assert open_page(URL, tmp_path / "missing")

    file = Path(browser.opened[0].removeprefix("file://"))
    assert file.parent.stat().st_mode & 0o777 == 0o700
    assert f"url={URL}" in file.read_text()


def test_system_without_a_browser_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def get() -> None:
        raise webbrowser.Error("could not locate runnable browser")

    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.setattr(webbrowser, "get", get)

    assert not open_page(URL, tmp_path)


def test_no_browser_is_opened_without_a_display(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("sys.platform", "linux")

    assert not open_page(URL, tmp_path)
    assert not (tmp_path / NAME).exists()
