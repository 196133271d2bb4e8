"""A viewer process, and a browser that records requests, dialogs and errors of its pages."""

import os
import shutil
import subprocess
import sys
from collections.abc import Awaitable, Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import anyio
import pytest

T = TypeVar("T")

# Environment variable with the path of a Chromium that is not on PATH.
CHROMIUM_VARIABLE = "MCP_TEST_CHROMIUM"
_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
WAIT_MS = 150_000


def chromium_path() -> str | None:
    """Return the path of Chromium, or None if it is not installed."""
    path = os.environ.get(CHROMIUM_VARIABLE)
    return path or next(filter(None, map(shutil.which, _NAMES)), None)


def require_browser() -> str:
    """Return the path of Chromium, or skip the test with the reason."""
    pytest.importorskip("playwright", reason="Playwright is not installed (group dev)")
    path = chromium_path()
    if path is None:
        pytest.skip(f"Install Chromium, or set {CHROMIUM_VARIABLE} to its path.")
    return path


@contextmanager
def viewer_process(archive: Path, cache: Path) -> Generator[str]:
    """Run `view` as a person does, and yield the address that admits one browser."""
    process = subprocess.Popen(
        [sys.executable, "-m", "mcp_server_compaction", "view", "--no-browser"],
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        env={
            **os.environ,
            "MCP_COMPACTION_ARCHIVE": str(archive),
            "XDG_CACHE_HOME": str(cache),
            "MCP_COMPACTION_IMPORT_SESSIONS": "off",
        },
    )
    assert process.stderr is not None
    line = process.stderr.readline()
    assert line.startswith("Serving on "), line
    try:
        yield line.split()[2]
    finally:
        process.terminate()
        process.communicate(timeout=150)


@dataclass(slots=True)
class PageMonitor:
    """Record of unwanted actions of a page.

    Attributes:
        foreign_requests: Addresses of other hosts that the page requested.
        dialogs: Messages of dialogs.
        errors: Errors of scripts, and violations of the content security policy.
    """

    foreign_requests: list[str] = field(default_factory=list[str])
    dialogs: list[str] = field(default_factory=list[str])
    errors: list[str] = field(default_factory=list[str])

    def attach(self, page: Any, host: str) -> None:
        """Record the actions of `page`, and block its requests to hosts other than `host`."""

        def on_route(route: Any) -> None:
            address: str = route.request.url
            if urlsplit(address).netloc == host or address.startswith("data:"):
                route.continue_()
            else:
                self.foreign_requests.append(address)
                route.abort()

        def on_dialog(dialog: Any) -> None:
            self.dialogs.append(dialog.message)
            dialog.dismiss()

        def on_console(message: Any) -> None:
            if message.type == "error":
                self.errors.append(message.text)

        def on_error(error: Any) -> None:
            self.errors.append(str(error))

        page.route("**/*", on_route)
        page.on("dialog", on_dialog)
        page.on("pageerror", on_error)
        page.on("console", on_console)

    def is_clean(self) -> bool:
        """Whether the page did nothing unwanted."""
        return not (self.foreign_requests or self.dialogs or self.errors)


def visit(page: Any, address: str) -> None:
    """Go to an address, and wait for the page instead of its progress."""
    page.goto(address)
    wait_until_loaded(page)


def wait_until_loaded(page: Any) -> None:
    """Wait for the page instead of its progress, and for the parts that it loads by itself."""
    page.wait_for_load_state("load")
    # A progress page loads itself again, which would stop the next step of a test.
    while page.locator("[data-reload]").count():
        page.wait_for_selector("[data-reload]", state="detached")
        page.wait_for_load_state("load")
    if page.locator("[hx-trigger^=load]").count():
        page.wait_for_load_state("networkidle")
    page.wait_for_selector("progress", state="detached")


def run_in_thread(work: Callable[..., Awaitable[T]], *args: Any) -> T:
    """Run async `work` in a thread, because Playwright uses the event loop of this thread."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(anyio.run, work, *args).result()
