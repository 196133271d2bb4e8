"""Fixtures for every test."""

import os
import sys
import tempfile
from collections.abc import Generator
from itertools import count
from pathlib import Path

import pytest
from context_compaction.system import IS_WINDOWS
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

# The same examples every time, so that a red run can be run again; "nightly" looks for new ones.
settings.register_profile(
    "ci",
    deadline=None,
    derandomize=True,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],  # it asks the clock
)
settings.register_profile("nightly", deadline=None, max_examples=4_000, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))
if settings.get_current_profile_name() == "ci":
    # Hypothesis also tries constants of the loaded modules. They change with the order of the
    # tests and with every edit of the code, so CI leaves them out.
    none = providers.Constants()  # pyright: ignore[reportPrivateImportUsage]
    providers._get_local_constants = lambda: none  # pyright: ignore[reportPrivateUsage]

# An archive writes every message durably, and the tests make thousands of archives. They are in
# memory where Linux has room for them: on a disk, a third of the time would be waiting.
_MEMORY = Path("/dev/shm")
_NEEDED_BYTES = 4 * 2**30
if "TMPDIR" not in os.environ and sys.platform == "linux" and os.access(_MEMORY, os.W_OK):
    found = os.statvfs(_MEMORY)
    if not found.f_flag & os.ST_NOEXEC and found.f_bavail * found.f_frsize > _NEEDED_BYTES:
        os.environ["TMPDIR"] = tempfile.tempdir = str(_MEMORY)

# Tests start hundreds of processes. Without stored bytecode, each of them compiles every module.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# No test may call a real model.
for variable in [name for name in os.environ if name.startswith("MCP_COMPACTION_SUMMARIZER")]:
    os.environ.pop(variable, None)

# No test may import the sessions of the person who runs it.
os.environ["MCP_COMPACTION_IMPORT_SESSIONS"] = "off"

# Windows has no XDG_CACHE_HOME: there, the indexes of all tests are in one temporary folder.
if IS_WINDOWS:
    os.environ["USERPROFILE"] = tempfile.mkdtemp()


@pytest.fixture
def anyio_backend() -> str:
    """Run tests in asyncio, which the server's libraries need."""
    return "asyncio"


def pytest_xdist_auto_num_workers() -> int:
    """Start one process more than there are cores: many tests wait for processes of their own."""
    return (os.cpu_count() or 1) + 1


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip on Windows what only Linux and macOS have."""
    for item in items if IS_WINDOWS else ():
        mark = item.get_closest_marker("posix")
        if mark is not None:
            item.add_marker(pytest.mark.skip(reason=f"needs POSIX: {mark.args[0]}"))


_databases = count()


@pytest.fixture(scope="session")
def postgres_server() -> Generator[str]:
    """Return the address of a PostgreSQL server, for the superuser."""
    if IS_WINDOWS:
        pytest.skip("needs POSIX: a PostgreSQL server with Unix sockets")
    from tests.support.postgres import make_role, running_server

    with running_server() as address:
        make_role(address)
        yield address


@pytest.fixture(scope="session")
def postgres_template(postgres_server: str) -> Generator[str]:
    """Return the name of a template database with the tables of the archive."""
    from tests.support.postgres import database, make_tables

    with database(postgres_server, f"template_{os.getpid()}") as address:
        make_tables(address)
        yield f"template_{os.getpid()}"


@pytest.fixture
def postgres_address(postgres_server: str, postgres_template: str) -> Generator[str]:
    """Return the address of an empty PostgreSQL archive, for a role without special rights."""
    from tests.support.postgres import database

    name = f"archive_{os.getpid()}_{next(_databases)}"
    with database(postgres_server, name, postgres_template) as address:
        yield address
