"""Fixtures for tests with real hosts."""

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def npm_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("npm")
