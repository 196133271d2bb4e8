"""Entry point of every process: `python -m mcp_server_compaction` and the script."""

import sys


def run() -> None:
    """Run a hook without loading the command line, because a hook must be fast, or a command."""
    if sys.argv[1:2] == ["hook"] and not {"-h", "--help"} & set(sys.argv):
        from mcp_server_compaction.hosts.hook import run_hook

        run_hook(sys.argv[2:])
    else:
        _exit_without_file_locks()
        from mcp_server_compaction.cli import main

        main(prog_name="mcp-server-compaction")


def _exit_without_file_locks() -> None:
    """Exit with an error on Windows, because the archive's locks need the module fcntl.

    A hook does not exit: it logs its failure and does not block the host.
    """
    from importlib.util import find_spec

    if find_spec("fcntl") is None:
        sys.exit(
            "mcp-server-compaction needs the file locks of Linux or macOS (Python's module fcntl), "
            "which this system lacks. On Windows, install and run it in WSL."
        )


if __name__ == "__main__":
    run()
