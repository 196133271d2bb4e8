"""Collect the files of the bundle: `python packages/mcpb/stage.py FOLDER`, then `mcpb pack`.

The bundle contains the source and no environment, because its host creates one with uv. Its
pyproject.toml pins the tested versions, so that every user gets the same ones.
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
    # Without this, uv would rebuild (and need the network) after Python wrote its cache files.
    before, found, after = project.partition("[tool.uv]\ncache-keys = ")
    if not found:
        raise SystemExit("pyproject.toml has no [tool.uv] with cache-keys first: correct stage.py.")
    rest = after.partition("\n")[2]
    pinned = f"{before}[tool.uv]\nconstraint-dependencies = [\n{listed}]\n{rest}"
    (folder / "pyproject.toml").write_text(pinned, encoding="utf-8")


if __name__ == "__main__":
    stage(Path(sys.argv[1]))
