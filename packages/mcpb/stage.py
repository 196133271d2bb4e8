"""Gathers what goes into the bundle: `python packages/mcpb/stage.py FOLDER`, then `mcpb pack` it.

The bundle brings the source and no environment: its host has uv make one. The versions that
were tested are written into its pyproject.toml, so that every person gets the same ones.
"""

import shutil
import sys
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
COPIED = ("README.md", "LICENSE", "compaction", "server")


def stage(folder: Path) -> None:
    """Write the bundle's files into `folder`, which must not exist yet."""
    folder.mkdir(parents=True)
    for name in ("manifest.json", "main.py"):
        shutil.copy(HERE / name, folder)
    for name in COPIED:
        if (ROOT / name).is_dir():
            leftovers = shutil.ignore_patterns("__pycache__", "*.pyc", ".*")
            shutil.copytree(ROOT / name, folder / name, ignore=leftovers)
        else:
            shutil.copy(ROOT / name, folder)
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    pins = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    listed = "".join(f"  {pin!r},\n" for pin in pins)
    # In place of the keys for those who edit the source: uv would build anew, and need the network,
    # as soon as Python had put its caches beside it.
    before, found, after = project.partition("[tool.uv]\ncache-keys = ")
    if not found:
        raise SystemExit("pyproject.toml has no [tool.uv] with cache-keys first: correct stage.py.")
    rest = after.partition("\n")[2]
    pinned = f"{before}[tool.uv]\nconstraint-dependencies = [\n{listed}]\n{rest}"
    (folder / "pyproject.toml").write_text(pinned, encoding="utf-8")


if __name__ == "__main__":
    stage(Path(sys.argv[1]))
