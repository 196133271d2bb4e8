"""Entry point of every process: `python -m mcp_server_compaction` and the script."""

import sys


def run() -> None:
    """Run a hook without loading the command line, because a hook must be fast, or a command."""
    if sys.argv[1:2] == ["hook"] and not {"-h", "--help"} & set(sys.argv):
        from mcp_server_compaction.hosts.hook import run_hook

        run_hook(sys.argv[2:])
    else:
        from context_compaction.system import write_utf8

        from mcp_server_compaction.cli import main

        write_utf8()
        main(prog_name="mcp-server-compaction")


if __name__ == "__main__":
    run()
