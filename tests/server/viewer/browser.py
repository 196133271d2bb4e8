"""A browser that looks at a viewer process, and keeps what it was made to ask and to run."""

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

# Names a Chromium that is not on the path.
CHROMIUM_VARIABLE = "MCP_TEST_CHROMIUM"
_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
WAIT_MS = 150_000


def chromium() -> str | None:
    """The browser to use; None where there is none."""
    named = os.environ.get(CHROMIUM_VARIABLE)
    return named or next(filter(None, map(shutil.which, _NAMES)), None)


def require_browser() -> str:
    """The browser to use, or the reason why the tests are skipped."""
    pytest.importorskip("playwright", reason="Playwright is not installed (group dev)")
    found = chromium()
    if found is None:
        pytest.skip(f"There is no Chromium. Install it, or name one in {CHROMIUM_VARIABLE}.")
    return found


@contextmanager
def viewer_process(archive: Path, cache: Path) -> Generator[str]:
    """`view` as a person starts it; the address that lets one browser in."""
    process = subprocess.Popen(
        [sys.executable, "-m", "mcp_server_compaction", "view", "--no-browser"],
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        env={
            **os.environ,
            "MCP_COMPACTION_ARCHIVE": str(archive),
            "XDG_CACHE_HOME": str(cache),
            "MCP_COMPACTION_IMPORT": "off",
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
class Watch:
    """What a page did that nobody asked for.

    Attributes:
        asked: Addresses of other hosts that it asked for.
        dialogs: What it said in dialogs.
        errors: Errors of scripts, and what the policy of contents had to stop.
    """

    asked: list[str] = field(default_factory=list[str])
    dialogs: list[str] = field(default_factory=list[str])
    errors: list[str] = field(default_factory=list[str])

    def follow(self, page: Any, host: str) -> None:
        """Watch `page`, whose own host is `host`; nothing of another is ever reached."""

        def route(handled: Any) -> None:
            address: str = handled.request.url
            if urlsplit(address).netloc == host or address.startswith("data:"):
                handled.continue_()
            else:
                self.asked.append(address)
                handled.abort()

        def dialog(shown: Any) -> None:
            self.dialogs.append(shown.message)
            shown.dismiss()

        def console(message: Any) -> None:
            if message.type == "error":
                self.errors.append(message.text)

        page.route("**/*", route)
        page.on("dialog", dialog)

        def failed(error: Any) -> None:
            self.errors.append(str(error))

        page.on("pageerror", failed)
        page.on("console", console)

    def saw_nothing(self) -> bool:
        """Whether all was as it should be."""
        return not (self.asked or self.dialogs or self.errors)


def settle(page: Any) -> None:
    """Wait until what the page asks for by itself has come, which takes half a second of rest."""
    asks = page.locator("[hx-trigger^=load], [hx-trigger=revealed]").count()
    page.wait_for_load_state("networkidle" if asks else "load")


def apart(work: Callable[..., Awaitable[T]], *args: Any) -> T:
    """What `work` returns, in a thread: Playwright's loop runs in this one."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(anyio.run, work, *args).result()
