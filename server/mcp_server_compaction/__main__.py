"""Where every process of this program begins: `python -m mcp_server_compaction` and the script."""

import sys


def run() -> None:
    """Run a hook straight away, which may take no time; everything else by the command line."""
    if sys.argv[1:2] == ["hook"] and not {"-h", "--help"} & set(sys.argv):
        from mcp_server_compaction.hosts.hook import run_hook

        run_hook(sys.argv[2:])
    else:
        from mcp_server_compaction.cli import main

        main(prog_name="mcp-server-compaction")


if __name__ == "__main__":
    run()
