"""Start the server with the folders that the user chose, which are plain arguments."""

import sys

from mcp_server_compaction.__main__ import run

folders = sys.argv[1:]
sys.argv[1:] = [word for folder in folders for word in ("--root", folder)]
run()
