"""Sessions of agents' hosts, imported into the archive."""

from typing import Any, TypeAlias

Json: TypeAlias = Any  # of somebody else's file or message, looked at piece by piece
