"""The machine's own Chromium, without a window. Tests that need it are skipped where it is not."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")


class Page:
    """A page that remembers what went wrong in it and what it asked for."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self.problems: list[str] = []
        self.asked: set[str] = set()
        page.on("pageerror", lambda problem: self.problems.append(str(problem)))
        page.on("console", self._said)
        page.on("request", lambda request: self.asked.add(request.url))
        page.on("dialog", self._dialog)
        self.dialogs: list[str] = []

    def _said(self, message: Any) -> None:
        is_network = "Failed to load resource" in message.text or "ERR_CONNECTION" in message.text
        if message.type == "error" and not is_network:
            self.problems.append(message.text)

    def _dialog(self, dialog: Any) -> None:
        self.dialogs.append(dialog.message)
        dialog.accept()

    def text(self, selector: str = "body") -> str:
        return str(self.page.inner_text(selector))

    def wait(self, text: str, selector: str = "body", timeout_s: float = 30.0) -> None:
        """Until the text is there."""
        self.page.locator(selector, has_text=text).first.wait_for(timeout=timeout_s * 1000)

    def go_to(self, part: str) -> None:
        """Another part of the console, until it is drawn."""
        self.page.evaluate("part => location.hash = `#/${part}`", part)
        self.page.locator(f"nav a[href='#/{part}'][aria-current=page]").wait_for()
        self.page.locator("main h1").first.wait_for(state="attached")

    def log_in(self, password: str) -> None:
        self.page.fill("#user", "admin")
        self.page.fill("#password", password)
        self.page.click("form button[type=submit]")


@contextmanager
def chromium() -> Iterator[Any]:
    """Something that opens pages: `open(url, **options)`."""
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        pytest.skip("Chromium is not installed")
    with api.sync_playwright() as playwright:
        # In a container there is often no sandbox to be had; the pages are our own.
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])

        def opened(url: str, **options: Any) -> Page:
            page = Page(browser.new_page(**options))
            page.page.goto(url)
            return page

        try:
            yield opened
        finally:
            browser.close()
