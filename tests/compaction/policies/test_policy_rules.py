"""The table of the papers' rules refers to existing tests."""

import re
from pathlib import Path

FOLDER = Path(__file__).parent
ROW = re.compile(r"^\| (?:S\d|S4's successor|ours) \| .+ \| (\w+\.py)::(\w+) \|$", re.MULTILINE)


def test_policy_rules_list_existing_tests() -> None:
    rows = ROW.findall((FOLDER / "policy_rules.md").read_text(encoding="utf-8"))
    assert len(rows) > 50
    for file, name in rows:
        (path,) = FOLDER.parent.rglob(file)
        source = path.read_text(encoding="utf-8")
        assert re.search(rf"^(?:async )?def {name}\(", source, re.MULTILINE), (file, name)
