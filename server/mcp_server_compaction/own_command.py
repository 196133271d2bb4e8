"""The command with which a person starts this program, for texts that name a next step."""

import shutil
import sys
from pathlib import Path

from context_compaction.system import command_line

SCRIPT = "mcp-server-compaction"


def own_command() -> str:
    """Return the name of this program, or how it was called if `PATH` does not contain it.

    A program in a virtual environment is called by its path, so its name alone is not found.
    """
    if shutil.which(SCRIPT):
        return SCRIPT
    if Path(sys.argv[0]).stem == SCRIPT:
        return command_line([sys.argv[0]])
    return command_line([sys.executable, "-m", "mcp_server_compaction"])
