#!/bin/sh
# Start the installed program as the server or as a hook. A host that was not started from a terminal
# has a short PATH without the folders of pipx, uv and Homebrew.
PATH="$PATH:$HOME/.local/bin:/usr/local/bin:/opt/homebrew/bin"
if command -v mcp-server-compaction >/dev/null; then
  exec mcp-server-compaction "$@"
fi
# A hook never blocks the host; the server reports that the program is missing.
[ "$1" = hook ] && exit 0
echo "mcp-server-compaction is not installed: get it with pipx or uv tool, then restart this host." >&2
exit 1
