"""The environment of processes whose imports are watched."""

import os
from collections.abc import Mapping


def unmeasured(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """`environment` without coverage's variables: it would load what it needs itself."""
    return {k: v for k, v in environment.items() if not k.startswith("COVERAGE_")}
