"""The archive in PostgreSQL keeps every promise of the contract, and those of a shared database."""

from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from itertools import count

import anyio
import pytest
from context_compaction import Archive, open_archive

from tests.compaction.archive.archive_contract import CONTRACT, Check
from tests.support.postgres import database, make_role, running_server

_numbers = count()


@pytest.fixture(scope="module")
def server() -> Generator[str]:
    with running_server() as address:
        make_role(address)
        yield address


@pytest.fixture(scope="module")
def template(server: str) -> Generator[str]:
    """A database with the tables, which others are copied from."""

    async def make(address: str) -> None:
        async with open_archive(address):
            pass

    with database(server, "made") as address:
        anyio.run(make, address)
        yield "made"


@pytest.fixture
def address(server: str, template: str) -> Generator[str]:
    """An empty archive's address."""
    with database(server, f"archive_{next(_numbers)}", template) as made:
        yield made


@asynccontextmanager
async def opened(address: str) -> AsyncGenerator[Archive]:
    async with open_archive(address) as archive:
        yield archive


@pytest.mark.parametrize("check", CONTRACT, ids=lambda check: check.__name__)
async def test_the_archive_in_postgresql_keeps_its_promise(check: Check, address: str) -> None:
    with anyio.fail_after(50):
        async with opened(address) as archive:
            await check(archive)
