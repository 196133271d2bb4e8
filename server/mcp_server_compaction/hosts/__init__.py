"""Integration with hosts: registration, hooks, and import of their session files."""

from typing import Any, TypeAlias

Json: TypeAlias = Any  # JSON of another program, whose shape must be checked at each access
