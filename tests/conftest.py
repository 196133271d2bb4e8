"""Fixtures for every test."""

import pytest


@pytest.fixture
def anyio_backend() -> str:
    """The server's libraries need asyncio; the library itself is anyio throughout."""
    return "asyncio"
