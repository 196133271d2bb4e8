"""Start the server with the folders that the user chose, or before the servers that the user chose.

The folders are plain arguments. A host may leave out or not replace what the user left empty.
"""

import os
import sys

from mcp_server_compaction.__main__ import run


def chosen(name: str) -> str:
    """Return a setting of the user; empty if it was not set."""
    value = os.environ.get(name, "").strip()
    return "" if value.startswith("${") else value


folders = [folder for folder in sys.argv[1:] if folder and not folder.startswith("${")]
sys.argv[1:] = [word for folder in folders for word in ("--root", folder)]
if servers := chosen("COMPACTION_SERVERS"):
    names = filter(None, map(str.strip, chosen("COMPACTION_ONLY").split(",")))
    only = [word for name in names for word in ("--only", name)]
    sys.argv += ["wrap", "--config", servers, *only]
run()
