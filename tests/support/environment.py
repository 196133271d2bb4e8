"""The environment of processes whose imports are checked."""

import os
from collections.abc import Mapping


def unmeasured(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the environment without variables of coverage, because coverage imports modules."""
    return {k: v for k, v in environment.items() if not k.startswith("COVERAGE_")}
