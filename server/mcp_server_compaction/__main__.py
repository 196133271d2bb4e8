"""Where every process of this program begins: `python -m mcp_server_compaction` and the script."""

import sys


def run() -> None:
    """Run a hook straight away, which may take no time; everything else by the command line."""
    if sys.argv[1:2] == ["hook"] and not {"-h", "--help"} & set(sys.argv):
        from mcp_server_compaction.hosts.hook import run_hook

        run_hook(sys.argv[2:])
    else:
        _refuse_where_it_cannot_work()
        from mcp_server_compaction.cli import main

        main(prog_name="mcp-server-compaction")


def _refuse_where_it_cannot_work() -> None:
    """End with one line and code 1 on Windows: the archive's locks are made with fcntl.

    A hook is not refused: it logs that it failed and leaves the host as it is.
    """
    from importlib.util import find_spec  # a hook needs none of it

    if find_spec("fcntl") is None:
        sys.exit(
            "mcp-server-compaction needs the file locks of Linux or macOS (Python's module fcntl), "
            "which this system lacks. On Windows, install and run it in WSL."
        )


if __name__ == "__main__":
    run()
