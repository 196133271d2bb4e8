"""The environment of processes whose imports are checked, and a folder for sockets."""

import os
from collections.abc import Mapping
from tempfile import gettempdir

# Its name is short enough for a socket in it; a user's temporary folder on macOS is not.
SHORT_FOLDER = "/dev/shm" if gettempdir() == "/dev/shm" else "/tmp"


def unmeasured(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the environment without variables of coverage, because coverage imports modules."""
    return {k: v for k, v in environment.items() if not k.startswith("COVERAGE_")}
