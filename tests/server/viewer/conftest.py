"""A viewer over an archive with a little in it."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from mcp_server_compaction.config import Config

from tests.server.viewer.browser import require_browser
from tests.server.viewer.site import Site, fill, visiting


@pytest.fixture
async def site(config: Config) -> AsyncIterator[Site]:
    """A session that was compacted twice, its sub-agent's, and their viewer."""
    await fill(config)
    async with visiting(config) as opened:
        yield opened


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """A browser without a window; without one the tests are skipped with the reason."""
    path = require_browser()
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()
