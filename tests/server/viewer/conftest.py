"""A viewer over an archive with a little in it."""

from collections.abc import AsyncIterator

import pytest
from mcp_server_compaction.config import Config

from tests.server.viewer.site import Site, fill, visiting


@pytest.fixture
async def site(config: Config) -> AsyncIterator[Site]:
    """A session that was compacted twice, its sub-agent's, and their viewer."""
    await fill(config)
    async with visiting(config) as opened:
        yield opened
