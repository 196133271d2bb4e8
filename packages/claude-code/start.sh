#!/bin/sh
# Starts the installed program for the server and for each hook. A host that was not started from a
# terminal has a short PATH, without the folders that pipx, uv and Homebrew write to.
PATH="$PATH:$HOME/.local/bin:/usr/local/bin:/opt/homebrew/bin"
if command -v mcp-server-compaction >/dev/null; then
  exec mcp-server-compaction "$@"
fi
# A hook never stands in the way; the server says what is missing.
[ "$1" = hook ] && exit 0
echo "mcp-server-compaction is not installed: get it with pipx or uv tool, then restart this host." >&2
exit 1
