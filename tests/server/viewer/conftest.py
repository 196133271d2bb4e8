"""Fixtures: a viewer of a small archive, and a browser."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from mcp_server_compaction.config import Config

from tests.server.viewer.browser import require_browser
from tests.server.viewer.site import Site, fill_archive, running_site


@pytest.fixture
async def site(config: Config) -> AsyncIterator[Site]:
    """A viewer of a session with two compactions and of its sub-agent's session."""
    await fill_archive(config)
    async with running_site(config) as running:
        yield running


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """A headless browser. The tests are skipped if Chromium is not installed."""
    path = require_browser()
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()
