"""Fixtures for every test."""

import os

import pytest
from hypothesis import settings

# The same examples every time, so that a red run can be run again; "nightly" looks for new ones.
settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
settings.register_profile("nightly", deadline=None, max_examples=4_000, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

# No test may ask a real model, whoever runs it.
for variable in ("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "MCP_COMPACTION_SUMMARIZER"):
    os.environ.pop(variable, None)

# Nor may one read the sessions of whoever runs it.
os.environ["MCP_COMPACTION_IMPORT"] = "off"


@pytest.fixture
def anyio_backend() -> str:
    """The server's libraries need asyncio; the library itself is anyio throughout."""
    return "asyncio"
