"""One proxy and one provider for all tests that need no process of their own."""

from collections.abc import Generator

import pytest

from tests.support.strict_provider import Provider, Raw, in_turn, serve_provider

from .running import SMALL, Proxy, proxied, working


@pytest.fixture(scope="session")
def shared_provider() -> Generator[Provider]:
    with serve_provider(working(12)) as provider:
        yield provider


@pytest.fixture(scope="session")
def proxy(shared_provider: Provider, tmp_path_factory: pytest.TempPathFactory) -> Generator[Proxy]:
    """Run a proxy with a small window. Each test uses sessions of its own."""
    with proxied(shared_provider.url, tmp_path_factory.mktemp("proxy"), *SMALL) as running:
        yield running


@pytest.fixture(scope="session")
def default_proxy(
    shared_provider: Provider, tmp_path_factory: pytest.TempPathFactory
) -> Generator[Proxy]:
    """Run a proxy that takes the window from each request."""
    with proxied(shared_provider.url, tmp_path_factory.mktemp("default")) as running:
        yield running


@pytest.fixture
def provider(shared_provider: Provider) -> Provider:
    """The provider behind `proxy`, with strict rules and twelve tool calls after each prompt."""
    shared_provider.requests.clear()
    shared_provider.hung_up.clear()
    shared_provider.is_strict = True
    shared_provider.script = working(12)
    return shared_provider


@pytest.fixture
def anything(provider: Provider) -> Provider:
    """The provider behind `proxy`, which accepts every request and answers each one alike."""
    provider.is_strict = False
    provider.script = in_turn(Raw(b'{"ok": true}'))
    return provider
